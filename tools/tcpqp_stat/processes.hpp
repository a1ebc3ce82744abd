// SPDX-License-Identifier: BSD-3-Clause
// What /proc tells of processes: names, and whose sockets are those of libtcpqp's users.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace tcpqp::stat {

// "hello", or empty.  What is no printable ASCII is a question mark.
std::string process_name(int pid);

// Inodes of sockets and the pid of a process that has each: one's own processes, or all as root.
std::map<uint64_t, int> library_sockets();  // of processes that have libtcpqp mapped
std::map<uint64_t, int> users_of(const std::set<uint64_t>& inodes);

}  // namespace tcpqp::stat
