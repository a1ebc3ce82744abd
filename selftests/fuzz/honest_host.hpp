// SPDX-License-Identifier: BSD-3-Clause
// A well-behaved host on the switch: what it did not give away never changes,
// and every completion it gets is one its driver could use.
#pragma once

#include <vector>

#include "frame.hpp"
#include "port_client.hpp"

namespace fuzz {

class HonestHost {
public:
    explicit HonestHost(const nupa::daemon::PortContext& context);
    static constexpr Mac kMac{2, 0, 0, 0, 0, 2};
    static constexpr std::uint32_t kRcvNxt = 1000;
    static constexpr unsigned kSharedFlow = 2;  // of the QP with an SRQ

    void restart(std::uint8_t rx_mode);
    void send(const Frame& frame);
    void post_receive(std::uint16_t bytes);
    // Takes what arrived, as a driver does, and gives the buffers back.
    void consume();
    void check() const;

    PortClient client;

private:
    template <class T>
    void put(std::uint64_t addr, const T& v) {
        std::memcpy(client.ram.at(addr), &v, sizeof v);
        std::memcpy(expected_.data() + addr, &v, sizeof v);
    }
    void clear(std::uint64_t from, std::uint64_t to);
    void share_receives();
    void poll();
    std::uint32_t word(std::uint64_t addr) const;
    void receive_sge(std::uint64_t ring, std::uint32_t slot, unsigned n, std::uint64_t at,
                     std::uint32_t bytes);
    void prepare(std::uint32_t slot);
    void command(nupa_admin_op op, std::uint32_t id, const void* body, std::size_t bytes);
    void completion(const nupa_rx_comp& c, const std::uint8_t* header);

    std::vector<std::byte> expected_;
    std::uint32_t sent_ = 0, consumed_ = 0, filled_ = 0, buffers_used_ = 0, longs_used_ = 0;
    bool has_longs_ = false;
    std::uint32_t posted_ = 0;
    std::uint32_t shared_ = 0, polled_ = 0;  // receives of the SRQ, completions
};

}  // namespace fuzz
