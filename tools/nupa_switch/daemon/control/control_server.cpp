// SPDX-License-Identifier: BSD-3-Clause
#include "control/control_server.hpp"

#include <sys/socket.h>

#include <array>
#include <exception>

namespace nupa::daemon {

ControlServer::ControlServer(Epoll& epoll, const std::string& path, Handler handle)
    : epoll_(epoll), listener_(path), handle_(std::move(handle)) {
    epoll_.add(listener_.fd(), *this, kListen);
}

void ControlServer::handle(uint32_t what, uint32_t events) {
    if (what == kListen)
        accept_clients();
    else
        client_ready(what, events);
}

void ControlServer::accept_clients() {
    while (Fd fd = listener_.accept()) {
        if (clients_.size() >= kControlClientsMax)
            continue;
        const uint32_t id = next_id_++;
        try {
            epoll_.add(fd.get(), *this, id);
            clients_[id].fd = std::move(fd);
        } catch (const std::exception&) {
            // No memory: it is turned away, and the others are served.
        }
    }
}

void ControlServer::client_ready(uint32_t id, uint32_t events) {
    auto it = clients_.find(id);
    if (it == clients_.end())
        return;
    bool keep = true;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        keep = read_requests(it->second);
    keep = write_replies(id, it->second) && keep;
    if (keep)
        return;
    epoll_.remove(it->second.fd.get());
    clients_.erase(it);
}

// False when the client left or broke the protocol.
bool ControlServer::read_requests(Client& client) {
    std::array<char, 4096> chunk;
    for (;;) {
        ssize_t n = ::recv(client.fd.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
        if (n == 0)
            return false;
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        client.in.append(chunk.data(), static_cast<size_t>(n));
        if (!answer(client))
            return false;
    }
}

// One reply may be long (a hundred thousand queue pairs'), but what is left unread is bounded.
bool ControlServer::answer(Client& client) {
    size_t from = 0;
    for (size_t end; (end = client.in.find('\n', from)) != std::string::npos; from = end + 1) {
        if (client.out.size() > kControlBacklogMaxBytes)
            return false;
        client.out += handle_(std::string_view(client.in).substr(from, end - from)) + "\n";
    }
    client.in.erase(0, from);
    return client.in.size() <= kControlLineMaxBytes;
}

bool ControlServer::write_replies(uint32_t id, Client& client) {
    while (!client.out.empty()) {
        ssize_t n = ::send(client.fd.get(), client.out.data(), client.out.size(),
                           MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0)
            break;
        client.out.erase(0, static_cast<size_t>(n));
    }
    if (bool wants = !client.out.empty(); wants != client.writing) {
        epoll_.modify(client.fd.get(), *this, id,
                      EPOLLIN | (wants ? static_cast<uint32_t>(EPOLLOUT) : 0u));
        client.writing = wants;
    }
    return true;
}

}  // namespace nupa::daemon
