// SPDX-License-Identifier: BSD-3-Clause
#include "direct_signal.hpp"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "memory.hpp"
#include "tcp.hpp"
#include "verbs/attach.hpp"

namespace nupa::programs {
namespace {

using tcpqp::accel_call;

constexpr uint64_t kOutAt = 0x100000000, kInAt = 0x200000000;  // as the regions are addressed
constexpr uint32_t kPeriod = 251, kBeginner = 17, kOther = 101;
constexpr uint32_t kSendBell = 0, kCompletions = 256;
constexpr uint32_t kPatience = 10;  // WAITs of NUPA_ACCEL_WAIT_MAX_MS, for other processes,
constexpr uint32_t kWaits = 2;      // and for a message: on a slow machine the first may be in vain
constexpr int kLimitMs = 30000;

struct Offered {
    uint64_t address;
    uint64_t key;
};

[[nodiscard]] tcpqp::Fd event() {
    tcpqp::Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!fd)
        tcpqp::throw_errno("eventfd");
    return fd;
}

[[nodiscard]] nupa_accel_call wait_call(int buffer, uint64_t offset, uint32_t value) {
    nupa_accel_call call = accel_call(NUPA_ACCEL_WAIT, 0, {buffer, offset});
    call.value = value;
    call.limit_ms = NUPA_ACCEL_WAIT_MAX_MS;
    return call;
}

[[nodiscard]] nupa_accel_call ring_call(uint32_t bell) {
    nupa_accel_call call = accel_call(NUPA_ACCEL_RING, 0, {});
    call.value = bell;
    return call;
}

}  // namespace

DirectSignal::DirectSignal(const tcpqp::Context& context, const tcpqp::Fd& control,
                           tcpqp::Fd socket, const DirectOptions& options)
    : options_(options),
      out_(accelerator_.allocate(slot(options.rounds))),
      in_(accelerator_.allocate(slot(options.rounds))),
      right_(accelerator_.allocate(slot(options.rounds))),
      page_(accelerator_.allocate(kPageBytes)),
      out_mr_(context, out_.get(), 0, slot(options.rounds), kOutAt, 0),
      in_mr_(context, in_.get(), 0, slot(options.rounds), kInAt,
             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
      cq_(context, kCompletions, tcpqp::Waking::kDescriptor),
      qp_(context, cq_,
          {.sends = 2 * options.rounds,
           .receives = options.rounds,
           .access = IBV_ACCESS_REMOTE_WRITE,
           .signal_all = false}),
      context_(context),
      socket_(std::move(socket)),
      bell_(event()),
      over_(event()) {
    if (options.rounds == 0 || options.rounds > kRoundsMax)
        throw std::invalid_argument("rounds: 1 to " + std::to_string(kRoundsMax));
    if (!out_mr_ || !in_mr_)
        tcpqp::throw_errno("register the accelerator's memory");
    void* at = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, page_.get(), 0);
    if (at == MAP_FAILED)
        tcpqp::throw_errno("map a page of the accelerator");
    page_at_ = static_cast<uint32_t*>(at);
    __atomic_store_n(page_at_, 0, __ATOMIC_RELEASE);  // it is mapped, and counted, from here on
    fill(out_, options.begins);
    fill(right_, !options.begins);
    offer(control);
    tcp_qp_attach_req request{};
    request.engine = TCP_QP_ENGINE_OFFLOAD;
    request.timeout_ms = kLimitMs;
    if (const auto done = tcpqp::attach(context_, qp_, socket_.get(), request); done.error)
        tcpqp::throw_errno("attach", done.error);
    mapped_bytes_ = accelerator_.info().cpu_mapped_bytes;
}

DirectSignal::~DirectSignal() { ::munmap(page_at_, kPageBytes); }

// Each message differs from the one before, and one end's from the other's.
void DirectSignal::fill(const tcpqp::Fd& buffer, bool begins) const {
    accelerator_.pattern({buffer.get()}, slot(options_.rounds), kPeriod,
                         begins ? kBeginner : kOther);
    for (uint32_t i = 0; i < options_.rounds; i++)
        accelerator_.fill({buffer.get(), flag_at(i)}, sizeof(uint32_t), i + 1);
}

void DirectSignal::offer(const tcpqp::Fd& control) {
    const Offered mine{kInAt, in_mr_.lkey()};
    Offered theirs{};
    if (::send(control.get(), &mine, sizeof mine, MSG_NOSIGNAL) != sizeof mine ||
        ::recv(control.get(), &theirs, sizeof theirs, MSG_WAITALL) != sizeof theirs)
        tcpqp::throw_errno("exchange addresses");
    peer_at_ = theirs.address;
    peer_key_ = static_cast<uint32_t>(theirs.key);
}

void DirectSignal::set(uint64_t offset) const noexcept {
    __atomic_store_n(page_at_ + offset / sizeof(*page_at_), 1, __ATOMIC_RELEASE);
}

void DirectSignal::post(uint32_t round, bool notify, bool signal) {
    std::array<ibv_sge, 2> sges{
        {{kOutAt + slot(round), options_.payload_bytes, out_mr_.lkey()},
         {kOutAt + slot(round) + options_.payload_bytes, kLineBytes, out_mr_.lkey()}}};
    std::array<ibv_send_wr, 2> wrs{};
    for (size_t i = 0; i < wrs.size(); i++) {
        wrs[i].sg_list = &sges[i];
        wrs[i].num_sge = 1;
        wrs[i].opcode = IBV_WR_RDMA_WRITE;
        wrs[i].wr.rdma.remote_addr = peer_at_ + (sges[i].addr - kOutAt);
        wrs[i].wr.rdma.rkey = peer_key_;
    }
    wrs[0].next = &wrs[1];
    wrs[1].send_flags = signal ? IBV_SEND_SIGNALED : 0;
    if (notify)
        wrs[1].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    ibv_send_wr* bad = nullptr;
    if (const int error =
            ibv_post_send(qp_.get(), options_.payload_bytes ? &wrs[0] : &wrs[1], &bad);
        error != 0)
        tcpqp::throw_errno("post a WRITE", error);
}

void DirectSignal::next_completion(ibv_wc_opcode wanted) {
    ibv_wc wc{};
    do {
        int n = 0;
        while ((n = cq_.poll({&wc, 1})) == 0)
            if (const int error = cq_.descriptor().wait(kLimitMs); error != 0 && error != EINTR)
                tcpqp::throw_errno("no completion came", error);
        if (n < 0)
            throw std::runtime_error("the completion queue is broken");
        if (wc.status != IBV_WC_SUCCESS)
            throw std::runtime_error(std::string("completion: ") + ibv_wc_status_str(wc.status));
        all_sent_ |= wc.opcode == IBV_WC_RDMA_WRITE;  // the last one's
    } while (wc.opcode != wanted);
}

nupa_accel_call DirectSignal::compare_call(uint32_t round) const noexcept {
    return accel_call(NUPA_ACCEL_COMPARE, message_bytes(), {}, {in_.get(), slot(round)},
                      {right_.get(), slot(round)});
}

void DirectSignal::submit(std::span<nupa_accel_call> calls) const {
    if (const int error = accelerator_.submit(calls); error != 0)
        tcpqp::throw_errno("submit", error);
}

void DirectSignal::post_held(const tcpqp::Fd& control) {
    const uint32_t wrs = options_.payload_bytes ? 2 : 1;
    if (int error = accelerator_.bell(kSendBell, bell_.get()); error != 0)
        tcpqp::throw_errno("bell of the accelerator", error);
    if (int error = accelerator_.bell(kOverBell, over_.get()); error != 0)
        tcpqp::throw_errno("bell of the accelerator", error);
    if (int error = tcpqp::set_bell(context_, qp_, bell_.get(), wrs); error != 0)
        tcpqp::throw_errno("bell of the queue pair", error);
    for (uint32_t i = 0; i < options_.rounds; i++)
        post(i, false, i + 1 == options_.rounds);
    meet(control);
    if (accelerator_.compare({in_.get(), flag_at(0)}, {in_.get(), flag_at(options_.rounds - 1)},
                             sizeof(uint32_t)) != sizeof(uint32_t))
        throw std::runtime_error("a message came before its bell rang");
    meet(control);
}

void DirectSignal::add_round(uint32_t round) {
    const nupa_accel_call ring = ring_call(kSendBell);
    if (options_.begins)
        calls_.push_back(ring);
    calls_.insert(calls_.end(), kWaits, wait_call(in_.get(), flag_at(round), round + 1));
    calls_.push_back(compare_call(round));
    if (!options_.begins)
        calls_.push_back(ring);
}

void DirectSignal::run_chain() {
    calls_.insert(calls_.end(), kPatience, wait_call(page_.get(), kStartAt, 1));
    for (uint32_t i = 0; i < options_.rounds; i++)
        add_round(i);
    calls_.push_back(ring_call(kOverBell));
    calls_.insert(calls_.end(), kPatience, wait_call(page_.get(), kReleaseAt, 1));
    sleeper_ = ::gettid();
    submit(calls_);
}

void DirectSignal::wait_begun() const {
    for (int ms = 0; ms < kLimitMs; ms++) {
        std::ifstream file("/proc/self/task/" + std::to_string(sleeper_) + "/wchan");
        std::string where;
        if (sleeper_ != 0 && file >> where && where.find("nupa") != std::string::npos)
            return;
        ::usleep(1000);
    }
    throw std::runtime_error("the batch of commands does not begin");
}

void DirectSignal::close_buffers() noexcept {
    for (tcpqp::Fd* buffer : {&out_, &in_, &right_})
        buffer->reset();
}

void DirectSignal::post_receives(const tcpqp::Fd& control) {
    std::vector<tcpqp::Work> receives(options_.rounds);
    for (tcpqp::Work& receive : receives)
        receive.lkey = in_mr_.lkey();
    if (const int error = qp_.post_receives(receives); error != 0)
        tcpqp::throw_errno("post receives", error);
    if (const int error = qp_.ring_doorbell(); error != 0)
        tcpqp::throw_errno("ring the doorbell", error);
    meet(control);
}

void DirectSignal::run_processes() {
    for (uint32_t i = 0; i < options_.rounds; i++) {
        if (options_.begins)
            post(i, true, i + 1 == options_.rounds);
        next_completion(IBV_WC_RECV_RDMA_WITH_IMM);
        calls_.push_back(compare_call(i));
        submit({&calls_.back(), 1});
        if (!options_.begins)
            post(i, true, i + 1 == options_.rounds);
    }
}

void DirectSignal::check() {
    if (!all_sent_)
        next_completion(IBV_WC_RDMA_WRITE);
    uint32_t right = 0;
    for (const nupa_accel_call& call : calls_) {
        if (call.op == NUPA_ACCEL_COMPARE && call.result == message_bytes())
            right++;
        if (call.op != NUPA_ACCEL_WAIT && call.status != NUPA_ACCEL_OK)
            throw std::runtime_error("a command failed: " + std::to_string(call.status));
    }
    if (right != options_.rounds)
        throw std::runtime_error(std::to_string(right) + " of " + std::to_string(options_.rounds) +
                                 " messages are right");
    tcp_qp_info info{};
    if (const int error = tcpqp::query(context_, qp_, info); error != 0)
        tcpqp::throw_errno("query the queue pair", error);
    const uint64_t received = info.rx_placed_bytes + info.rx_copied_bytes;
    if ((info.rx_copied_bytes != 0 && !options_.may_copy) || info.tx_copied_bytes != 0 ||
        received != uint64_t{options_.rounds} * message_bytes())
        throw std::runtime_error("placed " + std::to_string(info.rx_placed_bytes) + ", copied " +
                                 std::to_string(info.rx_copied_bytes) + " and " +
                                 std::to_string(info.tx_copied_bytes));
    if (accelerator_.info().cpu_mapped_bytes != mapped_bytes_)
        throw std::runtime_error("a processor has touched the accelerator's memory");
}

void DirectSignal::leave(const tcpqp::Fd& control) { meet(control); }

}  // namespace nupa::programs
