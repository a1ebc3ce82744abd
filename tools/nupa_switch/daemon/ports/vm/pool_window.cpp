// SPDX-License-Identifier: BSD-3-Clause
#include "ports/vm/pool_window.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "engine/endian.hpp"
#include "event/clock.hpp"
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
    const bool lease = cmd.op == NUPA_POOL_LEASE, release = cmd.op == NUPA_POOL_RELEASE,
               offer = cmd.op == NUPA_POOL_OFFER, take = cmd.op == NUPA_POOL_TAKE;
    if (!lease && !release && !offer && !take && cmd.op != NUPA_POOL_NOP)
        return NUPA_ACCEL_E_OPCODE;
    const bool more = std::any_of(std::begin(cmd.reserved), std::end(cmd.reserved),
                                  [](uint8_t byte) { return byte != 0; });
    const bool sized = lease || take, placed = release || offer, named = release || take;
    if (more || cmd.type || cmd.value || cmd.from || cmd.limit_ms || (cmd.to && !placed) ||
        (cmd.bytes && !sized) || (cmd.other && !named) || (take && !cmd.other))
        return NUPA_ACCEL_E_INVALID;
    if (sized && (cmd.bytes == 0 || cmd.bytes % NUPA_POOL_PAGE_BYTES != 0))
        return NUPA_ACCEL_E_INVALID;
    return NUPA_ACCEL_OK;
}

void punch(int file, uint64_t at, uint64_t bytes) noexcept {
    (void)::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(NUPA_ACCEL_CONTROL_BYTES + at), static_cast<off_t>(bytes));
}

// A part of a file from @at on, that is all data or all hole.
struct Stretch {
    bool data;
    uint64_t bytes;
};

// A file that can't say so is all data.
Stretch stretch(int file, uint64_t at, uint64_t bytes) noexcept {
    const auto from = static_cast<off_t>(NUPA_ACCEL_CONTROL_BYTES + at);
    const off_t data = ::lseek(file, from, SEEK_DATA);
    if (data > from)
        return {false, std::min(static_cast<uint64_t>(data - from), bytes)};
    if (data < 0)
        return {errno != ENXIO, bytes};
    const off_t hole = ::lseek(file, from, SEEK_HOLE);
    return {true, hole > from ? std::min(static_cast<uint64_t>(hole - from), bytes) : bytes};
}

}  // namespace

PoolWindow::PoolWindow(Epoll& epoll, const Options& options, Leases::Owner owner,
                       const std::string& name, PoolWindowOwner& port)
    : epoll_(epoll),
      shared_(options.shared),
      owner_(owner),
      port_(port),
      bar2_bytes_(bar2_bytes_for(options.shared->leases.bytes())),
      listener_(options.socket),
      log_("nupa_switch: " + name + ": pool"),
      memory_(options.shared->leases, owner) {
    leases().join(owner, options.share_bytes);
    epoll_.add(listener_.fd(), *this, kListen);
}

PoolWindow::~PoolWindow() { leases().drop(owner_); }

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
            log_.line("a second client was turned away");
            continue;
        }
        try {
            plug(std::move(socket));
        } catch (const std::exception& e) {
            log_.line("{}", e.what());
            unplug();
        }
    }
}

void PoolWindow::plug(Fd socket) {
    id_ = random_id();
    client_.emplace(std::move(socket), sealed_memory("nupa-pool", bar2_bytes_), bar2_bytes_,
                    NUPA_ACCEL_VECTORS);
    memory_.map(
        {client_->bar2() + NUPA_ACCEL_CONTROL_BYTES, bar2_bytes_ - NUPA_ACCEL_CONTROL_BYTES});
    initialise();
    shared_->files[owner_] = client_->memory();
    epoll_.add(client_->socket(), *this, kClient, EPOLLIN | EPOLLRDHUP);
    // Edge triggered: nobody has to read it.  The other doorbell means nothing.
    epoll_.add(client_->doorbell(0), *this, kDoorbell, EPOLLIN | EPOLLET);
    client_->handshake();
    log_.line("plugged");
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
    if (job_)
        give_up();
    rang_ = false;
    shared_->files.erase(owner_);
    leases().drop(owner_);
    memory_.map({});
    epoll_.remove(client_->socket());
    epoll_.remove(client_->doorbell(0));
    client_.reset();
    log_.line("unplugged");
}

void PoolWindow::initialise() noexcept {
    nupa_accel_regs said{};
    said.magic = NUPA_POOL_MAGIC;
    said.abi_major = NUPA_POOL_ABI_MAJOR;
    said.abi_minor = NUPA_POOL_ABI_MINOR;
    said.id = id_;
    said.memory_at = NUPA_ACCEL_CONTROL_BYTES;
    said.memory_bytes = memory_.bytes();
    said.pool = shared_->id;
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
    if (leases().pinned(owner_))
        port_.window_ends();
    ring_.reset();
    leases().leave_all(owner_);  // at once: no region may come into one that is zeroed later
    next_reset_job();
}

// Leases are zeroed one after the other, and then the reset is acknowledged.
void PoolWindow::next_reset_job() noexcept {
    if (const auto at = leases().leaving(owner_)) {
        job_ = Job{Job::Why::kReset, {}, *at, leases().all().at(*at).bytes};
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
                log_.line("producer index beyond the ring");
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

// Nothing: a range is zeroed first, or gets what is in it.
std::optional<PoolWindow::Outcome> PoolWindow::execute(const nupa_accel_cmd& cmd) noexcept {
    if (const int status = check(cmd); status != NUPA_ACCEL_OK)
        return Outcome{status};
    if (cmd.op == NUPA_POOL_LEASE)
        return lease(cmd);
    if (cmd.op == NUPA_POOL_RELEASE)
        return release(cmd);
    if (cmd.op == NUPA_POOL_OFFER)
        return offer(cmd);
    if (cmd.op == NUPA_POOL_TAKE)
        return take(cmd);
    return Outcome{NUPA_ACCEL_OK};
}

// Its host may have written there before it was its own.
std::optional<PoolWindow::Outcome> PoolWindow::lease(const nupa_accel_cmd& cmd) noexcept {
    if (cmd.bytes <= leases().bytes() && leases().over_share(owner_, cmd.bytes))
        return Outcome{NUPA_POOL_E_SHARE};
    const auto at = leases().begin(owner_, cmd.bytes);
    if (!at)
        return Outcome{NUPA_POOL_E_NOSPACE};
    job_ = Job{Job::Why::kLease, cmd, *at, cmd.bytes};
    return std::nullopt;
}

std::optional<PoolWindow::Outcome> PoolWindow::release(const nupa_accel_cmd& cmd) noexcept {
    if (const int status = leases().leave(owner_, cmd.to, cmd.other); status != NUPA_ACCEL_OK)
        return Outcome{status};
    job_ = Job{Job::Why::kRelease, cmd, cmd.to, leases().all().at(cmd.to).bytes};
    return std::nullopt;
}

PoolWindow::Outcome PoolWindow::offer(const nupa_accel_cmd& cmd) noexcept try {
    const uint64_t token = random_id();
    const int status = leases().offer(owner_, cmd.to, token);
    return {status, status == NUPA_ACCEL_OK ? token : 0};
} catch (const std::exception&) {
    return {NUPA_POOL_E_NOSPACE};
}

// On hardware an entry of a decoder would change.  Here a window is a file that QEMU has mapped
// once, so what is in the lease moves to the other file, within the switch.
std::optional<PoolWindow::Outcome> PoolWindow::take(const nupa_accel_cmd& cmd) noexcept {
    Leases::Taken taken{};
    if (const int status = leases().take(owner_, cmd.other, cmd.bytes, taken);
        status != NUPA_ACCEL_OK)
        return Outcome{status};
    job_ = Job{Job::Why::kTake, cmd, taken.at, cmd.bytes};
    if (taken.from == owner_) {
        job_->done = cmd.bytes;
        return std::nullopt;
    }
    job_->from = Fd(::fcntl(shared_->files.at(taken.from), F_DUPFD_CLOEXEC, 0));
    if (job_->from)
        return std::nullopt;
    give_up();
    leases().freed(taken.at);
    return Outcome{NUPA_POOL_E_NOSPACE};
}

// True: no job is left.
bool PoolWindow::go_on(uint64_t end_ns) noexcept {
    while (job_) {
        if (job_->done == job_->bytes) {
            job_done();
            continue;
        }
        const uint64_t bytes = std::min(kPoolClearStepBytes, job_->bytes - job_->done);
        if (!step(*job_, bytes)) {
            fail_job();
            continue;
        }
        job_->done += bytes;
        if (monotonic_ns() >= end_ns)
            break;
    }
    if (job_ && job_->done == job_->bytes)
        job_done();
    return !job_;
}

bool PoolWindow::step(const Job& job, uint64_t bytes) noexcept {
    if (job.why == Job::Why::kTake)
        return move(job, bytes);
    clear(job.at + job.done, bytes);
    return true;
}

// The other window loses it as it moves: at most a step of it is in memory twice, and what nobody
// ever wrote is in none.
bool PoolWindow::move(const Job& job, uint64_t bytes) noexcept {
    const uint64_t at = job.at + job.done;
    for (uint64_t moved = 0; moved < bytes;) {
        const Stretch next = stretch(job.from.get(), at + moved, bytes - moved);
        if (!next.data) {
            clear(at + moved, next.bytes);
            moved += next.bytes;
            continue;
        }
        const ssize_t n = ::pread(job.from.get(), memory_.data() + at + moved, next.bytes,
                                  static_cast<off_t>(NUPA_ACCEL_CONTROL_BYTES + at + moved));
        if (n <= 0)
            return false;  // the machine has no memory for it
        moved += static_cast<uint64_t>(n);
    }
    punch(job.from.get(), at, bytes);
    return true;
}

// What was on its way is lost with the lease, and is nobody's to find.
void PoolWindow::fail_job() noexcept {
    const Job job = give_up();
    clear(job.at, job.bytes);
    leases().freed(job.at);
    complete(job.cmd, {NUPA_POOL_E_NOSPACE});
}

PoolWindow::Job PoolWindow::give_up() noexcept {
    Job job = std::move(*job_);
    job_.reset();
    if (job.from)
        punch(job.from.get(), job.at, job.bytes);
    return job;
}

void PoolWindow::job_done() noexcept {
    const Job job = std::move(*job_);
    job_.reset();
    switch (job.why) {
        case Job::Why::kLease:
            leases().granted(job.at);
            complete(job.cmd, {NUPA_ACCEL_OK, job.at});
            break;
        case Job::Why::kTake:
            leases().granted(job.at);
            shared_->handovers++;
            shared_->handover_bytes += job.bytes;
            complete(job.cmd, {NUPA_ACCEL_OK, job.at});
            break;
        case Job::Why::kRelease:
            leases().freed(job.at);
            complete(job.cmd, {NUPA_ACCEL_OK});
            break;
        case Job::Why::kReset:
            leases().freed(job.at);
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
