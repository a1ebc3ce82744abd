// SPDX-License-Identifier: BSD-3-Clause
// Segments and rings that say anything at all: memory outside what the
// application registered and posted never changes.
#include <gtest/gtest.h>

#include <random>

#include "engine/faults.hpp"
#include "engine/merge.hpp"
#include "host.hpp"

namespace {

using namespace test;

constexpr std::uint64_t kAllowed = kIova + 8192, kAllowedBytes = 6000;

std::uint64_t interesting(std::mt19937_64& random) {
    const std::uint64_t near[] = {
        0,          1,          kIova,      kAllowed, kAllowed + kAllowedBytes,
        UINT32_MAX, UINT64_MAX, 1ull << 63, kHighRam};
    return near[random() % std::size(near)] + random() % 64 - 32;
}

tcp_bth any_bth(std::mt19937_64& random, std::uint32_t e) {
    tcp_bth b{};
    b.ver = random() % 2;
    b.opcode = static_cast<std::uint8_t>(random() % TCP_BTH_OP_COUNT);
    const std::uint8_t ext[] = {0, 4, 16};
    b.ext_bytes = ext[random() % 3];
    if (random() % 2) {  // most random ones would not come far
        b.opcode = static_cast<std::uint8_t>(TCP_BTH_OP_WRITE_FIRST + random() % 6);
        b.ext_bytes = TCP_BTH_RETH_BYTES;
    }
    b.flags = random() % 2 ? 0 : TCP_BTH_F_TIMESTAMP;
    if (b.ver == 1 || b.ext_bytes != 16 || random() % 2)
        b.flags &= static_cast<std::uint8_t>(~TCP_BTH_F_TIMESTAMP);
    b.msn = static_cast<std::uint16_t>(random() % 4 == 0 ? random() % 6 : random());
    b.mbo =
        static_cast<std::uint32_t>(random() % 4 ? 0 : random() % (random() % 4 ? 7000 : 1 << 24));
    b.start_seq = e - static_cast<std::uint32_t>(random() % 4 ? 0 : random() % 7000);
    b.length = static_cast<std::uint32_t>(random() % 2 ? random() % 9000 : interesting(random));
    b.va = random() % 2 ? kAllowed + random() % 7000 - 500 : interesting(random);
    b.rkey = random() % 4 ? kOtherKey : kKey;
    b.dma_length = static_cast<std::uint32_t>(random() % 2 ? random() % 9000 : interesting(random));
    return b;
}

TEST(Hostile, NothingOutsideIsWritten) {
    std::mt19937_64 random(20240612);
    std::uint64_t placed = 0;
    for (int round = 0; round < 300; round++) {
        HostOptions o;
        o.mr_bytes = 32768, o.rq_entries = 8;
        Host h(o);
        ASSERT_EQ(h.engine.mr_dereg(kKey), NUPA_OK);
        // Only [kAllowed, + kAllowedBytes) is registered, in the middle of a larger buffer.
        nupa_cmd_mr cmd = h.mr.cmd;
        cmd.iova = kAllowed, cmd.bytes = kAllowedBytes, cmd.pages = 2, cmd.table_addr += 2 * 8;
        ASSERT_EQ(h.engine.mr_reg(kOtherKey, cmd), NUPA_OK);
        h.ack(kRcvNxt);
        for (int i = 0; i < 6; i++)
            h.ring.post({{random() % 2 ? kAllowed + random() % 6000 : interesting(random),
                          static_cast<std::uint32_t>(random()), kOtherKey},
                         {kAllowed, static_cast<std::uint32_t>(random() % 3000), kOtherKey}});
        std::uint32_t e = kRcvNxt;
        for (int step = 0; step < 120; step++) {
            if (random() % 8 == 0)
                h.ring.set_producer(static_cast<std::uint32_t>(random()));
            if (random() % 8 == 0)
                h.ring.set_num_sge(
                    static_cast<std::uint16_t>(random() % 8),
                    static_cast<std::uint32_t>(random() % 2 ? random() % 5 : random()));
            TcpFrame f;
            f.seq = random() % 32 ? e : e + static_cast<std::uint32_t>(random() % 9000);
            f.payload = pattern(1 + random() % 800, static_cast<std::uint32_t>(step));
            const tcp_bth b = any_bth(random, e);
            f.options = bth_option(b);
            if (random() % 2)  // the shadow is the guest's, too
                h.ring.want_read(b.msn, b.va, b.rkey, b.dma_length);
            if (random() % 16)
                h.ring.consume(random() % 16 ? e : static_cast<std::uint32_t>(random()));
            const nupa::Decision d = h.rx(f);
            placed += d.placed();
            if (f.seq == e)
                e += static_cast<std::uint32_t>(f.payload.size());
            if (random() % 16 == 0)
                h.ack(e, static_cast<std::uint32_t>(random() % (1 << 20)));
        }
        for (std::uint64_t at = kIova; at < kIova + o.mr_bytes; at++)
            if (at < kAllowed || at >= kAllowed + kAllowedBytes)
                ASSERT_EQ(*h.mr.at(h.guest, at), std::byte{0}) << round << ' ' << at - kIova;
    }
    EXPECT_GT(placed, 1000u);
}

// The whole receive path on damaged frames: parse, placement checks, merge.
TEST(Hostile, DamagedFrames) {
    std::mt19937_64 random(77);
    std::unique_ptr<Host> h;
    std::uint64_t placed = 0;
    nupa::Merger merger;
    merger.configure(2048, true);
    std::uint32_t mbo = 0;
    for (int i = 0; i < 30000; i++) {
        if (i % 300 == 0) {  // a lie that got through may have stopped placement for good
            h = std::make_unique<Host>();
            h->ack(kRcvNxt);
            h->ring.post({{kIova, 1 << 19, kKey}});
            mbo = 0;
        }
        ByteVector bytes = send_segment(kRcvNxt, mbo, pattern(10)).build();
        for (unsigned n = random() % 4; n > 0; n--)
            bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        bytes.resize(random() % 8 ? bytes.size() : random() % bytes.size());
        Wire w(bytes);
        if (random() % 2 && w.packet.csum == nupa::Csum::kUnknown)
            w.packet.csum = nupa::Csum::kPartial;  // lies get past the checksum, too
        const nupa::Decision d = h->engine.receive(w.packet);
        placed += d.placed();
        if (merger.active() && !merger.fits(w.packet, d))
            EXPECT_LE(merger.finish().header_bytes, nupa::kHeaderMaxBytes);
        if (merger.active())
            merger.append(w.packet, d);
        else
            merger.start(w.packet, d);
        ASSERT_LE(merger.payload_bytes(), std::uint32_t{NUPA_PLACED_RUN_MAX_BYTES});
        if (merger.closed())
            merger.finish();
        mbo += 10;
    }
    EXPECT_GT(placed, 1000u);
}

}  // namespace
