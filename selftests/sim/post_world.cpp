// SPDX-License-Identifier: BSD-3-Clause
#include "post_world.hpp"

#include <tcp_qp/nupa_post_hw.h>
#include <algorithm>
#include <stdexcept>
#include <string>

#include "frame.hpp"
#include "violation.hpp"

namespace sim {

namespace {

constexpr std::uint32_t kQpn = 9, kWscale = 4, kPages = 12, kHostPages = 2 * kPages;
constexpr std::uint32_t kBufferBytes = 12 << 10;  // of TCP's receiver
constexpr std::uint32_t kFillBufferBytes = 3000;  // of the merger's
constexpr std::uint32_t kQuietBytes = 12000;      // sent when nothing goes wrong any more
constexpr std::uint32_t kFlightsMax = 12, kRunMax = 8;
constexpr std::uint64_t kTroubleTurns = 800, kTurnsMax = 40000;
constexpr std::uint16_t kForgersPort = 77;
constexpr std::uint32_t kNeverSentBytes = 1 << 29;
constexpr std::uint8_t kJunk = 0xdd;

std::uint32_t word_at(const Ram& ram, std::uint64_t addr) { return ram.get<std::uint32_t>(addr); }

}  // namespace

PostWorld::PostWorld(std::uint64_t seed, Coverage& coverage)
    : dice_(seed ^ 0x706f7374),
      coverage_(coverage),
      ram_((kHostPages + 3) * kPageBytes),
      engine_(ram_.memory(), stats_, seed) {
    const int family = dice_.percent(50) ? 4 : 6;
    flow_ = flow_of(family, 0, 1), back_ = flow_of(family, 0, 0);
    merger_.configure(kFillBufferBytes, dice_.percent(80));
    isn_ = dice_.percent(50) ? 0u - dice_.below(60000) : static_cast<std::uint32_t>(dice_.bits());
    mss_ = dice_.range(200, 1460);
    stream_.resize(24000 + dice_.below(30000) + kQuietBytes);
    for (std::byte& b : stream_)
        b = static_cast<std::byte>(dice_.bits());
    passed_up_.resize(stream_.size());
    post_at_ = ram_.alloc(sizeof(nupa_post) + kPages * sizeof(std::uint64_t), 64);
    ram_.fill(post_at_, sizeof(nupa_post) + kPages * sizeof(std::uint64_t), 0);
    for (std::uint32_t i = 0; i < kHostPages; i++) {
        pages_.push_back(ram_.alloc(kPageBytes, kPageBytes));
        ram_.fill(pages_.back(), kPageBytes, kJunk);
    }
}

void PostWorld::violation(const char* text, std::initializer_list<std::uint64_t> numbers) {
    log.add(turns_, text, numbers);
    throw Violation("stream: " + filled(text, {numbers.begin(), numbers.size()}));
}

std::uint32_t PostWorld::word(std::size_t field) const { return word_at(ram_, post_at_ + field); }

// Where stream byte @at of the post belongs.
std::uint64_t PostWorld::page_of(std::uint32_t at) const {
    const std::uint32_t in = post_.offset + (at - post_.at);
    return post_.pages[in / kPageBytes] + in % kPageBytes;
}

void PostWorld::check_memory() {
    if (const auto addr = ram_.stray())
        violation("byte at {} changed that nobody may write now", {*addr});
}

// ---- the course of it ----

// The context may be made after segments that came since rcv_nxt was read.
void PostWorld::run() {
    const std::uint32_t context_at = dice_.below(40), read_at = dice_.below(context_at + 1);
    say_ack();
    while (copied_ < stream_.size()) {
        if (turns_ == read_at)
            context_from_ = rcv_nxt_;
        if (turns_ == context_at)
            create_context();
        if (turns_ == kTroubleTurns)
            quiet_ = true;
        if (turns_ == kTurnsMax)
            violation("no progress: {} of {} bytes were read", {copied_, stream_.size()});
        turn();
        turns_++;
    }
    if (post_.open && !take_back())
        violation("the post is never given back", {});
    if (engine_.qp_destroy(kQpn) != NUPA_OK)
        throw std::logic_error("qp_destroy");
    coverage_.add(k_streams);
}

void PostWorld::create_context() {
    nupa_cmd_qp cmd{};
    cmd.flow = flow_.raw;
    cmd.flags = NUPA_QP_F_STREAM;
    cmd.rcv_nxt = seq(context_from_);
    cmd.rcv_wscale = kWscale;
    cmd.post_addr = post_at_;
    cmd.post_pages = kPages;
    if (engine_.qp_create(kQpn, cmd) != NUPA_OK)
        throw std::logic_error("qp_create");
    // what has passed since then is known when it is acknowledged
    std::fill(passed_up_.begin() + context_from_, passed_up_.end(), false);
    up_to_ = up_end_ = context_from_;
    say_ack();
}

void PostWorld::turn() {
    const std::uint32_t tail = static_cast<std::uint32_t>(stream_.size()) - kQuietBytes;
    switch (dice_.below(8)) {
        case 0:
        case 1:
            return send_some();
        case 2:
        case 3:
            return arrive();
        case 4:
            return go_up();
        case 5:
            if (!driver_.empty()) {
                Skb skb = std::move(driver_.front());
                driver_.pop_front();
                tcp(std::move(skb));
            }
            return;
        case 6:
            return read();
        default:
            // Of the tail all must be placed, by one post after the other.
            if (post_.open && (copied_ >= post_.at + post_.bytes ||
                               (!(quiet_ && copied_ >= tail) && dice_.percent(40))))
                take_back();
            else
                open();
    }
}

// ---- the sender and the fabric ----

void PostWorld::send_some() {
    const std::uint32_t tail = static_cast<std::uint32_t>(stream_.size()) - kQuietBytes;
    // The tail waits until all before it is read, and is posted.
    const bool go = quiet_ && copied_ >= tail && post_.open && flights_.empty();
    const std::uint32_t limit =
        std::min(right_edge_, copied_ >= tail ? (go ? post_.at + post_.bytes : tail) : tail);
    if (flights_.size() >= kFlightsMax)
        return;
    std::uint32_t at = sent_;
    // Of the tail nothing is lost, and so nothing is repeated.
    if (una_ < sent_ && una_ < tail && (sent_ >= limit || dice_.percent(10)) &&
        (!quiet_ || flights_.empty()))
        at = dice_.percent(50) ? una_ : una_ + dice_.below(sent_ - una_);
    std::uint32_t end = std::max(limit, sent_);
    if (!quiet_ && dice_.per_mille(5))
        end = std::min(end + 2 * kBufferBytes, tail);  // no matter what window it was given
    if (at >= end)
        return;
    Segment s;
    s.at = at;
    s.bytes = std::min(end - at, mss_ * (dice_.percent(50) ? 1 : dice_.range(2, kRunMax)));
    if (dice_.percent(20))
        s.bytes = 1 + dice_.below(s.bytes);
    sent_ = std::max(sent_, s.at + s.bytes);
    if (!quiet_ && dice_.per_mille(15))
        s.more_flags = nupa::kTcpUrg;
    launch(s);
}

void PostWorld::launch(const Segment& segment) {
    if (quiet_) {
        flights_.push_back(segment);
        return;
    }
    if (dice_.per_mille(20)) {
        Segment forged = segment;
        forged.forged = true;
        if (dice_.percent(30))
            forged.more_flags |= nupa::kTcpSyn;
        flights_.push_back(forged);
    }
    if (dice_.per_mille(30))
        return;
    flights_.push_back(segment);
    if (dice_.per_mille(20))
        flights_.back().corrupt = true;
    if (dice_.per_mille(30))
        flights_.push_back(segment);
}

void PostWorld::arrive() {
    if (flights_.empty())
        return;
    const std::uint32_t which =
        !quiet_ && dice_.percent(8) ? dice_.below(static_cast<std::uint32_t>(flights_.size())) : 0;
    const Segment segment = flights_[which];
    flights_.erase(flights_.begin() + which);
    arrive_part(segment);
}

// In one run as far as the receiver's port takes one, as a port does.
void PostWorld::arrive_part(Segment segment) {
    while (segment.bytes) {
        Segment part = segment;
        part.mss = static_cast<std::uint16_t>(segment.bytes > mss_ ? mss_ : 0);
        std::vector<std::byte> payload(stream_.begin() + segment.at,
                                       stream_.begin() + segment.at + segment.bytes);
        if (segment.forged)
            for (std::byte& b : payload)
                b ^= std::byte{0x5a};
        TcpFields tcp;
        tcp.seq = seq(segment.at);
        tcp.flags = nupa::kTcpAck | segment.more_flags;
        tcp.ack = segment.forged && dice_.percent(50) ? kNeverSentBytes : 1;
        const bool far = segment.forged && tcp.ack == 1;
        const auto packet_of = [&](nupa::Packet& packet) {
            const FrameHeader header = build_frame(flow_, tcp, part.bytes);
            const nupa::Bytes bufs[2] = {std::as_bytes(std::span(header.bytes.data(), header.size)),
                                         nupa::Bytes(payload).first(part.bytes)};
            if (packet.assign(bufs) != nupa::ParseError::kOk)
                throw std::logic_error("packet");
            packet.csum = part.corrupt ? nupa::Csum::kBad : nupa::Csum::kPartial;
            packet.mss = part.mss;
            packet.ingress = far ? kForgersPort : std::uint16_t{0};
        };
        nupa::Packet packet;
        if (part.mss) {
            packet_of(packet);
            const auto runs = engine_.runs(packet);
            if (runs == nupa::PortEngine::Runs::kNone)
                part.bytes = mss_;
            else if (runs == nupa::PortEngine::Runs::kPlaced)
                part.bytes = std::min(
                    part.bytes,
                    std::max(engine_.placed_run_max(packet) / mss_ * mss_, std::uint32_t{mss_}));
            if (part.bytes <= mss_)
                part.mss = 0;
        }
        packet = {};
        packet_of(packet);
        const nupa::Decision decision = receive(packet, part);
        if (!decision.dropped())
            merge(packet, decision, part);
        segment.at += part.bytes, segment.bytes -= part.bytes;
    }
}

// ---- the switch ----

nupa::Decision PostWorld::receive(nupa::Packet& packet, const Segment& segment) {
    const std::uint32_t placed_before = word(offsetof(nupa_post, placed));
    nupa::Decision decision;
    bool wild = false;
    written_ = false;
    {
        Observer observer(ram_, writes_, [this] { meanwhile(); });
        decision = engine_.receive(packet);
        wild = observer.wild();
    }
    coverage_.reasons[static_cast<std::size_t>(decision.reason)]++;
    log.add(turns_, "stream segment {} + {}", {segment.at, segment.bytes},
            nupa::reason_name(decision.reason));
    if (wild)
        violation("written outside the host's memory", {});
    if (meanwhile_)
        violation(meanwhile_, {});
    if (!decision.placed() && !writes_.empty())
        violation("segment at {} was written, but not called placed", {segment.at});
    judge(segment, decision);
    const std::uint32_t state = word(offsetof(nupa_post, state));
    if (state != (post_.open ? NUPA_POST_OPEN : NUPA_POST_NONE))
        violation("the post's state is {} after a segment", {state});
    const std::uint32_t placed = word(offsetof(nupa_post, placed));
    if (placed != (decision.placed() ? seq(segment.at + segment.bytes) : placed_before))
        violation("the post says {} of the segment at {}", {placed - isn_, segment.at});
    ram_.accept(post_at_, 2 * sizeof(std::uint32_t));
    check_memory();
    return decision;
}

// The engine is about to write: the host wants its memory back just now, and must not get it.
// Told when the engine is done, through which nothing may be thrown.
void PostWorld::meanwhile() noexcept {
    if (!post_.open)
        meanwhile_ = "written while nothing is posted";
    else if (word(offsetof(nupa_post, state)) == NUPA_POST_OPEN)
        meanwhile_ = "the host could take its memory back while it was written";
    if (!written_)
        coverage_.add(k_posts_busy);
    written_ = true;
}

void PostWorld::judge(const Segment& segment, const nupa::Decision& decision) {
    const std::uint32_t end = segment.at + segment.bytes;
    if (decision.placed()) {
        if (segment.forged || segment.corrupt)
            violation("a segment at {} was placed that TCP does not take", {segment.at});
        if (segment.more_flags & (nupa::kTcpUrg | nupa::kTcpSyn))
            violation("a segment at {} was placed that TCP must look at", {segment.at});
        if (end > right_edge_)
            violation("placed beyond the window: {} of {}", {end, right_edge_});
        if (!post_.open || segment.at < post_.at || end > post_.at + post_.bytes)
            violation("placed outside the post: {} + {}", {segment.at, segment.bytes});
        if (up_to_ != segment.at || up_end_ > segment.at)
            violation("placed at {}, but passed up was all before {}, and something before {}",
                      {segment.at, up_to_, up_end_});
        judge_writes(segment);
        coverage_.add(k_post_bytes, segment.bytes);
    }
    if (!decision.dropped() && !segment.corrupt && !(segment.more_flags & nupa::kTcpSyn))
        passed_up(segment.at, end);
}

void PostWorld::passed_up(std::uint32_t begin, std::uint32_t end) {
    std::fill(passed_up_.begin() + begin, passed_up_.begin() + end, true);
    up_end_ = std::max(up_end_, end);
    while (up_to_ < passed_up_.size() && passed_up_[up_to_])
        up_to_++;
}

// From low to high, each byte where it belongs, with its value, and no other.
void PostWorld::judge_writes(const Segment& segment) {
    std::uint32_t at = segment.at;
    for (const Write& write : writes_) {
        const std::uint64_t addr = ram_.addr_of(write.to);
        for (std::size_t i = 0; i < write.bytes; i++, at++) {
            if (at >= segment.at + segment.bytes || page_of(at) != addr + i)
                violation("byte {} was written to {}", {at, addr + i});
            if (*ram_.at(addr + i) != stream_[at])
                violation("byte {} was written with a wrong value", {at});
        }
        ram_.accept(addr, write.bytes);
    }
    if (at != segment.at + segment.bytes)
        violation("of segment {} + {} only {} were written", {segment.at, segment.bytes, at});
}

void PostWorld::merge(const nupa::Packet& packet, const nupa::Decision& decision,
                      const Segment& segment) {
    if (segment.corrupt || segment.forged || segment.more_flags & nupa::kTcpSyn)
        return;  // TCP drops it
    if (run_active_ && !merger_.fits(packet, decision))
        go_up();
    if (run_active_) {
        merger_.append(packet, decision);
        coverage_.add(k_merged);
        if (run_.placed != decision.placed())
            violation("a run of placed and delivered bytes at {}", {run_.at});
        run_.bytes += segment.bytes;
    } else {
        merger_.start(packet, decision);
        run_ = {segment.at, segment.bytes, decision.placed(), {}};
        run_active_ = true;
    }
    if (!decision.placed()) {
        const std::size_t had = run_.data.size();
        run_.data.resize(had + segment.bytes);
        packet.payload.copy_to(run_.data.data() + had);
    }
    if (merger_.closed())
        go_up();
}

void PostWorld::go_up() {
    if (!run_active_)
        return;
    const nupa::Merged& merged = merger_.finish();
    const bool placed = merged.flags & NUPA_RX_F_PLACED, stream = merged.flags & NUPA_RX_F_STREAM;
    if (merged.payload_bytes != run_.bytes || placed != run_.placed || (placed && !stream))
        violation("a completion of {} bytes for a run of {}", {merged.payload_bytes, run_.bytes});
    run_active_ = false;
    driver_.push_back(std::move(run_));
}

// ---- TCP ----

bool PostWorld::in_window(const Skb& skb) const noexcept {
    return skb.end() > rcv_nxt_ && skb.at < right_edge_;
}

void PostWorld::tcp(Skb skb) {
    if (!quiet_ && dice_.per_mille(15)) {
        coverage_.add(k_refused);
        return;
    }
    if (in_window(skb))
        accept(std::move(skb));
    say_ack();
}

void PostWorld::accept(Skb skb) {
    if (skb.at > rcv_nxt_) {
        ooo_.push_back(std::move(skb));
        return;
    }
    rcv_nxt_ = skb.end();
    queue_.push_back(std::move(skb));
    for (std::size_t i = 0; i < ooo_.size();) {
        if (ooo_[i].at > rcv_nxt_) {
            i++;
            continue;
        }
        if (ooo_[i].end() > rcv_nxt_) {
            rcv_nxt_ = ooo_[i].end();
            queue_.push_back(std::move(ooo_[i]));
        }
        ooo_.erase(ooo_.begin() + static_cast<std::ptrdiff_t>(i));
        i = 0;
    }
}

// The engine sees each ACK; the sender may miss one.
void PostWorld::say_ack() {
    constexpr std::uint32_t kUnit = 1u << kWscale;
    const std::uint32_t unread = rcv_nxt_ - copied_;
    std::uint32_t units = unread >= kBufferBytes ? 0 : (kBufferBytes - unread) / kUnit;
    if (rcv_nxt_ + units * kUnit < right_edge_)  // which never moves back
        units = (right_edge_ - rcv_nxt_ + kUnit - 1) / kUnit;
    right_edge_ = rcv_nxt_ + units * kUnit;
    TcpFields tcp;
    tcp.seq = 1;
    tcp.ack = seq(rcv_nxt_);
    tcp.flags = nupa::kTcpAck;
    tcp.window = static_cast<std::uint16_t>(units);
    const FrameHeader header = build_frame(back_, tcp, 0);
    const nupa::Bytes bufs[1] = {std::as_bytes(std::span(header.bytes.data(), header.size))};
    nupa::Packet packet;
    if (packet.assign(bufs) != nupa::ParseError::kOk)
        throw std::logic_error("ack");
    engine_.transmit(packet);
    passed_up(0, rcv_nxt_);
    if (quiet_ || dice_.percent(95))
        una_ = std::max(una_, rcv_nxt_);
}

// ---- the reader ----

// It posts from where TCP is, which may be behind what the engine has passed up.
void PostWorld::open() {
    if (post_.open || copied_ < post_.end)
        return;
    post_ = {};
    post_.at = rcv_nxt_;
    post_.offset = dice_.below(kPageBytes);
    const std::uint32_t most = kPages * kPageBytes - post_.offset;
    const std::uint32_t tail = static_cast<std::uint32_t>(stream_.size()) - kQuietBytes;
    post_.bytes = dice_.percent(50) ? most : 1 + dice_.below(most);
    const std::uint32_t last = rcv_nxt_ < tail ? tail : static_cast<std::uint32_t>(stream_.size());
    post_.bytes = std::min(post_.bytes, last - rcv_nxt_);
    if (!post_.bytes)
        return;
    const std::uint32_t first = dice_.below(kPages);
    for (std::uint32_t i = 0; i < kPages; i++)
        post_.pages.push_back(pages_[(first + i * 5) % kHostPages]);
    for (std::uint32_t i = 0; i < kPages; i++)
        ram_.put(post_at_ + sizeof(nupa_post) + i * sizeof(std::uint64_t), post_.pages[i]);
    const auto put = [&](std::size_t field, std::uint32_t value) {
        ram_.put(post_at_ + field, value);
    };
    put(offsetof(nupa_post, placed), seq(post_.at));
    put(offsetof(nupa_post, seq), seq(post_.at));
    put(offsetof(nupa_post, bytes), post_.bytes);
    put(offsetof(nupa_post, offset), post_.offset);
    put(offsetof(nupa_post, state), NUPA_POST_OPEN);
    post_.open = true;
    coverage_.add(k_posts);
    log.add(turns_, "posted {} + {}", {post_.at, post_.bytes});
}

// By compare and swap.  From then on the memory is the application's again.
bool PostWorld::take_back() {
    if (word(offsetof(nupa_post, state)) != NUPA_POST_OPEN)
        return false;
    ram_.put(post_at_ + offsetof(nupa_post, state), std::uint32_t{NUPA_POST_NONE});
    post_.open = false;
    closed();
    return true;
}

// What was placed and is not read yet is kept: TCP has it, or will have.
void PostWorld::closed() {
    post_.end = word(offsetof(nupa_post, placed)) - isn_;
    if (post_.end < post_.at || post_.end > post_.at + post_.bytes)
        violation("a post of {} + {} ends at {}", {post_.at, post_.bytes, post_.end});
    post_.rescued.resize(post_.end - post_.at);
    for (std::uint32_t at = post_.at; at < post_.end; at++)
        post_.rescued[at - post_.at] = *ram_.at(page_of(at));
    for (const std::uint64_t page : post_.pages)
        ram_.fill(page, kPageBytes, kJunk);
    if (post_.end > copied_)
        coverage_.add(k_posts_rescued);
    log.add(turns_, "taken back, {} placed", {post_.end - post_.at});
}

// A placed packet has no bytes: they are where its sequence number says.
std::byte PostWorld::byte_of(const Skb& skb, std::uint32_t at) {
    if (!skb.placed)
        return skb.data[at - skb.at];
    const std::uint32_t end = post_.open ? word(offsetof(nupa_post, placed)) - isn_ : post_.end;
    if (at < post_.at || at >= end)
        violation("byte {} was placed, and the reader does not know where", {at});
    return post_.open ? *ram_.at(page_of(at)) : post_.rescued[at - post_.at];
}

void PostWorld::read() {
    while (!queue_.empty() && queue_.front().end() <= copied_)
        queue_.pop_front();
    if (queue_.empty())
        return;
    const Skb& skb = queue_.front();
    for (; copied_ < skb.end(); copied_++) {
        if (byte_of(skb, copied_) != stream_[copied_])
            violation("byte {} that was read is wrong", {copied_});
        // what was delivered is copied to its place
        if (!skb.placed && post_.open && copied_ >= post_.at && copied_ < post_.at + post_.bytes)
            ram_.put(page_of(copied_), stream_[copied_]);
        const std::uint32_t tail = static_cast<std::uint32_t>(stream_.size()) - kQuietBytes;
        if (!skb.placed && copied_ >= tail)
            violation("byte {} was not placed, and nothing stood in the way", {copied_});
    }
    say_ack();
}

}  // namespace sim
