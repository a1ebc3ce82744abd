# SPDX-License-Identifier: BSD-3-Clause
"""The lines that the figures are held against: pure arithmetic on a Book."""

from dataclasses import dataclass

from .cases import KIB, LOSSES, MIB, PLAIN
from .figures import Book, rounded

AT_MOST, AT_LEAST = "at most", "at least"
COPY_LIMIT = 0.9  # of memcpy
COPY_SIZES = (16384, 65536)
LONG_BUFFERS_COST, LONG_BUFFERS_SPEED = 0.55, 1  # counted: 0.45
MESSAGE_COSTS = (("send", "tx", False, 900), ("receive", "rx", False, 600), ("send", "tx", True, 1800), ("receive", "rx", True, 1300))
BYSTANDER_LIMIT = 1.01  # of the instructions without the module; turns alike differ by 0.4 %


@dataclass(frozen=True)
class Bar:
    what: str
    sense: str
    bound: float
    value: float | None

    @property
    def ok(self) -> bool:
        if self.value is None:
            return False
        return self.value <= self.bound if self.sense == AT_MOST else self.value >= self.bound

    def json(self) -> dict:
        value = None if self.value is None else rounded(self.value)
        return {"name": f"{self.what}, {self.sense}", "value": value, "bound": self.bound, "ok": self.ok}

    def line(self) -> str:
        value = "not measured" if self.value is None else f"{self.value:.3g}"
        return f"{'met    ' if self.ok else 'NOT MET'} {self.what}: {value}, {self.sense} {self.bound:g}"


def ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or not b else a / b


def total(*values: float | None) -> float | None:
    return None if None in values else sum(values)


def least(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def most(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)


def best_tcp(book: Book, **wanted) -> float | None:
    """Gb/s of plain TCP at its best."""
    return most(*(book.find("gbps", transport=name, **wanted) for name in PLAIN))


def instructions(book: Book, end: str, transport: str, big: bool = True) -> float | None:
    return book.find(f"{end}_instructions_per_byte", transport=transport, big_tcp=big, clock="icount")


def bulk(book: Book) -> list[Bar]:
    def cost(end: str, big: bool = True) -> float | None:
        return ratio(instructions(book, end, "offload", big), instructions(book, end, "tcp", big))

    def speed(ours: str, theirs: str) -> float | None:
        return ratio(book.find("gbps", transport=ours), book.find("gbps", transport=theirs))

    def both(transport: str) -> float | None:
        return total(*(instructions(book, end, transport) for end in ("tx", "rx")))

    def buffers(figure: str, clock: str) -> float | None:
        return ratio(*(book.find(figure, transport="tcp", short_buffers=short, clock=clock) for short in (False, True)))

    return [
        Bar("1 MiB: receive instructions per byte, TCP, long / short buffers", AT_MOST, LONG_BUFFERS_COST, buffers("rx_instructions_per_byte", "icount")),
        Bar("1 MiB: throughput, TCP, long / short buffers", AT_LEAST, LONG_BUFFERS_SPEED, buffers("gbps", "wall")),
        Bar("1 MiB: receive instructions per byte, offload / TCP, 64 KB bursts", AT_MOST, 1 / 4, cost("rx", big=False)),
        Bar("1 MiB: receive instructions per byte, offload / TCP, BIG TCP", AT_MOST, 1 / 20, cost("rx")),
        Bar("1 MiB: send instructions per byte, offload / TCP, BIG TCP", AT_MOST, 1 / 8, cost("tx")),
        Bar("1 MiB: throughput, offload / TCP", AT_LEAST, 4, speed("offload", "tcp")),
        Bar("1 MiB: throughput, offload WRITE / rxe WRITE", AT_LEAST, 3, speed("offload_write", "rxe_write")),
        Bar("1 MiB: throughput, software / TCP", AT_LEAST, 1.2, speed("software", "tcp")),
        Bar("1 MiB: instructions per byte of both ends, software / TCP", AT_MOST, 0.8, ratio(both("software"), both("tcp"))),
    ]


def small(book: Book) -> list[Bar]:
    def trip(transport: str, poll: bool = False, defer: bool = False) -> float | None:
        return book.find("rtt_p50_us", transport=transport, bytes=64, mode="pingpong", poll=poll, defer=defer)

    def work(transport: str) -> float | None:
        wanted = {"transport": transport, "bytes": 64, "mode": "pingpong", "poll": False, "clock": "icount"}
        return total(*(book.find(f"{end}_instructions_per_message", **wanted) for end in ("tx", "rx")))

    def rate(transport: str) -> float | None:
        return book.find("messages_per_s", transport=transport, bytes=64)

    return [
        Bar("64 B: round trip, offload / TCP, both asleep", AT_MOST, 1, ratio(trip("offload"), trip("tcp"))),
        Bar("64 B: round trip, instructions of both ends, offload / TCP, both asleep", AT_MOST, 0.95, ratio(work("offload"), work("tcp"))),
        Bar("64 B: round trip, offload / TCP, both spinning", AT_MOST, 0.5, ratio(trip("offload", True), trip("tcp", True))),
        Bar("64 B: round trip, offload / TCP with interrupts deferred, both spinning", AT_MOST, 1, ratio(trip("offload", True), trip("tcp", True, True))),
        Bar("64 B: message rate, offload / TCP", AT_LEAST, 3, ratio(rate("offload"), rate("tcp"))),
    ]


def lossy(book: Book) -> list[Bar]:
    def speed(name: str, loss: float) -> float | None:
        return ratio(book.find("gbps", transport=name, loss=loss), best_tcp(book, loss=loss))

    def again(name: str) -> float | None:
        """Of all turns together: TCP has 70 losses in a second, give or take 8."""
        return ratio(*(book.total(figure, transport=name, loss=max(LOSSES)) for figure in ("tx_segments_again", "tx_segments")))

    speeds = [
        Bar(f"loss {loss:.1%}, 1 MiB: goodput, {name} / best TCP", AT_LEAST, bound, speed(name, loss))
        for loss in LOSSES
        for name, bound in (("offload", 1.2), ("software", 0.9))
    ]
    return [*speeds, Bar(f"loss {max(LOSSES):.1%}, 1 MiB: share of segments sent again, offload / TCP", AT_MOST, 1.1, ratio(again("offload"), again("tcp")))]


def middle(book: Book) -> list[Bar]:
    def cost(end: str, scattered: bool) -> float | None:
        return book.find(f"{end}_instructions_per_message", transport="offload", bytes=4 * KIB, scattered=scattered, clock="icount")

    speeds = [
        Bar(f"{size // KIB} KiB: throughput, offload / best TCP", AT_LEAST, bound,
            ratio(book.find("gbps", transport="offload", bytes=size), best_tcp(book, bytes=size)))
        for size, bound in ((4 * KIB, 2), (16 * KIB, 2.5), (64 * KIB, 3))
    ]
    costs = [
        Bar(f"4 KiB{', scattered' if scattered else ''}: instructions, {word}", AT_MOST, bound, cost(end, scattered))
        for word, end, scattered, bound in MESSAGE_COSTS
    ]
    return [*speeds, *costs]


def native(book: Book) -> list[Bar]:
    ns = {row["engine"]: row["ns"] for row in book.more if "engine" in row}
    if not ns:
        return []
    speeds = [ratio(ns.get(f"copies/memcpy/{size}"), ns.get(f"place/contiguous/{size}")) for size in COPY_SIZES]
    return [
        Bar("engine: placement / memcpy, 16 KiB and more", AT_LEAST, COPY_LIMIT, least(*speeds)),
        Bar("engine: ns for a segment of 64 B", AT_MOST, 120, ns.get("place/contiguous/64")),
        Bar("engine: flow lookup, 100,000 QPs / 10", AT_MOST, 1.5, ratio(ns.get("flow_find/100000"), ns.get("flow_find/10"))),
    ]


def idle(book: Book) -> list[Bar]:
    rows = [row for row in book.more if row.get("idle")]
    if not rows:
        return []
    worst = max(row["wakeups_per_s"] - row["kernel_alone_per_s"] for row in rows)
    return [Bar("idle: wake-ups a second beyond the kernel's own, switch and guests", AT_MOST, 1, worst)]


def bystander(book: Book) -> list[Bar]:
    rows = [row for row in book.more if "bystander" in row]
    return [
        Bar(f"plain TCP over loopback, {row['bystander']}: instructions, tcp_qp loaded / not", AT_MOST, BYSTANDER_LIMIT,
            ratio(row["instructions_with"], row["instructions_without"]))
        for row in rows
    ]  # fmt: skip


def many(book: Book) -> list[Bar]:
    rows = {row["qps"]: row for row in book.more if "qps" in row and "messages_per_s" in row}
    if not rows:
        return []
    largest = max(rows)
    memory = rows[largest]["kernel_kib_per_qp"]
    few = rows[min(rows)]["messages_per_s"]
    return [
        Bar("10,000 QPs: throughput / that of 10", AT_LEAST, 0.8, ratio(rows[largest]["messages_per_s"], few) if largest >= 10000 else None),
        Bar("10,000 QPs: KiB of kernel memory for an idle one beyond rings and socket", AT_MOST, 4, memory if largest >= 10000 else None),
    ]


def evaluate(book: Book) -> list[Bar]:
    return [*bulk(book), *small(book), *middle(book), *lossy(book), *native(book), *idle(book), *bystander(book), *many(book)]


def judged(book: Book) -> list[Bar]:
    """Those whose cases were run.  One that has no value, since they failed, does not hold."""
    run = {bar.what for bar in evaluate(book.as_if_measured()) if bar.value is not None}
    return [bar for bar in evaluate(book) if bar.what in run]


__all__ = ["Bar", "MIB", "evaluate", "judged", "ratio"]
