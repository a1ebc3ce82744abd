// SPDX-License-Identifier: BSD-3-Clause
// What the switch engine costs per segment and per byte, next to memcpy.
#include <benchmark/benchmark.h>
#include <tcp_qp/tcp_bth_option.h>

#include "engine/checksum.hpp"
#include "engine/copy.hpp"
#include "engine/crc32.hpp"
#include "engine/endian.hpp"
#include "engine/merge.hpp"
#include "engine/port_engine.hpp"
#include "engine/qp_table.hpp"
#include "engine/segment.hpp"
#include "engine/transmit.hpp"
#include "frames.hpp"
#include "guest.hpp"

namespace {

using namespace test;

constexpr std::uint32_t kKey = 0x1100;
constexpr std::uint32_t kRcvNxt = 1000;
constexpr std::uint64_t kIova = 1 << 20;
constexpr std::uint64_t kBufferBytes = 8 << 20;
constexpr std::uint32_t kWindow = 65535u << 14;

// A page that nobody has touched costs a fault, and where a hypervisor keeps page tables of its own
// as much as copying 100 KiB.
std::uint64_t touched(Guest& guest) {
    const std::uint64_t at = guest.alloc(kBufferBytes, 1 << 21);
    std::memset(guest.ptr(at, kBufferBytes), 1, kBufferBytes);
    return at;
}

// A receiver whose posted buffer is as contiguous as @pages of 4 KiB or one large page make it.
struct Receiver {
    Guest guest{16 << 20, 16 << 20};
    RecvRing ring{guest, 256, 1};
    nupa::PortStats stats;
    nupa::PortEngine engine{guest.memory, stats, 1};
    std::uint32_t next = kRcvNxt;

    explicit Receiver(bool scattered) {
        nupa_cmd_mr mr{};
        mr.iova = kIova, mr.bytes = kBufferBytes,
        mr.access = NUPA_ACCESS_LOCAL_WRITE | NUPA_ACCESS_REMOTE_WRITE, mr.page_shift = 12;
        std::vector<std::uint64_t> pages;
        const std::uint64_t base = touched(guest);
        for (std::uint64_t i = 0; i < kBufferBytes / kPage; i++)
            pages.push_back(base + (scattered ? i ^ 1 : i) * kPage);
        mr.pages = static_cast<std::uint32_t>(pages.size()), mr.table_addr = guest.table(pages);
        engine.mr_reg(kKey, mr);
        nupa_cmd_qp qp = ring.cmd;
        qp.flow = Wire(TcpFrame{}).packet.flow().raw;
        qp.rcv_nxt = kRcvNxt, qp.rcv_wscale = 14;
        qp.flags = NUPA_QP_F_REMOTE_WRITE | NUPA_QP_F_SHADOW;
        engine.qp_create(1, qp);
        open();
    }

    void open() {
        TcpFrame f;
        f.src = 2, f.dst = 1, f.sport = 2000, f.dport = 1000, f.ack = next, f.window = 65535;
        Wire w(f);
        engine.transmit(w.packet);
    }
};

TcpFrame write_frame(std::uint32_t seq, std::uint32_t bytes, std::uint32_t message) {
    tcp_bth b{};
    b.ver = 1, b.opcode = TCP_BTH_OP_WRITE_ONLY, b.start_seq = seq, b.length = message,
    b.flags = TCP_BTH_F_TIMESTAMP;
    b.ext_bytes = TCP_BTH_RETH_BYTES, b.va = kIova, b.rkey = kKey, b.dma_length = message;
    TcpFrame f;
    f.seq = seq, f.payload = pattern(bytes), f.options = bth_option(b), f.checksum = false;
    return f;
}

// Where the next message lies in a buffer of kBufferBytes: behind the last one, as a queue pair has
// megabytes under way and a switch finds none of them in a first level cache; or, cached, at the
// same place again and again.
class Walk {
public:
    Walk(bool cached, std::size_t bytes) : bytes_(bytes), end_(cached ? bytes : kBufferBytes) {}
    std::size_t next() {
        at_ = at_ + 2 * bytes_ > end_ ? 0 : at_ + bytes_;
        return at_;
    }

private:
    std::size_t bytes_, end_, at_ = 0;
};

enum Memory { kContiguous = 0, kScattered = 1, kCached = 2 };

// One WRITE message per packet: the copy and all that decides on it.
void place(benchmark::State& state, int memory) {
    Receiver r(memory & kScattered);
    const auto bytes = static_cast<std::uint32_t>(state.range(0));
    TcpFrame f = write_frame(r.next, bytes, bytes);
    f.length_error = bytes > 60000 ? -static_cast<int>(bytes) : 0;
    const ByteVector frame = f.build();
    const nupa::Bytes all{frame.data(), frame.size()};
    nupa::Packet p;
    p.assign({&all, 1}, nupa::ParseMode::kTso);
    std::uint8_t* option = p.header.data() + p.at.options_at;
    const ByteVector from = pattern(kBufferBytes + f.header_bytes());
    Walk walk(memory & kCached, bytes);
    std::uint16_t msn = 0;
    for (auto _ : state) {
        const std::size_t at = walk.next();
        p.csum = nupa::Csum::kPartial;
        p.at.seq = r.next;
        p.payload.clear();
        p.payload.push({from.data() + f.header_bytes() + at, bytes});
        nupa::put_be16(option + 6, msn++);
        nupa::put_be32(option + 8, r.next);
        nupa::put_be32(option + 28, static_cast<std::uint32_t>(kIova + at));
        if (!r.engine.receive(p).placed())
            state.SkipWithError("not placed");
        r.next += bytes;
        if (msn % 1024 == 0)
            r.open();
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * bytes);
}
BENCHMARK_CAPTURE(place, contiguous, kContiguous)->RangeMultiplier(4)->Range(64, 65536);
BENCHMARK_CAPTURE(place, scattered, kScattered)->RangeMultiplier(4)->Range(4096, 65536);
BENCHMARK_CAPTURE(place, cached, kCached)->RangeMultiplier(4)->Range(64, 65536);

template <class Copy>
void copies(benchmark::State& state, bool cached, Copy copy) {
    Guest guest{16 << 20, 16 << 20};
    const auto bytes = static_cast<std::size_t>(state.range(0));
    const ByteVector from = pattern(kBufferBytes + 94);
    std::byte* to = guest.ptr(touched(guest), kBufferBytes);
    Walk walk(cached, bytes);
    for (auto _ : state) {
        const std::size_t at = walk.next();
        copy(to + at, from.data() + 94 + at, bytes);
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
}
const auto by_memcpy = [](std::byte* to, const std::byte* from, std::size_t n) {
    std::memcpy(to, from, n);
};
BENCHMARK_CAPTURE(copies, memcpy, false, by_memcpy)->RangeMultiplier(4)->Range(64, 65536);
BENCHMARK_CAPTURE(copies, rising, false, nupa::copy_rising)->RangeMultiplier(4)->Range(64, 65536);
BENCHMARK_CAPTURE(copies, memcpy_cached, true, by_memcpy)->RangeMultiplier(4)->Range(64, 65536);
BENCHMARK_CAPTURE(copies, rising_cached, true, nupa::copy_rising)
    ->RangeMultiplier(4)
    ->Range(64, 65536);

// A TSO burst through the cutter alone, then through receive and merge, too.
struct Burst {
    ByteVector bytes;
    nupa::Packet packet;
    Burst(std::uint32_t payload, std::uint16_t mss) {
        TcpFrame f = write_frame(kRcvNxt, payload, payload);
        bytes = f.build();
        const nupa::Bytes bufs[] = {{bytes.data(), f.header_bytes()},
                                    {bytes.data() + f.header_bytes(), payload}};
        nupa_tx_ctx ctx{};
        ctx.flags = NUPA_TX_F_TSO4 | NUPA_TX_F_CSUM, ctx.bufs = 2,
        ctx.bytes = static_cast<__le32>(bytes.size());
        ctx.mss = mss, ctx.header_bytes = static_cast<__le16>(f.header_bytes());
        if (packet_from_tx(packet, ctx, bufs) != nupa::TxError::kOk)
            std::abort();
    }
};

void cut(benchmark::State& state, nupa::TxRewrite rewrite) {
    Burst b(64000, 1408);
    nupa::Packet s;
    std::int64_t segments = 0;
    for (auto _ : state) {
        nupa::Cutter cutter(b.packet, rewrite);
        while (cutter.next(s)) {
            benchmark::DoNotOptimize(s.header);
            segments++;
        }
    }
    state.SetItemsProcessed(segments);
}
BENCHMARK_CAPTURE(cut, as_is, {});
BENCHMARK_CAPTURE(cut, ver0, {true, false});
BENCHMARK_CAPTURE(cut, ver0_icrc, {true, true});

void burst_to_placed(benchmark::State& state) {
    Receiver r(false);
    Burst b(64000, static_cast<std::uint16_t>(state.range(0)));
    nupa::Packet s;
    nupa::Merger merger;
    merger.configure(4096, true);
    std::int64_t segments = 0;
    std::uint8_t* option = b.packet.header.data() + b.packet.at.options_at;
    std::uint16_t msn = 0;
    for (auto _ : state) {
        b.packet.at.seq = r.next;
        nupa::put_be16(option + 6, msn++);
        nupa::put_be32(option + 8, r.next);
        nupa::Cutter cutter(b.packet, {true, false});
        while (cutter.next(s)) {
            const nupa::Decision d = r.engine.receive(s);
            if (!d.placed())
                state.SkipWithError("not placed");
            if (merger.active() && !merger.fits(s, d))
                benchmark::DoNotOptimize(merger.finish());
            if (merger.active())
                merger.append(s, d);
            else
                merger.start(s, d);
            if (merger.closed())
                benchmark::DoNotOptimize(merger.finish());
            segments++;
        }
        r.next += 64000;
        if (msn % 256 == 0)
            r.open();
    }
    state.SetItemsProcessed(segments);
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * 64000);
}
BENCHMARK(burst_to_placed)->Arg(1408)->Arg(8960);

// As a transmit ring is worked off: some packets are taken, their flows expected, then each is
// looked up.  Flows come in an order that no cache can guess.
void flow_find(benchmark::State& state) {
    const auto flows = static_cast<std::uint32_t>(state.range(0));
    const nupa::HostMemory memory;
    nupa::MemoryBudget budget(4 * nupa::kPortMemoryDefaultBytes);  // more flows than a port has
    nupa::QpTable table(1, budget);
    nupa_cmd_qp cmd{};
    cmd.flags = NUPA_QP_F_NO_RQ;
    cmd.flow.family = 4;
    for (std::uint32_t i = 0; i < flows; i++) {
        std::memcpy(cmd.flow.saddr, &i, sizeof i);
        if (table.create(memory, i, cmd) != NUPA_OK)
            state.SkipWithError("no context");
    }
    std::array<nupa::FlowKey, nupa::kLookaheadMax> keys;
    nupa::QpTable::Guesses guesses;
    keys.fill({cmd.flow});
    std::uint64_t random = 1;
    while (state.KeepRunningBatch(keys.size())) {
        for (nupa::FlowKey& one : keys) {
            random = random * 6364136223846793005 + 1442695040888963407;
            one.set_word(1, (random >> 32) * flows >> 32);
        }
        table.expect(keys, guesses);
        for (const nupa::FlowKey& one : keys)
            if (!table.find(one))
                state.SkipWithError("not found");
    }
    state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
}
BENCHMARK(flow_find)->RangeMultiplier(10)->Range(10, 100000);

void option_parse(benchmark::State& state) {
    const TcpFrame f = write_frame(0, 1000, 1000);
    tcp_bth b;
    for (auto _ : state)
        benchmark::DoNotOptimize(tcp_bth_find(
            f.options.data(), static_cast<unsigned>(f.options.size()), 0, 1000, &b, nullptr));
}
BENCHMARK(option_parse);

void checksum(benchmark::State& state) {
    const ByteVector data = pattern(static_cast<std::size_t>(state.range(0)));
    for (auto _ : state) {
        nupa::ChecksumSum sum;
        sum.add(data);
        benchmark::DoNotOptimize(sum.checksum());
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * data.size()));
}
BENCHMARK(checksum)->Arg(1448)->Arg(65536);

void crc(benchmark::State& state) {
    const ByteVector data = pattern(static_cast<std::size_t>(state.range(0)));
    for (auto _ : state)
        benchmark::DoNotOptimize(nupa::crc32(0, data));
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * data.size()));
}
BENCHMARK(crc)->Arg(64)->Arg(1448)->Arg(65536);

}  // namespace

BENCHMARK_MAIN();
