// SPDX-License-Identifier: BSD-3-Clause
// Listens, and sends each client to its user's desk.  A client sends its TCP socket, and is given
// the map and the ring of its slot.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <map>
#include <memory>

#include "desk.hpp"

namespace tcpqp::bpf {

class Server {
public:
    Server(Admission& admission, Fd listener);
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Until @stop, a signalfd, is readable.  Desks may be at work still.
    void run(int stop);

private:
    void accept();
    void receive(Fd& client);
    void open_desk(uid_t uid, Fd& client);

    Admission& admission_;
    Fd listener_;
    std::map<uid_t, std::shared_ptr<Desk>> desks_;
};

}  // namespace tcpqp::bpf
