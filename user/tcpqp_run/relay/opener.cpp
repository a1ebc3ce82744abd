// SPDX-License-Identifier: BSD-3-Clause
#include "relay/opener.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <thread>

#include "relay/limits.hpp"

namespace tcpqp::run {
namespace {

Opened open_as(uint32_t engine, uint64_t link, int socket) noexcept {
    Opened o{link, nullptr, 0, TCPQP_REASON_NONE};
    tcpqp_conn_opts opts{};
    opts.size = sizeof(opts);
    opts.engine = engine;
    opts.timeout_ms = engine == TCPQP_ENGINE_STOCK ? kForcedOpenMs : kAutoOpenMs;
    opts.buffer_bytes = kBufferBytes;
    opts.buffers = kBuffers;
    opts.first_buffers = kFirstBuffers;
    o.error = tcpqp_open(socket, &opts, &o.conn, &o.reason);
    return o;
}

// The library's AUTO ends with stock frames, which only a peer that was told to can read.  A socket
// that offload can't have was not touched.
Opened open_best(uint32_t engine, uint64_t link, int socket) noexcept {
    if (engine != TCPQP_ENGINE_AUTO)
        return open_as(engine, link, socket);
    const Opened first = open_as(TCPQP_ENGINE_OFFLOAD, link, socket);
    return first.error == -EOPNOTSUPP ? open_as(TCPQP_ENGINE_SOFTWARE, link, socket) : first;
}

}  // namespace

Opener::Opener(uint32_t engine)
    : engine_(engine), event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!event_)
        throw_errno("eventfd");
    done_.reserve(kOpeningMax);
}

Opener::~Opener() {
    while (under_way_ != 0) {
        pollfd p{event_.get(), POLLIN, 0};
        ::poll(&p, 1, -1);
        for (const Opened& o : take())
            tcpqp_close(o.conn, 0);
    }
}

bool Opener::start(uint64_t link, int socket) noexcept {
    if (under_way_ >= kOpeningMax)
        return false;
    try {
        std::thread([this, link, socket] { run(link, socket); }).detach();
    } catch (const std::system_error&) {
        return false;
    }
    under_way_++;
    return true;
}

void Opener::run(uint64_t link, int socket) noexcept {
    const Opened opened = open_best(engine_, link, socket);
    const std::lock_guard guard(lock_);
    done_.push_back(opened);
    ::eventfd_write(event_.get(), 1);
}

std::vector<Opened> Opener::take() noexcept {
    eventfd_t count = 0;
    ::eventfd_read(event_.get(), &count);
    std::vector<Opened> all;
    all.reserve(kOpeningMax);
    const std::lock_guard guard(lock_);
    all.insert(all.end(), done_.begin(), done_.end());
    done_.clear();
    under_way_ -= all.size();
    return all;
}

}  // namespace tcpqp::run
