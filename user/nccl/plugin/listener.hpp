// SPDX-License-Identifier: BSD-3-Clause
// The listening end: a socket for each rail, and whoever knocks there.
//   stranger   connected, has not said a whole hello; dropped after kStrangerLimitMs
//   arrival    hellos with our nonce, grouped by the connector's number; a comm when all have come
// accept() never waits: each call goes as far as it can.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "nccl/plugin/interfaces.hpp"
#include "nccl/plugin/receive_comm.hpp"

namespace tcpqp::nccl {

using Clock = std::chrono::steady_clock;

class Listener {
public:
    // Throws std::system_error.
    Listener(const std::vector<const Interface*>& interfaces, int arrival_limit_ms);

    [[nodiscard]] Handle handle() const noexcept { return handle_; }
    // A comm, or none yet.
    std::unique_ptr<ReceiveComm> accept();
    [[nodiscard]] std::mutex& lock() noexcept { return lock_; }
    [[nodiscard]] uint64_t dropped() const noexcept { return dropped_; }

private:
    struct Door {
        Fd socket;
        std::string interface;
    };
    struct Stranger {
        Fd socket;
        size_t door;
        Clock::time_point until;
        std::array<std::byte, sizeof(Hello)> bytes;
        size_t have;
    };
    struct Arrival {
        uint64_t comm;
        Clock::time_point until;
        std::vector<std::unique_ptr<Rail>> rails;
    };
    enum class Heard { kWait, kDrop, kGood };

    void take_strangers();
    void hear_strangers();
    Heard hear(Stranger& stranger) const noexcept;
    void welcome(Stranger& stranger);
    bool answer(Rail& rail, const Hello& hello);
    Arrival* arrival_of(const Hello& hello);
    std::unique_ptr<ReceiveComm> complete();
    void drop(const char* why, const std::string& who) noexcept;

    std::mutex lock_;
    std::vector<Door> doors_;
    Handle handle_{};
    const int arrival_limit_ms_;
    std::deque<Stranger> strangers_;
    std::deque<Arrival> arrivals_;
    uint64_t dropped_ = 0;
};

}  // namespace tcpqp::nccl
