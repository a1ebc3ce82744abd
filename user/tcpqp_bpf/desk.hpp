// SPDX-License-Identifier: BSD-3-Clause
// Serves one user's clients, in a thread of its own.  A user can make any call on a socket or
// descriptor of its own last (FUSE, a fault under the socket's lock, SO_LINGER), so whoever does is
// served by nobody, and the others do not notice.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <mutex>
#include <vector>

#include "admission.hpp"

namespace tcpqp::bpf {

class Desk {
public:
    Desk(Admission& admission, uid_t uid);
    Desk(const Desk&) = delete;
    Desk& operator=(const Desk&) = delete;

    enum class Taken : uint8_t {
        kYes,
        kFull,  // too many are before it
        kOver,  // nobody was left, and its thread has ended: it takes none any more
    };
    // The client stays the caller's if it is not taken.
    [[nodiscard]] Taken take(Fd& client);
    [[nodiscard]] bool is_over() noexcept;
    // In a thread of its own: serves who comes until nobody is left.
    void run() noexcept;

private:
    using Clock = std::chrono::steady_clock;
    struct Client {
        Fd fd;
        Clock::time_point until;
    };

    [[nodiscard]] bool has_clients();
    void end() noexcept;
    [[nodiscard]] int wait();
    void serve(int client) noexcept;

    Admission& admission_;
    const uid_t uid_;
    Fd bell_;  // an eventfd: somebody came; none when it is over
    std::mutex lock_;
    std::deque<Client> came_;
    size_t count_ = 0;  // with those before the desk
    bool over_ = false;
    std::deque<Client> clients_;  // the thread's
};

}  // namespace tcpqp::bpf
