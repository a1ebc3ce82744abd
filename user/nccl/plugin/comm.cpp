// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/plugin/comm.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "nccl/plugin/log.hpp"

namespace tcpqp::nccl {
namespace {

// A work, or its completion.
template <typename T>
bool is_data(const T& of) noexcept {
    return of.id < kAnnounceId;
}

}  // namespace

bool Memory::holds(const void* at, size_t length) const noexcept {
    const auto begin = reinterpret_cast<uintptr_t>(at);
    const auto base = reinterpret_cast<uintptr_t>(data);
    return begin >= base && begin - base <= bytes && length <= bytes - (begin - base);
}

// The module's engines copy little, or nothing.
Comm::Comm(std::vector<Rail> rails) : rails_(std::move(rails)) {
    if (!std::all_of(rails_.begin(), rails_.end(), [](const Rail& r) { return r.is_stock(); }))
        return;
    const std::shared_ptr<Workers> workers = Workers::get();
    for (size_t i = 0; workers && i < rails_.size(); i++)
        lanes_.push_back(std::make_unique<Lane>(rails_[i], workers));
}

// Regions before the contexts they belong to; a queue pair before its regions.
Comm::~Comm() {
    end_rails();
    memories_.clear();
}

void Comm::report(uint32_t announced, uint32_t eager) const {
    char messages[64];
    std::snprintf(messages, sizeof(messages), "; %u receives announced, %u messages eager",
                  announced, eager);
    for (const Rail& rail : rails_)
        rail.report(&rail == &rails_.front() ? messages : "");
}

void Comm::take_back_lanes() noexcept {
    for (const auto& lane : lanes_)
        lane->take_back();
}

void Comm::end_rails() noexcept {
    for (const auto& lane : lanes_)
        lane->stop();
    for (Rail& rail : rails_)
        rail.end();
}

int Comm::make_region(uint32_t rail, void* data, size_t bytes, Region& out) {
    if (!rails_[rail].needs_regions())
        return 0;
    tcpqp_mr* mr = nullptr;
    const int error = tcpqp_mr_create(rails_[rail].context(), data, bytes, &mr);
    out.reset(mr);
    return error;
}

Result Comm::keep(std::unique_ptr<Memory> memory, Memory** out) {
    *out = memory.get();
    memories_.push_back(std::move(memory));
    return kSuccess;
}

Result Comm::register_memory(void* data, size_t bytes, Memory** out) {
    auto memory = std::make_unique<Memory>(this, data, bytes);
    for (uint32_t i = 0; i < rails_.size() && bytes != 0; i++) {
        const int error = make_region(i, data, bytes, memory->regions[i]);
        if (error == 0)
            continue;
        warn("cannot register %zu bytes for %s: %s%s", bytes, rails_[i].text().c_str(),
             std::strerror(-error),
             error == -ENOMEM ? "; raise the limit of locked memory (ulimit -l unlimited)" : "");
        return kSystemError;
    }
    return keep(std::move(memory), out);
}

Result Comm::register_dmabuf(void* data, size_t bytes, bool is_device_only, uint64_t offset, int fd,
                             Memory** out) {
    auto memory = std::make_unique<Memory>(this, data, bytes);
    memory->is_device_only = is_device_only;
    for (uint32_t i = 0; i < rails_.size(); i++) {
        tcpqp_dmabuf_opts opts{};
        opts.size = sizeof(opts);
        opts.offset = offset;
        opts.addr = data;
        tcpqp_mr* mr = nullptr;
        const int error = tcpqp_mr_create_dmabuf(rails_[i].context(), fd, bytes, &opts, &mr);
        memory->regions[i].reset(mr);
        if (error == 0)
            continue;
        warn("cannot register a dma-buf of %zu bytes for %s: %s", bytes, rails_[i].text().c_str(),
             std::strerror(-error));
        return kSystemError;
    }
    has_device_memory_ |= is_device_only;
    return keep(std::move(memory), out);
}

Result Comm::deregister(Memory* memory) {
    const auto is_it = [memory](const auto& m) { return m.get() == memory; };
    const auto at = std::find_if(memories_.begin(), memories_.end(), is_it);
    if (at == memories_.end()) {
        warn("deregMr of memory that is not registered with this comm");
        return kInvalidUsage;
    }
    if (memory->users != 0)
        static_cast<void>(
            fail(kInvalidUsage, "memory was deregistered under %u posted buffers", memory->users));
    memories_.erase(at);
    return kSuccess;
}

tcpqp_mr* Comm::region(const Memory* memory, uint32_t rail) const noexcept {
    return memory != nullptr ? memory->regions[rail].get() : nullptr;
}

Result Comm::check(const Memory* memory, const void* data, size_t bytes) noexcept {
    if (memory != nullptr && memory->comm == this && (bytes == 0 || memory->holds(data, bytes)))
        return kSuccess;
    warn("%zu bytes at %p do not lie in the memory that was registered for them", bytes, data);
    return kInvalidUsage;
}

Result Comm::fail(Result result, const char* format, ...) noexcept {
    if (result_ != kSuccess)
        return result_;
    result_ = result;
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    warn("%s: %s", rails_.front().text().c_str(), line);
    end_rails();
    for (Rail& rail : rails_)  // else the peer would wait until NCCL closes the comm
        rail.hang_up();
    return result;
}

void Comm::lose(uint32_t rail) noexcept {
    states_[rail].is_lost = true;
    if (lost_ == nullptr)
        lost_ = &rails_[rail];
}

bool Comm::misses_lost() const noexcept {
    return lost_ != nullptr &&
           (has_unposted() || std::any_of(states_.begin(), states_.end(), [](const State& rail) {
                return rail.is_lost && rail.data != 0;
            }));
}

Result Comm::fail_lost() noexcept {
    const uint32_t reason = lost_->reason();
    return fail(kRemoteError, "the connection has ended: %s (%s); look at the other rank's log",
                tcpqp_reason_text(reason), tcpqp_reason_name(reason));
}

// 0, or -ENOTCONN; what else goes wrong ends the comm.
int Comm::try_post(uint32_t rail, std::span<const tcpqp_work> works, bool sends) noexcept {
    if (works.empty())
        return 0;
    tcpqp_qp* qp = rails_[rail].qp();
    const int posted = !lanes_.empty() ? lanes_[rail]->post(works, sends)
                       : sends         ? tcpqp_post_send(qp, works.data(), works.size())
                                       : tcpqp_post_recv(qp, works.data(), works.size());
    if (posted == static_cast<int>(works.size())) {
        states_[rail].data +=
            static_cast<uint32_t>(std::count_if(works.begin(), works.end(), is_data<tcpqp_work>));
        return 0;
    }
    if (posted == -ENOTCONN)
        return posted;
    static_cast<void>(fail(kInternalError, "cannot post a %s: %s", sends ? "send" : "receive",
                           posted < 0 ? std::strerror(-posted) : "the queue is full"));
    return 0;
}

Result Comm::post(uint32_t rail, std::span<const tcpqp_work> works, bool sends) noexcept {
    if (try_post(rail, works, sends) == 0)
        return result_;
    lose(rail);
    return fail_lost();
}

void Comm::post_aside(uint32_t rail, std::span<const tcpqp_work> works, bool sends) noexcept {
    if (try_post(rail, works, sends) != 0)
        states_[rail].is_ended = true;
}

// What a worker could not post is as if we had posted it aside.
int Comm::poll(uint32_t rail, std::span<tcpqp_completion> out) noexcept {
    if (lanes_.empty())
        return rails_[rail].poll(out);
    const int refused = lanes_[rail]->refused();  // before: what came before it is taken then
    const int n = lanes_[rail]->poll(out);
    if (refused == -ENOTCONN)
        states_[rail].is_ended = true;
    return n == 0 && refused != -ENOTCONN ? refused : n;
}

Result Comm::progress() noexcept {
    if (result_ != kSuccess)
        return result_;
    std::array<tcpqp_completion, kPollBatch> batch;
    bool all_taken = true;
    for (uint32_t i = 0; i < rails_.size(); i++) {
        const int n = poll(i, batch);
        if (n < 0)
            return fail(kSystemError, "no completions: %s", std::strerror(-n));
        all_taken &= n == 0;
        for (int k = 0; k < n; k++) {
            const tcpqp_completion& c = batch[static_cast<size_t>(k)];
            if (c.status == -EMSGSIZE)
                return fail(kRemoteError, "the peer sent more than was announced");
            if (c.status != 0) {
                lose(i);
                continue;
            }
            states_[i].data -= is_data(c) ? 1 : 0;
            completed(i, c);
            if (result_ != kSuccess)
                return result_;
        }
    }
    if (!all_taken)
        return kSuccess;
    for (uint32_t i = 0; i < rails_.size(); i++)
        if (states_[i].is_ended)
            lose(i);
    return misses_lost() ? fail_lost() : kSuccess;
}

Result Comm::test(Request& request, int* done, int* bytes) {
    *done = 0;
    if (request.count == 0) {
        warn("test of a request that is done already");
        return kInvalidUsage;
    }
    if (request.left != 0)
        if (const Result result = progress(); result != kSuccess && request.left != 0)
            return result;
    if (request.left != 0)
        return kSuccess;
    for (uint32_t i = 0; bytes != nullptr && i < request.count; i++)
        bytes[i] = static_cast<int>(request.bytes[i]);
    *done = 1;
    request.count = 0;
    release(request);
    return kSuccess;
}

}  // namespace tcpqp::nccl
