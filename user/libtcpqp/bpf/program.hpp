// SPDX-License-Identifier: BSD-3-Clause
// The BPF program, loaded and attached to a cgroup, and the slots of its connections.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "verbs/fd.hpp"

struct bpf_link;
struct bpf_object;
struct bpf_program;

namespace tcpqp::bpf {

class Program {
public:
    // Throws std::system_error: no privilege, kernel too old, no such cgroup.
    explicit Program(const std::string& cgroup);
    ~Program();
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    // A map for @socket in slot @index; throws.
    [[nodiscard]] Fd admit(int socket, uint32_t index) const;
    // It has no further use for the connection that had @index.
    void forget(uint32_t index) const noexcept;
    // Slots whose connections ended since the last call.
    [[nodiscard]] std::vector<uint32_t> closed() const;
    [[nodiscard]] int unsack_fd() const noexcept { return unsack_; }

private:
    struct CloseObject {
        void operator()(bpf_object* o) const noexcept;
    };
    struct CloseLink {
        void operator()(bpf_link* l) const noexcept;
    };
    using Link = std::unique_ptr<bpf_link, CloseLink>;

    [[nodiscard]] bpf_program* find(const char* name) const;
    [[nodiscard]] int map(const char* name) const;

    std::unique_ptr<bpf_object, CloseObject> object_;
    std::vector<Link> links_;
    int slots_ = -1;
    int sockets_ = -1;
    int closed_ = -1;
    int unsack_ = -1;
};

}  // namespace tcpqp::bpf
