// SPDX-License-Identifier: BSD-3-Clause
// A TUN/TAP interface of the host with virtio-net headers, so that bursts and
// checksums can be left to whoever does them last.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <string>

#include "event/fd.hpp"

namespace nupa::daemon {

// struct virtio_net_hdr (virtio 1.2, 5.1.6), whose own header is no C++.
struct VnetHeader {
    enum : uint8_t { kNeedsCsum = 1, kDataValid = 2 };
    enum : uint8_t { kGsoNone = 0, kGsoTcp4 = 1, kGsoTcp6 = 4, kGsoEcn = 0x80 };
    uint8_t flags = 0;
    uint8_t gso_type = kGsoNone;
    uint16_t header_bytes = 0;  // a hint only
    uint16_t gso_size = 0;
    uint16_t csum_start = 0;
    uint16_t csum_offset = 0;
};
static_assert(sizeof(VnetHeader) == 10);

class TapDevice {
public:
    static constexpr size_t kFrameMaxBytes = (64 << 10) + 256;  // one GSO frame and its headers

    // Creates or attaches to @ifname and sets it up; throws with what to do (needs CAP_NET_ADMIN
    // unless the interface is persistent and ours).
    explicit TapDevice(const std::string& ifname);

    [[nodiscard]] int fd() const noexcept { return fd_.get(); }
    // One frame into @frame; returns its bytes, 0 when none waits.
    size_t read(VnetHeader& head, std::span<uint8_t> frame) noexcept;
    // One frame with valid checksums; false when the host's queue is full.
    bool write(std::span<const iovec> frame) noexcept;
    // Somebody deleted the interface: a read found that out.
    [[nodiscard]] bool gone() const noexcept { return gone_; }

private:
    Fd fd_;
    bool gone_ = false;
};

}  // namespace nupa::daemon
