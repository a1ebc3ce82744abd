// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_harness/comms.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace tcpqp::harness {
namespace {

std::atomic<unsigned> sleep_us = 0;

void good(nccl::Result result, const char* what) {
    if (result != nccl::kSuccess)
        fail(fmt::format("{} returned {}", what, static_cast<int>(result)));
}

double slowness() noexcept {
    const char* word = std::getenv("NUPA_SLOWNESS");
    const double factor = word != nullptr ? std::atof(word) : 1;
    return factor > 1 ? factor : 1;
}

uint64_t mix(uint64_t x) noexcept {
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
    return x ^ (x >> 29);
}

}  // namespace

Limit::Limit(double seconds)
    : until_(std::chrono::steady_clock::now() +
             std::chrono::milliseconds(static_cast<long>(1000 * seconds * slowness()))) {}

void Limit::check(const char* what) const {
    if (std::chrono::steady_clock::now() >= until_)
        fail(fmt::format("{}: nothing happened in time", what));
}

void set_sleep_us(unsigned us) noexcept { sleep_us = us; }

void idle() noexcept {
    if (sleep_us == 0)
        ::sched_yield();
    else
        ::usleep(sleep_us);
}

Comm& Comm::operator=(Comm&& other) noexcept {
    if (this != &other) {
        close();
        plugin_ = other.plugin_;
        role_ = other.role_;
        comm_ = std::exchange(other.comm_, nullptr);
    }
    return *this;
}

void Comm::close() noexcept {
    void* comm = std::exchange(comm_, nullptr);
    if (comm == nullptr)
        return;
    if (role_ == Role::kSend)
        plugin_->close_send(comm);
    else
        plugin_->close_receive(comm);
}

Buffer::Buffer(const Comm& comm, size_t bytes) : Buffer(comm, host_memory(), bytes) {}

Buffer::Buffer(const Comm& comm, Memory& memory, size_t bytes)
    : plugin_(&comm.plugin()), comm_(comm.get()), block_(memory.allocate(bytes)) {
    // NCCL registers no empty buffer, and its IB transport asserts that.
    const size_t some = std::max<size_t>(bytes, 1);
    if (block_->dmabuf() < 0)
        region_ = plugin_->register_memory(comm_, data(), some);
    else
        good(plugin_->try_register_device(comm_, data(), some, block_->dmabuf(), &region_),
             "regMrDmaBuf");
}

Buffer::Buffer(Buffer&& other) noexcept
    : plugin_(other.plugin_),
      comm_(other.comm_),
      block_(std::move(other.block_)),
      region_(std::exchange(other.region_, nullptr)) {}

nccl::Result Buffer::deregister() noexcept {
    void* region = std::exchange(region_, nullptr);
    return region != nullptr ? plugin_->try_deregister(comm_, region) : nccl::kSuccess;
}

Buffer::~Buffer() { static_cast<void>(deregister()); }

void* try_send(const Comm& comm, const Part& part) {
    void* request = nullptr;
    good(comm.plugin().try_send(comm.get(), part.data, part.bytes, part.tag, part.region, &request),
         "isend");
    return request;
}

void* try_receive(const Comm& comm, std::span<const Part> parts, void* preset) {
    std::array<void*, nccl::kGroupMax> data{}, regions{};
    std::array<size_t, nccl::kGroupMax> bytes{};
    std::array<int, nccl::kGroupMax> tags{};
    for (size_t i = 0; i < parts.size(); i++) {
        data[i] = parts[i].data;
        bytes[i] = parts[i].bytes;
        tags[i] = parts[i].tag;
        regions[i] = parts[i].region;
    }
    void* request = preset;
    good(comm.plugin().try_receive(comm.get(), static_cast<int>(parts.size()), data.data(),
                                   bytes.data(), tags.data(), regions.data(), &request),
         "irecv");
    return request;
}

void* send(const Comm& comm, const Part& part) {
    for (const Limit limit(kStepLimitS);; idle()) {
        if (void* request = try_send(comm, part))
            return request;
        limit.check("isend");
    }
}

void* receive(const Comm& comm, std::span<const Part> parts, void* preset) {
    for (const Limit limit(kStepLimitS);; idle()) {
        if (void* request = try_receive(comm, parts, preset))
            return request;
        limit.check("irecv");
    }
}

std::optional<std::vector<int>> try_wait(const Comm& comm, void* request) {
    int done = 0;
    std::vector<int> sizes(nccl::kGroupMax, 0);
    good(comm.plugin().try_test(request, &done, sizes.data()), "test");
    return done != 0 ? std::optional(sizes) : std::nullopt;
}

std::vector<int> wait(const Comm& comm, void* request) {
    for (const Limit limit(kStepLimitS);; idle()) {
        if (auto sizes = try_wait(comm, request))
            return *sizes;
        limit.check("test");
    }
}

std::vector<int> wait_both(const Comm& to, void* sent, const Comm& from, void* received) {
    std::optional<std::vector<int>> sizes;
    for (const Limit limit(kStepLimitS); sent != nullptr || !sizes; idle()) {
        if (sent != nullptr && try_wait(to, sent))
            sent = nullptr;
        if (!sizes)
            sizes = try_wait(from, received);
        limit.check("test of a send and a receive");
    }
    return *sizes;
}

Mesh connect_mesh(Plugin& plugin, Ranks& ranks, int device, const std::vector<int>& to,
                  const std::vector<int>& from) {
    const auto size = static_cast<size_t>(ranks.size());
    std::vector<HandleBytes> ours(size);
    std::vector<std::unique_ptr<Listener>> listeners(size);
    for (const int peer : from) {
        auto& listener = listeners[static_cast<size_t>(peer)];
        listener = std::make_unique<Listener>(plugin, device);
        ours[static_cast<size_t>(peer)] = listener->handle;
    }
    const auto all = ranks.all_gather(std::as_bytes(std::span(ours)));
    Mesh mesh;
    mesh.send.resize(size);
    mesh.receive.resize(size);
    std::vector<HandleBytes> handles(size);
    for (size_t i = 0; i < size; i++)
        std::memcpy(&handles[i],
                    all[i].data() + static_cast<size_t>(ranks.rank()) * sizeof(HandleBytes),
                    sizeof(HandleBytes));
    const Limit limit(kStepLimitS);
    for (bool all_there = false; !all_there; idle()) {
        all_there = true;
        for (const int peer : to) {
            const auto i = static_cast<size_t>(peer);
            if (!mesh.send[i])
                mesh.send[i] = {plugin, Role::kSend, plugin.connect(device, handles[i])};
            all_there &= static_cast<bool>(mesh.send[i]);
        }
        for (const int peer : from) {
            const auto i = static_cast<size_t>(peer);
            if (!mesh.receive[i])
                mesh.receive[i] = listeners[i]->try_accept();
            all_there &= static_cast<bool>(mesh.receive[i]);
        }
        limit.check("connect and accept");
    }
    return mesh;
}

Pair connect_pair(Plugin& plugin, Ranks& ranks, int device, int peer) {
    Mesh mesh = connect_mesh(plugin, ranks, device, {peer}, {peer});
    const auto i = static_cast<size_t>(peer);
    return {std::move(mesh.send[i]), std::move(mesh.receive[i])};
}

Pair connect_self(Plugin& plugin, int device) {
    Listener listener(plugin, device);
    Pair pair;
    for (const Limit limit(kStepLimitS); !pair.send || !pair.receive; idle()) {
        if (!pair.send)
            pair.send = {plugin, Role::kSend, plugin.connect(device, listener.handle)};
        if (!pair.receive)
            pair.receive = listener.try_accept();
        limit.check("connect and accept in turns");
    }
    return pair;
}

void fill_pattern(std::byte* at, size_t bytes, uint64_t seed) noexcept {
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        const uint64_t word = mix(seed + i);
        std::memcpy(at + i, &word, 8);
    }
    const uint64_t last = mix(seed + i);
    std::memcpy(at + i, &last, bytes - i);
}

size_t check_pattern(const std::byte* at, size_t bytes, uint64_t seed) noexcept {
    size_t i = 0;
    for (; i < bytes; i += 8) {
        const uint64_t word = mix(seed + i);
        const size_t n = std::min<size_t>(8, bytes - i);
        if (std::memcmp(at + i, &word, n) != 0)
            return i;
    }
    return bytes;
}

}  // namespace tcpqp::harness
