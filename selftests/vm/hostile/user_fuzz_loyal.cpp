// SPDX-License-Identifier: BSD-3-Clause
// A client that means well, by rdma-core, amid threads that do not: its rings and its memory are
// its own, its socket is everybody's as soon as its first message is through.  The honest side
// checks.
#include "user_fuzz_loyal.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <system_error>

#include "user_fuzz_world.hpp"
#include "verbs/attach.hpp"
#include "verbs/cq.hpp"
#include "verbs/device.hpp"
#include "verbs/mr.hpp"
#include "verbs/qp.hpp"

namespace nupa::fuzz {
namespace {

// Descriptors from here on are in no table, and no stale number of a table's means one of them.
constexpr int kOwnDescriptors = 512;
constexpr uint32_t kDepth = 8;
constexpr uint32_t kMessagesMax = 60;
constexpr int kAttachMs = 2000, kTries = 60;
constexpr int kLookMs = 5, kLooksMax = 600;

// Nobody writes there.
const uint8_t* pattern() {
    static const uint8_t* const at = [] {
        void* got = mmap(nullptr, kPatternBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (got == MAP_FAILED)
            tcpqp::throw_errno("map the pattern");
        programs::fill({static_cast<uint8_t*>(got), kPatternBytes}, kPatternKey);
        mprotect(got, kPatternBytes, PROT_READ);
        return static_cast<const uint8_t*>(got);
    }();
    return at;
}

class Client {
public:
    Client(Player& p, tcpqp::Fd socket)
        : p_(p),
          socket_(std::move(socket)),
          context_(tcpqp::open_device(p.world.o.interface)),
          own_((context_->get()->cmd_fd = own(context_->get()->cmd_fd))),
          cq_(*context_, 2 * kDepth),
          mr_(*context_, const_cast<uint8_t*>(pattern()), kPatternBytes, 0),
          qp_(*context_, cq_, {kDepth, kDepth}) {}

    int run() {
        if (programs::first_wrong({pattern(), kPatternBytes}, kPatternKey) != kPatternBytes)
            return complain();
        if (const int error = attach())
            return error;
        const uint32_t count = 1 + p_.dice.below(kMessagesMax);
        for (int looks = 0; done_ < count && looks < kLooksMax; looks++) {
            if (const int error = post(count))
                return error;
            if (!reap())
                return EIO;  // whatever ended it
            if (done_ && !known_) {
                keep_socket(p_, fcntl(socket_.get(), F_DUPFD_CLOEXEC, 3));
                known_ = true;
            }
            if (known_ && p_.dice.one_in(64))
                break;
        }
        leave();
        return 0;
    }

private:
    // Whoever wrote there, it is not the peer's to find out.
    static int complain() {
        std::fprintf(stderr, "process %d: the memory of a loyal client has changed\n", getpid());
        close(creat(kWronged, 0644));
        return EFAULT;
    }
    int attach() {
        tcp_qp_attach_req request{};
        request.engine = TCP_QP_ENGINE_AUTO;
        request.timeout_ms = kAttachMs;
        for (int i = 0; i < kTries; i++) {
            const int error = tcpqp::attach(*context_, qp_, socket_.get(), request).error;
            if (error != EINTR)
                return error;
        }
        return EINTR;
    }
    int post(uint32_t count) {
        while (posted_ < count && posted_ - done_ < kDepth - 1) {
            const LoyalMessage m = loyal_message(posted_);
            const tcpqp::Work work{.cookie = posted_,
                                   .address = const_cast<uint8_t*>(pattern()) + m.offset,
                                   .bytes = m.bytes,
                                   .lkey = mr_.lkey(),
                                   .imm = posted_};
            if (const int error = qp_.post_sends({&work, 1}))
                return error;
            posted_++;
        }
        return 0;
    }
    bool reap() {
        ibv_wc wcs[kDepth];
        const int n = cq_.poll(wcs);
        if (n < 0)
            return false;
        for (int i = 0; i < n; i++) {
            if (wcs[i].status != IBV_WC_SUCCESS)
                return false;
            done_++;
            p_.world.shared.loyal_messages++;
        }
        if (!n)
            poll(nullptr, 0, kLookMs);
        return true;
    }
    // In one of the ways there are; the rest is destructors'.
    void leave() {
        const linger now{.l_onoff = 1, .l_linger = 0};
        switch (p_.dice.below(4)) {
            case 0:
                setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
                [[fallthrough]];
            case 1:
                socket_.reset();
                break;
            case 2: {
                ibv_qp_attr attr{};
                attr.qp_state = IBV_QPS_ERR;
                ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE);
                break;
            }
            default:
                break;
        }
    }

    Player& p_;
    tcpqp::Fd socket_;
    std::unique_ptr<tcpqp::Context> context_;
    int own_;
    tcpqp::CompletionQueue cq_;
    tcpqp::Mr mr_;
    tcpqp::QueuePair qp_;
    uint32_t posted_ = 0, done_ = 0;
    bool known_ = false;
};

// Its memory is mapped where no arena has a hole.
void make(Player& p, tcpqp::Fd socket, std::optional<Client>& client) {
    for (int i = 0; i < kTries; i++, poll(nullptr, 0, kLookMs))
        if (const Layout layout(p.world.layout); layout) {
            client.emplace(p, std::move(socket));
            return;
        }
}

int op_loyal(Player& p) {
    if (p.child || !p.world.o.port)
        return kNothing;
    tcpqp::Fd socket(own(connected_to(p.world.o.peer, p.world.o.port)));
    if (!socket || send(socket.get(), &kToken, sizeof kToken, MSG_NOSIGNAL) != sizeof kToken)
        return errno ? errno : EIO;
    try {
        std::optional<Client> client;
        make(p, std::move(socket), client);
        return client ? client->run() : kNothing;
    } catch (const std::system_error& error) {
        return error.code().value();
    } catch (const std::exception&) {
        return ENODEV;
    }
}

constexpr Op kOps[] = {{"loyal_client", 2, op_loyal}};

}  // namespace

int own(int fd) {
    const int got = fcntl(fd, F_DUPFD_CLOEXEC, kOwnDescriptors);
    close(fd);
    return got;
}

std::span<const Op> loyal_ops() { return kOps; }

}  // namespace nupa::fuzz
