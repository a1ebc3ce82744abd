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
struct ring_buffer;

namespace tcpqp::bpf {

class Program {
public:
    // Throws std::system_error: no privilege, kernel too old, no such cgroup.
    explicit Program(const std::string& cgroup);
    ~Program();
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    // What the library of an admitted connection gets.
    struct Slot {
        Fd map;
        Fd news;
    };
    // For @socket, at @index; throws.
    [[nodiscard]] Slot admit(int socket, uint32_t index) const;
    // It has no further use for the connection that had @index.
    void forget(uint32_t index) const noexcept;
    // Slots whose connections ended since the last call; closed_fd() is readable when there are
    // any.
    [[nodiscard]] std::vector<uint32_t> closed();
    [[nodiscard]] int closed_fd() const noexcept;
    [[nodiscard]] int unsack_fd() const noexcept { return unsack_; }

private:
    struct CloseObject {
        void operator()(bpf_object* o) const noexcept;
    };
    struct CloseLink {
        void operator()(bpf_link* l) const noexcept;
    };
    struct CloseRing {
        void operator()(ring_buffer* r) const noexcept;
    };
    using Link = std::unique_ptr<bpf_link, CloseLink>;

    static int note_closed(void* program, void* data, size_t bytes);
    [[nodiscard]] bpf_program* find(const char* name) const;
    [[nodiscard]] int map(const char* name) const;

    std::unique_ptr<bpf_object, CloseObject> object_;
    std::vector<Link> links_;
    std::unique_ptr<ring_buffer, CloseRing> closed_;
    std::vector<uint32_t> ended_;
    int slots_ = -1;
    int news_ = -1;
    int sockets_ = -1;
    int unsack_ = -1;
};

}  // namespace tcpqp::bpf
