// SPDX-License-Identifier: BSD-3-Clause
// Admits connections: a client sends its TCP socket, and is given the map and the ring of its slot.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "egress.hpp"
#include "program.hpp"

namespace tcpqp::bpf {

class Server {
public:
    // Listens at @path, open to @mode; throws.
    Server(Program& program, const std::string& path, mode_t mode, bool verbose);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Until @stop, a signalfd, is readable.
    void run(int stop);

private:
    struct Connection {
        Fd map;  // of its slot, if it is in use
        uid_t uid = 0;
    };

    void serve(int client) noexcept;
    // What the client gets, of which only the map is kept here.
    struct Admitted {
        int map;
        Fd news;
    };
    Admitted admit(int socket, uid_t uid);  // throws
    void collect();
    [[nodiscard]] uint32_t free_slot(uid_t uid) const;

    Program& program_;
    Egress egress_;
    std::string path_;
    Fd listener_;
    bool verbose_;
    std::vector<Connection> connections_;  // by slot
};

}  // namespace tcpqp::bpf
