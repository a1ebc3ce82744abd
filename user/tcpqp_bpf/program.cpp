// SPDX-License-Identifier: BSD-3-Clause
#include "program.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

// The compiled program, by object.S
extern "C" {
extern const unsigned char tcpqp_bpf_object[];
extern const unsigned char tcpqp_bpf_object_end[];
}

namespace tcpqp::bpf {
namespace {

constexpr uint32_t kZero = 0;
constexpr const char* kKernelTypes = "/sys/kernel/btf/vmlinux";

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

// The module's port of connections by number, if it is here and was told another than the usual
// one.
void set_number_port(bpf_object* object) {
    uint16_t port = 0;
    std::ifstream parameter("/sys/module/tcp_qp/parameters/number_port");
    if (!(parameter >> port))
        return;
    bpf_map* map = bpf_object__find_map_by_name(object, ".rodata.number_port");
    if (map == nullptr)
        fail("find the port of connections by number", -ENOENT);
    if (const int error = bpf_map__set_initial_value(map, &port, sizeof(port)); error != 0)
        fail("set the port of connections by number", error);
}

// Of the maps that slots holds: the kernel checks each against this one.
int make_slot() {
    bpf_map_create_opts opts{};
    opts.sz = sizeof(opts);
    opts.map_flags = BPF_F_MMAPABLE;
    return bpf_map_create(BPF_MAP_TYPE_ARRAY, "tcpqp_slot", sizeof(kZero), sizeof(tcpqp_bpf_slot),
                          1, &opts);
}

int make_wakeup() {
    const auto page = static_cast<uint32_t>(::sysconf(_SC_PAGESIZE));
    return bpf_map_create(BPF_MAP_TYPE_RINGBUF, "tcpqp_wakeup", 0, 0, page, nullptr);
}

void enter(int outer, uint32_t index, int map) {
    if (bpf_map_update_elem(outer, &index, &map, BPF_ANY) != 0)
        fail("enter the slot", 0);
}

// In one call: each waits until no program uses what was there.
void replace(int outer, const std::vector<uint32_t>& numbers, int map) {
    const std::vector<int> maps(numbers.size(), map);
    auto count = static_cast<uint32_t>(numbers.size());
    bpf_map_batch_opts opts{};
    opts.sz = sizeof(opts);
    if (bpf_map_update_batch(outer, numbers.data(), maps.data(), &count, &opts) == 0)
        return;
    for (const uint32_t number : numbers)
        bpf_map_delete_elem(outer, &number);
}

// Its inode: cgroup v2 counts them up.
uint32_t number_of(const Fd& cgroup) {
    struct stat about {};
    if (::fstat(cgroup.get(), &about) != 0)
        throw_errno("fstat of the cgroup");
    return std::max(static_cast<uint32_t>(about.st_ino), 1U);
}

}  // namespace

void Program::CloseObject::operator()(bpf_object* o) const noexcept { bpf_object__close(o); }
void Program::CloseLink::operator()(bpf_link* l) const noexcept { bpf_link__destroy(l); }
void Program::CloseRing::operator()(ring_buffer* r) const noexcept { ring_buffer__free(r); }

Program::Program(const std::string& cgroup) {
    const Fd group(::open(cgroup.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!group)
        throw_errno("cgroup " + cgroup);
    cgroup_ = number_of(group);
    object_.reset(open_object());
    set_number_port(object_.get());
    const bool has_types = ::access(kKernelTypes, R_OK) == 0;
    if (!has_types)
        std::fprintf(stderr, "tcpqp-bpf: without %s memory that users keep is not counted\n",
                     kKernelTypes);
    bpf_program__set_autoload(find("maps"), has_types);
    if (const int error = bpf_object__load(object_.get()); error != 0)
        fail("load the BPF program (CAP_BPF and CAP_NET_ADMIN are needed)", error);
    nobodys_ = make();
    slots_ = map("slots");
    wakeups_ = map("wakeups");
    owners_ = map("owners");
    sockets_ = map("sockets");
    closed_.reset(ring_buffer__new(map("closed"), note_closed, this, nullptr));
    if (!closed_)
        fail("open the ring of ended connections", 0);
    if (has_types)
        all_maps_.reset(bpf_program__attach_iter(find("maps"), nullptr));
    if (has_types && !all_maps_)
        fail("attach the list of maps", 0);
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

Program::Slot Program::make() {
    Slot slot{Fd(make_slot()), Fd(make_wakeup())};
    if (!slot.map || !slot.wakeup)
        fail("make a slot", 0);
    return slot;
}

uint32_t Program::id_of(const Fd& map) const noexcept {
    bpf_map_info info{};
    uint32_t bytes = sizeof(info);
    if (!all_maps_ || bpf_obj_get_info_by_fd(map.get(), &info, &bytes) != 0)
        return 0;
    return info.id;
}

std::vector<uint32_t> Program::living() const {
    std::vector<uint32_t> ids;
    const Fd list(all_maps_ ? bpf_iter_create(bpf_link__fd(all_maps_.get())) : -1);
    std::array<uint32_t, 1024> some;
    ssize_t n = -1;
    while (list && (n = ::read(list.get(), some.data(), sizeof(some))) > 0)
        ids.insert(ids.end(), some.begin(), some.begin() + n / sizeof(some[0]));
    if (n < 0)
        ids.clear();
    std::sort(ids.begin(), ids.end());
    return ids;
}

Program::Slot Program::admit(int socket, const tcpqp_bpf_admitted& place) const {
    Slot slot = make();
    try {
        enter(wakeups_, place.slot, slot.wakeup.get());
        enter(slots_, place.slot, slot.map.get());
        if (bpf_map_update_elem(owners_, &place.slot, &place.generation, BPF_ANY) != 0)
            fail("enter the owner", 0);
        start(socket, place);
    } catch (...) {
        forget({&place, 1});
        throw;
    }
    return slot;
}

// From here on the program sees the connection's end, whatever becomes of the client.
void Program::start(int socket, const tcpqp_bpf_admitted& place) const {
    const int none = 0;
    if (bpf_map_update_elem(sockets_, &socket, &place, BPF_NOEXIST) != 0)
        fail("admit the socket", 0);
    if (::setsockopt(socket, TCPQP_BPF_SOCKOPT, TCPQP_BPF_START, &none, sizeof(none)) == 0)
        return;
    const int error = errno;
    bpf_map_delete_elem(sockets_, &socket);
    if (error == EPERM)
        fail("start (the connection has ended, or is of the port of connections by number)",
             -ENOTCONN);
    fail("start (the socket's cgroup, or a kernel before 6.12)", -EOPNOTSUPP);
}

void Program::forget(std::span<const tcpqp_bpf_admitted> places) const {
    const uint64_t nobody = 0;
    std::vector<uint32_t> numbers;
    for (const tcpqp_bpf_admitted& place : places) {
        bpf_map_update_elem(owners_, &place.slot, &nobody, BPF_ANY);
        numbers.push_back(place.slot);
    }
    // each returns when all programs that might have seen the old ones are through
    replace(slots_, numbers, nobodys_.map.get());
    replace(wakeups_, numbers, nobodys_.wakeup.get());
}

int Program::closed_fd() const noexcept { return ring_buffer__epoll_fd(closed_.get()); }

std::vector<tcpqp_bpf_admitted> Program::closed() {
    ended_.clear();
    ring_buffer__consume(closed_.get());
    return std::move(ended_);
}

// Called for each entry of the ring.
int Program::note_closed(void* program, void* data, size_t bytes) {
    tcpqp_bpf_admitted place{};
    if (bytes >= sizeof(place)) {
        std::memcpy(&place, data, sizeof(place));
        static_cast<Program*>(program)->ended_.push_back(place);
    }
    return 0;
}

}  // namespace tcpqp::bpf
