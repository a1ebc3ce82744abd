# SPDX-License-Identifier: BSD-3-Clause
"""What is measured: one case is one row of the report."""

from dataclasses import dataclass, replace

KIB, MIB = 1 << 10, 1 << 20
BURST_BIG = (1088 << 10) - 256  # NUPA_TSO_MAX_BYTES less room for headers: what nupa_dev allows
BURST_PLAIN = 65536
RXE_BYTES_MAX = MIB  # of a message: soft RoCE needs seconds for more
RXE_WARM_BYTES = 2 * MIB
SLOW_WARM_BYTES = 8 * MIB  # of what takes a segment at a time
# A congestion window that slow start has left at 1 MiB, by the spacing of ACKs, grows by a twentieth each round trip: to the 8 MiB
# that are under way here it takes about 100 MiB.
GROWN_WARM_BYTES = 128 * MIB
FRESH_BYTES = 32 * MIB
TINY_BYTES = 64
TINY_WARM_BYTES = 2048 * TINY_BYTES


@dataclass(frozen=True)
class Case:
    transport: str
    bytes: int = MIB  # of a message
    flows: int = 1
    mtu: int = 1500
    big: bool = True  # BIG TCP: bursts above 64 KiB
    short: bool = False  # receive buffers of 4 KiB alone, none of 64 KiB
    loss: float = 0.0
    mode: str = "stream"
    poll: bool = False
    defer: bool = False  # interrupts are put off for who polls: all others of the device wait for a timer
    depth: int = 0
    batch: int = 0
    calls: bool = False
    memory: bool = False
    waitall: bool = False  # plain TCP receives whole messages
    mixed: bool = False  # lengths up to bytes, Zipf-like
    scattered: bool = False  # buffers of 4 KiB pages that do not follow each other in memory
    pool: bool = False  # buffers in a lease of the switch's pool (mode cxl)
    watch: bool = False  # transmit rings are watched by the switch (mode cxl), and not rung for
    fresh: bool = False  # the connection's first bytes are measured, too
    messages: int = 0  # 0: as many as pass in ms
    warm_bytes: int = GROWN_WARM_BYTES
    ms: int = 300
    clock: str = "wall"  # or "icount": virtual time, one instruction a nanosecond

    def spec(self) -> str:
        """As nupa_bench takes it."""
        words = {
            "transport": self.transport, "mode": self.mode, "bytes": self.bytes, "flows": self.flows, "messages": self.messages, "ms": self.ms,
            "warm_bytes": self.warm_bytes, "depth": self.depth, "batch": self.batch, "burst": BURST_BIG if self.big else BURST_PLAIN, "mtu": self.mtu,
            "poll": int(self.poll), "calls": int(self.calls), "memory": int(self.memory), "scattered": int(self.scattered), "mixed": int(self.mixed),
            "waitall": int(self.waitall), "pool": int(self.pool),
        }  # fmt: skip
        return ",".join(f"{key}={value}" for key, value in words.items())

    def counted(self, messages: int, warm_bytes: int = GROWN_WARM_BYTES) -> "Case":
        """The same under -icount, where time tells instructions: a fixed number of messages."""
        return replace(self, clock="icount", messages=messages, warm_bytes=warm_bytes)

    def facts(self) -> dict:
        return {
            "transport": self.transport, "mode": self.mode, "bytes": self.bytes, "flows": self.flows, "mtu": self.mtu, "big_tcp": self.big,
            "loss": self.loss, "poll": self.poll, "defer": self.defer, "scattered": self.scattered, "mixed": self.mixed, "short_buffers": self.short,
            "fresh": self.fresh, "waitall": self.waitall, "pool": self.pool, "watch": self.watch,
            "clock": self.clock,
        }  # fmt: skip


# Rows of the default point: 1 MiB messages, one flow, MTU 1500, no loss.
TRANSPORTS = (
    Case("tcp"), Case("tcp", short=True), Case("tcp", big=False), Case("zerocopy"), Case("uring"), Case("uring_zc"),
    Case("rxe_send", warm_bytes=RXE_WARM_BYTES), Case("rxe_write", warm_bytes=RXE_WARM_BYTES),
    Case("software"), Case("software", big=False), Case("software_v0", warm_bytes=SLOW_WARM_BYTES),
    Case("offload"), Case("offload_v1"), Case("offload", big=False),
    Case("offload_v1", big=False), Case("offload_write"),
)  # fmt: skip
MAIN = ("tcp", "software", "offload")
SIZES = (8, 64, 4 * KIB, 64 * KIB, 256 * KIB, 16 * MIB)
SIZE_TRANSPORTS = ("tcp", "uring", "rxe_send", "software", "offload")
PLAIN = ("tcp", "zerocopy", "uring", "uring_zc")  # plain TCP in every way a program has it: the best of them counts
MIDDLE_SIZES = (4 * KIB, 16 * KIB, 64 * KIB)
MIXED_BYTES = 256 * KIB  # the longest of a mix, which begins at 64 bytes
MIDDLE_TRANSPORTS = (*PLAIN, "software", "offload", "offload_write")
FLOWS = (4, 16)
MTU_TRANSPORTS = ("tcp", "zerocopy", "rxe_send", "rxe_write", "software", "offload", "offload_v1")
LOSSY_MS = {0.001: 1000, 0.01: 3000}  # in five turns hundreds of losses also for who is slowest
LOSSES = tuple(LOSSY_MS)
LOSSY_TRANSPORTS = ("tcp", "zerocopy", "software", "offload", "offload_v1")
PINGPONG_BYTES = (64, 4 * KIB)


def pingpong(bytes_: int) -> list[Case]:
    common = {"mode": "pingpong", "bytes": bytes_, "warm_bytes": 64 * bytes_}
    ends = [Case(name, **common) for name in ("tcp", "uring", "rxe_send", "software", "offload")]
    spinning = [Case(name, poll=True, **common) for name in ("tcp", "software", "offload")]
    return [*ends, *spinning, Case("tcp", poll=True, defer=True, **common)]


def small(bytes_: int) -> list[Case]:
    """Message rate: a send() each, chains of sends, batches of work requests."""
    return [Case(name, bytes=bytes_, warm_bytes=2048 * bytes_) for name in SIZE_TRANSPORTS]


QUICK = (("tcp", True), ("tcp", False), ("zerocopy", True), ("uring", True), ("rxe_write", True), ("software", True), ("offload", True),
         ("offload", False), ("offload_write", True))  # fmt: skip


def sized(size: int) -> list[Case]:
    out = []
    for name in SIZE_TRANSPORTS:
        rxe = name.startswith("rxe")
        if not rxe or size <= RXE_BYTES_MAX:
            out.append(Case(name, bytes=size, warm_bytes=min(RXE_WARM_BYTES if rxe else GROWN_WARM_BYTES, 2048 * size)))
    return out


def quick_bulk() -> list[Case]:
    return [c for c in TRANSPORTS if (c.transport, c.big) in QUICK]


def quick_small(cases: list[Case]) -> list[Case]:
    return [c for c in cases if c.transport in MAIN]


def quick_wall() -> list[Case]:
    return [*(replace(c, ms=100) for c in quick_bulk()), *quick_small(small(64)), *quick_small(pingpong(64))]


def full_wall() -> list[Case]:
    sizes = [case for size in SIZES for case in sized(size)]
    flows = [Case(name, flows=count) for count in FLOWS for name in (*MAIN, "offload_write")]
    mtu = [replace(c, mtu=9000) for c in TRANSPORTS if c.big and not c.short and c.transport in MTU_TRANSPORTS]
    latency = [case for size in PINGPONG_BYTES for case in pingpong(size)]
    return [*TRANSPORTS, *sizes, *flows, *latency, *mtu]


def cxl_mode() -> list[Case]:
    """What differs there: buffers in leases of the pool, rings that are watched.  Its rows are beside those of mode pcie."""
    common = {"pool": True, "watch": True}
    return [Case("offload", **common), Case("offload", bytes=64 * KIB, **common), *(replace(c, **common) for c in pingpong(64) if c.transport == "offload")]


def lossy(loss: float) -> list[Case]:
    return [Case(name, loss=loss, warm_bytes=SLOW_WARM_BYTES, ms=LOSSY_MS[loss]) for name in LOSSY_TRANSPORTS]


def takes_segments(case: Case) -> bool:
    return case.transport.startswith("rxe") or case.transport == "software_v0"


def counted_bulk(case: Case) -> Case:
    """Enough for the steady state."""
    return case.counted(8, SLOW_WARM_BYTES) if takes_segments(case) else case.counted(256)


def tiny_messages(case: Case) -> int:
    return 4096 if case.transport.startswith("rxe") else 32768


def middle() -> list[Case]:
    """Middle sizes, where the number of messages counts, from pages that lie together and from pages that do not."""
    equal = [Case(name, bytes=size, scattered=scattered) for size in MIDDLE_SIZES for scattered in (False, True) for name in MIDDLE_TRANSPORTS]
    return [*equal, *(Case(name, bytes=MIXED_BYTES, mixed=True, depth=256) for name in MIDDLE_TRANSPORTS)]


def fresh() -> list[Case]:
    """What a connection carries while its congestion window grows."""
    return [Case(name, bytes=64 * KIB, fresh=True, messages=FRESH_BYTES // (64 * KIB), warm_bytes=0) for name in MIDDLE_TRANSPORTS]


def middle_counted() -> list[Case]:
    return [c.counted(2048 if c.mixed else 16 * MIB // c.bytes) for c in middle()]


def quick_counted() -> list[Case]:
    bulk = [counted_bulk(c) for c in quick_bulk()]
    tiny = [c.counted(tiny_messages(c), TINY_WARM_BYTES) for c in quick_small(small(64))]
    return [*bulk, *tiny, *(c.counted(200, TINY_WARM_BYTES) for c in quick_small(pingpong(64)) if not c.poll)]


def full_counted() -> list[Case]:
    bulk = [counted_bulk(c) for c in TRANSPORTS]
    tiny = [c.counted(tiny_messages(c), TINY_WARM_BYTES) for c in small(64)]
    jumbo = [counted_bulk(c) for c in (Case(name, mtu=9000) for name in MAIN)]
    return [*bulk, *tiny, *(c.counted(1000, TINY_WARM_BYTES) for c in pingpong(64) if not c.poll), *jumbo]


def call_counts(cases: list[Case]) -> list[Case]:
    """Once more, with system calls counted: that costs instructions itself, so it is never the run that counts those."""
    return [replace(c, calls=True) for c in cases]
