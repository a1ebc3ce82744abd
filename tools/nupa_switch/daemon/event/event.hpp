// SPDX-License-Identifier: BSD-3-Clause
// Typed epoll references: what a ready descriptor means, packed in epoll's 64 bits.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <span>

#include "event/fd.hpp"

namespace nupa::daemon {

enum class EventKind : uint8_t {
    kSignal,         // SIGTERM, SIGINT
    kTimer,          // held packets fall due
    kBeat,           // hosts want to see that the switch lives
    kVmListen,       // port: a host wants to plug in
    kVmClient,       // port: the plugged host spoke or left
    kVmDoorbell,     // port, index = vector
    kTap,            // port
    kControlListen,  //
    kControlClient,  // index = connection
};

struct EventRef {
    EventKind kind;
    uint16_t port = 0;
    uint32_t index = 0;

    [[nodiscard]] uint64_t pack() const noexcept {
        return static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(port) << 32 | index;
    }
    static EventRef unpack(uint64_t bits) noexcept {
        return {static_cast<EventKind>(bits >> 56), static_cast<uint16_t>(bits >> 32),
                static_cast<uint32_t>(bits)};
    }
};

struct Event {
    EventRef ref;
    uint32_t events;
};

class Epoll {
public:
    static constexpr int kBatchMax = 64;

    Epoll();
    void add(int fd, EventRef ref, uint32_t events = EPOLLIN);
    void modify(int fd, EventRef ref, uint32_t events);
    void remove(int fd) noexcept;
    // Waits for ready descriptors; @block false only looks.  Empty when a signal interrupted it.
    std::span<const Event> wait(bool block) noexcept;

private:
    Fd fd_;
    std::array<Event, kBatchMax> ready_{};
};

}  // namespace nupa::daemon
