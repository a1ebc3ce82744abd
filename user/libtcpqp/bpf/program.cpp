// SPDX-License-Identifier: BSD-3-Clause
#include "program.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "shared.h"

// The compiled program, by object.S
extern "C" {
extern const unsigned char tcpqp_bpf_object[];
extern const unsigned char tcpqp_bpf_object_end[];
}

namespace tcpqp::bpf {
namespace {

constexpr uint32_t kZero = 0;

[[noreturn]] void fail(const char* what, long error) {
    throw_errno(what, error < 0 ? static_cast<int>(-error) : errno);
}

bpf_object* open_object() {
    const auto bytes = static_cast<size_t>(tcpqp_bpf_object_end - tcpqp_bpf_object);
    bpf_object_open_opts opts{};
    opts.sz = sizeof(opts);
    opts.object_name = "tcpqp";
    bpf_object* object = bpf_object__open_mem(tcpqp_bpf_object, bytes, &opts);
    if (object == nullptr)
        fail("open the BPF program", 0);
    return object;
}

// Of the maps that slots holds: the kernel checks each against this one.
int make_slot() {
    bpf_map_create_opts opts{};
    opts.sz = sizeof(opts);
    opts.map_flags = BPF_F_MMAPABLE;
    return bpf_map_create(BPF_MAP_TYPE_ARRAY, "tcpqp_slot", sizeof(kZero), sizeof(tcpqp_bpf_slot),
                          1, &opts);
}

int make_news() {
    const auto page = static_cast<uint32_t>(::sysconf(_SC_PAGESIZE));
    return bpf_map_create(BPF_MAP_TYPE_RINGBUF, "tcpqp_news", 0, 0, page, nullptr);
}

void enter(int outer, uint32_t index, int map) {
    if (bpf_map_update_elem(outer, &index, &map, BPF_ANY) != 0)
        fail("enter the slot", 0);
}

}  // namespace

void Program::CloseObject::operator()(bpf_object* o) const noexcept { bpf_object__close(o); }
void Program::CloseLink::operator()(bpf_link* l) const noexcept { bpf_link__destroy(l); }
void Program::CloseRing::operator()(ring_buffer* r) const noexcept { ring_buffer__free(r); }

Program::Program(const std::string& cgroup) {
    const Fd group(::open(cgroup.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!group)
        throw_errno("cgroup " + cgroup);
    object_.reset(open_object());
    if (const int error = bpf_object__load(object_.get()); error != 0)
        fail("load the BPF program (CAP_BPF and CAP_NET_ADMIN are needed)", error);
    slots_ = map("slots");
    news_ = map("news");
    sockets_ = map("sockets");
    closed_.reset(ring_buffer__new(map("closed"), note_closed, this, nullptr));
    if (!closed_)
        fail("open the ring of ended connections", 0);
    unsack_ = bpf_program__fd(find("unsack"));
    for (const char* name : {"segment", "opt_in"}) {
        links_.emplace_back(bpf_program__attach_cgroup(find(name), group.get()));
        if (!links_.back())
            fail("attach to the cgroup", 0);
    }
}

Program::~Program() = default;

bpf_program* Program::find(const char* name) const {
    bpf_program* program = bpf_object__find_program_by_name(object_.get(), name);
    if (program == nullptr)
        fail(name, -ENOENT);
    return program;
}

int Program::map(const char* name) const {
    const int fd = bpf_object__find_map_fd_by_name(object_.get(), name);
    if (fd < 0)
        fail(name, fd);
    return fd;
}

Program::Slot Program::admit(int socket, uint32_t index) const {
    Slot slot{Fd(make_slot()), Fd(make_news())};
    if (!slot.map || !slot.news)
        fail("make a slot", 0);
    enter(news_, index, slot.news.get());
    enter(slots_, index, slot.map.get());
    if (bpf_map_update_elem(sockets_, &socket, &index, BPF_NOEXIST) != 0) {
        const int error = errno;
        forget(index);
        fail("admit the socket", -error);
    }
    // so that we hear of its end, whatever becomes of the client
    const int none = 0;
    if (::setsockopt(socket, TCPQP_BPF_SOCKOPT, TCPQP_BPF_START, &none, sizeof(none)) != 0) {
        forget(index);
        fail("start (the socket's cgroup, or a kernel before 6.12)", -EOPNOTSUPP);
    }
    return slot;
}

void Program::forget(uint32_t index) const noexcept {
    bpf_map_delete_elem(slots_, &index);
    bpf_map_delete_elem(news_, &index);
}

int Program::closed_fd() const noexcept { return ring_buffer__epoll_fd(closed_.get()); }

std::vector<uint32_t> Program::closed() {
    ended_.clear();
    ring_buffer__consume(closed_.get());
    return ended_;
}

// Called for each entry of the ring.
int Program::note_closed(void* program, void* data, size_t bytes) {
    uint32_t index = 0;
    if (bytes >= sizeof(index)) {
        std::memcpy(&index, data, sizeof(index));
        static_cast<Program*>(program)->ended_.push_back(index);
    }
    return 0;
}

}  // namespace tcpqp::bpf
