# SPDX-License-Identifier: BSD-3-Clause
"""Where the nanoseconds of a 64-byte message go: counts of this machine, priced by named parameters.  Arithmetic only (docs/latency.md)."""

from dataclasses import dataclass

CACHE_LINE_BYTES, DESCRIPTOR_BYTES = 64, 16


@dataclass(frozen=True)
class Price:
    """Of one step on hardware, nanoseconds."""

    low: float
    high: float
    source: str


KNOWN = "general knowledge, unverified (study, section D)"
PRICES = {
    "doorbell": Price(100, 150, f"posted MMIO write through a PCIe root port: {KNOWN}"),
    "descriptor_fetch": Price(300, 500, f"a device's read of host memory, round trip: {KNOWN}"),
    "payload_read": Price(300, 500, f"the same: {KNOWN}"),
    "crossing": Price(105, 105, "one switch: claim of the PEX88000's maker (study, section D)"),
    "payload_write": Price(100, 150, f"posted write to host memory: {KNOWN}"),
    "completion": Price(100, 100, f"write of a completion, and the poll that sees it: {KNOWN}"),
    "index_seen": Price(100, 200, f"the device sees a line that a processor wrote (CXL.cache): {KNOWN}"),
    "completion_cached": Price(100, 150, f"the processor sees a line that the device wrote (CXL.cache): {KNOWN}"),
}
GHZ = 4.0
IPC_LOW, IPC_HIGH = 1.0, 2.0
PROCESSOR = f"{GHZ:g} GHz, {IPC_LOW:g} to {IPC_HIGH:g} instructions a cycle: {KNOWN}"
TARGET_NS = 600


@dataclass(frozen=True)
class Counts:
    """Of one message, one way; of the end that does it."""

    doorbells: float
    descriptors: float  # entries of the transmit ring
    segments: float  # on the wire, acknowledgements among them
    interrupts: float
    placed_bytes: float
    copied_bytes: float
    instructions: float  # both ends together: of the path and of what runs beside it
    tcp_instructions: float  # of plain TCP for the same message


@dataclass(frozen=True)
class Step:
    name: str
    count: float
    low: float
    high: float


def step(name: str, count: float, price: str) -> Step:
    return Step(name, count, count * PRICES[price].low, count * PRICES[price].high)


def processor(name: str, instructions: float) -> Step:
    return Step(name, instructions, instructions / (GHZ * IPC_HIGH), instructions / (GHZ * IPC_LOW))


def fetches(counts: Counts) -> float:
    """Reads of the ring that a doorbell starts, one after the other: entries share cache lines."""
    per_doorbell = counts.descriptors / max(counts.doorbells, 1)
    return float(-(-per_doorbell * DESCRIPTOR_BYTES // CACHE_LINE_BYTES))


def hardware_as_built(counts: Counts) -> list[Step]:
    """The queues of both modes: in host memory, rung by doorbells, or watched.  An acknowledgement is on nobody's way: one of each."""
    rung = min(counts.doorbells, 1)
    return [
        step("doorbell", rung, "doorbell"),
        step("index seen without one", 1 - rung, "index_seen"),
        step("descriptor fetch", fetches(counts), "descriptor_fetch"),
        step("payload read", 1, "payload_read"),
        step("crossing, one switch", 1, "crossing"),
        step("payload write", 1, "payload_write"),
        step("completion and poll", 1, "completion"),
    ]


def hardware_cached_queues() -> list[Step]:
    """A model, nothing of it built: messages inline in coherent queues."""
    return [
        step("index seen", 1, "index_seen"),
        step("descriptor fetch (inline)", 0, "descriptor_fetch"),
        step("payload read (inline)", 0, "payload_read"),
        step("crossing, one switch", 1, "crossing"),
        step("payload write", 1, "payload_write"),
        step("completion and poll", 1, "completion_cached"),
    ]


def software(counts: Counts) -> list[Step]:
    more = max(counts.instructions - counts.tcp_instructions, 0)
    return [processor("Linux: sockets, TCP, driver", min(counts.tcp_instructions, counts.instructions)), processor("queue pair on top", more)]


def total(steps: list[Step]) -> tuple[float, float]:
    return sum(s.low for s in steps), sum(s.high for s in steps)


def budgets(modes: dict[str, Counts]) -> dict[str, list[Step]]:
    cached, linux = hardware_cached_queues(), software(next(iter(modes.values())))
    built = {f"as built, {name}: entries in host memory, Linux TCP": [*hardware_as_built(counts), *linux] for name, counts in modes.items()}
    return built | {
        "model: cached queues, Linux TCP": [*cached, *linux],
        "model: cached queues, no kernel in the path": cached,
    }


def table(steps: list[Step]) -> list[str]:
    rows = ["| step | count | ns |", "|---|---|---|"]
    rows += [f"| {s.name} | {s.count:,.2f} | {s.low:,.0f}-{s.high:,.0f} |" for s in steps]
    low, high = total(steps)
    return [*rows, f"| **sum** | | **{low:,.0f}-{high:,.0f}** |"]


def markdown(modes: dict[str, Counts]) -> str:
    names = list(modes)
    lines = ["| of one 64-byte message, one way | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for field in Counts.__dataclass_fields__:
        lines.append(f"| {field.replace('_', ' ')} | " + " | ".join(f"{getattr(modes[n], field):,.2f}" for n in names) + " |")
    for title, steps in budgets(modes).items():
        lines += ["", title, "", *table(steps)]
    lines += ["", f"| parameter | ns | source |\n|---|---|---|\n| processor | | {PROCESSOR} |"]
    lines += [f"| {name} | {p.low:g}-{p.high:g} | {p.source} |" for name, p in PRICES.items()]
    return "\n".join(lines) + "\n"


def report(modes: dict[str, Counts]) -> dict:
    return {
        "counts": {name: vars(c) for name, c in modes.items()},
        "prices_ns": {name: vars(p) for name, p in PRICES.items()},
        "processor": PROCESSOR,
        "rows": [row(title, steps) for title, steps in budgets(modes).items()],
    }


def row(title: str, steps: list[Step]) -> dict:
    low, high = total(steps)
    return {"budget": title, "steps": [vars(s) for s in steps], "low_ns": low, "high_ns": high}
