// SPDX-License-Identifier: BSD-3-Clause
// Whom fuzzed processes must not harm.
//
//   user_fuzz_honest --port PORT --witness [--connect ADDR]   one end of a queue pair whose
//   messages
//       are checked byte for byte, and must never rest for long
//   user_fuzz_honest --port PORT                              attaches to whoever connects; only
//   posted
//       receives may be written, and numbered messages must be complete, right and in order
//
// Both end when the file STOP appears.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <list>

#include "command.hpp"
#include "flood.hpp"
#include "memory.hpp"
#include "tcp.hpp"
#include "user_fuzz_loyal.hpp"
#include "verbs/attach.hpp"
#include "verbs/device.hpp"

namespace {

using namespace nupa;
using namespace nupa::programs;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct Options {
    PeerOptions peer;
    std::string stop = "/tmp/user_fuzz.stop";
    bool witness = false;
    uint32_t pause_ms = 20;
    uint32_t stall_ms = 20000;
};

bool stopped(const Options& o) { return access(o.stop.c_str(), F_OK) == 0; }

// A socket that wants stamps.  Linux patches its code when the first is there and when the last is
// gone, which a fuzzed process does as often as it likes, and which QEMU's TCG can't always bear
// (docs/known-faults.md, Oops: int3).
tcpqp::Fd stamps() {
    tcpqp::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (setsockopt(socket.get(), SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on))
        tcpqp::throw_errno("ask for stamps");
    return socket;
}

int witness(const Options& o) {
    const tcpqp::Fd stamped = stamps();
    const auto context = tcpqp::open_device(o.peer.interface);
    FloodOptions f;
    f.engine = o.peer.engine_id(), f.bytes = 8 << 10, f.depth = 4, f.attach_ms = o.stall_ms;
    Flood flood(*context, o.peer.socket(), f);
    auto heard = Clock::now();
    milliseconds longest{0};
    for (uint64_t before = 0; !stopped(o);) {
        const bool alive = flood.step(static_cast<int>(o.pause_ms));
        poll(nullptr, 0, static_cast<int>(o.pause_ms));
        const auto now = Clock::now();
        longest = std::max(longest, std::chrono::duration_cast<milliseconds>(now - heard));
        if (flood.received() != before)
            before = flood.received(), heard = now;
        if (now - heard > milliseconds(o.stall_ms))
            throw std::runtime_error("no message for " + std::to_string(longest.count()) +
                                     " ms: " + flood.json());
        if (alive)
            continue;
        // the other end may have been told to stop before us
        for (const auto limit = now + milliseconds(o.stall_ms); !stopped(o); poll(nullptr, 0, 50))
            if (Clock::now() > limit)
                throw std::runtime_error("the queue pair failed: " + flood.json());
    }
    std::printf("{\"sent\": %llu, \"received\": %llu, \"longest_ms\": %lld}\n",
                static_cast<unsigned long long>(flood.sent()),
                static_cast<unsigned long long>(flood.received()),
                static_cast<long long>(longest.count()));
    return 0;
}

constexpr uint8_t kPoison = 0xa5;
constexpr uint32_t kDepth = 8;
constexpr size_t kGuardBytes = 4096;
constexpr size_t kStride = fuzz::kLoyalMaxBytes + kGuardBytes;
constexpr size_t kClients = 12;
constexpr uint32_t kSends = 4;
constexpr size_t kStreamTurnBytes = 1 << 20;
constexpr auto kTokenTime = milliseconds(1500), kStrangerLife = milliseconds(3000),
               kIdleLife = milliseconds(8000);

[[noreturn]] void wrong(const std::string& what) { throw WrongData(what); }

// One that connected, with a part of the arena.
class Guest {
public:
    Guest(const tcpqp::Context& context, const Options& o, const tcpqp::Mr& mr, uint32_t lkey,
          tcpqp::Fd socket, std::string client, std::span<uint8_t> room)
        : context_(context),
          o_(o),
          mr_(mr),
          lkey_(lkey),
          socket_(std::move(socket)),
          client_(std::move(client)),
          room_(room) {
        expect_poison(room_, "memory of a connection that is over");
    }
    ~Guest() {
        qp_.reset();
        std::ranges::fill(room_, kPoison);
    }
    Guest(const Guest&) = delete;
    Guest& operator=(const Guest&) = delete;

    // False when it is over.
    bool step() {
        const auto now = Clock::now();
        if (!qp_ && !stream_ && !attach(now))
            return false;
        if (stream_)
            return read_stream() && now - heard_ < kIdleLife;
        if (!qp_)
            return true;
        if (!drain())
            return false;
        (void)qp_->ring_doorbell();
        return now - heard_ < (loyal_ ? kIdleLife : kStrangerLife);
    }
    [[nodiscard]] bool loyal() const noexcept { return loyal_; }
    [[nodiscard]] uint64_t stream_bytes() const noexcept { return stream_bytes_; }
    [[nodiscard]] uint32_t messages() const noexcept { return messages_; }

private:
    std::span<uint8_t> slot(size_t i) { return room_.subspan(i * kStride, kStride); }
    static void expect_poison(std::span<const uint8_t> bytes, const char* what) {
        const auto at = std::ranges::find_if(bytes, [](uint8_t b) { return b != kPoison; });
        if (at != bytes.end())
            wrong(std::string("a byte was written into ") + what + " at " +
                  std::to_string(at - bytes.begin()));
    }

    bool attach(Clock::time_point now) {
        fuzz::Token token{};
        const ssize_t got = recv(socket_.get(), &token, sizeof token, MSG_DONTWAIT | MSG_PEEK);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return false;
        if (got < 0 && now - heard_ < kTokenTime)
            return true;
        loyal_ = got == sizeof token && token == fuzz::kToken;
        stream_ = got == sizeof token && token == fuzz::kStreamToken;
        if (loyal_ || stream_)
            (void)!recv(socket_.get(), &token, sizeof token, MSG_DONTWAIT);
        if (stream_)
            return true;
        cq_.emplace(context_, static_cast<int>(4 * kDepth));
        qp_.emplace(context_, *cq_, tcpqp::QpDepth{kDepth, kDepth});
        for (uint32_t i = 0; i < kDepth - 1; i++)
            post(i);
        tcp_qp_attach_req request{};
        request.engine = o_.peer.engine_id();
        request.flags = TCP_QP_ATTACH_F_NOWAIT;
        if (tcpqp::attach(context_, *qp_, socket_.get(), request).error)
            return false;
        heard_ = now;
        for (uint32_t i = 0; !loyal_ && i < kSends; i++) {
            const tcpqp::Work work{.cookie = kDepth,
                                   .address = slot(kDepth).data(),
                                   .bytes = 4096,
                                   .lkey = lkey_,
                                   .imm = i};
            (void)qp_->post_sends({&work, 1});
        }
        return true;
    }
    // What there is, for a turn; each byte is where it belongs.
    bool read_stream() {
        static std::array<uint8_t, 64 << 10> room;
        for (size_t turn = 0; turn < kStreamTurnBytes;) {
            const size_t before = stream_bytes_ % fuzz::kWordBytes;
            const uint64_t key = fuzz::kStreamKey + stream_bytes_ - before;
            const ssize_t got = recv(socket_.get(), &room[fuzz::kWordBytes],
                                     room.size() - fuzz::kWordBytes, MSG_DONTWAIT);
            if (got <= 0)
                return got < 0 && errno == EAGAIN;
            fill({room.data(), fuzz::kWordBytes}, key);
            std::memmove(&room[before], &room[fuzz::kWordBytes], static_cast<size_t>(got));
            const size_t all = before + static_cast<size_t>(got);
            if (const size_t wrong_at = first_wrong({room.data(), all}, key); wrong_at < all)
                wrong_stream(stream_bytes_ - before, std::span(room).first(all), wrong_at);
            stream_bytes_ += static_cast<uint64_t>(got), turn += static_cast<size_t>(got);
            heard_ = Clock::now();
        }
        return true;
    }
    // Names the stream as its client's last calls do (loyal_stream's port), and where in a stream
    // such bytes belong: those of a later send say that its memory was written too early.
    [[noreturn]] void wrong_stream(uint64_t began, std::span<const uint8_t> seen, size_t at) const {
        constexpr uint64_t kLookBytes = 16 << 20;
        const size_t word_at = (at + fuzz::kWordBytes - 1) / fuzz::kWordBytes * fuzz::kWordBytes;
        std::string whose = "no stream's so far";
        uint64_t word = 0;
        if (word_at + sizeof word <= seen.size()) {
            std::memcpy(&word, &seen[word_at], sizeof word);
            for (uint64_t i = 0; i < kLookBytes; i += fuzz::kWordBytes)
                if (mix(fuzz::kStreamKey + i) == word)
                    whose = "those of byte " + std::to_string(i);
        }
        wrong("the stream from " + client_ + ": byte " + std::to_string(began + at) +
              " is wrong; from byte " + std::to_string(began + word_at) + " on they are " + whose);
    }
    void post(uint32_t i) {
        const tcpqp::Work work{
            .cookie = i, .address = slot(i).data(), .bytes = fuzz::kLoyalMaxBytes, .lkey = lkey_};
        (void)qp_->post_receives({&work, 1});
    }
    bool drain() {
        std::array<ibv_wc, kDepth> wcs;
        for (int n; (n = cq_->poll(wcs)) != 0;) {
            if (n < 0)
                wrong("a completion queue is broken");
            for (const ibv_wc& wc : std::span(wcs).first(static_cast<size_t>(n))) {
                if (wc.status != IBV_WC_SUCCESS)
                    return false;
                if (wc.wr_id < kDepth)
                    received(wc);
            }
        }
        return true;
    }
    void received(const ibv_wc& wc) {
        if (wc.wr_id != messages_ % (kDepth - 1))
            wrong("a receive completed twice, or out of order");
        const std::span<uint8_t> to = slot(wc.wr_id);
        if (wc.byte_len > fuzz::kLoyalMaxBytes)
            wrong("a message longer than its receive");
        expect_poison(to.subspan(wc.byte_len), "what lies behind a message");
        if (loyal_)
            check(wc, to);
        std::ranges::fill(to, kPoison);
        expect_poison(slot(kDepth), "what is only sent");
        messages_++;
        heard_ = Clock::now();
        post(static_cast<uint32_t>(wc.wr_id));
    }
    void check(const ibv_wc& wc, std::span<const uint8_t> at) const {
        static const std::vector<uint8_t> pattern = [] {
            std::vector<uint8_t> bytes(fuzz::kPatternBytes);
            fill(bytes, fuzz::kPatternKey);
            return bytes;
        }();
        const uint32_t number = ntohl(wc.imm_data);
        if (number != messages_)
            wrong("message " + std::to_string(number) + " where " + std::to_string(messages_) +
                  " was next");
        const auto [offset, bytes] = fuzz::loyal_message(number);
        if (wc.byte_len != bytes)
            wrong("message " + std::to_string(number) + " has " + std::to_string(wc.byte_len) +
                  " bytes, not " + std::to_string(bytes));
        const auto [seen, right] =
            std::mismatch(at.begin(), at.begin() + bytes, pattern.begin() + offset);
        if (seen != at.begin() + bytes)
            wrong("message " + std::to_string(number) + " has wrong bytes, the first at " +
                  std::to_string(seen - at.begin()) + " of " + std::to_string(bytes) + " is " +
                  std::to_string(*seen) + " and not " + std::to_string(*right));
    }

    const tcpqp::Context& context_;
    const Options& o_;
    const tcpqp::Mr& mr_;
    uint32_t lkey_;
    tcpqp::Fd socket_;
    std::string client_;  // its address and port
    std::span<uint8_t> room_;
    std::optional<tcpqp::CompletionQueue> cq_;
    std::optional<tcpqp::QueuePair> qp_;
    Clock::time_point heard_ = Clock::now();
    uint32_t messages_ = 0;
    uint64_t stream_bytes_ = 0;
    bool loyal_ = false, stream_ = false;
};

// ADDRESS:PORT
std::string name_of(const sockaddr_storage& at) {
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> port{};
    if (getnameinfo(reinterpret_cast<const sockaddr*>(&at), sizeof at, host.data(), host.size(),
                    port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV))
        return "nobody";
    return std::string(host.data()) + ":" + port.data();
}

int host(const Options& o) {
    const auto context = tcpqp::open_device(o.peer.interface);
    constexpr size_t kRoom = (kDepth + 1) * kStride;
    Pages pages(kClients * kRoom);
    std::ranges::fill(pages.bytes(), kPoison);
    const tcpqp::Mr mr = pages.registered(*context, IBV_ACCESS_LOCAL_WRITE);
    const tcpqp::Fd listener = listen_on(o.peer.port, 64);
    fcntl(listener.get(), F_SETFL, O_NONBLOCK);
    std::array<std::unique_ptr<Guest>, kClients> guests;
    uint64_t strangers = 0, loyal = 0, messages = 0, checked = 0, streams = 0, bytes = 0;
    while (!stopped(o)) {
        for (size_t i = 0; i < kClients; i++) {
            if (!guests[i]) {
                sockaddr_storage from{};
                socklen_t from_bytes = sizeof from;
                tcpqp::Fd socket(accept4(listener.get(), reinterpret_cast<sockaddr*>(&from),
                                         &from_bytes, SOCK_CLOEXEC | SOCK_NONBLOCK));
                if (socket)
                    guests[i] = std::make_unique<Guest>(*context, o, mr, mr.lkey(),
                                                        std::move(socket), name_of(from),
                                                        pages.bytes().subspan(i * kRoom, kRoom));
            } else if (!guests[i]->step()) {
                (guests[i]->loyal() ? loyal : strangers)++;
                streams += guests[i]->stream_bytes() > 0, bytes += guests[i]->stream_bytes();
                (guests[i]->loyal() ? checked : messages) += guests[i]->messages();
                guests[i].reset();
            }
        }
        poll(nullptr, 0, static_cast<int>(o.pause_ms));
    }
    std::printf(
        "{\"strangers\": %llu, \"loyal\": %llu, \"messages\": %llu, \"checked\": %llu, "
        "\"streams\": %llu, \"stream_bytes\": %llu}\n",
        static_cast<unsigned long long>(strangers), static_cast<unsigned long long>(loyal),
        static_cast<unsigned long long>(messages), static_cast<unsigned long long>(checked),
        static_cast<unsigned long long>(streams), static_cast<unsigned long long>(bytes));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("user_fuzz_honest", "The honest side of user_fuzz")
        .peer(o.peer)
        .option("--stop", o.stop, "the file that ends this")
        .flag("--witness", o.witness, "one end of a queue pair that must live")
        .option("--pause-ms", o.pause_ms)
        .option("--stall-ms", o.stall_ms)
        .run(argc, argv, [&] {
            try {
                return o.witness ? witness(o) : host(o);
            } catch (...) {
                close(creat(fuzz::kWronged, 0644));
                throw;
            }
        });
}
