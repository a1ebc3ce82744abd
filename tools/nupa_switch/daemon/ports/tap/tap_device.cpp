// SPDX-License-Identifier: BSD-3-Clause
#include "ports/tap/tap_device.hpp"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace nupa::daemon {
namespace {

constexpr size_t kIovMax = 64;

void set_up(const ifreq& name) {
    Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request = name;
    if (!socket || ::ioctl(socket.get(), SIOCGIFFLAGS, &request) < 0)
        throw_errno("tap flags");
    if (request.ifr_flags & IFF_UP)
        return;
    request.ifr_flags |= IFF_UP;
    if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) < 0)
        throw_errno(std::string("setting ") + name.ifr_name + " up");
}

}  // namespace

TapDevice::TapDevice(const std::string& ifname)
    : fd_(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC)) {
    if (!fd_)
        throw_errno("open /dev/net/tun (load the tun module, or give access to it)");
    ifreq request{};
    ifname.copy(request.ifr_name, IFNAMSIZ - 1);
    request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    if (::ioctl(fd_.get(), TUNSETIFF, &request) < 0)
        throw_errno("tap " + ifname + " (run as root, or first: ip tuntap add dev " + ifname +
                    " mode tap vnet_hdr user $USER)");
    int head_bytes = sizeof(VnetHeader);
    if (::ioctl(fd_.get(), TUNSETVNETHDRSZ, &head_bytes) < 0)
        throw_errno("tap header size");
    if (::ioctl(fd_.get(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) < 0)
        throw_errno("tap offloads");
    set_up(request);
}

size_t TapDevice::read(VnetHeader& head, std::span<uint8_t> frame) noexcept {
    std::array<iovec, 2> parts{iovec{&head, sizeof(head)}, iovec{frame.data(), frame.size()}};
    ssize_t n = ::readv(fd_.get(), parts.data(), parts.size());
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        gone_ = true;
    return n > static_cast<ssize_t>(sizeof(head)) ? static_cast<size_t>(n) - sizeof(head) : 0;
}

bool TapDevice::write(std::span<const iovec> frame) noexcept {
    VnetHeader head{};
    head.flags = VnetHeader::kDataValid;
    std::array<iovec, kIovMax> parts{};
    if (frame.size() >= kIovMax)
        return false;
    parts[0] = {&head, sizeof(head)};
    std::copy(frame.begin(), frame.end(), parts.begin() + 1);
    return ::writev(fd_.get(), parts.data(), static_cast<int>(frame.size() + 1)) > 0;
}

}  // namespace nupa::daemon
