# SPDX-License-Identifier: BSD-3-Clause
"""NCCL itself on a GPU: which ways and algorithms are compared, and the lines that the figures are held against."""

import statistics
from dataclasses import dataclass, field

from .bars import AT_LEAST, AT_MOST, Bar, ratio
from .cases import KIB, MIB

RANKS = 2
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive")
# Of the algorithm's bandwidth, what crosses the network: nccl-tests, doc/PERFORMANCE.md.
BUS_FACTOR = {"all_reduce": 2 * (RANKS - 1) / RANKS, "send_receive": 1.0, **dict.fromkeys(OPERATIONS[1:4], (RANKS - 1) / RANKS)}
SMALL = (8, 512, 4 * KIB)
LARGE = (64 * MIB, 256 * MIB)
SIZES = (*SMALL, 64 * KIB, MIB, 16 * MIB, *LARGE)
FORCED_SIZES = (*SMALL, 64 * KIB, MIB, 16 * MIB)
PROTOCOLS, ALGORITHMS = ("Simple", "LL", "LL128"), ("Ring", "Tree")
OURS_LOGS, THEIRS_LOGS = "via NET/TCPQP", "via NET/Socket"  # NCCL's line for each channel


@dataclass(frozen=True)
class Way:
    """How NCCL's bytes travel between the ranks."""

    name: str
    environment: dict[str, str] = field(hash=False, compare=False)


SOCKET = Way("Socket", {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"})
SOCKET_WIDE = Way("Socket 4x4", {**SOCKET.environment, "NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"})
OURS = Way("TCPQP", {"NCCL_NET": "TCPQP"})  # and NCCL_NET_PLUGIN, the file
WAYS = (SOCKET, SOCKET_WIDE, OURS)


@dataclass(frozen=True)
class Job:
    """Two ranks, from ncclCommInit to its end: @operations of each of @sizes bytes.  @checks: how often values are compared, for each."""

    way: Way
    operations: tuple[str, ...] = OPERATIONS
    sizes: tuple[int, ...] = SIZES
    protocol: str = ""  # NCCL's choice
    algorithm: str = ""
    checks: int = 3

    @property
    def name(self) -> str:
        return " ".join(word for word in (self.way.name, self.protocol, self.algorithm) if word)

    def environment(self) -> dict[str, str]:
        said = {"NCCL_PROTO": self.protocol, "NCCL_ALGO": self.algorithm}
        return {**self.way.environment, **{name: value for name, value in said.items() if value}}


def forced(way: Way) -> list[Job]:
    """Each protocol with each algorithm.  With LL and LL128 the GPU polls where the bytes land: many values are compared."""
    return [Job(way, ("all_reduce",), FORCED_SIZES, protocol, algorithm, checks=20) for protocol in PROTOCOLS for algorithm in ALGORITHMS]


def row(job: Job, operation: str, size: int, seconds: float, cpu_s: float, wrong: int) -> dict:
    """@seconds: for one; @cpu_s: of rank 0's threads but for the one that calls, for one."""
    speed = size / seconds / 1e9
    figures = {"time_us": seconds * 1e6, "algbw_gbs": speed, "busbw_gbs": speed * BUS_FACTOR[operation], "cpu_us": cpu_s * 1e6}
    named = {"way": job.way.name, "protocol": job.protocol, "algorithm": job.algorithm, "operation": operation, "bytes": size}
    return {**named, **figures, "wrong": wrong, "checks": job.checks}


def median(rows: list[dict], way: Way, operation: str, size: int, figure: str) -> float | None:
    """Of the runs in which NCCL chose protocol and algorithm."""
    wanted = (way.name, "", operation, size)
    found = [r[figure] for r in rows if (r["way"], r["protocol"], r["operation"], r["bytes"]) == wanted]
    return statistics.median(found) if found else None


def bars(rows: list[dict]) -> list[Bar]:
    def of(way: Way, size: int, figure: str) -> float | None:
        return median(rows, way, "all_reduce", size, figure)

    ours = [r for r in rows if r["way"] == OURS.name]
    combined = {(p, a): [r["wrong"] for r in ours if (r["protocol"], r["algorithm"]) == (p, a)] for p in PROTOCOLS for a in ALGORITHMS}
    right = sum(1 for wrongs in combined.values() if len(wrongs) == len(FORCED_SIZES) and not any(wrongs))
    list_of = [
        Bar("values that are wrong, TCPQP", AT_MOST, 0, sum(r["wrong"] for r in ours) if ours else None),
        Bar("protocols x algorithms that end with right values, TCPQP", AT_LEAST, len(combined), right),
    ]
    for size in LARGE:
        for theirs in (SOCKET, SOCKET_WIDE):
            value = ratio(of(OURS, size, "busbw_gbs"), of(theirs, size, "busbw_gbs"))
            list_of.append(Bar(f"all_reduce of {size // MIB} MiB: bus bandwidth, TCPQP / {theirs.name}", AT_LEAST, 1, value))
    for size in SMALL:
        value = ratio(of(OURS, size, "time_us"), of(SOCKET, size, "time_us"))
        list_of.append(Bar(f"all_reduce of {size} B: time, TCPQP / Socket", AT_MOST, 1, value))
    return list_of


def table(rows: list[dict]) -> str:
    """Medians, a line for each message and a column for each way."""
    lines = [f"{'operation':<15}{'bytes':>10}" + "".join(f"{way.name + ' us':>15}{'GB/s':>7}{'cpu us':>9}" for way in WAYS)]
    for operation in OPERATIONS:
        for size in SIZES:
            found = [[median(rows, way, operation, size, figure) for figure in ("time_us", "busbw_gbs", "cpu_us")] for way in WAYS]
            if any(one[0] is not None for one in found):
                cells = "".join("-".rjust(31) if None in one else f"{one[0]:>15.1f}{one[1]:>7.2f}{one[2]:>9.0f}" for one in found)
                lines.append(f"{operation:<15}{size:>10}{cells}")
    for one in (r for r in rows if r["protocol"]):
        what = f"{one['way']} {one['protocol']} {one['algorithm']}"
        lines.append(f"{what:<25}{one['bytes']:>10}{one['time_us']:>12.1f} us{one['busbw_gbs']:>8.2f} GB/s, {one['wrong']} wrong of {one['checks']} checks")
    return "\n".join(lines)
