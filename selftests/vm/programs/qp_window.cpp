// SPDX-License-Identifier: BSD-3-Clause
// Memory windows: what one opens for the peer, and that it is shut afterwards.
//
// Each case is a connection of its own.  The owner binds a window over the middle of its
// region and tells its key; the peer makes one request that fits; the window is taken back, or
// not; and the peer makes one that does not fit, which must fail with a remote access error.
// No byte may change but those that the first request wrote.
//
// With --reads there is instead a long READ, and the window is taken back while it is answered.
// What the owner writes to its memory from then on must not reach the peer.  That wants a slow
// fabric.
//
//   qp_window --port PORT [--connect ADDR] [--engine E] [--reads] [--case NAME ...]
#include <fmt/core.h>

#include <arpa/inet.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "command.hpp"
#include "rdma_peer.hpp"
#include "verbs/device.hpp"

namespace {

using namespace nupa::programs;

constexpr uint8_t kFill = 0x5c, kWritten = 0xa7;
constexpr size_t kRegionBytes = 64 << 10;
constexpr uint64_t kWindowAt = 4096 + 8, kWindowBytes = 20000;  // of no particular alignment
constexpr uint32_t kReceiveBytes = 64;
constexpr int kRegionAccess = IBV_ACCESS_LOCAL_WRITE | kRemoteAll | IBV_ACCESS_MW_BIND;

// What ends the window's use between the two requests.
enum class End { kNothing, kLocal, kRemote, kBindAgain, kDeregister, kDeallocate, kOtherQueuePair };

struct Case {
    const char* name;
    ibv_mw_type type;
    int access;  // of the window
    ibv_wr_opcode good;
    End end;
    ibv_wr_opcode bad;
    int64_t bad_at = 0;  // from the window's begin
    uint32_t bad_bytes = 8;
};

constexpr int kWrite = IBV_ACCESS_REMOTE_WRITE, kRead = IBV_ACCESS_REMOTE_READ;
constexpr int kAtomic = IBV_ACCESS_REMOTE_ATOMIC;
constexpr auto kOne = IBV_MW_TYPE_1, kTwo = IBV_MW_TYPE_2;
constexpr auto W = IBV_WR_RDMA_WRITE, R = IBV_WR_RDMA_READ, A = IBV_WR_ATOMIC_FETCH_AND_ADD;

const std::vector<Case> kCases{
    {"local-invalidate", kTwo, kWrite, W, End::kLocal, W},
    {"local-invalidate-read", kTwo, kRead, R, End::kLocal, R},
    {"remote-invalidate", kTwo, kWrite | kRead, W, End::kRemote, W},
    {"remote-invalidate-read", kTwo, kWrite | kRead, R, End::kRemote, R},
    {"atomic", kTwo, kAtomic, A, End::kRemote, A},
    {"bind-again", kOne, kWrite, W, End::kBindAgain, W},
    {"type-1-read", kOne, kRead, R, End::kBindAgain, R},
    {"type-1-deallocate", kOne, kWrite, W, End::kDeallocate, W},
    {"deallocate", kTwo, kWrite, W, End::kDeallocate, W},
    {"deregister", kTwo, kWrite, W, End::kDeregister, W},
    {"other-queue-pair", kTwo, kWrite | kRead, W, End::kOtherQueuePair, W},
    {"other-queue-pair-read", kTwo, kWrite | kRead, R, End::kOtherQueuePair, R},
    {"read-only-window", kTwo, kRead, R, End::kNothing, W},
    {"write-only-window", kTwo, kWrite, W, End::kNothing, R},
    {"no-atomics", kTwo, kWrite | kRead, W, End::kNothing, A},
    {"before", kTwo, kWrite, W, End::kNothing, W, -8, 8},
    {"begins-before", kTwo, kWrite, W, End::kNothing, W, -4, 8},
    {"past-the-end", kTwo, kWrite, W, End::kNothing, W, kWindowBytes - 4, 8},
    {"read-past-the-end", kOne, kRead, R, End::kNothing, R, kWindowBytes - 4, 8},
    {"longer-than-the-window", kTwo, kWrite, W, End::kNothing, W, 0, kWindowBytes + 1},
};

// Work requests that the device refuses their owner; each ends its queue pair.
enum class Mistake {
    kReadOnlyRegion,
    kUnbindableRegion,
    kPastTheRegion,
    kNoBytes,
    kSameKey,
    kBoundAlready,
    kInvalidateNothing,
    kInvalidateRegion,
    kInvalidateTwice,
};

const std::vector<std::pair<const char*, Mistake>> kMistakes{
    {"bind-read-only-region", Mistake::kReadOnlyRegion},
    {"bind-unbindable-region", Mistake::kUnbindableRegion},
    {"bind-past-the-region", Mistake::kPastTheRegion},
    {"bind-no-bytes", Mistake::kNoBytes},
    {"bind-same-key", Mistake::kSameKey},
    {"bind-twice", Mistake::kBoundAlready},
    {"invalidate-nothing", Mistake::kInvalidateNothing},
    {"invalidate-region", Mistake::kInvalidateRegion},
    {"invalidate-twice", Mistake::kInvalidateTwice},
};

// A window that is taken back while a READ through it is answered.
struct Reading {
    const char* name;
    ibv_mw_type type;
    End end;
    bool elsewhere = false;  // the READ comes by another queue pair
};

const std::vector<Reading> kReadings{
    {"read-deallocate", kTwo, End::kDeallocate},
    {"read-type-1-deallocate", kOne, End::kDeallocate},
    {"read-elsewhere-deallocate", kOne, End::kDeallocate, true},
    {"read-local-invalidate", kTwo, End::kLocal},
    {"read-bind-again", kOne, End::kBindAgain},
    {"read-elsewhere-bind-again", kOne, End::kBindAgain, true},
};

constexpr uint8_t kUnread = 0, kPrivate = 0xee;
constexpr size_t kLongBytes = 3 << 20;
constexpr int kBeginMs = 30000;  // for the READ's first byte

struct Options {
    PeerOptions peer;
    bool reads = false;
    std::vector<std::string> cases;
};

struct Window {
    Window(ibv_pd* pd, ibv_mw_type type) : mw(ibv_alloc_mw(pd, type)) {
        if (!mw)
            tcpqp::throw_errno("allocate a window");
    }
    ~Window() { free(); }
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;
    void free() {
        if (mw && ibv_dealloc_mw(mw))
            tcpqp::throw_errno("free a window");
        mw = nullptr;
    }

    ibv_mw* mw;
};

void expect(const ibv_wc& wc, ibv_wc_status status, const char* what) {
    if (wc.status != status)
        throw std::runtime_error(fmt::format("{} ended with \"{}\", not \"{}\"", what,
                                             ibv_wc_status_str(wc.status),
                                             ibv_wc_status_str(status)));
}

// ---- the owner ----

class Owner {
public:
    Owner(const tcpqp::Context& context, RdmaPeer& peer, const Case& c)
        : peer_(peer),
          case_(c),
          mr_(context, peer.region().data(), peer.region().size(), kRegionAccess),
          window_(context.pd(), c.type) {
        if (!mr_)
            tcpqp::throw_errno("register memory");
    }

    // The window is all of the region, and what is written there is private once it is taken back.
    void run_read() {
        window_at_ = 0;
        window_bytes_ = peer_.region().size();
        peer_.post_receive(1, 0, kReceiveBytes);
        peer_.post_receive(2, 0, kReceiveBytes);
        bind(kRead);
        tell(window_.mw->rkey);
        expect(peer_.wait(), IBV_WC_SUCCESS, "the receive");  // the READ is under way
        end();
        std::ranges::fill(peer_.region(), kPrivate);
        (void)peer_.wait();  // the peer has seen the READ's end, or we have ended the connection
    }

    void run(RdmaPeer* other) {
        bind(case_.access);
        tell(window_.mw->rkey);
        peer_.post_receive(1, 0, kReceiveBytes);
        tell(0);  // we have a receive
        const ibv_wc asked = peer_.wait();
        expect(asked, IBV_WC_SUCCESS, "the receive");
        if (case_.end == End::kRemote &&
            (!(asked.wc_flags & IBV_WC_WITH_INV) || asked.invalidated_rkey != window_.mw->rkey))
            throw std::runtime_error("the receive does not name the window taken back");
        check();
        end();
        RdmaPeer& last = other ? *other : peer_;
        last.post_receive(2, 0, kReceiveBytes);
        tell(0);
        expect(last.wait(), IBV_WC_WR_FLUSH_ERR, "the receive after the end");
        check();
    }

private:
    uint64_t at(uint64_t offset) const {
        return reinterpret_cast<uint64_t>(peer_.region().data()) + offset;
    }

    ibv_send_wr request(ibv_wr_opcode opcode) const {
        ibv_send_wr wr{};
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        return wr;
    }

    ibv_wc done(ibv_send_wr& wr) {
        peer_.post(wr);
        return peer_.wait();
    }

    void bind(int access, ibv_wc_status status = IBV_WC_SUCCESS) {
        const ibv_mw_bind_info info{mr_.get(), at(window_at_), window_bytes_,
                                    static_cast<unsigned>(access)};
        expect(case_.type == IBV_MW_TYPE_1 ? bind_type_1(info) : bind_type_2(info), status,
               "the binding");
    }

    ibv_wc bind_type_1(const ibv_mw_bind_info& info) {
        ibv_mw_bind bind{0, IBV_SEND_SIGNALED, info};
        if (int error = ibv_bind_mw(peer_.qp(), window_.mw, &bind); error != 0)
            tcpqp::throw_errno("bind", error);
        return peer_.wait();
    }

    ibv_wc bind_type_2(const ibv_mw_bind_info& info) {
        ibv_send_wr wr = request(IBV_WR_BIND_MW);
        wr.bind_mw = {window_.mw, ibv_inc_rkey(window_.mw->rkey), info};
        const ibv_wc wc = done(wr);
        if (wc.status == IBV_WC_SUCCESS)
            window_.mw->rkey = wr.bind_mw.rkey;
        return wc;
    }

    void tell(uint32_t key) {
        ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM);
        wr.imm_data = htonl(key);
        expect(done(wr), IBV_WC_SUCCESS, "the message");
    }

    void end() {
        ibv_send_wr wr = request(IBV_WR_LOCAL_INV);
        switch (case_.end) {
            case End::kLocal:
                wr.invalidate_rkey = window_.mw->rkey;
                return expect(done(wr), IBV_WC_SUCCESS, "the invalidation");
            case End::kBindAgain:
                return bind(case_.access);
            case End::kDeregister:
                mr_ = {};
                return;
            case End::kDeallocate:
                return window_.free();
            default:
                return;
        }
    }

    void check() const {
        const auto region = peer_.region();
        const size_t written = case_.good == W   ? kWindowBytes
                               : case_.good == A ? sizeof(uint64_t)
                                                 : 0;
        for (size_t i = 0; i < region.size(); i++) {
            const bool inside = i >= kWindowAt && i < kWindowAt + written;
            const bool carries =
                case_.good == A && i == kWindowAt;  // one was added, low byte first
            const int right = carries ? kFill + 1 : inside && case_.good == W ? kWritten : kFill;
            if (region[i] != right)
                throw std::runtime_error(fmt::format("byte {} of the region is wrong", i));
        }
    }

    RdmaPeer& peer_;
    const Case& case_;
    tcpqp::Mr mr_;
    Window window_;
    uint64_t window_at_ = kWindowAt, window_bytes_ = kWindowBytes;
};

// ---- the peer ----

class User {
public:
    User(RdmaPeer& peer, const Case& c) : peer_(peer), case_(c) {}

    void run(RdmaPeer* other) {
        peer_.post_receive(0, 0, kReceiveBytes);
        peer_.post_receive(0, 0, kReceiveBytes);
        peer_.post_receive(0, 0, kReceiveBytes);
        key_ = told();
        (void)told();
        std::ranges::fill(buffer(), kWritten);
        ibv_send_wr good = request(peer_, case_.good, 0, case_.good == A ? 8 : kWindowBytes);
        expect(done(peer_, good), IBV_WC_SUCCESS, "the request that fits");
        if (case_.good == R && std::ranges::any_of(buffer(), [](uint8_t b) { return b != kFill; }))
            throw std::runtime_error("what was read is wrong");
        ask();
        (void)told();
        RdmaPeer& last = other ? *other : peer_;
        ibv_send_wr bad = request(last, case_.bad, case_.bad_at, case_.bad_bytes);
        expect(done(last, bad), IBV_WC_REM_ACCESS_ERR, "the request that does not fit");
    }

private:
    std::span<uint8_t> buffer() const { return peer_.scratch().subspan(4096, kWindowBytes); }

    uint32_t told() {
        const ibv_wc wc = peer_.wait();
        expect(wc, IBV_WC_SUCCESS, "the owner's message");
        return ntohl(wc.imm_data);
    }

    ibv_send_wr request(RdmaPeer& peer, ibv_wr_opcode opcode, int64_t offset, uint32_t bytes) {
        sge_ = {reinterpret_cast<uint64_t>(peer.scratch().data()) + 4096, bytes,
                peer.scratch_key()};
        ibv_send_wr wr{};
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &sge_;
        wr.num_sge = 1;
        const uint64_t address = peer_.peer().address + kWindowAt + static_cast<uint64_t>(offset);
        if (opcode == A)
            wr.wr.atomic = {address, 1, 0, key_};
        else
            wr.wr.rdma = {address, key_};
        return wr;
    }

    // Tells the owner that it may go on; perhaps taking the window back.
    void ask() {
        ibv_send_wr wr{};
        wr.opcode = case_.end == End::kRemote ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND;
        wr.invalidate_rkey = case_.end == End::kRemote ? key_ : 0;
        wr.send_flags = IBV_SEND_SIGNALED;
        expect(done(peer_, wr), IBV_WC_SUCCESS, "the message to the owner");
    }

    static ibv_wc done(RdmaPeer& peer, ibv_send_wr& wr) {
        peer.post(wr);
        return peer.wait();
    }

    RdmaPeer& peer_;
    const Case& case_;
    uint32_t key_ = 0;
    ibv_sge sge_{};
};

void wait_begun(const uint8_t& byte) {
    using Clock = std::chrono::steady_clock;
    const auto limit = Clock::now() + std::chrono::milliseconds(kBeginMs);
    while (__atomic_load_n(&byte, __ATOMIC_ACQUIRE) == kUnread) {
        if (Clock::now() > limit)
            throw std::runtime_error("no byte of what was read has come");
        poll(nullptr, 0, 1);
    }
}

void read_long(RdmaPeer& peer, RdmaPeer* other) {
    RdmaPeer& reader = other ? *other : peer;
    const auto sink = reader.scratch().subspan(4096, kLongBytes);
    std::ranges::fill(sink, kUnread);
    peer.post_receive(0, 0, kReceiveBytes);
    const ibv_wc told = peer.wait();
    expect(told, IBV_WC_SUCCESS, "the owner's message");
    ibv_sge sge{reinterpret_cast<uint64_t>(sink.data()), static_cast<uint32_t>(sink.size()),
                reader.scratch_key()};
    ibv_send_wr read{}, say{};
    read.opcode = IBV_WR_RDMA_READ;
    read.send_flags = IBV_SEND_SIGNALED;
    read.sg_list = &sge;
    read.num_sge = 1;
    read.wr.rdma = {peer.peer().address, ntohl(told.imm_data)};
    reader.post(read);
    wait_begun(sink.front());
    say.opcode = IBV_WR_SEND;
    peer.post(say);
    const bool succeeded = reader.wait().status == IBV_WC_SUCCESS;
    if (std::ranges::find(sink, kPrivate) != sink.end())
        throw std::runtime_error("what was written after the window was taken back was read");
    if (succeeded && std::ranges::any_of(sink, [](uint8_t b) { return b != kFill; }))
        throw std::runtime_error("what was read is wrong");
    if (succeeded || other)
        peer.post(say);
}

// ---- mistakes of the owner ----

void make_mistake(const tcpqp::Context& context, RdmaPeer& peer, Mistake mistake) {
    peer.post_receive(0, 0, kReceiveBytes);
    expect(peer.wait(), IBV_WC_SUCCESS, "the peer's message");  // it has attached, too
    const bool unbindable = mistake == Mistake::kUnbindableRegion;
    const tcpqp::Mr mr(context, peer.region().data(), peer.region().size(),
                       mistake == Mistake::kReadOnlyRegion ? kRead | IBV_ACCESS_MW_BIND
                       : unbindable                        ? IBV_ACCESS_LOCAL_WRITE | kRemoteAll
                                                           : kRegionAccess);
    Window window(context.pd(), IBV_MW_TYPE_2);
    ibv_send_wr bind{}, invalidate{};
    bind.opcode = IBV_WR_BIND_MW;
    bind.send_flags = invalidate.send_flags = IBV_SEND_SIGNALED;
    bind.bind_mw = {window.mw,
                    ibv_inc_rkey(window.mw->rkey),
                    {mr.get(), reinterpret_cast<uint64_t>(peer.region().data()), kRegionBytes,
                     static_cast<unsigned>(kWrite)}};
    invalidate.opcode = IBV_WR_LOCAL_INV;
    invalidate.invalidate_rkey = bind.bind_mw.rkey;
    const auto succeed = [&peer](ibv_send_wr& wr) {
        peer.post(wr);
        expect(peer.wait(), IBV_WC_SUCCESS, "what comes before the mistake");
    };
    ibv_send_wr* wrong = &bind;
    switch (mistake) {
        case Mistake::kPastTheRegion:
            bind.bind_mw.bind_info.length++;
            break;
        case Mistake::kNoBytes:
            bind.bind_mw.bind_info.length = 0;
            break;
        case Mistake::kSameKey:
            bind.bind_mw.rkey = window.mw->rkey;
            break;
        case Mistake::kBoundAlready:
            succeed(bind);
            window.mw->rkey = bind.bind_mw.rkey;
            bind.bind_mw.rkey = ibv_inc_rkey(window.mw->rkey);
            break;
        case Mistake::kInvalidateRegion:
            invalidate.invalidate_rkey = mr.lkey();
            wrong = &invalidate;
            break;
        case Mistake::kInvalidateTwice:
            succeed(bind);
            succeed(invalidate);
            wrong = &invalidate;
            break;
        case Mistake::kInvalidateNothing:
            wrong = &invalidate;
            break;
        default:
            break;
    }
    peer.post(*wrong);
    expect(peer.wait(), IBV_WC_MW_BIND_ERR, "the mistake");
}

// The owner's queue pair ends, and with it the peer's.
void suffer_mistake(RdmaPeer& peer) {
    constexpr uint64_t kReceive = 0, kSend = 1;
    peer.post_receive(kReceive, 0, kReceiveBytes);
    ibv_send_wr wr{};
    wr.wr_id = kSend;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    peer.post(wr);
    ibv_wc wc = peer.wait();
    if (wc.wr_id == kSend)  // acknowledged, or the end was faster
        wc = peer.wait();
    expect(wc, IBV_WC_WR_FLUSH_ERR, "the receive");
}

// ---- both ----

class Cases {
public:
    explicit Cases(const Options& o)
        : o_(o), context_(tcpqp::open_device(o.peer.interface)), listener_(o.peer.listener(8)) {
        peer_options_.engine = o.peer.engine_id();
        peer_options_.region_bytes = o.reads ? kLongBytes : kRegionBytes;
        peer_options_.fill = kFill;
    }

    int run() {
        if (o_.reads) {
            for (const Reading& r : kReadings)
                one(r.name, [&] { reads(r); });
        } else {
            for (const Case& c : kCases)
                one(c.name, [&] { windows(c); });
            for (const auto& [name, mistake] : kMistakes)
                one(name, [&, mistake = mistake] { mistakes(mistake); });
        }
        std::printf("{\"windows\": %d}\n", done_);
        return done_ ? 0 : 1;
    }

private:
    void one(const char* name, const std::function<void()>& body) {
        if (!o_.cases.empty() && std::ranges::find(o_.cases, name) == o_.cases.end())
            return;
        try {
            body();
        } catch (const std::exception& e) {
            throw std::runtime_error(fmt::format("{}: {}", name, e.what()));
        }
        done_++;
    }

    void windows(const Case& c) {
        RdmaPeer peer(*context_, o_.peer.next_socket(listener_), peer_options_);
        std::optional<RdmaPeer> other;
        if (c.end == End::kOtherQueuePair)
            other.emplace(*context_, o_.peer.next_socket(listener_), peer_options_);
        RdmaPeer* const second = other ? &*other : nullptr;
        if (o_.peer.listens())
            Owner(*context_, peer, c).run(second);
        else
            User(peer, c).run(second);
    }

    void reads(const Reading& r) {
        RdmaPeer peer(*context_, o_.peer.next_socket(listener_), peer_options_);
        std::optional<RdmaPeer> other;
        if (r.elsewhere)
            other.emplace(*context_, o_.peer.next_socket(listener_), peer_options_);
        if (!o_.peer.listens())
            return read_long(peer, other ? &*other : nullptr);
        const Case c{r.name, r.type, kRead, R, r.end, R};
        Owner(*context_, peer, c).run_read();
    }

    void mistakes(Mistake mistake) {
        RdmaPeer peer(*context_, o_.peer.next_socket(listener_), peer_options_);
        if (o_.peer.listens())
            make_mistake(*context_, peer, mistake);
        else
            suffer_mistake(peer);
    }

    const Options& o_;
    std::unique_ptr<tcpqp::Context> context_;
    tcpqp::Fd listener_;
    RdmaPeer::Options peer_options_;
    int done_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("qp_window", "Memory windows: what they open, and that they are shut")
        .peer(o.peer)
        .flag("--reads", o.reads, "taken back while a long READ is answered")
        .option("--case", o.cases, "these alone, on both sides")
        .run(argc, argv, [&] { return Cases(o).run(); });
}
