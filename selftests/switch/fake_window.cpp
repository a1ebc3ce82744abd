// SPDX-License-Identifier: BSD-3-Clause
#include "fake_window.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "ivshmem_peer.hpp"
#include "shared_memory.hpp"

namespace nupa::testing {
namespace {

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
    const IvshmemPeer peer = connect_ivshmem(path, doorbells_, interrupts_);
    socket_ = peer.socket;
    bar2_ = peer.bar2;
    bytes_ = peer.bytes;
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

void FakeWindow::start(const nupa_accel_cmd& cmd) {
    const uint32_t slot = prod_ % NUPA_ACCEL_ENTRIES;
    std::memcpy(bar2_ + NUPA_ACCEL_CMDS_AT + slot * sizeof(cmd), &cmd, sizeof(cmd));
    store(ring()->irq_event, prod_);
    store(ring()->prod, ++prod_);
    ring_doorbell();
}

nupa_accel_comp FakeWindow::finish() {
    const uint32_t slot = (prod_ - 1) % NUPA_ACCEL_ENTRIES;
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

nupa_accel_cmd FakeWindow::release_cmd(uint64_t at, uint64_t token) {
    nupa_accel_cmd cmd{};
    cmd.op = NUPA_POOL_RELEASE;
    cmd.to = at;
    cmd.other = token;
    return cmd;
}

nupa_accel_cmd FakeWindow::offer_cmd(uint64_t at) {
    nupa_accel_cmd cmd{};
    cmd.op = NUPA_POOL_OFFER;
    cmd.to = at;
    return cmd;
}

nupa_accel_cmd FakeWindow::take_cmd(uint64_t token, uint64_t bytes) {
    nupa_accel_cmd cmd{};
    cmd.op = NUPA_POOL_TAKE;
    cmd.other = token;
    cmd.bytes = bytes;
    return cmd;
}

uint64_t FakeWindow::lease(uint64_t bytes) {
    const nupa_accel_comp comp = command(lease_cmd(bytes));
    if (comp.status != NUPA_ACCEL_OK)
        throw std::runtime_error("lease: status " + std::to_string(comp.status));
    return comp.result;
}

uint64_t FakeWindow::offer(uint64_t at) {
    const nupa_accel_comp comp = command(offer_cmd(at));
    if (comp.status != NUPA_ACCEL_OK || comp.result == 0)
        throw std::runtime_error("offer: status " + std::to_string(comp.status));
    return comp.result;
}

}  // namespace nupa::testing
