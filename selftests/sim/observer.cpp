// SPDX-License-Identifier: BSD-3-Clause
#include "observer.hpp"

#include <utility>

namespace sim {

namespace {

Observer* current = nullptr;

}  // namespace

Observer::Observer(const Ram& ram, std::vector<Write>& writes, std::function<void()> during)
    : ram_(ram), writes_(writes), during_(std::move(during)) {
    writes_.clear();
    current = this;
}

Observer::~Observer() { current = nullptr; }

bool Observer::write(const std::byte* to, std::size_t bytes) noexcept {
    if (during_)
        during_();
    if (!ram_.contains(to, bytes)) {
        wild_ = true;
        return false;
    }
    writes_.push_back({to, bytes});
    return true;
}

}  // namespace sim

// ld --wrap: what the engine calls, and what it would have called
extern "C" {
void __real__ZN4nupa11copy_risingEPSt4bytePKS0_m(std::byte*, const std::byte*, std::size_t);
void __wrap__ZN4nupa11copy_risingEPSt4bytePKS0_m(std::byte* to, const std::byte* from,
                                                 std::size_t bytes) {
    if (sim::current && sim::current->write(to, bytes))
        __real__ZN4nupa11copy_risingEPSt4bytePKS0_m(to, from, bytes);
}
}
