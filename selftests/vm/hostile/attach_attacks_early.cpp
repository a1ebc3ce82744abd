// SPDX-License-Identifier: BSD-3-Clause
// A peer that sends messages before it was told that it may, and one that hears us and says nothing
// of its own (selftests/vm/early_peer.py).
#include <sys/socket.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "attach_attacks.hpp"

namespace nupa::programs::attach {
namespace {

constexpr uint32_t kMessages = 192;  // their bytes are their numbers
constexpr uint32_t kBytes = 64;
constexpr uint8_t kPoison = 0xff;  // nobody's number
static_assert(kMessages <= kPoison);

ibv_wc completion_of(tcpqp::CompletionQueue& cq, const std::string& name) {
    try {
        return next_completion(cq, static_cast<int>(kWaitMs));
    } catch (const std::exception& e) {
        throw std::runtime_error(name + ": " + e.what());
    }
}

// Each message is where its receive is, whoever put it there.
void receive_numbered(const tcpqp::Context& context, const Options& o, const tcpqp::Fd& listener) {
    const Pages pages(kMessages * kBytes);
    std::ranges::fill(pages.bytes(), kPoison);
    const tcpqp::Mr mr = pages.registered(context, IBV_ACCESS_LOCAL_WRITE);
    tcpqp::CompletionQueue cq(context, kMessages);
    tcpqp::QueuePair qp(context, cq, {.sends = 1, .receives = kMessages});
    const auto slot = [&](uint32_t i) { return pages.bytes().subspan(i * kBytes, kBytes); };
    std::vector<tcpqp::Work> works;
    for (uint32_t i = 0; i < kMessages; i++)
        works.push_back(
            {.cookie = i, .address = slot(i).data(), .bytes = kBytes, .lkey = mr.lkey()});
    if (const int error = qp.post_receives(works); error != 0)
        tcpqp::throw_errno("post receives", error);
    const tcpqp::Fd fd = o.peer.next_socket(listener);
    require(send(fd.get(), "!", 1, MSG_NOSIGNAL) == 1, "tell the peer that attach begins");
    const tcpqp::Attached attached = tcpqp::attach(
        context, qp, fd.get(),
        {.engine = o.peer.engine_id(), .flags = 0, .timeout_ms = kWaitMs, .reserved = 0});
    require(attached.error == 0, "attach: " + error_text(attached.error));
    for (uint32_t i = 0; i < kMessages; i++) {
        const std::string name = "message " + std::to_string(i);
        const ibv_wc wc = completion_of(cq, name);
        require(wc.status == IBV_WC_SUCCESS, name + ": " + ibv_wc_status_str(wc.status));
        require(wc.wr_id == i && wc.byte_len == kBytes, name + " came to another receive");
        const auto is_right = [i](uint8_t byte) { return byte == i; };
        const auto wrong = std::ranges::find_if_not(slot(i), is_right);
        require(wrong == slot(i).end(),
                name + " is not in its receive, but " +
                    (*wrong == kPoison ? "nothing" : "message " + std::to_string(*wrong)));
    }
}

}  // namespace

void early(const tcpqp::Context& context, const Options& o) {
    const Link link = link_up();  // whose queue pairs keep the namespace's hook
    End a(context), b(context);
    a.must_attach(link.a.get());
    b.must_attach(link.b.get());
    const tcpqp::Fd listener = o.peer.listener();
    for (uint32_t round = 0; round < o.rounds; round++)
        receive_numbered(context, o, listener);
}

// Its rtr never comes: what was posted fails when the time is over.
void unready(const tcpqp::Context& context, const Options& o) {
    constexpr uint32_t kTimeoutMs = 2000;
    const tcpqp::Fd fd = o.peer.socket();
    require(send(fd.get(), "!", 1, MSG_NOSIGNAL) == 1, "tell the peer that attach begins");
    End a(context);
    require(a.attach(fd.get(), TCP_QP_ATTACH_F_NOWAIT, kTimeoutMs).error == 0, "attach");
    a.send(kBytes);
    require(a.wait().status == IBV_WC_WR_FLUSH_ERR, "a send that nobody was ready for");
}

}  // namespace nupa::programs::attach
