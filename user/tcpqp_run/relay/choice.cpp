// SPDX-License-Identifier: BSD-3-Clause
#include "relay/choice.hpp"

#include <netinet/in.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/route.hpp"
#include "relay/limits.hpp"
#include "tcpqp.h"

namespace tcpqp::run {
namespace {

// Any RDMA device on the interface; whether it is tcp_qp's turns out when it is opened.
bool has_device(const std::string& ifname) {
    std::error_code error;
    for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
        std::ifstream file(device.path() / "ports/1/gid_attrs/ndevs/0");
        std::string name;
        if (std::getline(file, name) && name == ifname)
            return true;
    }
    return false;
}

bool has_spoken(int socket) noexcept {
    char byte = 0;
    return ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

}  // namespace

bool Choice::address_of(const sockaddr_storage& from, Address& to) noexcept {
    if (from.ss_family == AF_INET6) {
        std::memcpy(to.data(), &reinterpret_cast<const sockaddr_in6&>(from).sin6_addr, to.size());
        return true;
    }
    to = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    std::memcpy(to.data() + 12, &reinterpret_cast<const sockaddr_in&>(from).sin_addr, 4);
    return from.ss_family == AF_INET;
}

Choice::Peer Choice::peer_of(const sockaddr_storage& from, const Address& address,
                             bool accepted) noexcept {
    // at the same place in both families
    return {address, accepted ? uint16_t{0} : reinterpret_cast<const sockaddr_in&>(from).sin_port};
}

bool Choice::is_plain(const Peer& peer) {
    const auto at = plain_.find(peer);
    if (at == plain_.end())
        return false;
    if (at->second > Clock::now())
        return true;
    plain_.erase(at);
    return false;
}

Plain Choice::judge(int socket, const sockaddr_storage* under_way, bool accepted) {
    if (engine_ == TCPQP_ENGINE_STOCK)
        return Plain::kNone;
    if (!std::filesystem::exists("/sys/module/tcp_qp"))
        return Plain::kNoModule;
    sockaddr_storage local{}, peer{};
    socklen_t bytes = sizeof(local);
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&local), &bytes) != 0)
        return Plain::kFailed;
    bytes = sizeof(peer);
    if (under_way != nullptr)
        peer = *under_way;
    else if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0)
        return Plain::kFailed;
    Address ours, theirs;
    if (!address_of(local, ours) || !address_of(peer, theirs))
        return Plain::kFailed;
    std::string ifname;
    if (ours == theirs)
        return Plain::kLoopback;
    if (is_plain(peer_of(peer, theirs, accepted)))
        return Plain::kPeerPlain;
    if (route_interface(local, peer, ifname) != 0 || !has_device(ifname))
        return ifname == "lo" ? Plain::kLoopback : Plain::kNoDevice;
    return under_way == nullptr && has_spoken(socket) ? Plain::kPeerSpoke : Plain::kNone;
}

void Choice::remember_plain(int socket, bool accepted) {
    sockaddr_storage peer{};
    socklen_t bytes = sizeof(peer);
    Address address;
    if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0 ||
        !address_of(peer, address))
        return;
    if (plain_.size() >= kPlainPeersMax)
        plain_.clear();
    plain_[peer_of(peer, address, accepted)] = Clock::now() + kPlainPeerTime;
}

}  // namespace tcpqp::run
