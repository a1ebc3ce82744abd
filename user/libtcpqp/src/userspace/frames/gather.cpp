// SPDX-License-Identifier: BSD-3-Clause
#include "userspace/frames/gather.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>

namespace tcpqp::stock {

Gather::Gather(int socket) noexcept : socket_(socket) {
    socklen_t bytes = sizeof(before_);
    ::getsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &before_, &bytes);
    if (before_ != 1)
        set_low_water(1);
}

Gather::~Gather() {
    if (before_ != 1)
        set_low_water(before_);
}

void Gather::set_low_water(uint32_t bytes) const noexcept {
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

uint32_t Gather::unread() const noexcept {
    int bytes = 0;
    return ::ioctl(socket_, SIOCINQ, &bytes) == 0 ? static_cast<uint32_t>(bytes) : 0;
}

bool Gather::sleep() noexcept {
    const uint32_t wanted = std::min(kGatherMessages * uint64_t{bytes_}, kGatherBytes);
    set_low_water(wanted);
    pollfd readable{socket_, POLLIN, 0};
    const timespec limit{0, std::chrono::nanoseconds(kGather).count()};
    const int n = ::ppoll(&readable, 1, &limit, nullptr);
    const bool paid = n == 1 || unread() >= wanted / 2;
    set_low_water(1);
    pause_ = paid ? kGatherPauseMin : std::min(2 * pause_, kGatherPauseMax);
    after_ = paid ? 0 : messages_ + pause_;
    return n >= 0;
}

}  // namespace tcpqp::stock
