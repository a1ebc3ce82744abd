// SPDX-License-Identifier: BSD-3-Clause
// A sender, a lossy fabric, the engine, and a model of the host's TCP and
// tcp_qp.  Checked on every event, with a mirror of what may be written:
//   each stream byte is placed at most once, and none that the host has taken;
//   nothing is written outside a posted, uncompleted receive;
//   a receive that is completed never changes again;
//   every message arrives whole.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "host.hpp"
#include "seed.hpp"

namespace {

using namespace test;

constexpr std::uint32_t kSlotBytes = 4096;
constexpr std::uint32_t kSlots = 32;

struct Message {
    std::uint32_t at;  // stream offset of its first byte
    std::uint32_t bytes;
    std::uint16_t msn;
    ByteVector data;
};

struct Settings {
    std::uint64_t seed;
    std::uint32_t rcv_nxt;
    std::uint16_t first_msn;
    std::uint32_t messages;
    std::uint32_t message_max;
    std::uint32_t window;
    unsigned loss, duplicate, shuffle;  // percent
};

class World {
public:
    explicit World(const Settings& s) : s_(s), random_(s.seed), host_(options(s)) {
        host_.ring.start_at(s.first_msn);
        std::uint32_t at = 0;
        for (std::uint32_t i = 0; i < s.messages; i++) {
            Message m{
                at, 1 + below(s.message_max), static_cast<std::uint16_t>(s.first_msn + i), {}};
            m.data = pattern(m.bytes, static_cast<std::uint32_t>(random_()));
            at += m.bytes;
            messages_.push_back(std::move(m));
        }
        end_ = at;
        taken_.resize(end_), placed_.resize(end_);
        shadow_ = host_.mr.read(host_.guest, kIova, kSlots * kSlotBytes);
        host_.ack(host_.options.rcv_nxt, s.window);
    }

    void run() {
        for (std::uint64_t steps = 0; next_ < end_; steps++) {
            ASSERT_LT(steps, 2000000u) << "no progress";
            post_receives();
            send_some();
            deliver_one();
            if (testing::Test::HasFatalFailure())
                return;
        }
        EXPECT_EQ(completed_, messages_.size());
    }

    std::uint64_t placed_segments() const { return host_.stat(NUPA_STAT_placed_segments); }
    std::uint64_t overflows() const { return host_.qp()[NUPA_QP_STAT_disorder_overflows]; }

private:
    static HostOptions options(const Settings& s) {
        HostOptions o;
        o.rcv_nxt = s.rcv_nxt, o.rq_entries = kSlots, o.wscale = 4;
        return o;
    }
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
    bool percent(unsigned p) { return below(100) < p; }
    std::uint64_t slot(std::uint16_t msn) const { return kIova + (msn % kSlots) * kSlotBytes; }
    const Message& message_at(std::uint32_t offset) const {
        std::size_t low = 0, high = messages_.size();
        while (high - low > 1) {
            const std::size_t middle = (low + high) / 2;
            (messages_[middle].at <= offset ? low : high) = middle;
        }
        return messages_[low];
    }

    void post_receives() {
        while (posted_ < messages_.size() && posted_ - completed_ < kSlots - 1 && percent(60)) {
            host_.ring.post({{slot(messages_[posted_].msn), messages_[posted_].bytes, kKey}});
            posted_++;
        }
    }

    // A segment anywhere in the window, cut differently each time, never over a message's end.
    void send_some() {
        if (flying_.size() > 200)
            return;
        const std::uint32_t limit = std::min<std::uint32_t>(end_, next_ + s_.window);
        std::uint32_t at = percent(s_.shuffle) ? next_ + below(limit - next_) : sent_;
        if (at >= limit)
            sent_ = at = next_;  // around again: retransmission
        const Message& m = message_at(at);
        const std::uint32_t mbo = at - m.at;
        const std::uint32_t n = std::min({1 + below(900), m.bytes - mbo, limit - at});
        if (at == sent_)
            sent_ += n;
        for (int copies = percent(s_.duplicate) ? 2 : 1; copies > 0; copies--)
            if (!percent(s_.loss))
                flying_.push_back(segment(m, mbo, n));
    }

    TcpFrame segment(const Message& m, std::uint32_t mbo, std::uint32_t n) {
        const int pos =
            (mbo == 0 ? TCP_BTH_POS_FIRST : 0) | (mbo + n == m.bytes ? TCP_BTH_POS_LAST : 0);
        const std::uint32_t start = s_.rcv_nxt + m.at;
        TcpFrame f = send_segment(start, mbo, {m.data.begin() + mbo, m.data.begin() + mbo + n},
                                  m.msn, tcp_bth_variant(TCP_BTH_OP_SEND_ONLY, pos));
        if (percent(20)) {  // ver 1 says the same
            tcp_bth b{};
            b.ver = 1, b.opcode = TCP_BTH_OP_SEND_ONLY, b.msn = m.msn, b.start_seq = start,
            b.length = m.bytes;
            f.options = bth_option(b);
        }
        if (percent(3))
            f.options.clear();  // bleached
        return f;
    }

    void deliver_one() {
        if (flying_.empty())
            return;
        const std::size_t pick =
            percent(s_.shuffle) ? below(static_cast<std::uint32_t>(flying_.size())) : 0;
        const TcpFrame f = flying_[pick];
        flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(pick));
        const nupa::Decision d = host_.rx(f);
        const std::uint32_t at = f.seq - s_.rcv_nxt,
                            n = static_cast<std::uint32_t>(f.payload.size());
        if (d.placed())
            check_placed(f, at, n);
        for (std::uint64_t page = 0; page < shadow_.size(); page += kPage)
            ASSERT_EQ(
                std::memcmp(host_.mr.at(host_.guest, kIova + page), shadow_.data() + page, kPage),
                0)
                << "a byte changed that should not, in slot " << page / kSlotBytes;
        host_tcp(f, at, n, d.placed());
    }

    void check_placed(const TcpFrame& f, std::uint32_t at, std::uint32_t n) {
        const Message& m = message_at(at);
        ASSERT_FALSE(f.options.empty());
        ASSERT_LT(static_cast<std::size_t>(&m - messages_.data()), posted_);
        ASSERT_GE(static_cast<std::size_t>(&m - messages_.data()), completed_);
        for (std::uint32_t i = at; i < at + n; i++) {
            ASSERT_FALSE(placed_[i]) << "placed twice: " << i;
            ASSERT_GE(i, next_) << "placed after TCP took it";
            placed_[i] = true;
        }
        std::copy(f.payload.begin(), f.payload.end(),
                  shadow_.begin() + static_cast<std::ptrdiff_t>(slot(m.msn) - kIova + (at - m.at)));
    }

    // TCP: takes what is new, drops some for want of memory; in-order bytes go to tcp_qp, which
    // copies delivered ones.
    void host_tcp(const TcpFrame& f, std::uint32_t at, std::uint32_t n, bool placed) {
        if (at > next_ && percent(5))
            return;  // pruned
        for (std::uint32_t i = at; i < at + n; i++) {
            if (i < next_ || taken_[i])
                continue;
            taken_[i] = true;
            if (!placed)
                copies_[i] = f.payload[i - at];
        }
        const std::uint32_t before = next_;
        while (next_ < end_ && taken_[next_] && message_index(next_) < posted_)
            take(next_++);
        if (next_ != before && percent(70))
            host_.ack(s_.rcv_nxt + next_, s_.window);
        if (percent(10))
            host_.ack(s_.rcv_nxt + next_, s_.window);
    }

    std::size_t message_index(std::uint32_t offset) const {
        return static_cast<std::size_t>(&message_at(offset) - messages_.data());
    }

    void take(std::uint32_t offset) {
        const Message& m = message_at(offset);
        const std::uint64_t addr = slot(m.msn) + (offset - m.at);
        const auto copy = copies_.find(offset);
        if (copy != copies_.end()) {
            *host_.mr.at(host_.guest, addr) = copy->second;
            shadow_[addr - kIova] = copy->second;
            copies_.erase(copy);
        }
        if (offset + 1 != m.at + m.bytes)
            return;
        ASSERT_EQ(host_.mr.read(host_.guest, slot(m.msn), m.bytes), m.data) << "message " << m.msn;
        completed_++;
        host_.ring.complete(s_.first_msn + static_cast<std::uint32_t>(completed_));
        // The application uses its buffer: whatever the engine writes now would be seen.
        for (std::uint32_t i = 0; i < m.bytes; i++) {
            *host_.mr.at(host_.guest, slot(m.msn) + i) = std::byte{0xa5};
            shadow_[slot(m.msn) - kIova + i] = std::byte{0xa5};
        }
    }

    Settings s_;
    std::mt19937_64 random_;
    Host host_;
    std::vector<Message> messages_;
    std::uint32_t end_ = 0, next_ = 0,
                  sent_ = 0;  // stream offsets: end, TCP's rcv_nxt, sender's mark
    std::size_t posted_ = 0, completed_ = 0;
    std::deque<TcpFrame> flying_;
    std::vector<bool> taken_, placed_;
    std::map<std::uint32_t, std::byte> copies_;  // delivered bytes in TCP's queues
    ByteVector shadow_;                          // what all receive buffers must contain
};

void run(Settings s, std::uint64_t seeds, bool want_overflow = false) {
    std::uint64_t placed = 0, overflows = 0;
    for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds; seed++) {
        SCOPED_TRACE(testing::Message() << "NUPA_SEED=" << seed);
        s.seed = seed;
        World world(s);
        world.run();
        if (testing::Test::HasFatalFailure())
            return;
        placed += world.placed_segments();
        overflows += world.overflows();
    }
    EXPECT_GT(placed, 0u);
    if (want_overflow)
        EXPECT_GT(overflows, 0u);
}

TEST(PlacementProperty, MildLoss) { run({0, 5000, 0, 60, 4000, 20000, 5, 5, 5}, 12); }
TEST(PlacementProperty, HeavyDisorder) { run({0, 5000, 0, 60, 2000, 30000, 20, 20, 60}, 12); }
TEST(PlacementProperty, SequenceWraps) { run({0, 0xffffc000, 0, 60, 2000, 20000, 10, 10, 30}, 12); }
TEST(PlacementProperty, SequenceSignWraps) {
    run({0, 0x7fffc000, 0, 60, 2000, 20000, 10, 10, 30}, 6);
}
TEST(PlacementProperty, MsnWraps) { run({0, 5000, 65500, 80, 600, 10000, 10, 10, 20}, 10); }
TEST(PlacementProperty, TinyMessages) { run({0, 5000, 65530, 400, 40, 2000, 10, 10, 30}, 10); }
TEST(PlacementProperty, BlocksOverflow) {
    run({0, 0xffff0000, 0, 200, 4000, 120000, 30, 5, 90}, 4, true);
}

}  // namespace
