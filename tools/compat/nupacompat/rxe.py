# SPDX-License-Identifier: BSD-3-Clause
"""Soft RoCE on the same netdev, in the same guests, turn by turn with tcp_qp."""

import statistics
from dataclasses import dataclass

from nupavm import Cluster

from . import figures
from .pair import Outcome, run_pair, set_engine
from .programs import Program

ROUNDS = 3
DEVICE = {"offload": "tcpqp0", "software": "tcpqp0", "rxe": "rxe0"}
BW_TARGET = 3.0  # times rxe, on offload
MODULES = "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev nupa0 && sh $REPO/tools/vm/guest/mkdev"


@dataclass(frozen=True)
class Race:
    """One perftest program and message size."""

    program: str
    bytes: int
    iterations: int

    @property
    def latency(self) -> bool:
        return self.program.endswith("_lat")

    def on(self, who: str) -> Program:
        # rxe0 connects without rdma_cm, which would give it to the first device of the netdev
        connect = f"-d {DEVICE[who]}" + ("" if who == "rxe" else " -R")
        command = f"{self.program} {connect} -F --report_gbits -s {self.bytes} -n {self.iterations} -p {{port}}"
        return Program(self.program, command, f"{command} {{peer}}", lambda out: figures.rows(out)[0][0] if figures.rows(out) else "")

    def value(self, out: str) -> float:
        row = figures.rows(out)[0]
        return float(row[figures.LAT_TYPICAL if self.latency else figures.BW_MEAN])


RACES = (
    Race("ib_write_bw", 65536, 200), Race("ib_write_bw", 1 << 20, 20), Race("ib_send_bw", 65536, 200), Race("ib_send_bw", 1 << 20, 20),
    Race("ib_write_lat", 64, 200), Race("ib_send_lat", 64, 200),
)  # fmt: skip


def add_device(cluster: Cluster) -> None:
    for result in cluster.run_all(MODULES, 30):
        if not result.ok:
            raise RuntimeError(f"rxe0: {result.stdout}{result.stderr}")


def remove_device(cluster: Cluster) -> None:
    """The module stays: its exit would take all devices of its driver id, ours too."""
    cluster.run_all("rdma link delete rxe0", 30, check=True)


def race(cluster: Cluster, one: Race) -> list[Outcome]:
    """Medians of ROUNDS turns, rxe's first; the others' figures say how they compare."""
    values: dict[str, list[float]] = {"rxe": [], "offload": [], "software": []}
    problems: dict[str, str] = {}
    for _ in range(ROUNDS):
        for who in values:
            if who != "rxe":
                set_engine(cluster, who)
            out, problem = run_pair(cluster, one.on(who))
            if problem or not figures.rows(out):
                problems[who] = problem or f"no figure in: {out}"
            else:
                values[who].append(one.value(out))
    return [_outcome(one, who, values, problems.get(who, "")) for who in values]


def _outcome(one: Race, who: str, values: dict[str, list[float]], problem: str) -> Outcome:
    command = f"{one.program} -s {one.bytes} -n {one.iterations} (side by side)"
    if problem or not values[who]:
        return Outcome(one.program, command, who, False, "", problem or "no figure")
    mean = statistics.median(values[who])
    figure = f"{mean:.0f} us" if one.latency else f"{mean:.2f} Gb/s"
    if who != "rxe" and values["rxe"]:
        figure += f", {mean / statistics.median(values['rxe']):.2f} times rxe"
    return Outcome(one.program, command, who, True, figure)
