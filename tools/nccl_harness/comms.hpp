// SPDX-License-Identifier: BSD-3-Clause
// Comms as NCCL's proxy drives them: connect and accept until they are there, send and receive
// until there is a request, test until it is done.  Everything has a time limit.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "nccl_harness/memory.hpp"
#include "nccl_harness/plugin.hpp"
#include "nccl_harness/ranks.hpp"

namespace tcpqp::harness {

class Limit {
public:
    explicit Limit(double seconds);
    void check(const char* what) const;  // throws when it is over
private:
    std::chrono::steady_clock::time_point until_;
};
inline constexpr double kStepLimitS = 60;

enum class Role { kSend, kReceive };

// A comm with one owner.
class Comm {
public:
    Comm() = default;
    Comm(Plugin& plugin, Role role, void* comm) : plugin_(&plugin), role_(role), comm_(comm) {}
    Comm(Comm&& other) noexcept { *this = std::move(other); }
    Comm& operator=(Comm&& other) noexcept;
    ~Comm() { close(); }
    void close() noexcept;
    [[nodiscard]] void* get() const noexcept { return comm_; }
    [[nodiscard]] Plugin& plugin() const noexcept { return *plugin_; }
    explicit operator bool() const noexcept { return comm_ != nullptr; }

private:
    Plugin* plugin_ = nullptr;
    Role role_ = Role::kSend;
    void* comm_ = nullptr;
};

class Listener {
public:
    Listener(Plugin& plugin, int device) : plugin_(&plugin), at_(plugin.listen(device, handle)) {}
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    ~Listener() { plugin_->close_listen(at_); }
    Comm try_accept() { return {*plugin_, Role::kReceive, plugin_->accept(at_)}; }
    HandleBytes handle{};

private:
    Plugin* plugin_;
    void* at_;
};

// Registered memory of a comm: host memory, or @memory's.
class Buffer {
public:
    Buffer(const Comm& comm, size_t bytes);
    Buffer(const Comm& comm, Memory& memory, size_t bytes);
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    Buffer(Buffer&& other) noexcept;
    ~Buffer();
    [[nodiscard]] std::byte* data() const noexcept { return block_->data(); }
    [[nodiscard]] size_t size() const noexcept { return block_->bytes(); }
    [[nodiscard]] Block& block() const noexcept { return *block_; }
    [[nodiscard]] void* region() const noexcept { return region_; }
    nccl::Result deregister() noexcept;

private:
    Plugin* plugin_;
    void* comm_;
    std::unique_ptr<Block> block_;
    void* region_ = nullptr;
};

struct Part {
    std::byte* data;
    size_t bytes;
    int tag;
    void* region;
};

// The first of these never waits: NULL is "again".
void* try_send(const Comm& comm, const Part& part);
void* try_receive(const Comm& comm, std::span<const Part> parts, void* preset = nullptr);
void* send(const Comm& comm, const Part& part);
void* receive(const Comm& comm, std::span<const Part> parts, void* preset = nullptr);
// The sizes, if it is done.
std::optional<std::vector<int>> try_wait(const Comm& comm, void* request);
std::vector<int> wait(const Comm& comm, void* request);
// Both, in turns, as a proxy does: a network may go on in test() only.  The receive's sizes.
std::vector<int> wait_both(const Comm& to, void* sent, const Comm& from, void* received);

// One comm each way between this rank and @peer, by exchange of handles among all ranks.
struct Pair {
    Comm send, receive;
};
Pair connect_pair(Plugin& plugin, Ranks& ranks, int device, int peer);
// A comm to each of @to and from each of @from.
struct Mesh {
    std::vector<Comm> send, receive;  // by rank; empty: none
};
Mesh connect_mesh(Plugin& plugin, Ranks& ranks, int device, const std::vector<int>& to,
                  const std::vector<int>& from);
// Both ends here, one thread: as NCCL's probe does.
Pair connect_self(Plugin& plugin, int device);

// Bytes that tell where they belong; check_pattern() returns the first wrong one, or @bytes.
void fill_pattern(std::byte* at, size_t bytes, uint64_t seed) noexcept;
size_t check_pattern(const std::byte* at, size_t bytes, uint64_t seed) noexcept;

// Between two rounds in which nothing happened: gives up the turn, as NCCL's proxy does, or sleeps
// for so many microseconds, where spinning would take the processor from those that work.
void idle() noexcept;
void set_sleep_us(unsigned us) noexcept;  // 0: gives up the turn

}  // namespace tcpqp::harness
