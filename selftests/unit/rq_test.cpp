// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <rdma/rdma_user_rxe.h>

#include "engine/rq.hpp"
#include "guest.hpp"

namespace {

using namespace test;

nupa::RecvSge sge(std::uint64_t addr, std::uint32_t length, std::uint32_t lkey = 1) {
    return {addr, length, lkey};
}

TEST(ReceiveQueue, RxeLayout) {
    EXPECT_EQ(offsetof(rxe_queue_buf, producer_index), RecvRing::kProducerAt);
    EXPECT_EQ(offsetof(rxe_queue_buf, data), RecvRing::kElementsAt);
}

// Element sizes that divide a page and ones that cross pages.
TEST(ReceiveQueue, ReadsEveryElement) {
    for (const std::uint32_t sges : {1u, 2u, 6u, 13u, 32u}) {
        Guest guest;
        RecvRing ring(guest, 128, sges, 100);
        nupa::ReceiveQueue rq;
        ASSERT_EQ(rq.init(guest.memory, ring.cmd), NUPA_OK);
        for (std::uint16_t msn = 0; msn < 127; msn++) {
            std::vector<nupa::RecvSge> list;
            for (std::uint32_t i = 0; i < sges; i++)
                list.push_back(sge(0x123456789000 + msn * 64 + i, 10 + i, msn));
            EXPECT_FALSE(rq.posted(msn));
            EXPECT_EQ(ring.post(list), msn);
            ASSERT_TRUE(rq.posted(msn));
            nupa::RecvWqe wqe;
            ASSERT_TRUE(rq.read(msn, wqe));
            ASSERT_EQ(wqe.num_sge, sges);
            EXPECT_EQ(std::memcmp(wqe.sge.data(), list.data(), sges * sizeof(nupa::RecvSge)), 0);
        }
    }
}

TEST(ReceiveQueue, PostedAgainstTheDefinition) {
    Guest guest;
    RecvRing ring(guest, 64, 1, 7);
    nupa::ReceiveQueue rq;
    ASSERT_EQ(rq.init(guest.memory, ring.cmd), NUPA_OK);
    for (const std::uint32_t completed : {0u, 5u, 63u, 64u, 65530u, 65536u + 3, 0xfffffffeu})
        for (std::uint32_t ready = 0; ready < 64; ready++) {
            ring.complete(completed);
            ring.set_producer((7 + completed + ready) & 63);
            for (std::uint32_t i = 0; i < 200; i++) {
                const std::uint16_t msn = static_cast<std::uint16_t>(completed + i - 50);
                ASSERT_EQ(rq.posted(msn), i >= 50 && i - 50 < ready)
                    << completed << ' ' << ready << ' ' << i;
            }
        }
}

TEST(ReceiveQueue, ProducerIndexOutOfRangeIsMasked) {
    Guest guest;
    RecvRing ring(guest, 64, 1);
    nupa::ReceiveQueue rq;
    ASSERT_EQ(rq.init(guest.memory, ring.cmd), NUPA_OK);
    ring.set_producer(0xffffffff);
    EXPECT_TRUE(rq.posted(62));
    EXPECT_FALSE(rq.posted(63));  // one element stays empty: never a full lap
}

TEST(ReceiveQueue, SgeCountIsBounded) {
    Guest guest;
    RecvRing ring(guest, 64, 3);
    nupa::ReceiveQueue rq;
    ASSERT_EQ(rq.init(guest.memory, ring.cmd), NUPA_OK);
    nupa::RecvWqe wqe;
    for (const std::uint32_t n : {4u, 33u, 0x80000000u, 0xffffffffu}) {
        ring.set_num_sge(0, n);
        EXPECT_FALSE(rq.read(0, wqe));
    }
    ring.set_num_sge(0, 3);
    EXPECT_TRUE(rq.read(0, wqe));
    ring.set_num_sge(0, 0);
    EXPECT_TRUE(rq.read(0, wqe));
    EXPECT_EQ(wqe.num_sge, 0u);
}

TEST(ReceiveQueue, NoRq) {
    Guest guest;
    nupa_cmd_qp cmd{};
    cmd.flags = NUPA_QP_F_NO_RQ;
    nupa::ReceiveQueue rq;
    ASSERT_EQ(rq.init(guest.memory, cmd), NUPA_OK);
    EXPECT_FALSE(rq.posted(0));
}

TEST(ReceiveQueue, InvalidCommands) {
    Guest guest;
    RecvRing ring(guest, 64, 4);
    const auto with = [&](auto change) {
        nupa_cmd_qp cmd = ring.cmd;
        change(cmd);
        nupa::ReceiveQueue rq;
        const nupa_admin_status status = rq.init(guest.memory, cmd);
        EXPECT_FALSE(rq.posted(0));
        return status;
    };
    EXPECT_EQ(with([](auto&) {}), NUPA_OK);
    EXPECT_EQ(with([](auto& c) { c.rq_mask = 0; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.rq_mask = 62; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.rq_mask = 65535; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.rq_mask = UINT32_MAX; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.rq_mask = 127; }), NUPA_E_INVALID);  // more than its pages hold
    EXPECT_EQ(with([](auto& c) { c.rq_log2_bytes = 5; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.rq_log2_bytes = 200; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.rq_sge_max = 33; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.rq_sge_max = 6; }), NUPA_E_INVALID);  // 136 bytes in 128
    EXPECT_EQ(with([](auto& c) { c.rq_pages = NUPA_RQ_PAGES_MAX + 1; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.rq_pages = 0; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.shadow_addr += 2; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.shadow_addr = 1ull << 50; }), NUPA_E_ADDRESS);
    EXPECT_EQ(with([](auto& c) { c.rq_table_addr = 1ull << 50; }), NUPA_E_ADDRESS);
    const std::uint64_t bad = guest.table({kPage + 8, kPage, kPage}),
                        gone = guest.table({1ull << 50, kPage, kPage});
    EXPECT_EQ(with([&](auto& c) { c.rq_table_addr = bad; }), NUPA_E_INVALID);
    EXPECT_EQ(with([&](auto& c) { c.rq_table_addr = gone; }), NUPA_E_ADDRESS);
}

}  // namespace
