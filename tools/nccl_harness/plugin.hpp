// SPDX-License-Identifier: BSD-3-Clause
// A net plugin of any version, as NCCL loads it: dlopen(), the newest table it has, and calls that
// hide the differences.  A result other than success throws.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "nccl/contract/net.hpp"

namespace tcpqp::harness {

struct Failed : std::runtime_error {
    using std::runtime_error::runtime_error;
};
[[noreturn]] void fail(const std::string& what);
void check(bool good, const std::string& what);

using HandleBytes = std::array<std::byte, nccl::kHandleBytes>;

struct Properties {
    std::string name, pci_path;
    uint64_t guid = 0;
    int pointers = 0, speed_mbps = 0, comms_max = 0, receives_max = 0, device_kind = 0;
    bool has_limits = false;  // v9 and later
    size_t p2p_max_bytes = 0;
    std::vector<int> members;
};

class Plugin {
public:
    // @api: 8 to 12, or 0 for the newest.
    Plugin(const std::string& path, int api);
    Plugin(const Plugin&) = delete;
    Plugin& operator=(const Plugin&) = delete;
    ~Plugin();

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] int api() const noexcept { return api_; }
    [[nodiscard]] const char* name() const noexcept;
    [[nodiscard]] void* symbol(int api) const noexcept;
    // Whether irecv() may be told that its buffer is polled.
    [[nodiscard]] bool marks_polled() const noexcept { return api_ >= 9; }

    void init();
    void finalize();
    int devices() const;
    Properties properties(int device) const;
    int make_virtual(const std::vector<int>& members);

    void* listen(int device, HandleBytes& handle);
    void* connect(int device, HandleBytes& handle);  // or NULL: again
    void* accept(void* listener);                    // or NULL: again
    void* register_memory(void* comm, void* data, size_t bytes);
    // A GPU's memory, by its dma-buf; -1: as NCCL does where it has none.
    nccl::Result try_register_device(void* comm, void* data, size_t bytes, int dmabuf,
                                     void** region) noexcept;
    nccl::Result try_deregister(void* comm, void* region) noexcept;
    // @request as it is on entry; NULL on return: again.
    nccl::Result try_send(void* comm, void* data, size_t bytes, int tag, void* region,
                          void** request) noexcept;
    nccl::Result try_receive(void* comm, int count, void** data, size_t* bytes, int* tags,
                             void** regions, void** request) noexcept;
    nccl::Result try_test(void* request, int* done, int* bytes) noexcept;
    void* flush(void* comm, void* data, int bytes, void* region);
    void close_send(void* comm) noexcept;
    void close_receive(void* comm) noexcept;
    void close_listen(void* listener) noexcept;

private:
    template <typename F>
    auto with(F f) const;

    std::string path_;
    void* library_ = nullptr;
    int api_ = 0;
    const void* table_ = nullptr;
    void* context_ = nullptr;
};

// Warnings that plugins logged so far in this process; NCCL_DEBUG=INFO or WARN prints the lines.
std::atomic<uint64_t>& warnings() noexcept;

}  // namespace tcpqp::harness
