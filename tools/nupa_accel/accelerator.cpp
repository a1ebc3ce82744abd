// SPDX-License-Identifier: BSD-3-Clause
#include "nupa_accel/accelerator.hpp"

#include <fcntl.h>
#include <sys/timerfd.h>

#include <cstring>

#include "base/stop_signals.hpp"
#include "event/clock.hpp"
#include "ivshmem/shared_field.hpp"
#include "nupa_accel/commands.hpp"
#include "nupa_accel/memory_file.hpp"

namespace nupa::accel {

using daemon::Fd;
using daemon::load_acquire;
using daemon::monotonic_ns;
using daemon::random_id;
using daemon::store_release;
using daemon::throw_errno;

namespace {

constexpr uint64_t kNsPerMs = 1'000'000;
constexpr uint64_t kSpinNs = 20'000;     // what a WAIT looks without a pause
constexpr long kWaitPeriodNs = 100'000;  // between two looks after that
constexpr unsigned kCompletions = 0;     // vectors
constexpr unsigned kBellsRang = 1;

Fd make_timer() {
    Fd fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!fd)
        throw_errno("timerfd_create");
    return fd;
}

Fd duplicate(const Fd& fd) {
    Fd copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy)
        throw_errno("dup");
    return copy;
}

}  // namespace

Accelerator::Accelerator(const Options& options)
    : file_(make_memory_file(options.memory, options.bytes)),
      whole_(file_.get(), options.bytes, options.memory),
      id_(random_id()),
      signals_(tcpqp::stop_signals()),
      wait_timer_(make_timer()),
      listener_(options.socket),
      log_("nupa_accel") {
    initialise();  // the switch may look for the id before a client comes
    epoll_.add(listener_.fd(), *this, kListen);
    epoll_.add(wait_timer_.get(), *this, kWaitTimer);
    epoll_.add(signals_.get(), *this, kSignal);
}

void Accelerator::run() {
    while (!stopping_)
        epoll_.dispatch(true);
}

void Accelerator::handle(uint32_t what, uint32_t /*events*/) {
    switch (what) {
        case kSignal:
            stopping_ = true;
            break;
        case kListen:
            accept_client();
            break;
        case kClient:
            client_event();
            break;
        case kDoorbell:
            doorbell();
            break;
        default: {
            uint64_t times = 0;
            [[maybe_unused]] ssize_t n = ::read(wait_timer_.get(), &times, sizeof(times));
            if (ring_)
                commands();
        }
    }
}

void Accelerator::accept_client() {
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

void Accelerator::plug(Fd socket) {
    client_.emplace(std::move(socket), duplicate(file_), whole_.bytes(), NUPA_ACCEL_VECTORS);
    initialise();
    epoll_.add(client_->socket(), *this, kClient, EPOLLIN | EPOLLRDHUP);
    // Edge triggered: nobody has to read it.  The other doorbells mean nothing.
    epoll_.add(client_->doorbell(0), *this, kDoorbell, EPOLLIN | EPOLLET);
    client_->handshake();
    log_.line("plugged");
}

void Accelerator::client_event() noexcept {
    if (client_ && client_->event() != daemon::IvshmemClient::Event::kNothing)
        unplug();
}

void Accelerator::unplug() noexcept {
    if (!client_)
        return;
    reset();
    epoll_.remove(client_->socket());
    epoll_.remove(client_->doorbell(0));
    client_.reset();
    log_.line("unplugged");
}

// What we say of ourselves, over whatever a host has written there.
void Accelerator::initialise() noexcept {
    nupa_accel_regs said{};
    said.magic = NUPA_ACCEL_MAGIC;
    said.abi_major = NUPA_ACCEL_ABI_MAJOR;
    said.abi_minor = NUPA_ACCEL_ABI_MINOR;
    said.id = id_;
    said.memory_at = NUPA_ACCEL_CONTROL_BYTES;
    said.memory_bytes = memory().size();
    std::memcpy(&regs(), &said, sizeof(said));
    control_gen_ = 0;
    bells_ = {};
}

void Accelerator::reset() noexcept {
    ring_.reset();
    wait_.reset();
    arm_wait_timer();
}

void Accelerator::doorbell() noexcept {
    control();
    if (ring_)
        commands();
}

// The host writes control first, then its generation.
void Accelerator::control() noexcept {
    const uint32_t generation = load_acquire(regs().control_gen);
    if (generation == control_gen_)
        return;
    control_gen_ = generation;
    reset();
    if (load_acquire(regs().control) & NUPA_CONTROL_ENABLE)
        ring_.emplace(*reinterpret_cast<nupa_ring_ctl*>(whole_.data() + NUPA_ACCEL_RING_AT),
                      NUPA_ACCEL_ENTRIES);
    store_release(regs().reset_ack, generation);
    client_->interrupt(kCompletions);
}

// All there is; a WAIT whose flag is not set ends the turn.
void Accelerator::commands() noexcept {
    for (bool more = true; more;) {
        while (!wait_ && ring_->pending() && command()) {
        }
        if (wait_ && go_on_waiting())
            continue;
        if (!ring_) {  // the host broke the ring: it stands until it is reset
            log_.line("producer index beyond the ring");
            return;
        }
        if (ring_->publish())
            client_->interrupt(kCompletions);
        more = !wait_ && ring_->rearm();
    }
    arm_wait_timer();
}

// The next command, copied once.  False: the ring stands.
bool Accelerator::command() noexcept {
    if (ring_->broken()) {
        reset();
        return false;
    }
    nupa_accel_cmd cmd;
    std::memcpy(&cmd, whole_.data() + NUPA_ACCEL_CMDS_AT + ring_->index(0) * sizeof(cmd),
                sizeof(cmd));
    __asm__ volatile("" ::: "memory");  // the host may write there again
    const nupa_accel_status status = check(cmd, memory().size());
    if (status != NUPA_ACCEL_OK) {
        complete(cmd, status, 0);
    } else if (cmd.op == NUPA_ACCEL_WAIT) {
        wait_ = {cmd, monotonic_ns() + cmd.limit_ms * kNsPerMs};
    } else if (cmd.op == NUPA_ACCEL_RING) {
        ring(cmd.value);
        complete(cmd, NUPA_ACCEL_OK, 0);
    } else {
        const Outcome outcome = execute(cmd, memory());
        complete(cmd, outcome.status, outcome.result);
    }
    return true;
}

// True: it is over.
bool Accelerator::go_on_waiting() noexcept {
    const uint64_t begun = monotonic_ns();
    for (uint64_t now = begun;; now = monotonic_ns()) {
        const bool set = flag_is_set(wait_->cmd, memory());
        if (set || now >= wait_->end_ns) {
            const nupa_accel_cmd cmd = wait_->cmd;
            wait_.reset();
            complete(cmd, set ? NUPA_ACCEL_OK : NUPA_ACCEL_E_TIMEOUT, 0);
            return true;
        }
        if (now - begun >= kSpinNs)
            return false;
    }
}

void Accelerator::ring(uint32_t bell) noexcept {
    store_release(regs().bell[bell], ++bells_[bell]);
    client_->interrupt(kBellsRang);
}

void Accelerator::complete(const nupa_accel_cmd& cmd, nupa_accel_status status,
                           uint64_t result) noexcept {
    const nupa_accel_comp comp{
        .status = static_cast<uint32_t>(status), .tag = cmd.tag, .result = result};
    std::memcpy(whole_.data() + NUPA_ACCEL_COMPS_AT + ring_->index(0) * sizeof(comp), &comp,
                sizeof(comp));
    ring_->take(1);
}

// It runs only while a WAIT does: an idle accelerator sleeps.
void Accelerator::arm_wait_timer() noexcept {
    itimerspec when{};
    if (wait_)
        when.it_value.tv_nsec = kWaitPeriodNs;
    ::timerfd_settime(wait_timer_.get(), 0, &when, nullptr);
}

}  // namespace nupa::accel
