# SPDX-License-Identifier: BSD-3-Clause
"""Payload into an accelerator by each way: rows, a table and bars of what devmem_bench said; pure arithmetic."""

import statistics
from dataclasses import dataclass, field

from .bars import AT_LEAST, AT_MOST, Bar, ratio
from .cases import MIB
from .figures import summary
from .report import cell, grid

TCP, DEVMEM, QP = "tcp", "devmem", "qp"
WAYS = {
    TCP: "plain TCP to host memory, then a copy by the processor",
    DEVMEM: "devmem TCP, made one run by the accelerator",
    QP: "queue pair, to the buffer itself",
}
TIMED, COUNTED, CALLS = "timed", "counted", "calls"
COLUMNS = ("", "Gb/s", "rx instr/B", "calls/MiB", "host bytes/B", "accel copies/B", "cmsgs/MiB")
COST_MAX, SPEED_MIN = 1 / 4, 2  # of devmem TCP's


def figures(kind: str, said: dict) -> dict[str, float]:
    """Of one measurement: seconds under -icount are no seconds, and counting calls costs instructions."""
    payload = said["payload"]
    if kind == TIMED:
        out = {"gbps": payload * 8 / said["phase_ns"]}
    elif kind == COUNTED:
        out = {"rx_instructions_per_byte": said["counters"]["busy_ns"] / payload}
    else:
        out = {"calls_per_mib": said["counters"]["calls"] / payload * MIB}
    host = said["host_bytes"] + said["cpu_mapped_bytes"]
    return out | {
        "host_bytes": host,
        "host_bytes_per_byte": host / payload,
        "accelerator_commands": said["commands"],
        "accelerator_copies_per_byte": said["accelerator_bytes"] / payload,
        "cmsgs": said["cmsgs"],
        "cmsgs_per_mib": said["cmsgs"] / payload * MIB,
    }


@dataclass
class Book:
    turns: dict[str, list[dict[str, float]]] = field(default_factory=lambda: {way: [] for way in WAYS})

    def add(self, way: str, kind: str, said: dict) -> None:
        self.turns[way].append(figures(kind, said))

    def values(self, way: str, figure: str) -> list[float]:
        return [turn[figure] for turn in self.turns[way] if figure in turn]

    def median(self, way: str, figure: str) -> float | None:
        values = self.values(way, figure)
        return statistics.median(values) if values else None

    def worst(self, way: str, figure: str) -> float | None:
        return max(self.values(way, figure), default=None)

    def json(self) -> list[dict]:
        names = {way: dict.fromkeys(name for turn in turns for name in turn) for way, turns in self.turns.items()}
        return [
            {"way": way, "what": what, "n": len(self.turns[way]), "figures": {name: summary(self.values(way, name)) for name in names[way]}}
            for way, what in WAYS.items()
        ]  # fmt: skip

    def bars(self) -> list[Bar]:
        def beside(figure: str) -> float | None:
            return ratio(self.median(QP, figure), self.median(DEVMEM, figure))

        return [
            Bar("QP: payload bytes in host RAM or a processor's hands", AT_MOST, 0, self.worst(QP, "host_bytes")),
            Bar("QP: commands of the accelerator", AT_MOST, 0, self.worst(QP, "accelerator_commands")),
            Bar("QP: control messages", AT_MOST, 0, self.worst(QP, "cmsgs")),
            Bar("receive instructions per byte, QP / devmem TCP", AT_MOST, COST_MAX, beside("rx_instructions_per_byte")),
            Bar("throughput, QP / devmem TCP and linearise", AT_LEAST, SPEED_MIN, beside("gbps")),
        ]

    def table(self) -> str:
        wanted = ("gbps", "rx_instructions_per_byte", "calls_per_mib", "host_bytes_per_byte", "accelerator_copies_per_byte", "cmsgs_per_mib")
        return grid([COLUMNS, *((what, *(cell(self.median(way, name)) for name in wanted)) for way, what in WAYS.items())])
