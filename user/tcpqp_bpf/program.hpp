// SPDX-License-Identifier: BSD-3-Clause
// The BPF program, loaded and attached to a cgroup, and the slots of its connections.  What is
// const any thread may call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bpf_abi.h"
#include "base/fd.hpp"

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
        Fd wakeup;
    };
    // For @socket; throws, and then neither the socket nor the program knows of @place.
    [[nodiscard]] Slot admit(int socket, const tcpqp_bpf_admitted& place) const;
    // The program has no further use for them, and on return no run of it uses one still.  Takes
    // the kernel some milliseconds, for however many.  May throw std::bad_alloc.
    void forget(std::span<const tcpqp_bpf_admitted> places) const;
    // Admissions that ended since the last call; closed_fd() is readable when there are any.
    [[nodiscard]] std::vector<tcpqp_bpf_admitted> closed();
    // A number that no other map has that is alive; 0: nobody would know when it is not any more.
    [[nodiscard]] uint32_t id_of(const Fd& map) const noexcept;
    // Of all maps of the system, sorted; nothing: they can't be had.
    [[nodiscard]] std::vector<uint32_t> living() const;
    [[nodiscard]] int closed_fd() const noexcept;
    [[nodiscard]] int unsack_fd() const noexcept { return unsack_; }
    // The same whoever serves that cgroup, and no other cgroup's; not 0.
    [[nodiscard]] uint32_t cgroup_number() const noexcept { return cgroup_; }

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

    [[nodiscard]] static Slot make();
    static int note_closed(void* program, void* data, size_t bytes);
    void start(int socket, const tcpqp_bpf_admitted& place) const;
    [[nodiscard]] bpf_program* find(const char* name) const;
    [[nodiscard]] int map(const char* name) const;

    std::unique_ptr<bpf_object, CloseObject> object_;
    std::vector<Link> links_;
    Link all_maps_;
    std::unique_ptr<ring_buffer, CloseRing> closed_;
    std::vector<tcpqp_bpf_admitted> ended_;
    Slot nobodys_;  // in the place of slots that are not in use
    int slots_ = -1;
    int wakeups_ = -1;
    int owners_ = -1;
    int sockets_ = -1;
    int unsack_ = -1;
    uint32_t cgroup_ = 0;
};

}  // namespace tcpqp::bpf
