// SPDX-License-Identifier: BSD-3-Clause
// What libtcpqp-preload.so asks and tcpqp-run answers: one request and one answer on a
// SOCK_SEQPACKET connection of its own, at the path that kSocketVariable names.  Both are of one
// build.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

namespace tcpqp::run {

constexpr const char* kSocketVariable = "TCPQP_RUN_SOCKET";

// The relay's end of a relayed connection has the abstract name kNamePrefix and random digits: so
// the program's end may be a relayed one, after dup, fork, exec and SCM_RIGHTS.  Anyone may take
// such a name, so the relay is asked, and shown the descriptor itself: it knows its sockets by
// SO_COOKIE, which nobody chooses.
constexpr char kNamePrefix[] = "tcpqp-run/";
constexpr size_t kNamePrefixBytes = sizeof(kNamePrefix) - 1;

constexpr uint32_t kMagic = 0x71637202;

enum class Ask : uint32_t {
    kAccepted = 1,    // with a connected TCP socket
    kConnected = 2,   // the same
    kConnecting = 3,  // with a TCP socket whose connect() is under way
    kFind = 4,        // with what may be a relayed socket: a second descriptor of its TCP socket
    kLeft = 5,        // the library itself left a connection plain: counted
};

// Why a connection is left to TCP; names in plain.cpp.
enum class Plain : uint32_t {
    kNone = 0,   // it is not
    kNoModule,   // tcp_qp is not loaded
    kNoDevice,   // its interface has no RDMA device
    kLoopback,   // it does not leave this machine
    kPeerPlain,  // the peer had no queue pair a short time ago
    kPeerSpoke,  // it sent bytes before it could have a queue pair
    kLimit,      // of links
    kInEpoll,    // its descriptor was in an epoll before connect()
    kOptions,    // MSG_ZEROCOPY or TCP fast open is on
    kNoPeerQp,   // found out later: relayed all the same, as plain TCP
    kFailed,     // something else was short: descriptors, memory
    kEnd,
};

struct Request {
    uint32_t magic;
    Ask ask;
    Plain left;  // kLeft
    uint32_t reserved;
    sockaddr_storage peer;  // kConnecting
};

struct Reply {
    uint32_t magic;
    Plain plain;       // kNone: with the program's new socket
    int32_t error;     // kFind: ENOENT, not one of ours; another errno, or 0 with the TCP socket
    int32_t so_error;  // kFind: what connect() failed with; told once
};

}  // namespace tcpqp::run
