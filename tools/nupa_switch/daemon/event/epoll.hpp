// SPDX-License-Identifier: BSD-3-Clause
// Ready descriptors go to whoever registered them.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <vector>

#include "event/fd.hpp"

namespace nupa::daemon {

class EventHandler {
public:
    // @what: the number that the handler registered the descriptor with.  It may be told of one
    // that it removed while it handled an earlier event of the same wait.
    virtual void handle(uint32_t what, uint32_t events) = 0;

protected:
    ~EventHandler() = default;
};

class Epoll {
public:
    static constexpr int kBatchMax = 64;

    Epoll();
    // @handler outlives this object.
    void add(int fd, EventHandler& handler, uint32_t what = 0, uint32_t events = EPOLLIN);
    void modify(int fd, EventHandler& handler, uint32_t what, uint32_t events);
    void remove(int fd) noexcept;
    // Waits for ready descriptors and hands them out; @block false only looks.
    void dispatch(bool block);

private:
    uint64_t pack(EventHandler& handler, uint32_t what);

    Fd fd_;
    std::vector<EventHandler*> handlers_;
};

}  // namespace nupa::daemon
