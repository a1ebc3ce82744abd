// SPDX-License-Identifier: BSD-3-Clause
#include "net.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>

#include "stop.hpp"

namespace ncqp {
namespace {

// linux/tcp.h and netinet/tcp.h exclude each other; the first has all of TCP_INFO.
enum { kTcpFinWait2 = 5, kTcpTimeWait = 6, kTcpClose = 7 };

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Status fail_errno(const std::string& what) {
    return Status::failure(fmt::format("{}: {}", what, std::strerror(errno)));
}

std::string number(const sockaddr* address, socklen_t bytes) {
    char host[NI_MAXHOST];
    if (::getnameinfo(address, bytes, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0)
        return "?";
    const std::string text = host;
    return text.starts_with("::ffff:") ? text.substr(7) : text;
}

std::string name_of(const sockaddr* address, socklen_t bytes) {
    char port[NI_MAXSERV] = "?";
    ::getnameinfo(address, bytes, nullptr, 0, port, sizeof(port), NI_NUMERICSERV);
    return fmt::format("{} port {}", number(address, bytes), port);
}

Status resolve(const std::string& host, const std::string& port, int family, int flags,
               Addresses& out) {
    addrinfo hints{};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    addrinfo* list = nullptr;
    const int error = ::getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                    port.empty() ? nullptr : port.c_str(), &hints, &list);
    out.reset(list);
    if (error == 0)
        return {};
    return Status::failure(
        fmt::format("address '{}': {}{}", host,
                    error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error),
                    family == AF_INET    ? " (-4 was asked for)"
                    : family == AF_INET6 ? " (-6 was asked for)"
                                         : ""));
}

Status set_buffers(int fd, uint64_t bytes) {
    if (bytes == 0)
        return {};
    const int value = static_cast<int>(bytes);
    for (int option : {SO_SNDBUF, SO_RCVBUF}) {
        const int forced = option == SO_SNDBUF ? SO_SNDBUFFORCE : SO_RCVBUFFORCE;
        if (::setsockopt(fd, SOL_SOCKET, forced, &value, sizeof(value)) != 0 &&
            ::setsockopt(fd, SOL_SOCKET, option, &value, sizeof(value)) != 0)
            return fail_errno("set the socket buffers");
    }
    return {};
}

Status bind_interface(int fd, const std::string& ifname) {
    if (ifname.empty())
        return {};
    if (::if_nametoindex(ifname.c_str()) == 0)
        return Status::failure(
            fmt::format("no network interface '{}'; `ip link` lists them", ifname));
    if (::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, ifname.c_str(),
                     static_cast<socklen_t>(ifname.size() + 1)) != 0)
        return fail_errno(fmt::format("use interface '{}'", ifname));
    return {};
}

// A link-local address without a zone takes the zone of -f.
void add_scope(addrinfo* address, const std::string& ifname) {
    if (address->ai_family != AF_INET6 || ifname.empty())
        return;
    auto* six = reinterpret_cast<sockaddr_in6*>(address->ai_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr) && six->sin6_scope_id == 0)
        six->sin6_scope_id = ::if_nametoindex(ifname.c_str());
}

// Small messages must leave at once; for full segments it makes no difference.
void no_delay(int fd) {
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

Status bind_client(int fd, const Options& o, int family) {
    if (o.client.empty())
        return {};
    Addresses addresses(nullptr, &::freeaddrinfo);
    if (Status s = resolve(o.client, "", family, AI_NUMERICHOST, addresses); !s.ok())
        return s;
    add_scope(addresses.get(), o.ifname);
    if (::bind(fd, addresses->ai_addr, addresses->ai_addrlen) != 0)
        return fail_errno(fmt::format("bind to client address {}", o.client));
    return {};
}

Status connect_one(const Options& o, addrinfo* address, Connection& out) {
    tcpqp::Fd fd(
        ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    if (!fd)
        return fail_errno("create a socket");
    if (Status s = bind_interface(fd.get(), o.ifname); !s.ok())
        return s;
    if (Status s = set_buffers(fd.get(), o.sockbuf_bytes); !s.ok())
        return s;
    if (Status s = bind_client(fd.get(), o, address->ai_family); !s.ok())
        return s;
    add_scope(address, o.ifname);
    out.peer = name_of(address->ai_addr, address->ai_addrlen);
    int error = 0;
    if (::connect(fd.get(), address->ai_addr, address->ai_addrlen) != 0)
        error = errno;
    if (error == EINPROGRESS) {
        Status s =
            wait_fd(fd.get(), POLLOUT, o.timeout_ms(kConnectTimeoutDefault_ms), "the connection");
        if (!s.ok())
            return Status::failure(fmt::format("connect to {}: {}", out.peer, s.text()));
        socklen_t bytes = sizeof(error);
        ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    }
    if (error == ECONNREFUSED)
        return Status::failure(
            fmt::format("connect to {}: connection refused; start `ncqp -l -p {}` there first",
                        out.peer, o.port));
    if (error == ECONNRESET)
        return Status::failure(fmt::format(
            "connect to {}: the peer gave up at once; its own message says why", out.peer));
    if (error != 0)
        return Status::failure(fmt::format("connect to {}: {}", out.peer, std::strerror(error)));
    out.fd = std::move(fd);
    return {};
}

Status connect_any(const Options& o, Connection& out) {
    Addresses addresses(nullptr, &::freeaddrinfo);
    if (Status s = resolve(o.server, o.port, o.family, 0, addresses); !s.ok())
        return s;
    Status last = Status::failure("no address");
    for (addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
        last = connect_one(o, a, out);
        if (last.ok() || stop_requested())
            return last;
    }
    return last;
}

Status listen_at(const Options& o, const addrinfo* address, tcpqp::Fd& out) {
    tcpqp::Fd fd(
        ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    if (!fd)
        return fail_errno("create a socket");
    const int one = 1, v6_only = o.family == AF_INET6 ? 1 : 0;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (address->ai_family == AF_INET6)
        ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
    if (Status s = bind_interface(fd.get(), o.ifname); !s.ok())
        return s;
    if (Status s = set_buffers(fd.get(), o.sockbuf_bytes); !s.ok())
        return s;
    if (::bind(fd.get(), address->ai_addr, address->ai_addrlen) != 0 ||
        ::listen(fd.get(), kListenBacklog) != 0)
        return fail_errno(
            fmt::format("listen at {}", name_of(address->ai_addr, address->ai_addrlen)));
    out = std::move(fd);
    return {};
}

// Without an address: IPv6 first, for its socket takes IPv4 too.
Status listen_any(const Options& o, tcpqp::Fd& out) {
    Addresses addresses(nullptr, &::freeaddrinfo);
    if (Status s = resolve(o.server, o.port, o.family, AI_PASSIVE, addresses); !s.ok())
        return s;
    Status last = Status::failure("no address");
    for (int family : {AF_INET6, AF_INET}) {
        for (addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
            if (a->ai_family != family)
                continue;
            add_scope(a, o.ifname);
            last = listen_at(o, a, out);
            if (last.ok())
                return last;
        }
    }
    return last;
}

// The listener accepts from -c only, compared as addresses, not as text.
Status wanted_peer(const Options& o, std::string& out) {
    if (o.client.empty())
        return {};
    Addresses addresses(nullptr, &::freeaddrinfo);
    if (Status s = resolve(o.client, "", o.family, AI_NUMERICHOST, addresses); !s.ok())
        return s;
    add_scope(addresses.get(), o.ifname);
    out = number(addresses->ai_addr, addresses->ai_addrlen);
    return {};
}

Status accept_one(const Options& o, Connection& out) {
    std::string wanted;
    tcpqp::Fd listener;
    if (Status s = wanted_peer(o, wanted); !s.ok())
        return s;
    if (Status s = listen_any(o, listener); !s.ok())
        return s;
    sockaddr_storage address{};
    socklen_t bytes = sizeof(address);
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
    if (!o.quiet)
        fmt::print(stderr, "ncqp: listening on {}\n",
                   name_of(reinterpret_cast<sockaddr*>(&address), bytes));
    for (;;) {
        if (Status s = wait_fd(listener.get(), POLLIN, o.timeout_ms(-1), "a connection"); !s.ok())
            return s;
        bytes = sizeof(address);
        auto* from = reinterpret_cast<sockaddr*>(&address);
        out.fd.reset(::accept4(listener.get(), from, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!out.fd && (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR))
            continue;
        if (!out.fd)
            return fail_errno("accept");
        out.peer = name_of(from, bytes);
        if (wanted.empty() || number(from, bytes) == wanted)
            return {};
        fmt::print(stderr, "ncqp: refused {}: only {} is wanted\n", out.peer, wanted);
        out.reset();
    }
}

}  // namespace

void Connection::reset() noexcept {
    const linger hard{1, 0};
    if (fd)
        ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    fd.reset();
}

Status open_connection(const Options& options, Connection& out) {
    Status s = options.listen ? accept_one(options, out) : connect_any(options, out);
    if (s.ok())
        no_delay(out.fd.get());
    return s;
}

void read_tcp_info(int fd, Report& report) noexcept {
    tcp_info info{};
    socklen_t bytes = sizeof(info);
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
        return;
    const bool sender = report.role == "sender";
    report.segments = sender ? info.tcpi_data_segs_out : info.tcpi_data_segs_in;
    report.retrans = info.tcpi_total_retrans;
    if (report.mss == 0)
        report.mss = sender ? info.tcpi_snd_mss : info.tcpi_rcv_mss;
}

bool fin_acknowledged(int fd) noexcept {
    tcp_info info{};
    socklen_t bytes = sizeof(info);
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
        return false;
    return info.tcpi_state == kTcpFinWait2 || info.tcpi_state == kTcpTimeWait;
}

std::string connection_error(int error) {
    switch (error) {
        case EPIPE:
        case ENOTCONN:
        case ECONNRESET:
            return "the peer reset the connection: it did not take all data";
        case ETIMEDOUT:
            return "the peer does not answer any more";
        default:
            return fmt::format("connection: {}", std::strerror(error));
    }
}

}  // namespace ncqp
