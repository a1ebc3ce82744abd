// SPDX-License-Identifier: BSD-3-Clause
// Sees each store of the engine into host memory, before it happens: the
// linker leads the engine's calls of nupa::copy_rising() through here.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "ram.hpp"

namespace sim {

struct Write {
    const std::byte* to;
    std::size_t bytes;
};

// From construction to destruction, the writes that @ram may take; one at a time.
class Observer {
public:
    // @during: before each store; throws nothing.
    Observer(const Ram& ram, std::vector<Write>& writes, std::function<void()> during = {});
    ~Observer();
    Observer(const Observer&) = delete;
    Observer& operator=(const Observer&) = delete;

    // False: outside of the host's memory; the copy must not be made.
    bool write(const std::byte* to, std::size_t bytes) noexcept;
    bool wild() const noexcept { return wild_; }

private:
    const Ram& ram_;
    std::vector<Write>& writes_;
    std::function<void()> during_;
    bool wild_ = false;
};

}  // namespace sim
