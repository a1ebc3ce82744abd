// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "engine/mr.hpp"
#include "guest.hpp"

namespace {

using namespace test;
using nupa::Reason;

constexpr std::uint32_t kMrPd = 5;
constexpr std::uint64_t kUnalignedIova = 0x7f0000000123;  // not aligned to a page

struct MrTest : testing::Test {
    Guest guest;
    nupa::MemoryBudget budget{nupa::kPortMemoryDefaultBytes};
    nupa::MrTable table{1, budget, 4};
    Region region{guest, kUnalignedIova, 3 * kPage, kMrPd, NUPA_ACCESS_LOCAL_WRITE};

    nupa_admin_status reg(const nupa_cmd_mr& cmd, std::uint32_t key = 1) {
        return table.reg(guest.memory, key, cmd);
    }
};

TEST_F(MrTest, CheckOfBoundsPdAndAccess) {
    ASSERT_EQ(reg(region.cmd), NUPA_OK);
    const nupa::Mr* mr = table.find(1);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->check(kMrPd, kUnalignedIova, 3 * kPage, NUPA_ACCESS_LOCAL_WRITE),
              Reason::kPlaced);
    EXPECT_EQ(mr->check(kMrPd, kUnalignedIova + 3 * kPage - 1, 1, NUPA_ACCESS_LOCAL_WRITE),
              Reason::kPlaced);
    EXPECT_EQ(mr->check(kMrPd, kUnalignedIova, 3 * kPage + 1, NUPA_ACCESS_LOCAL_WRITE),
              Reason::kBounds);
    EXPECT_EQ(mr->check(kMrPd, kUnalignedIova - 1, 1, NUPA_ACCESS_LOCAL_WRITE), Reason::kBounds);
    EXPECT_EQ(mr->check(kMrPd, kUnalignedIova + 3 * kPage, 1, NUPA_ACCESS_LOCAL_WRITE),
              Reason::kBounds);
    EXPECT_EQ(mr->check(kMrPd, kUnalignedIova + 1, UINT64_MAX, NUPA_ACCESS_LOCAL_WRITE),
              Reason::kBounds);
    EXPECT_EQ(mr->check(kMrPd, UINT64_MAX, 2, NUPA_ACCESS_LOCAL_WRITE), Reason::kBounds);
    EXPECT_EQ(mr->check(kMrPd + 1, kUnalignedIova, 1, NUPA_ACCESS_LOCAL_WRITE), Reason::kAccess);
    EXPECT_EQ(mr->check(kMrPd, kUnalignedIova, 1, NUPA_ACCESS_REMOTE_WRITE), Reason::kAccess);
}

TEST_F(MrTest, RunsFollowThePages) {
    ASSERT_EQ(reg(region.cmd), NUPA_OK);
    const nupa::Mr* mr = table.find(1);
    for (std::uint64_t at = 0; at < 3 * kPage; at += 97) {
        const auto run = mr->run(kUnalignedIova + at, 3 * kPage - at);
        ASSERT_EQ(run.data(), region.at(guest, kUnalignedIova + at));
        const std::uint64_t to_page_end = kPage - (kUnalignedIova + at) % kPage;
        ASSERT_EQ(run.size(), std::min(to_page_end, 3 * kPage - at));  // neighbours lie apart
    }
    EXPECT_EQ(mr->run(kUnalignedIova, 5).size(), 5u);
}

TEST_F(MrTest, AdjacentPagesAreOneRun) {
    const std::uint64_t base = guest.alloc(4 * kPage);
    nupa_cmd_mr cmd = region.cmd;
    cmd.iova = 0x10000 + 100, cmd.bytes = 4 * kPage - 100, cmd.pages = 4;
    cmd.table_addr = guest.table({base, base + kPage, base + 2 * kPage, base + 3 * kPage});
    ASSERT_EQ(reg(cmd), NUPA_OK);
    const auto run = table.find(1)->run(cmd.iova, cmd.bytes);
    EXPECT_EQ(run.data(), guest.ptr(base + 100));
    EXPECT_EQ(run.size(), cmd.bytes);
}

TEST_F(MrTest, HugePages) {
    nupa_cmd_mr cmd{};
    cmd.iova = 0x40001000, cmd.bytes = 100, cmd.pages = 1, cmd.page_shift = 30;
    cmd.table_addr = guest.table({0});  // only a little of the page is memory, and used
    EXPECT_EQ(reg(cmd), NUPA_OK);
    EXPECT_EQ(table.find(1)->run(cmd.iova, 100).data(), guest.ptr(0x1000));
    cmd.bytes = 64 << 20;
    EXPECT_EQ(reg(cmd, 2), NUPA_E_ADDRESS);
}

TEST_F(MrTest, Keys) {
    EXPECT_EQ(table.dereg(1), NUPA_E_NOENT);
    ASSERT_EQ(reg(region.cmd), NUPA_OK);
    EXPECT_EQ(reg(region.cmd), NUPA_E_EXISTS);
    EXPECT_NE(table.find(1), nullptr);
    EXPECT_EQ(table.dereg(1), NUPA_OK);
    EXPECT_EQ(table.find(1), nullptr);  // nor is it remembered
    for (std::uint32_t key = 0; key < 4; key++)
        EXPECT_EQ(reg(region.cmd, key), NUPA_OK);
    EXPECT_EQ(reg(region.cmd, 9), NUPA_E_NOSPACE);
    EXPECT_NE(table.find(3), table.find(2));
    table.clear();
    EXPECT_EQ(table.find(2), nullptr);
    EXPECT_EQ(table.size(), 0u);
}

TEST_F(MrTest, InvalidFields) {
    const auto with = [&](auto change) {
        nupa_cmd_mr cmd = region.cmd;
        change(cmd);
        return reg(cmd);
    };
    EXPECT_EQ(with([](auto& c) { c.bytes = 0; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.iova = UINT64_MAX - 10; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.access = 0x10; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.page_shift = 11; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.page_shift = 31; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.page_shift = 255; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.pages++; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.pages--; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.pages = 0; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.reserved[1] = 1; }), NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) {
                  c.bytes = 1ull << 60;
                  c.pages = NUPA_MR_PAGES_MAX;
              }),
              NUPA_E_INVALID);
    EXPECT_EQ(with([](auto& c) { c.table_addr = 1ull << 50; }), NUPA_E_ADDRESS);
    EXPECT_EQ(with([](auto& c) { c.table_addr = UINT64_MAX - 3; }), NUPA_E_ADDRESS);
    EXPECT_EQ(table.size(), 0u);
}

TEST_F(MrTest, InvalidPages) {
    nupa_cmd_mr cmd = region.cmd;
    auto pages = region.pages;
    pages[1] += 8;
    cmd.table_addr = guest.table(pages);
    EXPECT_EQ(reg(cmd), NUPA_E_INVALID);
    pages[1] = 1ull << 40;
    cmd.table_addr = guest.table(pages);
    EXPECT_EQ(reg(cmd), NUPA_E_ADDRESS);
    EXPECT_EQ(table.find(1), nullptr);
}

TEST_F(MrTest, TheTableIsCopied) {
    ASSERT_EQ(reg(region.cmd), NUPA_OK);
    for (std::size_t i = 0; i < region.pages.size(); i++)
        guest.put<std::uint64_t>(region.cmd.table_addr + 8 * i, 0);
    EXPECT_EQ(table.find(1)->run(kUnalignedIova, 1).data(), region.at(guest, kUnalignedIova));
}

}  // namespace
