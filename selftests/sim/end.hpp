// SPDX-License-Identifier: BSD-3-Clause
// One end of a connection: application, tcp_qp and TCP.
//
// What the kernel decides is decided by its own source (msglog.c, msgwire.c,
// rxmsg.c); what surrounds it (sockets, skbs, timers) is modelled here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "exposed.hpp"
#include "host.hpp"
#include "qp_receiver.hpp"
#include "reads.hpp"
#include "sender.hpp"
#include "settings.hpp"
#include "tcp_receiver.hpp"

namespace sim {

class World;
class End;

// Memory regions of one end; the first two are for receives.
enum RegionNumber : std::uint32_t {
    kSourceRegion = 2,  // READ only
    kTargetRegion,      // WRITEs, atomics
    kSinkRegion,        // of its own READs
    kStaleRegion,       // deregistered at once
    kRegionNumbers = 8
};
std::uint32_t key_of(const End& end, std::uint32_t region);
std::uint32_t pd_of(const End& end);
// Whose context has this number.
End& end_of(const World& world, std::uint32_t qpn);

class End {
public:
    End(World& world, Host& host, const ConnectionSettings& connection, std::uint32_t number,
        int side, std::vector<Planned> plan);

    void tick();
    void arrive(Received&& r);
    // Right, or a violation: the engine has written @writes for this segment.
    void judge_placed(const Truth& truth, const tcp_bth& bth, const std::vector<Write>& writes);

    // The engine is about to see this segment; it was a late duplicate.
    void segment_seen(const nupa::Packet& packet, const Truth& truth);
    void count_late(const Truth& truth);
    // The engine has passed up what the peer never sent: TCP might take it.
    void forged(const nupa::Packet& packet);
    // The engine has seen it, and says what it did.
    void judge_completed(const Truth& truth, const nupa::Decision& decision) {
        qp_.judge_completed(truth, decision);
    }
    void judge_quiet(const nupa::Decision& decision) { qp_.judge_quiet(decision); }
    void judge_run(std::uint32_t end, bool completed) { qp_.judge_run(end, completed); }

    // TCP output, for Sender.  @rec: the message's record, or nullptr for plain bytes.
    // @last: of the bytes' last message, one of @rec's train; both null: plain bytes.
    void send_data(std::uint32_t at, std::span<const std::byte> bytes, const tqp_msg_rec* rec,
                   const tqp_msg_rec* last);
    void send_probe(std::uint32_t una);

    // The connection is broken; contexts and buffers go a moment later.  @why: see excused().
    void fail(Counter why);
    void reset_by_peer();

    // Everything of the plan arrived and was acknowledged, or nobody may ask that of it.
    bool finished() const;
    void log_state();
    bool dead() const noexcept { return dead_; }
    bool strange() const;  // its own side or the fabric breaks the rules
    void check_epilogue();

    Dice& dice() noexcept;
    World& world() noexcept { return world_; }
    Host& host() noexcept { return host_; }
    End& peer();
    const EndSettings& settings() const noexcept { return connection_.end[side_]; }
    const ConnectionSettings& connection() const noexcept { return connection_; }
    std::uint32_t number() const noexcept { return number_; }
    int side() const noexcept { return side_; }
    int family() const noexcept { return connection_.family; }
    const nupa::FlowKey& flow() const noexcept { return flow_; }
    std::uint32_t buffers() const noexcept;  // of each direction
    Sender& sender() noexcept { return sender_; }
    TcpReceiver& tcp() noexcept { return tcp_; }
    Exposed& exposed() noexcept { return exposed_; }
    Reads& reads() noexcept { return reads_; }
    std::uint64_t shadow_addr() const noexcept { return qp_.command().shadow_addr; }
    // Memory of @key is the application's again: nothing of it may leave any more.
    void revoke(std::uint32_t key);
    bool attached() const noexcept { return attached_; }
    // May small messages of ours share segments?
    bool takes_trains() const noexcept {
        return connection_.trains && !connection_.icrc && settings().engine != Engine::kSoftwareV0;
    }
    bool uneven_writes() const noexcept { return connection_.uneven; }
    bool has_context() const noexcept { return context_; }
    void destroy_context();
    void recreate_context();

private:
    friend class QpReceiver;
    nupa_admin_status create_context(std::uint32_t rcv_nxt);
    bool spoiled() const;  // nobody may ask that its messages arrive
    void attach();
    bool start_unsure(const Stream& in, const Message& m) const;
    void begin_epilogue();  // the last part of the traffic, without faults
    void handshake();
    void teardown();
    void hint(const tcp_bth& bth);
    void take_data(Received&& r, const tcp_bth* bth);
    void read_plain();
    void send_ack();
    struct Part {
        std::size_t message;
        std::uint32_t offset, bytes;  // in it
    };
    std::vector<Part> parts(const Truth& truth) const;
    void judge_open(const Part& part);
    void judge_target(const Truth& truth, const std::vector<Write>& writes);
    void judge_loosely(const Truth& truth, const tcp_bth& bth, const std::vector<Write>& writes);
    bool placed_before(const Truth& truth) const;
    void judge_start(const Truth& truth, const tcp_bth& bth);
    void exempt();  // of what nobody can know any more
    bool excused(Counter why) const;
    void transmit(const TcpFields& tcp, std::span<const std::byte> payload, Truth&& truth);
    TcpFields fields(std::uint32_t at);
    std::uint8_t rtr_flags() const noexcept;

    World& world_;
    Host& host_;
    const ConnectionSettings& connection_;
    std::uint32_t number_;
    int side_;
    nupa::FlowKey flow_;
    Sender sender_;
    std::optional<std::uint32_t> snapshot_;  // rcv_nxt as read at attach
    bool attached_ = false, context_ = false, recreated_ = false, proven_ = false;
    bool window_told_ = true;  // to the switch, since it has our present context
    bool rtr_seen_ = false, rtr_acked_ = false, rtr_owed_ = false;
    bool dead_ = false, gone_ = false;
    bool rules_broken_ = false;  // it accepted a segment whose option no peer ever wrote
    bool bleached_ = false;      // .. without an option that the peer wrote
    bool misled_ = false;        // its context saw an option that no peer ever wrote
    bool ack_owed_ = false;
    std::uint32_t forged_reach_ = 0;  // stream bytes before it may count as passed up
    std::uint64_t rtr_at_ = 0, gone_at_ = 0;
    TcpReceiver tcp_;
    Exposed exposed_;
    Reads reads_;
    QpReceiver qp_;
};

}  // namespace sim
