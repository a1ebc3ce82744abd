// SPDX-License-Identifier: BSD-3-Clause
// JSON lines over a UNIX socket: one request a line, one reply a line.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "event/epoll.hpp"
#include "event/unix_listener.hpp"

namespace nupa::daemon {

inline constexpr size_t kControlLineMaxBytes = 64 << 10;
inline constexpr size_t kControlBacklogMaxBytes = 4 << 20;  // replies a client may leave unread
inline constexpr size_t kControlClientsMax = 64;

class ControlServer final : private EventHandler {
public:
    // @handle turns a request line into a reply line, both without the newline.
    using Handler = std::function<std::string(std::string_view)>;

    ControlServer(Epoll& epoll, const std::string& path, Handler handle);

private:
    static constexpr uint32_t kListen = 0;

    struct Client {
        Fd fd;
        std::string in;
        std::string out;
        bool writing = false;
    };

    void handle(uint32_t what, uint32_t events) override;
    void accept_clients();
    void client_ready(uint32_t id, uint32_t events);
    bool answer(Client& client);
    bool read_requests(Client& client);
    bool write_replies(uint32_t id, Client& client);

    Epoll& epoll_;
    UnixListener listener_;
    Handler handle_;
    std::map<uint32_t, Client> clients_;
    uint32_t next_id_ = kListen + 1;
};

}  // namespace nupa::daemon
