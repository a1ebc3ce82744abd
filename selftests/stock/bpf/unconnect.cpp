// SPDX-License-Identifier: BSD-3-Clause
// unconnect FD: connect(AF_UNSPEC) on a socket that was inherited, for which Python has no words.
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>

int main(int argc, char** argv) {
    const sockaddr none{AF_UNSPEC, {}};
    const int socket = argc == 2 ? std::atoi(argv[1]) : -1;
    return ::connect(socket, &none, sizeof(none)) == 0 ? 0 : errno;
}
