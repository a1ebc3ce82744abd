// SPDX-License-Identifier: BSD-3-Clause
// What /proc tells of processes: names, and whose sockets are those of libtcpqp's users.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tcpqp::stat {

// "hello", or empty.  What is no printable ASCII is a question mark.
std::string process_name(int pid);

// Inodes of the sockets of processes that have libtcpqp mapped, or are tcpqp-run, and their pids;
// of one's own processes, or of all as root.
std::map<uint64_t, int> library_sockets();

}  // namespace tcpqp::stat
