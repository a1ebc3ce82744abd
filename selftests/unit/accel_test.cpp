// SPDX-License-Identifier: BSD-3-Clause
// What an accelerator's commands do, each against a model; and that no command reaches beyond the
// memory.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "nupa_accel/commands.hpp"

namespace nupa::accel {
namespace {

constexpr uint64_t kBytes = 1 << 16;

struct Memory : ::testing::Test {
    std::vector<std::byte> data = std::vector<std::byte>(kBytes);
    Memory() {
        std::mt19937 random(7);
        for (std::byte& b : data)
            b = static_cast<std::byte>(random());
    }
    Outcome run(const nupa_accel_cmd& cmd) {
        const nupa_accel_status status = check(cmd, kBytes);
        return status == NUPA_ACCEL_OK ? execute(cmd, data) : Outcome{status};
    }
    template <class T>
    void put(uint64_t at, T value) {
        std::memcpy(&data[at], &value, sizeof(value));
    }
    template <class T>
    T get(uint64_t at) {
        T value;
        std::memcpy(&value, &data[at], sizeof(value));
        return value;
    }
};

nupa_accel_cmd make(nupa_accel_op op, uint64_t to, uint64_t bytes) {
    nupa_accel_cmd cmd{};
    cmd.op = static_cast<uint16_t>(op);
    cmd.to = to;
    cmd.bytes = bytes;
    return cmd;
}

TEST_F(Memory, CopiesAlsoWhereRangesOverlap) {
    auto want = data;
    nupa_accel_cmd cmd = make(NUPA_ACCEL_COPY, 100, 5000);
    cmd.from = 1000;
    std::memmove(&want[100], &want[1000], 5000);
    EXPECT_EQ(run(cmd).status, NUPA_ACCEL_OK);
    EXPECT_EQ(data, want);
}

TEST_F(Memory, FillsWords) {
    nupa_accel_cmd cmd = make(NUPA_ACCEL_FILL, 4, 12);
    cmd.value = 0x04030201;
    const std::byte before = data[3], after = data[16];
    EXPECT_EQ(run(cmd).status, NUPA_ACCEL_OK);
    for (uint64_t at = 4; at < 16; at++)
        EXPECT_EQ(data[at], static_cast<std::byte>(at % 4 + 1));
    EXPECT_EQ(data[3], before);
    EXPECT_EQ(data[16], after);
    cmd.bytes = 13;
    EXPECT_EQ(run(cmd).status, NUPA_ACCEL_E_INVALID);
}

TEST_F(Memory, MakesThePatternFromAnyStart) {
    for (uint32_t period : {2u, 251u, 256u})
        for (uint64_t start : {uint64_t{0}, uint64_t{250}, uint64_t{1} << 40}) {
            nupa_accel_cmd cmd = make(NUPA_ACCEL_PATTERN, 33, 1000);
            cmd.value = period;
            cmd.other = start;
            ASSERT_EQ(run(cmd).status, NUPA_ACCEL_OK);
            for (uint64_t i = 0; i < 1000; i++)
                ASSERT_EQ(data[33 + i], static_cast<std::byte>((start + i + 1) % period));
        }
}

TEST_F(Memory, ComparesToTheFirstDifference) {
    std::memcpy(&data[20000], &data[0], 10000);
    nupa_accel_cmd cmd{};
    cmd.op = NUPA_ACCEL_COMPARE;
    cmd.from = 20000;
    cmd.bytes = 10000;
    EXPECT_EQ(run(cmd).result, 10000u);
    for (uint64_t wrong : {9999u, 4096u, 4095u, 0u}) {
        data[wrong] ^= std::byte{1};
        EXPECT_EQ(run(cmd).result, wrong);
    }
}

TEST_F(Memory, AddsFloats) {
    put(0, 1.5f), put(4, -2.25f), put(64, 0.25f), put(68, 2.25f);
    nupa_accel_cmd cmd = make(NUPA_ACCEL_SUM, 0, 8);
    cmd.other = 64;
    EXPECT_EQ(run(cmd).status, NUPA_ACCEL_OK);
    EXPECT_EQ(get<float>(0), 1.75f);
    EXPECT_EQ(get<float>(4), 0.0f);
}

// 1 + 2^-8 lies half way between two bf16: the even one; infinity and NaN stay what they are.
TEST_F(Memory, RoundsBf16SumsToNearestEven) {
    struct Row {
        uint16_t a, b, sum;
    };
    const std::vector<Row> rows{{0x3f80, 0x3f80, 0x4000},
                                {0x3f80, 0x3b80, 0x3f80},
                                {0x3f81, 0x3b80, 0x3f82},
                                {0x7f80, 0x3f80, 0x7f80},
                                {0x7f7f, 0x7f7f, 0x7f80}};
    for (const Row& row : rows) {
        put(0, row.a), put(2, row.b);
        nupa_accel_cmd cmd = make(NUPA_ACCEL_SUM, 4, 2);
        cmd.type = NUPA_ACCEL_BF16;
        cmd.other = 2;
        ASSERT_EQ(run(cmd).status, NUPA_ACCEL_OK);
        EXPECT_EQ(get<uint16_t>(4), row.sum) << std::hex << row.a << " + " << row.b;
    }
    put<uint16_t>(0, 0x7f80), put<uint16_t>(2, 0xff80);
    nupa_accel_cmd cmd = make(NUPA_ACCEL_SUM, 4, 2);
    cmd.type = NUPA_ACCEL_BF16;
    cmd.other = 2;
    run(cmd);
    EXPECT_GT(get<uint16_t>(4) & 0x7fff, 0x7f80) << "infinity less infinity is no number";
}

TEST_F(Memory, FlagIsSetOrNot) {
    nupa_accel_cmd cmd{};
    cmd.op = NUPA_ACCEL_WAIT;
    cmd.to = 128;
    cmd.value = 77;
    cmd.limit_ms = 1;
    put<uint32_t>(128, 76);
    EXPECT_EQ(check(cmd, kBytes), NUPA_ACCEL_OK);
    EXPECT_FALSE(flag_is_set(cmd, data));
    put<uint32_t>(128, 77);
    EXPECT_TRUE(flag_is_set(cmd, data));
    cmd.to = 130;
    EXPECT_EQ(check(cmd, kBytes), NUPA_ACCEL_E_INVALID);
    cmd.to = 128;
    cmd.limit_ms = NUPA_ACCEL_WAIT_MAX_MS + 1;
    EXPECT_EQ(check(cmd, kBytes), NUPA_ACCEL_E_INVALID);
}

TEST(Commands, FieldsThatAnOperationLacksAreZero) {
    nupa_accel_cmd cmd = make(NUPA_ACCEL_FILL, 0, 8);
    EXPECT_EQ(check(cmd, kBytes), NUPA_ACCEL_OK);
    for (auto field : {&nupa_accel_cmd::from, &nupa_accel_cmd::other}) {
        nupa_accel_cmd wrong = cmd;
        wrong.*field = 1;
        EXPECT_EQ(check(wrong, kBytes), NUPA_ACCEL_E_INVALID);
    }
    cmd.reserved[15] = 1;
    EXPECT_EQ(check(cmd, kBytes), NUPA_ACCEL_E_INVALID);
    EXPECT_EQ(check(make(NUPA_ACCEL_OP_COUNT, 0, 0), kBytes), NUPA_ACCEL_E_OPCODE);
}

// A guest's commands are any bytes.  The memory lies between guards, and the sanitizers look, too.
TEST(Commands, NoneReachesBeyondTheMemory) {
    constexpr size_t kGuard = 4096;
    std::vector<std::byte> whole(kGuard + kBytes + kGuard, std::byte{0xee});
    const std::span<std::byte> memory(whole.data() + kGuard, kBytes);
    std::mt19937_64 random(11);
    const auto number = [&]() -> uint64_t {
        switch (random() % 5) {
            case 0:
                return random();
            case 1:
                return kBytes - random() % 3;
            case 2:
                return 0;
            default:
                return random() % kBytes;
        }
    };
    unsigned executed = 0;
    for (unsigned i = 0; i < 40000; i++) {
        nupa_accel_cmd cmd{};
        cmd.op = static_cast<uint16_t>(random() % (NUPA_ACCEL_OP_COUNT + 1));
        cmd.type = static_cast<uint16_t>(random() % 3);
        cmd.value = static_cast<uint32_t>(random() % 300);
        cmd.to = number(), cmd.from = number(), cmd.other = number(), cmd.bytes = number();
        if (random() % 2)  // what the operation lacks
            cmd.type = 0, cmd.bytes &= ~uint64_t{3};
        if (cmd.op == NUPA_ACCEL_COPY || cmd.op == NUPA_ACCEL_FILL)
            cmd.other = 0;
        if (cmd.op == NUPA_ACCEL_FILL || cmd.op == NUPA_ACCEL_PATTERN)
            cmd.from = 0;
        if (cmd.op == NUPA_ACCEL_COPY || cmd.op == NUPA_ACCEL_COMPARE || cmd.op == NUPA_ACCEL_SUM)
            cmd.value = 0;
        if (cmd.op == NUPA_ACCEL_COMPARE)
            cmd.to = 0;
        if (check(cmd, kBytes) != NUPA_ACCEL_OK || cmd.op == NUPA_ACCEL_WAIT)
            continue;
        execute(cmd, memory);
        executed++;
    }
    EXPECT_GT(executed, 2000u);
    for (size_t at = 0; at < kGuard; at++) {
        ASSERT_EQ(whole[at], std::byte{0xee});
        ASSERT_EQ(whole[kGuard + kBytes + at], std::byte{0xee});
    }
}

}  // namespace
}  // namespace nupa::accel
