// SPDX-License-Identifier: BSD-3-Clause
#include "ports/vm/last_words.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

#include "fabric/port.hpp"
#include "tcp_qp/nupa_hw.h"

namespace nupa::daemon {
namespace {

struct Listener {
    std::atomic<uint32_t*> status{nullptr};
    std::atomic<int> interrupt{-1};
};
std::array<Listener, kPortsMax> listeners;

// Of a signal's handler: nothing here allocates, locks or fails.
void speak(int signal) {
    const uint64_t one = 1;
    for (Listener& listener : listeners) {
        uint32_t* status = listener.status.load();
        if (!status)
            continue;
        __atomic_store_n(status, static_cast<uint32_t>(NUPA_STATUS_GONE), __ATOMIC_RELEASE);
        [[maybe_unused]] ssize_t n = ::write(listener.interrupt.load(), &one, sizeof(one));
    }
    ::raise(signal);  // SA_RESETHAND: now it does what it does
}

}  // namespace

void install_last_words() {
    struct sigaction action {};
    action.sa_handler = speak;
    action.sa_flags = SA_RESETHAND | SA_NODEFER;
    for (int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE})
        ::sigaction(signal, &action, nullptr);
}

void last_words_of(uint16_t port, uint32_t* status, int interrupt) noexcept {
    listeners[port].status = nullptr;
    listeners[port].interrupt = interrupt;
    listeners[port].status = status;
}

}  // namespace nupa::daemon
