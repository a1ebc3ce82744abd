// SPDX-License-Identifier: BSD-3-Clause
#include "event/epoll.hpp"

#include <algorithm>

namespace nupa::daemon {

Epoll::Epoll() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!fd_)
        throw_errno("epoll_create1");
}

// What epoll keeps for us: the handler's place and its number.
uint64_t Epoll::pack(EventHandler& handler, uint32_t what) {
    const auto at = std::find(handlers_.begin(), handlers_.end(), &handler);
    const auto place = static_cast<uint64_t>(at - handlers_.begin());
    if (at == handlers_.end())
        handlers_.push_back(&handler);
    return place << 32 | what;
}

void Epoll::add(int fd, EventHandler& handler, uint32_t what, uint32_t events) {
    epoll_event ev{.events = events, .data = {.u64 = pack(handler, what)}};
    if (::epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &ev) < 0)
        throw_errno("epoll_ctl add");
}

void Epoll::modify(int fd, EventHandler& handler, uint32_t what, uint32_t events) {
    epoll_event ev{.events = events, .data = {.u64 = pack(handler, what)}};
    if (::epoll_ctl(fd_.get(), EPOLL_CTL_MOD, fd, &ev) < 0)
        throw_errno("epoll_ctl modify");
}

void Epoll::remove(int fd) noexcept { ::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void Epoll::dispatch(bool block) {
    std::array<epoll_event, kBatchMax> ready;
    const int n = ::epoll_wait(fd_.get(), ready.data(), kBatchMax, block ? -1 : 0);
    for (int i = 0; i < n; i++) {
        const epoll_event& event = ready[static_cast<size_t>(i)];
        handlers_[event.data.u64 >> 32]->handle(static_cast<uint32_t>(event.data.u64),
                                                event.events);
    }
}

}  // namespace nupa::daemon
