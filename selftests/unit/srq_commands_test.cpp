// SPDX-License-Identifier: BSD-3-Clause
// SRQ_CREATE, SRQ_DESTROY, and QP_CREATE with a shared receive queue: what is refused, and why.
#include <functional>

#include "srq_host.hpp"

namespace {

using namespace test;

struct SharedCommands : SharedReceives {
    nupa_admin_status srq_with(const std::function<void(nupa_cmd_srq&)>& change) {
        nupa_cmd_srq c = srq.cmd;
        change(c);
        return host.engine.srq_create(kSrq + 1, c);
    }
    nupa_admin_status qp_with(const std::function<void(nupa_cmd_qp&)>& change) {
        nupa_cmd_qp c = cmd(0);
        c.flow.sport = 1;
        change(c);
        return host.engine.qp_create(kQpn + kQps, c);
    }
};

TEST_F(SharedCommands, SpoiledFields) {
    EXPECT_EQ(srq_with([](auto& c) { c.mask = 0; }), NUPA_E_INVALID);
    EXPECT_EQ(srq_with([](auto& c) { c.mask = 14; }), NUPA_E_INVALID);
    EXPECT_EQ(srq_with([](auto& c) { c.mask = 255; }), NUPA_E_INVALID);  // more than its pages hold
    EXPECT_EQ(srq_with([](auto& c) { c.mask = 65535, c.pages = 4096; }), NUPA_E_INVALID);
    EXPECT_EQ(srq_with([](auto& c) { c.mask = UINT32_MAX; }), NUPA_E_INVALID);
    EXPECT_EQ(srq_with([](auto& c) { c.pages = 0; }), NUPA_E_INVALID);
    EXPECT_EQ(srq_with([](auto& c) { c.pages = NUPA_RQ_PAGES_MAX + 1; }), NUPA_E_INVALID);
    EXPECT_EQ(srq_with([](auto& c) { c.pages = UINT32_MAX; }), NUPA_E_INVALID);
    EXPECT_EQ(srq_with([](auto& c) { c.log2_bytes = 5; }), NUPA_E_INVALID);
    EXPECT_EQ(srq_with([](auto& c) { c.log2_bytes = 13; }), NUPA_E_INVALID);
    EXPECT_EQ(srq_with([](auto& c) { c.log2_bytes = 255; }), NUPA_E_INVALID);
    EXPECT_EQ(srq_with([](auto& c) { c.sge_max = NUPA_SGE_MAX + 1; }), NUPA_E_INVALID);
    EXPECT_EQ(srq_with([](auto& c) { c.sge_max = UINT16_MAX; }), NUPA_E_INVALID);
    EXPECT_EQ(srq_with([](auto& c) { c.sge_max++; }), NUPA_OK);  // its element holds five
    EXPECT_EQ(host.engine.srq_destroy(kSrq + 1), NUPA_OK);
    EXPECT_EQ(srq_with([](auto& c) { c.sge_max = 6; }), NUPA_E_INVALID);
    for (std::size_t i = 0; i < sizeof srq.cmd.reserved; i++)
        EXPECT_EQ(srq_with([i](auto& c) { c.reserved[i] = 1; }), NUPA_E_INVALID);
    EXPECT_EQ(host.engine.srq_destroy(kSrq + 1), NUPA_E_NOENT);
}

TEST_F(SharedCommands, SpoiledAddresses) {
    for (const std::uint64_t wrong :
         {std::uint64_t{1} << 40, UINT64_MAX - 15, kHighRam + kHalfBytes - 8})
        EXPECT_EQ(srq_with([=](auto& c) { c.ctl_addr = wrong & ~std::uint64_t{3}; }),
                  NUPA_E_ADDRESS);
    EXPECT_EQ(srq_with([](auto& c) { c.ctl_addr++; }), NUPA_E_INVALID);
    EXPECT_EQ(srq_with([](auto& c) { c.ctl_addr += 2; }), NUPA_E_INVALID);
    EXPECT_EQ(srq_with([](auto& c) { c.table_addr = 1ull << 40; }), NUPA_E_ADDRESS);
    EXPECT_EQ(srq_with([](auto& c) { c.table_addr = UINT64_MAX - 7; }), NUPA_E_ADDRESS);
    const std::uint64_t table = host.guest.table({1ull << 40});
    EXPECT_EQ(srq_with([=](auto& c) { c.table_addr = table; }), NUPA_E_ADDRESS);
    host.guest.put<std::uint64_t>(table, kPage + 8);
    EXPECT_EQ(srq_with([=](auto& c) { c.table_addr = table; }), NUPA_E_INVALID);
    EXPECT_EQ(srq_with([](auto&) {}), NUPA_OK);
}

TEST_F(SharedCommands, Numbers) {
    EXPECT_EQ(host.engine.srq_create(kSrq, srq.cmd), NUPA_E_EXISTS);
    EXPECT_EQ(host.engine.srq_destroy(kSrq + 1), NUPA_E_NOENT);
    EXPECT_EQ(host.engine.srq_destroy(kCq), NUPA_E_NOENT);  // the number of a CQ
    EXPECT_EQ(host.engine.srq_create(kCq, srq.cmd), NUPA_OK);
    EXPECT_EQ(host.engine.srq_destroy(kCq), NUPA_OK);
}

TEST_F(SharedCommands, NotWhileQueuePairsNameIt) {
    EXPECT_EQ(host.engine.srq_destroy(kSrq), NUPA_E_INVALID);
    EXPECT_EQ(host.engine.qp_destroy(kQpn), NUPA_OK);
    EXPECT_EQ(host.engine.srq_destroy(kSrq), NUPA_E_INVALID);
    srq.post(1);
    expect_completed(1, send(1), 0);
    EXPECT_EQ(host.engine.qp_destroy(kQpn + 1), NUPA_OK);
    EXPECT_EQ(host.engine.srq_destroy(kSrq), NUPA_OK);
    EXPECT_EQ(host.engine.srq_destroy(kSrq), NUPA_E_NOENT);
    EXPECT_EQ(host.engine.cq_destroy(kCq), NUPA_OK);
}

TEST_F(SharedCommands, QueuePairs) {
    const auto without = [](nupa_cmd_qp& c, std::uint32_t flag) { c.flags &= ~flag; };
    EXPECT_EQ(qp_with([](auto& c) { c.srq++; }), NUPA_E_NOENT);
    EXPECT_EQ(qp_with([](auto& c) { c.cq++; }), NUPA_E_NOENT);
    EXPECT_EQ(qp_with([&](auto& c) { without(c, NUPA_QP_F_COMPLETE); }), NUPA_E_INVALID);
    EXPECT_EQ(qp_with([&](auto& c) { without(c, NUPA_QP_F_COMPLETE), c.cq = 0; }), NUPA_E_INVALID);
    EXPECT_EQ(qp_with([&](auto& c) { without(c, kCompletes), c.cq = 0; }), NUPA_E_INVALID);
    EXPECT_EQ(qp_with([](auto& c) { c.flags |= NUPA_QP_F_NO_RQ; }), NUPA_E_INVALID);
    EXPECT_EQ(qp_with([&](auto& c) {
                  without(c, NUPA_QP_F_COMPLETE);
                  c.flags |= NUPA_QP_F_NO_RQ;
              }),
              NUPA_E_INVALID);
    EXPECT_EQ(qp_with([](auto& c) { c.flags |= NUPA_QP_F_STREAM; }), NUPA_E_INVALID);
    EXPECT_EQ(qp_with([](auto& c) { c.send_cq = 1; }), NUPA_E_INVALID);
    EXPECT_EQ(qp_with([](auto& c) { c.shadow_addr = 1ull << 40; }), NUPA_E_ADDRESS);
    EXPECT_EQ(qp_with([](auto& c) { c.shadow_addr += 4; }), NUPA_E_INVALID);
    const auto with_rq = [&](auto change) {
        return qp_with([&](auto& c) {
            without(c, NUPA_QP_F_SRQ);
            const nupa_cmd_qp& rq = host.ring.cmd;
            c.rq_log2_bytes = rq.rq_log2_bytes, c.rq_sge_max = rq.rq_sge_max;
            c.rq_mask = rq.rq_mask, c.rq_pages = rq.rq_pages;
            c.rq_table_addr = rq.rq_table_addr;
            change(c);
        });
    };
    EXPECT_EQ(with_rq([](auto&) {}), NUPA_E_INVALID);  // the number of an SRQ without the flag
    EXPECT_EQ(with_rq([](auto& c) { c.flags |= NUPA_QP_F_SRQ; }), NUPA_E_INVALID);
    EXPECT_EQ(with_rq([](auto& c) { c.srq = 0; }), NUPA_OK);
    EXPECT_EQ(host.engine.qp_destroy(kQpn + kQps), NUPA_OK);
    EXPECT_EQ(qp_with([](auto&) {}), NUPA_OK);
}

TEST_F(SharedCommands, NoReceiveQueueOfItsOwn) {
    EXPECT_EQ(qp_with([](auto& c) { c.rq_log2_bytes = 7; }), NUPA_E_INVALID);
    EXPECT_EQ(qp_with([](auto& c) { c.rq_sge_max = 1; }), NUPA_E_INVALID);
    EXPECT_EQ(qp_with([](auto& c) { c.rq_mask = 1; }), NUPA_E_INVALID);
    EXPECT_EQ(qp_with([](auto& c) { c.rq_base = 1; }), NUPA_E_INVALID);
    EXPECT_EQ(qp_with([](auto& c) { c.rq_pages = 1; }), NUPA_E_INVALID);
    EXPECT_EQ(qp_with([](auto& c) { c.rq_table_addr = kPage; }), NUPA_E_INVALID);
    EXPECT_EQ(host.engine.qp_destroy(kQpn), NUPA_OK);
    EXPECT_EQ(host.engine.qp_destroy(kQpn + 1), NUPA_OK);
    EXPECT_EQ(host.engine.srq_destroy(kSrq), NUPA_OK);  // what was refused does not name it
}

// What it takes of the port's memory is given back.
TEST_F(SharedCommands, Memory) {
    EXPECT_EQ(host.engine.qp_destroy(kQpn), NUPA_OK);
    EXPECT_EQ(host.engine.qp_destroy(kQpn + 1), NUPA_OK);
    EXPECT_EQ(host.engine.cq_destroy(kCq), NUPA_OK);
    EXPECT_EQ(host.engine.mr_dereg(kKey), NUPA_OK);
    EXPECT_GT(host.engine.budget().used(), 0u);
    EXPECT_EQ(host.engine.srq_destroy(kSrq), NUPA_OK);
    EXPECT_EQ(host.engine.budget().used(), 0u);
    EXPECT_EQ(srq_with([](auto& c) { c.log2_bytes = 5; }), NUPA_E_INVALID);
    EXPECT_EQ(host.engine.budget().used(), 0u);
    EXPECT_EQ(host.engine.srq_create(kSrq, srq.cmd), NUPA_OK);
    host.engine.reset();
    EXPECT_EQ(host.engine.budget().used(), 0u);
    EXPECT_EQ(host.engine.srq_destroy(kSrq), NUPA_E_NOENT);
}

TEST_F(SharedCommands, Limits) {
    nupa::PortEngine small(host.guest.memory, host.stats, 1, {1, 1, 4096});
    EXPECT_EQ(small.srq_create(1, srq.cmd), NUPA_OK);
    EXPECT_EQ(small.srq_create(2, srq.cmd), NUPA_E_NOSPACE);
    nupa::PortEngine poor(host.guest.memory, host.stats, 1, {8, 1, 64});
    EXPECT_EQ(poor.srq_create(1, srq.cmd), NUPA_E_QUOTA);
    EXPECT_EQ(poor.budget().used(), 0u);
}

}  // namespace
