// SPDX-License-Identifier: BSD-3-Clause
#include "event/event.hpp"

namespace nupa::daemon {

Epoll::Epoll() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!fd_)
        throw_errno("epoll_create1");
}

void Epoll::add(int fd, EventRef ref, uint32_t events) {
    epoll_event ev{.events = events, .data = {.u64 = ref.pack()}};
    if (::epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &ev) < 0)
        throw_errno("epoll_ctl add");
}

void Epoll::modify(int fd, EventRef ref, uint32_t events) {
    epoll_event ev{.events = events, .data = {.u64 = ref.pack()}};
    if (::epoll_ctl(fd_.get(), EPOLL_CTL_MOD, fd, &ev) < 0)
        throw_errno("epoll_ctl modify");
}

void Epoll::remove(int fd) noexcept { ::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::span<const Event> Epoll::wait(bool block) noexcept {
    std::array<epoll_event, kBatchMax> raw;
    int n = ::epoll_wait(fd_.get(), raw.data(), kBatchMax, block ? -1 : 0);
    for (int i = 0; i < n; i++)
        ready_[i] = {EventRef::unpack(raw[i].data.u64), raw[i].events};
    return {ready_.data(), n > 0 ? static_cast<size_t>(n) : 0};
}

}  // namespace nupa::daemon
