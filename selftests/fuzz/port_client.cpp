// SPDX-License-Identifier: BSD-3-Clause
#include "port_client.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>

namespace fuzz {

namespace {

nupa::daemon::VmOptions options_of(const Ram& ram, const char* name, std::uint16_t id,
                                   unsigned queue_pairs) {
    nupa::daemon::VmOptions o;
    o.name = name;
    o.socket = "/tmp/nupa-fuzz-" + std::to_string(::getpid()) + "-" + name;
    o.ram = ram.path();
    o.mac = {2, 0, 0, 0, 0, static_cast<std::uint8_t>(id + 1)};
    o.queue_pairs = queue_pairs;
    o.watch = nupa::daemon::Watch::kAlways;
    return o;
}

// One ivshmem message; its descriptor or -1.  False: nothing waits.
bool receive_message(int socket, std::int64_t& value, int& fd) {
    iovec iov{&value, sizeof value};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr msg{};
    msg.msg_iov = &iov, msg.msg_iovlen = 1;
    msg.msg_control = control, msg.msg_controllen = sizeof control;
    fd = -1;
    if (::recvmsg(socket, &msg, MSG_DONTWAIT) != sizeof value)
        return false;
    if (const cmsghdr* head = CMSG_FIRSTHDR(&msg))
        std::memcpy(&fd, CMSG_DATA(head), sizeof fd);
    return true;
}

}  // namespace

Ram::Ram(const char* name, std::uint64_t pages)
    : name_(std::string("nupa-fuzz-ram-") + name), bytes_(pages * kPage) {
    fd_ = ::memfd_create(name_.c_str(), 0);
    require(fd_ >= 0 && ::ftruncate(fd_, static_cast<off_t>(bytes_)) == 0, "guest memory");
    void* at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    require(at != MAP_FAILED, "guest memory mapped");
    data_ = static_cast<std::byte*>(at);
}

void Ram::guard_others() const {
    std::ifstream maps("/proc/self/maps");
    unsigned guarded = 0;
    for (std::string line; std::getline(maps, line);) {
        unsigned long begin, end;
        if (line.find(name_) == std::string::npos ||
            std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2)
            continue;
        for (const unsigned long at : {begin - kPage, end}) {
            // Taken already: by a guard of ours, or a neighbour that can't be moved.
            void* page = ::mmap(reinterpret_cast<void*>(at), kPage, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            guarded += page != MAP_FAILED;
        }
    }
    (void)guarded;
}

PortClient::PortClient(const nupa::daemon::PortContext& context, const char* name, std::uint16_t id,
                       unsigned queue_pairs, std::uint64_t ram_pages)
    : ram(name, ram_pages), port(context, options_of(ram, name, id, queue_pairs), id, 7) {
    context.fabric.attach(port);
    plug(port.options().socket);
}

void PortClient::plug(const std::string& socket) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, socket.data(), socket.size());
    const int link = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(::connect(link, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "plugged");
    port.accept_client();
    ::unlink(socket.c_str());
    std::int64_t value;
    for (int fd; receive_message(link, value, fd);) {
        if (value == -1) {
            void* at = ::mmap(nullptr, NUPA_BAR2_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            require(at != MAP_FAILED, "BAR2 mapped");
            bar2_ = static_cast<std::byte*>(at);
        }
        if (fd >= 0)
            ::close(fd);
    }
    require(bar2_, "BAR2 came");
}

void PortClient::restart(std::uint64_t ring, std::uint64_t comps) {
    // The host's registers and control blocks as after power-on.
    std::memset(bar2_ + offsetof(nupa_regs, control), 0,
                NUPA_BAR2_BYTES - offsetof(nupa_regs, control));
    admin().ring_addr = ring_ = ring;
    admin().comp_addr = comps_ = comps;
    produced_ = 0;
    // Twice: the first generation may be the one the switch obeyed last.
    for (const std::uint32_t control : {0u, std::uint32_t{NUPA_CONTROL_ENABLE}}) {
        regs().control = control;
        regs().control_gen = ++generation_;
        port.doorbell(0);
        port.work();
    }
    require(regs().status & NUPA_STATUS_READY, "enabled");
    if (!guarded_)
        ram.guard_others();
    guarded_ = true;
}

nupa_admin_comp PortClient::command(nupa_admin_cmd cmd) {
    const std::uint64_t slot = produced_ % NUPA_ADMIN_ENTRIES;
    std::memcpy(ram.at(ring_ + slot * sizeof cmd), &cmd, sizeof cmd);
    admin().ring.prod = ++produced_;
    port.doorbell(0);
    for (unsigned i = 0; i < kTurnsMax && port.work(); i++) {
    }
    nupa_admin_comp comp;
    std::memcpy(&comp, ram.at(comps_ + slot * sizeof comp), sizeof comp);
    return comp;
}

}  // namespace fuzz
