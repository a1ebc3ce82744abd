// SPDX-License-Identifier: BSD-3-Clause
// The program's tc part, on each interface that an admitted connection leaves by.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tcpqp::bpf {

class Egress {
public:
    // Of the helper of a cgroup, whom programs ask at @path; not 0.
    [[nodiscard]] static uint32_t handle_of(uint32_t cgroup, std::string_view path) noexcept;

    // @handle: of no other helper's program.
    Egress(int program, uint32_t handle) noexcept : program_(program), handle_(handle) {}
    ~Egress();
    Egress(const Egress&) = delete;
    Egress& operator=(const Egress&) = delete;

    // 0 or a negative errno; once for an interface.
    [[nodiscard]] int cover(const std::string& ifname) noexcept;

private:
    [[nodiscard]] bool is_ours(int ifindex) const noexcept;

    int program_;
    uint32_t handle_;
    std::vector<int> covered_;  // by their indexes
};

}  // namespace tcpqp::bpf
