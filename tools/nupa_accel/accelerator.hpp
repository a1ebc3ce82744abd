// SPDX-License-Identifier: BSD-3-Clause
// One accelerator: an ivshmem-doorbell device that speaks nupa_accel_hw.h.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>

#include "event/client_log.hpp"
#include "event/epoll.hpp"
#include "event/unix_listener.hpp"
#include "ivshmem/client.hpp"
#include "ivshmem/consumed_ring.hpp"
#include "ivshmem/mapping.hpp"
#include "tcp_qp/nupa_accel_hw.h"

namespace nupa::accel {

struct Options {
    std::string socket;  // where QEMU connects
    std::string memory;  // the file: the switch maps it, too
    uint64_t bytes = 0;  // of BAR2
};

class Accelerator final : private daemon::EventHandler {
public:
    // It listens when this returns; throws std::system_error.
    explicit Accelerator(const Options& options);
    // Serves until SIGTERM or SIGINT.
    void run();

private:
    enum What : uint32_t { kSignal, kListen, kClient, kDoorbell, kWaitTimer };

    // A WAIT under way; commands behind it wait.
    struct Wait {
        nupa_accel_cmd cmd;
        uint64_t end_ns;
    };

    void handle(uint32_t what, uint32_t events) override;
    void accept_client();
    void plug(daemon::Fd socket);
    void client_event() noexcept;
    void unplug() noexcept;
    void initialise() noexcept;
    void control() noexcept;
    void reset() noexcept;
    void doorbell() noexcept;
    void commands() noexcept;
    bool command() noexcept;
    bool go_on_waiting() noexcept;
    void ring(uint32_t bell) noexcept;
    void complete(const nupa_accel_cmd& cmd, nupa_accel_status status, uint64_t result) noexcept;
    void arm_wait_timer() noexcept;

    [[nodiscard]] nupa_accel_regs& regs() const noexcept {
        return *reinterpret_cast<nupa_accel_regs*>(whole_.data());
    }
    [[nodiscard]] std::span<std::byte> memory() const noexcept {
        return {whole_.data() + NUPA_ACCEL_CONTROL_BYTES,
                whole_.bytes() - NUPA_ACCEL_CONTROL_BYTES};
    }

    daemon::Fd file_;
    daemon::Mapping whole_;
    uint64_t id_;
    daemon::Epoll epoll_;
    daemon::Fd signals_;
    daemon::Fd wait_timer_;
    daemon::UnixListener listener_;
    daemon::ClientLog log_;
    std::optional<daemon::IvshmemClient> client_;
    std::optional<daemon::ConsumedRing> ring_;  // while it is enabled
    std::optional<Wait> wait_;
    uint32_t control_gen_ = 0;  // the last one obeyed
    std::array<uint32_t, NUPA_ACCEL_BELLS> bells_{};
    bool stopping_ = false;
};

}  // namespace nupa::accel
