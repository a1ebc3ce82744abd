// SPDX-License-Identifier: BSD-3-Clause
// Messages over reliable queue pairs, of whatever device; how they get connected is the
// subclass's.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "buffer.hpp"
#include "lengths.hpp"
#include "transport.hpp"
#include "verbs/context.hpp"
#include "verbs/cq.hpp"
#include "verbs/mr.hpp"
#include "verbs/qp.hpp"
#include "verbs/send_ring.hpp"

namespace nupa::bench {

inline constexpr int kSpinMs = 2;  // of one call that waits and does not sleep

class Verbs : public Transport {
public:
    void send(uint64_t messages) override;
    void receive(uint64_t messages) override;
    void ping(uint64_t messages, std::vector<uint64_t>& rtt) override;
    void pong(uint64_t messages) override;
    void check() const override;
    [[nodiscard]] bool receiver_is_passive() const noexcept override { return write_; }
    [[nodiscard]] Shares shares() const override { return shares_; }

protected:
    // The places of a flow's messages in memory, one after the other, round and round, without
    // a division for each.
    class Places {
    public:
        Places() = default;
        // @count from @first on, in a memory of @all that wraps around.
        Places(uint64_t first, uint64_t count, uint64_t all) noexcept
            : first_(first % all), count_(count), all_(all), next_(first_) {}
        [[nodiscard]] uint64_t next() noexcept {
            const uint64_t place = next_;
            next_ = next_ + 1 == all_ ? 0 : next_ + 1;
            if (++taken_ == count_) {
                taken_ = 0;
                next_ = first_;
            }
            return place;
        }

    private:
        uint64_t first_ = 0, count_ = 1, all_ = 1, next_ = 0, taken_ = 0;
    };
    static constexpr uint32_t kChainMax = 64;  // messages handed over at once
    // Work requests of which only what differs from message to message is written anew.
    struct Chain {
        std::array<ibv_send_wr, kChainMax> wrs{};
        std::array<ibv_sge, kChainMax> sges{};
    };
    struct Flow {
        std::unique_ptr<tcpqp::QueuePair> qp;
        std::unique_ptr<tcpqp::SendRing> ring;  // of a device that has such
        uint64_t target = 0;                    // messages of this phase
        uint64_t posted = 0;
        uint64_t sent = 0;  // of these, completed
        uint64_t received = 0;
        Places sources, sinks;
        uint32_t to_receive = 0;  // receives that are free again
    };
    // Where the peer's WRITEs go.
    struct Target {
        uint64_t address = 0;
        uint32_t key = 0;
    };

    // @context: for @args.spec; @doorbells: the device wants to hear of new receives.
    Verbs(const TransportArgs& args, std::unique_ptr<tcpqp::Context> context, bool doorbells);
    // After the queue pairs are connected: both ends know where WRITEs go.
    void exchange_targets(Control& control);

    [[nodiscard]] const tcpqp::Context& context() const noexcept { return *context_; }
    [[nodiscard]] std::vector<Flow>& flows() noexcept { return flows_; }
    [[nodiscard]] const std::vector<Flow>& flows() const noexcept { return flows_; }
    [[nodiscard]] const Spec& spec() const noexcept { return spec_; }
    // With spec.memory: what the kernel kept before the queue pairs, and what rings.
    [[nodiscard]] int64_t kernel_kib() const noexcept { return kernel_kib_; }
    [[nodiscard]] uint64_t rings_kib() const noexcept { return rings_kib_; }
    // Messages in all phases, both ways.
    [[nodiscard]] uint64_t completed() const noexcept { return sent_ + received_; }

private:
    void create();
    void fill_sources() noexcept;
    void begin(uint64_t messages);
    void post_sends(uint32_t flow);
    void post_chain(uint32_t flow, uint32_t count, bool signaled = true);
    void hand_over(Flow& flow, ibv_send_wr* chain);
    void prepare_chain() noexcept;
    void trip_begins(uint64_t number, uint64_t of);
    void refill(Flow& flow, uint32_t index, bool now);
    void ring_later(Flow& flow);
    void ring_now();
    bool take_completions();
    void completed(const ibv_wc& wc);
    void sends_completed(const ibv_wc& wc);
    void receive_completed(const ibv_wc& wc);
    void remember_shares();
    void drain_sends();
    void wait();
    int call_descriptor(int timeout_ms);
    void spin();
    [[nodiscard]] uint8_t* slot(uint64_t n) const noexcept {
        return memory_.bytes().data() + n * spec_.bytes;
    }

    Spec spec_;
    Lengths lengths_;
    std::unique_ptr<tcpqp::Context> context_;
    bool write_, doorbells_, sends_, receives_;
    uint32_t depth_, batch_, inline_bytes_;
    uint64_t slots_;
    Buffer memory_;
    tcpqp::Mr mr_;
    tcpqp::CompletionQueue cq_;
    std::vector<Flow> flows_;
    Chain chain_;
    std::deque<uint32_t> ready_;    // flows that may have room for sends
    const Flow* unrung_ = nullptr;  // its doorbell goes with the next wait
    Target peer_;
    uint64_t left_ = 0;                 // messages of this phase that have not completed
    uint64_t sent_ = 0, received_ = 0;  // in all phases
    uint64_t spins_ = 0;
    uint64_t moved_ = 0, moved_ns_ = 0;  // what spinning last saw, and when
    int64_t kernel_kib_ = 0;
    uint64_t rings_kib_ = 0;
    Shares shares_;
};

}  // namespace nupa::bench
