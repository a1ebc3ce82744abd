// SPDX-License-Identifier: BSD-3-Clause
// The connecting end: for each rail connect, hello, reply, queue pair.  connect() never waits;
// each call goes as far as it can.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "nccl/plugin/interfaces.hpp"
#include "nccl/plugin/send_comm.hpp"

namespace tcpqp::nccl {

class Connector {
public:
    // @handle comes from the network: kInvalidArgument, with a warning, if it makes no sense.
    static Result check(const Handle& handle) noexcept;
    Connector(const Handle& handle, const std::vector<const Interface*>& interfaces, int limit_ms);

    // kInProgress, or kSuccess: finish() has the comm.
    Result step();
    std::unique_ptr<SendComm> finish();
    [[nodiscard]] bool is_late() const noexcept;

private:
    enum class Stage { kIdle, kConnecting, kReply, kOpen };
    struct Leg {
        const Interface* from;
        sockaddr_storage to;
        Stage stage = Stage::kIdle;
        std::chrono::steady_clock::time_point again{};  // no attempt before it
        std::unique_ptr<Rail> rail;
        std::array<std::byte, sizeof(Reply)> bytes{};
        size_t have = 0;
    };

    Result step(Leg& leg, uint8_t index);
    Result begin(Leg& leg);
    Result connected(Leg& leg, uint8_t index);
    Result receive_reply(Leg& leg, uint8_t index);
    Result retry(Leg& leg, int error);
    Result give_up(const Leg& leg, const char* what);

    Handle handle_;
    uint64_t comm_ = 0;
    std::vector<Leg> legs_;
    std::chrono::steady_clock::time_point until_;
};

}  // namespace tcpqp::nccl
