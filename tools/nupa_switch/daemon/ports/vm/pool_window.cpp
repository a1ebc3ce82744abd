// SPDX-License-Identifier: BSD-3-Clause
#include "ports/vm/pool_window.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "engine/endian.hpp"
#include "event/clock.hpp"
#include "event/log.hpp"
#include "ivshmem/shared_field.hpp"

namespace nupa::daemon {
namespace {

constexpr unsigned kCompletions = 0;  // vectors
constexpr uint64_t kTurnNs = 500'000;
constexpr uint64_t kBlockBytes = 512;  // of stat

// A BAR is a power of two, and begins with the registers.
uint64_t bar2_bytes_for(uint64_t pool_bytes) noexcept {
    return std::max<uint64_t>(std::bit_ceil(pool_bytes + NUPA_ACCEL_CONTROL_BYTES),
                              NUPA_ACCEL_BAR2_BYTES_MIN);
}

// Every field that can be judged without the table of leases.
int check(const nupa_accel_cmd& cmd) noexcept {
    const bool lease = cmd.op == NUPA_POOL_LEASE, release = cmd.op == NUPA_POOL_RELEASE;
    if (!lease && !release && cmd.op != NUPA_POOL_NOP)
        return NUPA_ACCEL_E_OPCODE;
    const bool other = std::any_of(std::begin(cmd.reserved), std::end(cmd.reserved),
                                   [](uint8_t byte) { return byte != 0; });
    if (other || cmd.type || cmd.value || cmd.from || cmd.other || cmd.limit_ms ||
        (cmd.to && !release) || (cmd.bytes && !lease))
        return NUPA_ACCEL_E_INVALID;
    if (lease && (cmd.bytes == 0 || cmd.bytes % NUPA_POOL_PAGE_BYTES != 0))
        return NUPA_ACCEL_E_INVALID;
    return NUPA_ACCEL_OK;
}

}  // namespace

PoolWindow::PoolWindow(Epoll& epoll, const Options& options, Leases::Owner owner, std::string name,
                       PoolWindowOwner& port)
    : epoll_(epoll),
      leases_(options.leases),
      owner_(owner),
      name_(std::move(name)),
      port_(port),
      bar2_bytes_(bar2_bytes_for(options.leases->bytes())),
      listener_(options.socket),
      memory_(*options.leases, owner) {
    leases_->join(owner, options.share_bytes);
    epoll_.add(listener_.fd(), *this, kListen);
}

PoolWindow::~PoolWindow() { leases_->drop(owner_); }

void PoolWindow::handle(uint32_t what, uint32_t /*events*/) {
    switch (what) {
        case kListen:
            accept_client();
            break;
        case kClient:
            client_event();
            break;
        default:
            rang_ = true;
    }
}

void PoolWindow::accept_client() {
    while (Fd socket = listener_.accept()) {
        if (client_)
            client_event();  // the old client's end may be told later than the new one's start
        if (client_) {
            log_line("nupa_switch: {}: a second client of the pool was turned away", name_);
            continue;
        }
        try {
            plug(std::move(socket));
        } catch (const std::exception& e) {
            log_line("nupa_switch: {}: pool: {}", name_, e.what());
            unplug();
        }
    }
}

void PoolWindow::plug(Fd socket) {
    id_ = random_id();
    failure_logs_ = 0;
    client_.emplace(std::move(socket), sealed_memory("nupa-pool", bar2_bytes_), bar2_bytes_,
                    NUPA_ACCEL_VECTORS);
    memory_.map(
        {client_->bar2() + NUPA_ACCEL_CONTROL_BYTES, bar2_bytes_ - NUPA_ACCEL_CONTROL_BYTES});
    initialise();
    epoll_.add(client_->socket(), *this, kClient, EPOLLIN | EPOLLRDHUP);
    // Edge triggered: nobody has to read it.  The other doorbell means nothing.
    epoll_.add(client_->doorbell(0), *this, kDoorbell, EPOLLIN | EPOLLET);
    client_->handshake();
    log_line("nupa_switch: {}: pool plugged", name_);
}

void PoolWindow::client_event() noexcept {
    if (client_ && client_->event() != IvshmemClient::Event::kNothing)
        unplug();
}

// The file goes with its last mapping: no page of it is ever anybody else's, so nothing is zeroed.
void PoolWindow::unplug() noexcept {
    if (!client_)
        return;
    port_.window_ends();
    ring_.reset();
    job_.reset();
    rang_ = false;
    leases_->drop(owner_);
    memory_.map({});
    epoll_.remove(client_->socket());
    epoll_.remove(client_->doorbell(0));
    client_.reset();
    log_line("nupa_switch: {}: pool unplugged", name_);
}

void PoolWindow::initialise() noexcept {
    nupa_accel_regs said{};
    said.magic = NUPA_POOL_MAGIC;
    said.abi_major = NUPA_POOL_ABI_MAJOR;
    said.abi_minor = NUPA_POOL_ABI_MINOR;
    said.id = id_;
    said.memory_at = NUPA_ACCEL_CONTROL_BYTES;
    said.memory_bytes = memory_.bytes();
    std::memcpy(&regs(), &said, sizeof(said));
    control_gen_ = 0;
}

uint64_t PoolWindow::resident_bytes() const noexcept {
    struct stat st {};
    if (!client_ || ::fstat(client_->memory(), &st) < 0)
        return 0;
    return static_cast<uint64_t>(st.st_blocks) * kBlockBytes;
}

bool PoolWindow::work() noexcept {
    if (!client_ || (!rang_ && !job_))
        return false;
    const uint64_t end = monotonic_ns() + kTurnNs;
    rang_ = false;
    if (job_ && !go_on(end))
        return true;
    control();
    if (job_ && !go_on(end))
        return true;
    if (ring_)
        commands(end);
    return job_ || rang_;
}

// The host writes control first, then its generation.
void PoolWindow::control() noexcept {
    const uint32_t generation = load_acquire(regs().control_gen);
    if (generation == control_gen_)
        return;
    control_gen_ = generation;
    if (leases_->pinned(owner_))
        port_.window_ends();
    ring_.reset();
    leases_->leave_all(owner_);  // at once: no region may come into one that is zeroed later
    next_reset_job();
}

// Leases are zeroed one after the other, and then the reset is acknowledged.
void PoolWindow::next_reset_job() noexcept {
    if (const auto at = leases_->leaving(owner_)) {
        job_ = {Job::Why::kReset, {}, *at, leases_->all().at(*at).bytes};
        return;
    }
    if (load_acquire(regs().control) & NUPA_CONTROL_ENABLE)
        ring_.emplace(*reinterpret_cast<nupa_ring_ctl*>(client_->bar2() + NUPA_ACCEL_RING_AT),
                      NUPA_ACCEL_ENTRIES);
    store_release(regs().reset_ack, control_gen_);
    client_->interrupt(kCompletions);
    rang_ = true;  // what was written meanwhile
}

void PoolWindow::commands(uint64_t end_ns) noexcept {
    for (bool more = true; more;) {
        while (!job_ && ring_->pending()) {
            if (ring_->broken()) {
                if (failure_logs_++ < kPoolFailureLogsMax)
                    log_line("nupa_switch: {}: pool: producer index beyond the ring", name_);
                ring_.reset();  // it stands until it is reset
                return;
            }
            const auto cmd = copy_once<nupa_accel_cmd>(client_->bar2() + NUPA_ACCEL_CMDS_AT +
                                                       ring_->index(0) * sizeof(nupa_accel_cmd));
            if (const auto outcome = execute(cmd))
                complete(cmd, *outcome);
            else if (!go_on(end_ns))
                break;
            if (monotonic_ns() >= end_ns)
                break;
        }
        if (ring_->publish())
            client_->interrupt(kCompletions);
        if (monotonic_ns() >= end_ns) {
            rang_ = true;
            return;
        }
        more = !job_ && ring_->rearm();
    }
}

// Nothing: a range is zeroed first.
std::optional<PoolWindow::Outcome> PoolWindow::execute(const nupa_accel_cmd& cmd) noexcept {
    if (const int status = check(cmd); status != NUPA_ACCEL_OK)
        return Outcome{status};
    if (cmd.op == NUPA_POOL_LEASE)
        return lease(cmd);
    if (cmd.op == NUPA_POOL_RELEASE)
        return release(cmd);
    return Outcome{NUPA_ACCEL_OK};
}

// Its host may have written there before it was its own.
std::optional<PoolWindow::Outcome> PoolWindow::lease(const nupa_accel_cmd& cmd) noexcept {
    if (cmd.bytes <= leases_->bytes() && leases_->over_share(owner_, cmd.bytes))
        return Outcome{NUPA_POOL_E_SHARE};
    const auto at = leases_->begin(owner_, cmd.bytes);
    if (!at)
        return Outcome{NUPA_POOL_E_NOSPACE};
    job_ = {Job::Why::kLease, cmd, *at, cmd.bytes};
    return std::nullopt;
}

std::optional<PoolWindow::Outcome> PoolWindow::release(const nupa_accel_cmd& cmd) noexcept {
    if (const int status = leases_->leave(owner_, cmd.to); status != NUPA_ACCEL_OK)
        return Outcome{status};
    job_ = {Job::Why::kRelease, cmd, cmd.to, leases_->all().at(cmd.to).bytes};
    return std::nullopt;
}

// True: no job is left.
bool PoolWindow::go_on(uint64_t end_ns) noexcept {
    while (job_) {
        if (job_->done == job_->bytes) {
            job_done();
            continue;
        }
        const uint64_t step = std::min(kPoolClearStepBytes, job_->bytes - job_->done);
        clear(job_->at + job_->done, step);
        job_->done += step;
        if (monotonic_ns() >= end_ns)
            break;
    }
    if (job_ && job_->done == job_->bytes)
        job_done();
    return !job_;
}

void PoolWindow::job_done() noexcept {
    const Job job = *job_;
    job_.reset();
    switch (job.why) {
        case Job::Why::kLease:
            leases_->granted(job.at);
            complete(job.cmd, {NUPA_ACCEL_OK, job.at});
            break;
        case Job::Why::kRelease:
            leases_->freed(job.at);
            complete(job.cmd, {NUPA_ACCEL_OK});
            break;
        case Job::Why::kReset:
            leases_->freed(job.at);
            next_reset_job();
    }
}

// The pages go back to the machine; the next access finds zeros.
void PoolWindow::clear(uint64_t at, uint64_t bytes) noexcept {
    if (::fallocate(client_->memory(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(NUPA_ACCEL_CONTROL_BYTES + at),
                    static_cast<off_t>(bytes)) < 0)
        std::memset(memory_.data() + at, 0, bytes);
}

void PoolWindow::complete(const nupa_accel_cmd& cmd, const Outcome& outcome) noexcept {
    const nupa_accel_comp comp{
        .status = static_cast<uint32_t>(outcome.status), .tag = cmd.tag, .result = outcome.result};
    std::memcpy(client_->bar2() + NUPA_ACCEL_COMPS_AT + ring_->index(0) * sizeof(comp), &comp,
                sizeof(comp));
    ring_->take(1);
}

}  // namespace nupa::daemon
