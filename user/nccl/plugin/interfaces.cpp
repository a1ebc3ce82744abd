// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/plugin/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>

#include "nccl/plugin/limits.hpp"

namespace tcpqp::nccl {
namespace {

constexpr int kSpeedUnknownMbps = 10'000;  // as NCCL's sockets say

int speed_of(const std::string& name) {
    std::ifstream file("/sys/class/net/" + name + "/speed");
    int mbps = 0;
    return file >> mbps && mbps > 0 ? mbps : kSpeedUnknownMbps;
}

std::string pci_path_of(const std::string& name) {
    const std::string link = "/sys/class/net/" + name + "/device";
    const std::unique_ptr<char, decltype(&std::free)> path(::realpath(link.c_str(), nullptr),
                                                           &std::free);
    return path ? path.get() : "";
}

// Stable on a host: made of the device's path, so that ports of one NIC are not told apart by name.
uint64_t guid_of(const Interface& interface) noexcept {
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const char c : interface.pci_path.empty() ? interface.name : interface.pci_path)
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return hash;
}

bool is_usable(const ifaddrs& a, int family) noexcept {
    if (a.ifa_addr == nullptr || (a.ifa_flags & IFF_UP) == 0 || (a.ifa_flags & IFF_RUNNING) == 0)
        return false;
    if (a.ifa_addr->sa_family == AF_INET)
        return family != AF_INET6;
    if (a.ifa_addr->sa_family != AF_INET6 || family == AF_INET)
        return false;
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(*a.ifa_addr);
    return !IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr);  // the peer could not know our scope
}

std::vector<Interface> collect(const ifaddrs* list, const std::string& names, int family) {
    std::vector<Interface> found;
    for (const ifaddrs* a = list; a != nullptr && found.size() < kInterfacesMax; a = a->ifa_next) {
        if (!is_usable(*a, family) || !is_chosen(a->ifa_name, names))
            continue;
        bool known = false;
        for (const Interface& i : found)
            known |= i.name == a->ifa_name;
        if (known)  // its first address serves
            continue;
        Interface i;
        i.name = a->ifa_name;
        i.pci_path = pci_path_of(i.name);
        i.guid = guid_of(i);
        i.speed_mbps = speed_of(i.name);
        std::memcpy(&i.address, a->ifa_addr,
                    a->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
        found.push_back(std::move(i));
    }
    return found;
}

}  // namespace

bool is_chosen(const std::string& name, const std::string& names) noexcept {
    std::string_view rest = names;
    const bool exclude = rest.starts_with('^');
    rest.remove_prefix(exclude ? 1 : 0);
    const bool exact = rest.starts_with('=');
    rest.remove_prefix(exact ? 1 : 0);
    bool matches = false;
    while (!rest.empty()) {
        const size_t end = rest.find(',');
        const std::string_view word = rest.substr(0, end);
        matches |=
            !word.empty() && (exact ? name == word : std::string_view(name).starts_with(word));
        rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    return matches != exclude;
}

std::vector<Interface> find_interfaces(const char* names, const char* family) {
    ifaddrs* raw = nullptr;
    if (::getifaddrs(&raw) != 0)
        return {};
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
    const std::string_view word = family != nullptr ? family : "";
    const int only = word == "AF_INET" ? AF_INET : word == "AF_INET6" ? AF_INET6 : AF_UNSPEC;
    if (names != nullptr && *names != '\0')
        return collect(list.get(), names, only);
    std::vector<Interface> found = collect(list.get(), "^lo,docker", only);
    return found.empty() ? collect(list.get(), "lo", only) : found;
}

socklen_t address_length(const sockaddr_storage& address) noexcept {
    return address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

uint16_t port_of(const sockaddr_storage& address) noexcept {
    return ntohs(address.ss_family == AF_INET
                     ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                     : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

std::string text_of(const sockaddr_storage& address) {
    char text[INET6_ADDRSTRLEN] = "?";
    const bool v4 = address.ss_family == AF_INET;
    const void* from =
        v4 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr)
           : &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    ::inet_ntop(address.ss_family, from, text, sizeof(text));
    const std::string port = std::to_string(port_of(address));
    return v4 ? std::string(text) + ":" + port : "[" + std::string(text) + "]:" + port;
}

}  // namespace tcpqp::nccl
