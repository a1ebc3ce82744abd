// SPDX-License-Identifier: BSD-3-Clause
// A receive queue in the rxe user ABI, as its application and its kernel see
// it, and the kernel's shadow of how much of it is completed.  A shared one is used when a receive
// is taken, and not when it is completed.
#pragma once

#include <rdma/rdma_user_rxe.h>
#include <cstdint>
#include <vector>

#include "engine/rq.hpp"
#include "ram.hpp"

namespace sim {

class ReceiveRing {
public:
    ReceiveRing(Ram& ram, std::uint32_t entries, std::uint32_t sge_max, std::uint32_t index,
                std::uint16_t first_msn, bool shared);

    // ---- application ----
    bool full() const noexcept;
    void post(const std::vector<nupa::RecvSge>& sges) noexcept;
    // A hostile one: any 32 bits of the element that is @ahead of the producer, or of the header.
    void scribble_element(std::uint32_t ahead, std::uint32_t word, std::uint32_t value) noexcept;
    void scribble_producer(std::uint32_t value) noexcept;

    // ---- kernel ----
    std::uint32_t posted() const noexcept;
    // The next receive, copied once.
    std::vector<nupa::RecvSge> take() noexcept;
    // Completed: first the shadow, then the consumer index; the CQE comes after.
    void complete() noexcept;
    std::uint32_t completed() const noexcept;
    // @count more were completed by the switch, which has said so.
    void skip(std::uint32_t count) noexcept {
        if (!shared_)
            consumer_ = (consumer_ + count) & mask_;
    }
    // Fields of the shadow that are of whose turn it is.
    std::uint32_t turn_word(std::size_t field) const noexcept;
    void put_turn_word(std::size_t field, std::uint32_t value) noexcept;
    // What the switch may have written of them, and of the ring, is as it should be.
    void accept_turn() noexcept;
    // ---- shared ----
    void own(bool host) noexcept;  // another processor of the host takes something
    bool owned() const noexcept { return owned_; }
    // The switch has taken @count.  False: it says something else, or has more of it than that.
    bool taken(std::uint32_t count) noexcept;

    // What receive number @number is called.
    static std::uint64_t name(std::uint32_t number) noexcept {
        return number | std::uint64_t{~number} << 32;
    }
    // Every byte before @seq is where it belongs.
    void consumed(std::uint32_t seq) noexcept;

    nupa_cmd_qp cmd{};       // rq_* and shadow_addr
    nupa_cmd_srq srq_cmd{};  // of a shared one

private:
    static constexpr std::uint32_t kProducerAt = 128, kConsumerAt = 256, kElementsAt = 384;
    static constexpr std::uint32_t kNumSgeAt = 28, kSgesAt = 40;

    std::uint64_t element(std::uint32_t index) const noexcept;
    std::uint64_t at(std::uint64_t offset) const noexcept;
    void put32(std::uint64_t offset, std::uint32_t value) noexcept;
    std::uint32_t get32(std::uint64_t offset) const noexcept;

    Ram& ram_;
    void used(std::uint32_t count) noexcept;

    std::uint32_t mask_, sge_max_;
    bool shared_, owned_ = false;
    std::uint32_t producer_;  // the application's own
    std::uint32_t consumer_;  // the kernel's own
    std::vector<std::uint64_t> pages_;
    std::uint32_t names_ = 0;
};

}  // namespace sim
