// SPDX-License-Identifier: BSD-3-Clause
#include "fake_window.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <system_error>

#include "fake_port.hpp"
#include "shared_memory.hpp"

namespace nupa::testing {
namespace {

[[noreturn]] void fail(const std::string& what) {
    throw std::system_error(errno, std::generic_category(), what);
}

// Until @done, woken by @fd.
void wait_for(int fd, const char* what, const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
    while (!done()) {
        if (std::chrono::steady_clock::now() >= end)
            throw std::runtime_error(std::string("pool window: ") + what + ": not done in time");
        pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
        uint64_t count = 0;
        if (::poll(&p, 1, 100) == 1 && ::read(fd, &count, sizeof(count)) < 0)
            fail("interrupt");
    }
}

}  // namespace

FakeWindow::FakeWindow(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) < 0)
        fail(path);
    int fd = -1;
    if (receive_message(socket_, fd) != 0 || receive_message(socket_, fd) != NUPA_PEER_HOST ||
        receive_message(socket_, fd) != -1 || fd < 0)
        throw std::runtime_error("ivshmem handshake of the pool");
    bytes_ = static_cast<uint64_t>(::lseek(fd, 0, SEEK_END));
    void* at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (at == MAP_FAILED)
        fail("map the pool's window");
    bar2_ = static_cast<uint8_t*>(at);
    for (int& doorbell : doorbells_)
        if (receive_message(socket_, doorbell) != NUPA_PEER_SWITCH || doorbell < 0)
            throw std::runtime_error("doorbell of the pool");
    for (int& interrupt : interrupts_)
        if (receive_message(socket_, interrupt) != NUPA_PEER_HOST || interrupt < 0)
            throw std::runtime_error("interrupt of the pool");
}

FakeWindow::~FakeWindow() {
    disconnect();
    for (int fd : {doorbells_[0], doorbells_[1], interrupts_[0], interrupts_[1]})
        ::close(fd);
    if (bar2_)
        ::munmap(bar2_, bytes_);
}

void FakeWindow::disconnect() {
    if (socket_ >= 0)
        ::close(socket_);
    socket_ = -1;
}

void FakeWindow::ring_doorbell() const {
    uint64_t one = 1;
    if (::write(doorbells_[0], &one, sizeof(one)) != sizeof(one))
        fail("doorbell of the pool");
}

void FakeWindow::set_control(uint32_t control) {
    const uint32_t generation = load(regs()->control_gen) + 1;
    prod_ = 0;
    store(ring()->prod, 0u);
    store(regs()->control, control);
    store(regs()->control_gen, generation);
    ring_doorbell();
    wait_for(interrupts_[0], "control", [&] { return load(regs()->reset_ack) == generation; });
}

nupa_accel_comp FakeWindow::command(const nupa_accel_cmd& cmd) {
    const uint32_t slot = prod_ % NUPA_ACCEL_ENTRIES;
    std::memcpy(bar2_ + NUPA_ACCEL_CMDS_AT + slot * sizeof(cmd), &cmd, sizeof(cmd));
    store(ring()->irq_event, prod_);
    store(ring()->prod, ++prod_);
    ring_doorbell();
    wait_for(interrupts_[0], "command", [&] { return load(ring()->cons) == prod_; });
    nupa_accel_comp comp;
    std::memcpy(&comp, bar2_ + NUPA_ACCEL_COMPS_AT + slot * sizeof(comp), sizeof(comp));
    return comp;
}

nupa_accel_cmd FakeWindow::lease_cmd(uint64_t bytes) {
    nupa_accel_cmd cmd{};
    cmd.op = NUPA_POOL_LEASE;
    cmd.bytes = bytes;
    return cmd;
}

nupa_accel_cmd FakeWindow::release_cmd(uint64_t at) {
    nupa_accel_cmd cmd{};
    cmd.op = NUPA_POOL_RELEASE;
    cmd.to = at;
    return cmd;
}

uint64_t FakeWindow::lease(uint64_t bytes) {
    const nupa_accel_comp comp = command(lease_cmd(bytes));
    if (comp.status != NUPA_ACCEL_OK)
        throw std::runtime_error("lease: status " + std::to_string(comp.status));
    return comp.result;
}

}  // namespace nupa::testing
