// SPDX-License-Identifier: BSD-3-Clause
// Messages of random sizes both ways through libtcpqp's level 1, every byte
// checked; waits by epoll on the cq's descriptor.  The engine is TCPQP_ENGINE's.
//
//   lib_exchange --port PORT [--connect ADDR] [--messages N] [--bytes MAX] [--leave-after N]
//                [--timeout-ms N] [--room BYTES] [--zerocopy BYTES]
//                [--memory pages|huge|udmabuf|dma-heap|offsets] [--in-vain-ms N] [--shut]
//                [--tos N]
//
// A send's buffer is filled anew as soon as its completion says so.
// offsets: of a dma-heap's buffer, named by offsets and not by addresses.
// tos: of what the listening end sends.
// in-vain: then the connecting end waits so long for what does not come, the other one for its end.
//
// Prints one JSON object; exit 0 only if all was right.
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "command.hpp"
#include "memory.hpp"
#include "pattern.hpp"
#include "tcpqp.hpp"
#include "zerocopy_asked.hpp"

namespace {

using namespace nupa::programs;
constexpr uint32_t kDepth = 16;
constexpr int kSilenceMs = 20000;

struct Options {
    PeerOptions peer;
    uint32_t messages = 100;
    uint32_t bytes = 65536;
    uint32_t room = 0;         // of a receive, if less than @bytes
    int timeout_ms = 0;        // for the peer's queue pair
    uint32_t zerocopy = 0;     // tcpqp_qp_opts.zerocopy_bytes
    uint32_t leave_after = 0;  // messages received, then _exit(0)
    int in_vain_ms = 0;
    uint32_t tos = 0;   // of the listener
    bool shut = false;  // SHUT_RDWR as soon as all was sent and received
    std::string memory = "pages";
};

class Exchange {
public:
    Exchange(const Options& o, int socket)
        : o_(o),
          side_(o.peer.listens() ? 0 : 1),
          memory_(size_t{2} * kDepth * o.bytes, memory_of(by_offset() ? "dma-heap" : o.memory)),
          context_(opts(socket)),
          mr_(registered()),
          cq_(context_),
          qp_(cq_, socket, qp_opts()) {}

    void run() {
        tcpqp::Fd epoll(::epoll_create1(0));
        epoll_event event{};
        event.events = EPOLLIN;
        if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, cq_.fd(), &event) != 0)
            tcpqp::throw_errno("epoll");
        while (!ended_ && (sent_ < o_.messages || received_ < o_.messages)) {
            post_sends();
            int n = 0;
            while ((n = ::epoll_wait(epoll.get(), &event, 1, kSilenceMs)) < 0 && errno == EINTR) {
            }
            if (n <= 0)
                throw std::runtime_error("silence");
            take();
        }
    }

    void wait_in_vain() {
        using std::chrono::milliseconds;
        while (side_ == 0 && !ended_) {
            (void)tcpqp_wait(cq_.get(), -1);
            take();
        }
        if (side_ == 0)
            return;
        const auto began = std::chrono::steady_clock::now();
        const int said = tcpqp_wait(cq_.get(), o_.in_vain_ms);
        const auto took = std::chrono::steady_clock::now() - began;
        const milliseconds wanted(o_.in_vain_ms);
        if (said != -ETIMEDOUT || took < wanted || took > wanted * 5 / 3)
            throw std::runtime_error(
                "a wait of " + std::to_string(o_.in_vain_ms) + " ms said " + std::to_string(said) +
                " after " + std::to_string(std::chrono::duration_cast<milliseconds>(took).count()));
    }

    void print() const {
        const tcpqp_qp_info i = qp_.info();
        std::printf(
            "{\"engine\": \"%s\", \"reason\": \"%s\", \"sent\": %u, \"received\": %u, \"status\": "
            "%d, "
            "\"tx_bytes\": %llu, \"tx_zerocopy\": %llu, \"zerocopy_asked\": %llu, \"rx_bytes\": "
            "%llu, \"placed\": %llu, "
            "\"copied\": %llu, \"framing\": %u}\n",
            tcpqp_engine_name(i.engine), tcpqp_reason_name(i.reason), sent_, received_, status_,
            ull(i.tx_bytes), ull(i.tx_zerocopy_bytes), ull(zerocopy_asked()), ull(i.rx_bytes),
            ull(i.rx_placed_bytes), ull(i.rx_copied_bytes), i.framing);
    }

private:
    static unsigned long long ull(uint64_t v) { return v; }
    static tcpqp_context_opts opts(int socket) {
        tcpqp_context_opts c{};
        c.socket = socket;
        return c;
    }
    [[nodiscard]] bool by_offset() const { return o_.memory == "offsets"; }
    tcpqp::v1::MemoryRegion registered() {
        if (memory_.dmabuf() < 0)
            return {context_, std::as_writable_bytes(memory_.bytes())};
        tcpqp_dmabuf_opts d{};
        refuse_outside(d);
        d.addr = name(0);
        return {context_, memory_.dmabuf(), memory_.bytes().size(), d};
    }
    void refuse_outside(tcpqp_dmabuf_opts d) {
        constexpr size_t kFar = size_t{1} << 40;
        tcpqp_mr* none = nullptr;
        d.size = sizeof(d);
        d.addr = at(0);
        const int error = tcpqp_mr_create_dmabuf(context_.get(), memory_.dmabuf(), kFar, &d, &none);
        d.addr = at(0) + 1;
        if (error != -EINVAL ||
            tcpqp_mr_create_dmabuf(context_.get(), memory_.dmabuf(), 1, &d, &none) != -EINVAL)
            throw std::runtime_error("a region outside, or askew, was not refused");
    }
    tcpqp_qp_opts qp_opts() {
        tcpqp_qp_opts q{};
        for (uint32_t i = 0; i < kDepth; i++)
            first_.push_back(receive(i));
        q.first = first_.data();
        q.first_count = kDepth;
        q.timeout_ms = o_.timeout_ms;
        q.zerocopy_bytes = o_.zerocopy;
        return q;
    }

    [[nodiscard]] uint64_t key(int side, uint32_t m) const {
        return mix(uint64_t{m} * 2 + static_cast<uint64_t>(side));
    }
    [[nodiscard]] uint32_t size(int side, uint32_t m) const {
        const uint64_t r = mix(key(side, m) ^ 7);
        return static_cast<uint32_t>((r >> 8) % ((r & 3) == 0 ? 200 : o_.bytes + 1));
    }
    uint8_t* at(uint32_t slot) { return memory_.bytes().data() + size_t{slot} * o_.bytes; }
    // What work requests call it.
    void* name(uint32_t slot) {
        return by_offset() ? reinterpret_cast<void*>(size_t{slot} * o_.bytes) : at(slot);
    }
    tcpqp_work receive(uint32_t slot) {
        return {slot, name(slot), o_.room != 0 ? o_.room : o_.bytes, 0, 0, 0, mr_.get()};
    }

    void post_sends() {
        while (posted_ < o_.messages && posted_ - sent_ < kDepth) {
            const uint32_t slot = kDepth + posted_ % kDepth, n = size(side_, posted_);
            fill({at(slot), n}, key(side_, posted_));
            const bool imm = posted_ % 3 == 0;
            const tcpqp_work w{
                slot, name(slot), n, imm ? posted_ : 0, imm ? uint32_t{TCPQP_F_IMM} : 0,
                0,    mr_.get()};
            const int error = qp_.post_send({&w, 1});
            if (error == -EAGAIN || error == -ENOTCONN)
                return;
            if (error < 0)
                throw std::runtime_error("post_send: " + std::to_string(error));
            posted_++;
        }
    }

    void take() {
        tcpqp_completion batch[8];
        const int n = cq_.poll(batch);
        for (int i = 0; i < n; i++)
            on(batch[i]);
    }

    void on(const tcpqp_completion& c) {
        if (c.status != 0) {
            ended_ = true;
            status_ = status_ != 0 ? status_ : c.status;
        } else if (c.opcode == TCPQP_OP_SEND) {
            sent_++;
        } else {
            check(c);
            received_++;
            if (received_ == o_.leave_after)
                _exit(0);
            const tcpqp_work w = receive(static_cast<uint32_t>(c.id));
            const int error = qp_.post_recv({&w, 1});
            if (error < 0 && error != -ENOTCONN)  // its completions will tell
                throw std::runtime_error("post_recv: " + std::to_string(error));
        }
    }

    void check(const tcpqp_completion& c) {
        const uint32_t n = size(1 - side_, received_);
        const bool imm = received_ % 3 == 0;
        if (c.length != n || c.id != received_ % kDepth || (c.flags == TCPQP_F_IMM) != imm ||
            (imm && c.imm != received_))
            throw std::runtime_error("message " + std::to_string(received_) + " of " +
                                     std::to_string(n) +
                                     " bytes is not the one sent: " + std::to_string(c.length) +
                                     " bytes, id " + std::to_string(c.id) + ", flags " +
                                     std::to_string(c.flags) + ", imm " + std::to_string(c.imm));
        if (first_wrong({at(static_cast<uint32_t>(c.id)), n}, key(1 - side_, received_)) != n)
            throw std::runtime_error("message " + std::to_string(received_) + " has a wrong byte");
    }

    const Options& o_;
    const int side_;
    Pages memory_;
    tcpqp::v1::Context context_;
    tcpqp::v1::MemoryRegion mr_;
    tcpqp::v1::Completions cq_;
    std::vector<tcpqp_work> first_;
    tcpqp::v1::Qp qp_;
    uint32_t posted_ = 0, sent_ = 0, received_ = 0;
    bool ended_ = false;
    int status_ = 0;
};

// By which its connections are routed, too.
void set_tos(const tcpqp::Fd& listener, uint32_t tos) {
    if (tos != 0 && ::setsockopt(listener.get(), IPPROTO_IP, IP_TOS, &tos, sizeof(tos)) != 0)
        tcpqp::throw_errno("IP_TOS");
}

int exchange(const Options& o) {
    try {
        if (o.room > o.bytes)
            throw std::invalid_argument("--room beyond --bytes");
        const tcpqp::Fd listener = o.peer.listener();
        set_tos(listener, o.tos);
        const tcpqp::Fd fd = o.peer.next_socket(listener);
        Exchange exchange(o, fd.get());
        exchange.run();
        if (o.shut)
            (void)::shutdown(fd.get(), SHUT_RDWR);
        if (o.in_vain_ms != 0)
            exchange.wait_in_vain();
        exchange.print();
        return 0;
    } catch (const tcpqp::v1::Error& e) {
        std::fprintf(stderr, "lib_exchange: %s [%s]\n", e.what(), tcpqp_reason_name(e.reason()));
        return 1;
    }
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    return Command("lib_exchange", "Random messages both ways through libtcpqp's level 1")
        .address(o.peer)
        .option("--messages", o.messages)
        .option("--bytes", o.bytes, {200, UINT32_MAX}, "the longest")
        .option("--room", o.room)
        .option("--leave-after", o.leave_after)
        .option("--timeout-ms", o.timeout_ms)
        .option("--zerocopy", o.zerocopy)
        .option("--memory", o.memory)
        .option("--in-vain-ms", o.in_vain_ms)
        .option("--tos", o.tos)
        .flag("--shut", o.shut)
        .run(argc, argv, [&] { return exchange(o); });
}
