// SPDX-License-Identifier: BSD-3-Clause
// What attacks on a socket have in common: options, a connection, its ends' queue pairs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "command.hpp"
#include "completion.hpp"
#include "memory.hpp"
#include "tcp.hpp"
#include "verbs/attach.hpp"
#include "verbs/device.hpp"
#include "verbs/mr.hpp"
#include "verbs/qp.hpp"

namespace nupa::programs::attach {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kDepth = 8;
constexpr uint32_t kMessageBytes = 64 << 10;
constexpr int kSmallBuffer = 32 << 10;
constexpr uint32_t kWaitMs = 20000;
constexpr int kLookMs = 10;

struct Options {
    PeerOptions peer;
    std::string which;
    uint32_t rounds = 100;
};

void require(bool holds, const std::string& what);
std::string error_text(int error);

void set_int(int fd, int level, int option, int value, const char* what);
int get_int(int fd, int level, int option);

// A connection over loopback: both ends are ours.
struct Link {
    tcpqp::Fd a, b;
};

// @receive_buffer of b's; 0: the kernel's choice.
Link link_up(int receive_buffer = 0);

// A queue pair, of the software engine if nothing is said, its memory and its completions.
class End {
public:
    explicit End(const tcpqp::Context& context, uint32_t bytes = kMessageBytes)
        : context_(context),
          pages_(bytes),
          cq_(context, 2 * kDepth),
          mr_(pages_.registered(context, IBV_ACCESS_LOCAL_WRITE)),
          qp_(context, cq_, {.sends = kDepth, .receives = kDepth}) {}

    tcpqp::Attached attach(int fd, uint32_t flags, uint32_t timeout_ms = kWaitMs,
                           uint32_t engine = TCP_QP_ENGINE_SOFTWARE) {
        const tcp_qp_attach_req request{
            .engine = engine, .flags = flags, .timeout_ms = timeout_ms, .reserved = 0};
        return tcpqp::attach(context_, qp_, fd, request);
    }

    void must_attach(int fd, uint32_t flags = TCP_QP_ATTACH_F_NOWAIT) {
        const tcpqp::Attached attached = attach(fd, flags);
        require(attached.error == 0, "attach: " + error_text(attached.error) + ", " +
                                         tcpqp::reason_name(attached.response.reason));
    }

    void receive(uint32_t bytes) {
        const tcpqp::Work work = of(bytes);
        if (const int error = qp_.post_receives({&work, 1}); error != 0)
            tcpqp::throw_errno("post a receive", error);
        (void)qp_.ring_doorbell();
    }

    void send(uint32_t bytes) {
        const tcpqp::Work work = of(bytes);
        if (const int error = qp_.post_sends({&work, 1}); error != 0)
            tcpqp::throw_errno("post a send", error);
    }

    ibv_wc wait() { return next_completion(cq_, static_cast<int>(kWaitMs)); }
    [[nodiscard]] std::span<uint8_t> bytes() const { return pages_.bytes(); }
    [[nodiscard]] tcp_qp_info info() const {
        tcp_qp_info info{};
        (void)tcpqp::query(context_, qp_, info);
        return info;
    }

private:
    [[nodiscard]] tcpqp::Work of(uint32_t bytes) const {
        return {.cookie = 1,
                .address = pages_.bytes().data(),
                .bytes = bytes,
                .lkey = mr_.lkey(),
                .without_imm = true};
    }

    const tcpqp::Context& context_;
    Pages pages_;
    tcpqp::CompletionQueue cq_;
    tcpqp::Mr mr_;
    tcpqp::QueuePair qp_;
};

// One message, whole and right.
void exchange(End& from, End& to, uint8_t seed);

// Each is a case of the program.
void steal(const tcpqp::Context& context, const Options& o);
void same_socket(const tcpqp::Context& context, const Options& o);
void reattach(const tcpqp::Context& context, const Options& o);
void another(const tcpqp::Context& context, const Options& o);
void successor(const tcpqp::Context& context, const Options& o);
void reset(const tcpqp::Context& context, const Options& o);
void blocked(const tcpqp::Context& context, const Options& o);
void slip(const tcpqp::Context& context, const Options& o);
void readers(const tcpqp::Context& context, const Options& o);
void send_buffer(const tcpqp::Context& context, const Options& o);
void hold(const tcpqp::Context& context, const Options& o);
void timestamps(const tcpqp::Context& context, const Options& o);
void early(const tcpqp::Context& context, const Options& o);
void unready(const tcpqp::Context& context, const Options& o);

}  // namespace nupa::programs::attach
