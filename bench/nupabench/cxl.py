# SPDX-License-Identifier: BSD-3-Clause
"""Both modes of the switch in one run, and what CXL mode must hold: pure arithmetic (docs/cxl-mode.md)."""

import statistics
from dataclasses import dataclass, field

from .bars import AT_LEAST, AT_MOST, Bar, ratio
from .figures import summary
from .report import cell, grid

PCIE, CXL = "pcie", "cxl"
WAYS = {
    PCIE: "buffers in RAM, each packet rung for (PCIe mode's way)",
    CXL: "buffers in leases of the pool, rings watched",
}
DOORBELLS_MAX, TRIP_MAX, WAKEUPS_MAX = 0.1, 1.05, 1
REFERENCE_MAX, COPY_MIN = 0.01, 2  # bytes on lanes for a byte of messages: packets' heads; in at one port and out at the other
COLUMNS = ("64 B, round trips", "doorbells / message", "seen / message", "us, median", "spread", "copied bytes / message")


def figures(messages: int, counted: dict[str, int], result: dict) -> dict[str, float]:
    """Of one measurement; @counted: of both ports, what the switch counted meanwhile."""
    copied = result["tx"]["copied"] + result["rx"]["copied"]
    return {
        "doorbells_per_message": counted["tx_doorbells"] / messages,
        "seen_per_message": counted["tx_seen"] / messages,
        "watch_ends_per_message": counted["tx_watch_ends"] / messages,
        "placed_bytes_per_message": counted["placed_bytes"] / messages,
        "copied_bytes_per_message": copied / messages,
        "rtt_p50_us": result["tx"]["rtt_ns"]["p50"] / 1000,
    }


@dataclass
class Modes:
    """Turn by turn, one way after the other."""

    turns: dict[str, list[dict[str, float]]] = field(default_factory=lambda: {way: [] for way in WAYS})

    def add(self, way: str, turn: dict[str, float]) -> None:
        self.turns[way].append(turn)

    def values(self, way: str, figure: str) -> list[float]:
        return [turn[figure] for turn in self.turns[way]]

    def median(self, way: str, figure: str) -> float | None:
        values = self.values(way, figure)
        return statistics.median(values) if values else None

    def json(self, watch: str) -> list[dict]:
        return [
            {"mode": way, "what": what, "watch": watch, "bytes": 64, "n": len(self.turns[way]),
             "figures": {name: summary(self.values(way, name)) for name in self.turns[way][0]}}
            for way, what in WAYS.items() if self.turns[way]
        ]  # fmt: skip

    def table(self) -> str:
        rows = [COLUMNS]
        for way, what in WAYS.items():
            trips = self.values(way, "rtt_p50_us")
            rows.append((
                what, cell(self.median(way, "doorbells_per_message")), cell(self.median(way, "seen_per_message")), cell(self.median(way, "rtt_p50_us")),
                f"{min(trips):.0f}-{max(trips):.0f}" if trips else "-", cell(self.median(way, "copied_bytes_per_message")),
            ))  # fmt: skip
        return grid(rows)

    def bars(self) -> list[Bar]:
        trip = ratio(self.median(CXL, "rtt_p50_us"), self.median(PCIE, "rtt_p50_us"))
        return [
            Bar("64 B: doorbells for a message at steady load, CXL mode", AT_MOST, DOORBELLS_MAX, self.median(CXL, "doorbells_per_message")),
            Bar("64 B: round trip, CXL mode / PCIe mode, turn by turn", AT_MOST, TRIP_MAX, trip),
        ]


@dataclass(frozen=True)
class Pattern:
    """A stream with a pattern from lease to lease, every byte compared; and the same with another pattern, which must be found."""

    bytes: int
    placed_bytes: int
    copied_bytes: int
    tries: int  # until nothing was copied
    wrong_found: bool

    def json(self) -> dict:
        return {"pattern": "pool to pool", **vars(self)}

    def bars(self) -> list[Bar]:
        return [
            Bar("pool to pool: share of a compared stream that the switch placed", AT_LEAST, 1, min(self.placed_bytes / self.bytes, 1)),
            Bar("pool to pool: payload bytes that a processor carried, both ends", AT_MOST, 0, self.copied_bytes),
            Bar("pool to pool: other bytes than expected are found", AT_LEAST, 1, int(self.wrong_found)),
        ]


@dataclass(frozen=True)
class References:
    """The same messages of libtcpqp by reference and copied, every byte compared."""

    bytes: int  # of those that are long enough for a reference
    handed_bytes: int  # that changed hands with their leases, as the switch counts
    lane_bytes: int  # into the switch and out of it, headers too
    copied_lane_bytes: int  # of the same messages without references

    def json(self) -> dict:
        return {"references": "libtcpqp", **vars(self)}

    def bars(self) -> list[Bar]:
        return [
            Bar("by reference: share of long messages' bytes that changed hands", AT_LEAST, 1, self.handed_bytes / self.bytes),
            Bar("by reference: bytes on all lanes for a byte of messages", AT_MOST, REFERENCE_MAX, self.lane_bytes / self.bytes),
            Bar("the same messages copied: bytes on all lanes for a byte", AT_LEAST, COPY_MIN, self.copied_lane_bytes / self.bytes),
        ]


@dataclass(frozen=True)
class Ownership:
    """What a host may name, and what is left of processes that were killed."""

    refusals_tested: int  # cases of the tests switch.Pool*, all passed
    kills: int
    handover_kills: int  # of processes that offer leases
    lost_bytes: int  # of the pool, behind them
    idle_wakeups_per_s: float

    def json(self) -> dict:
        return {"ownership": "leases", **vars(self)}

    def bars(self, kills: int) -> list[Bar]:
        return [
            Bar("cases of switch.Pool* that hold, an address outside of a lease among them", AT_LEAST, 1, self.refusals_tested),
            Bar("processes killed while they take, hold and give back leases", AT_LEAST, kills, self.kills),
            Bar("processes killed in mid-hand-over, each lease taken whole or withdrawn", AT_LEAST, kills, self.handover_kills),
            Bar("bytes of the pool that are lost by it", AT_MOST, 0, self.lost_bytes),
            Bar("idle: wake-ups of the switch a second, after a watch", AT_MOST, WAKEUPS_MAX, self.idle_wakeups_per_s),
        ]
