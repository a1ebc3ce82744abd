# SPDX-License-Identifier: BSD-3-Clause
"""What a message costs as there are more queue pairs, and what many senders do to one port."""

import statistics
import time

from nupavm import Cluster

from .cases import MIB, Case
from .figures import rounded
from .machines import SERVER, Machines

QPS = (10, 100, 1000, 10000)
QP_MESSAGE_BYTES = 4096
QP_DEPTH = 2
MESSAGES_MIN = 4000
SETUP_LIMIT_S = 300  # to connect and attach the largest number
TURNS, MANY = 5, 1000  # from so many on one turn has enough messages
INCAST_FLOWS = 23
INCAST_PORT = {"rate_mbps": 400, "queue_bytes": 400_000, "ecn_bytes": 100_000}
INCAST_BYTES = 48 * MIB
CONTROLS = ("cubic", "dctcp")


def queue_pairs(machines: Machines, most: int, until: float) -> list[dict]:
    """Stops where a number can't be had, or when time is over, and says so in its row."""
    rows = []
    for count in (n for n in QPS if n <= most):
        if time.monotonic() > until:
            rows.append({"qps": count, "problem": "no time was left: bench/run --only growth"})
            break
        machines.say(f"{count} queue pairs")
        row = _queue_pairs(machines, count)
        rows.append(row)
        if "problem" in row:
            break
    return rows


def _queue_pairs(machines: Machines, count: int) -> dict:
    case = Case(
        "offload", bytes=QP_MESSAGE_BYTES, flows=count, depth=QP_DEPTH, batch=1, memory=True,
        messages=max(MESSAGES_MIN, count), warm_bytes=QP_MESSAGE_BYTES * count,
    )  # fmt: skip
    before = switch_rss_kib(machines.cluster)
    turns = [machines.run([case], SETUP_LIMIT_S)[0] for _ in range(TURNS if count < MANY else 1)]
    for result in turns:
        if not result["ok"]:
            return {"qps": count, "problem": result["problem"]}
    rx = turns[0]["rx"]  # the first found no memory of an earlier one's
    rate = statistics.median(turn["rx"]["messages"] / turn["rx"]["phase_ns"] for turn in turns) * 1e9
    return {
        "qps": count, "n": len(turns), "messages_per_s": rounded(rate), "kernel_kib_per_qp": rounded(rx["kernel_kib_per_qp"]),
        "ring_kib_per_qp": rounded(rx["ring_kib_per_qp"]), "socket_kib_per_qp": rounded(rx["socket_kib"] / count),
        "switch_kib_per_qp": rounded((switch_rss_kib(machines.cluster) - before) / count / 2),
    }  # fmt: skip


def _switch_status(cluster: Cluster, field: str) -> int:
    with open(f"/proc/{cluster.switch.process.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{field}:"))


def switch_rss_kib(cluster: Cluster) -> int:
    """Contexts are gone when we look; the tables that held them stay as large as they were."""
    return _switch_status(cluster, "RssAnon")


def incast(machines: Machines) -> list[dict]:
    """INCAST_FLOWS connections into one port with a finite queue; the senders share one guest, so the port is what is scarce."""
    rows = []
    machines.switch("faults", port=f"n{SERVER}", clear=True, set=INCAST_PORT)
    for control in CONTROLS:
        setup = f"[ {control} = cubic ] || modprobe -q tcp_{control}; sysctl -qw net.ipv4.tcp_ecn=1 net.ipv4.tcp_congestion_control={control}"
        machines.cluster.run_all(setup, 30, check=True)
        for transport in ("tcp", "offload"):
            rows.append(_incast(machines, transport, control))
    machines.cluster.run_all("sysctl -qw net.ipv4.tcp_ecn=2 net.ipv4.tcp_congestion_control=cubic", 30, check=True)
    machines.faults()
    return rows


def _incast(machines: Machines, transport: str, control: str) -> dict:
    size = 64 << 10
    case = Case(transport, bytes=size, flows=INCAST_FLOWS, depth=8, messages=INCAST_BYTES // size, warm_bytes=4 * MIB)
    before = _port(machines)
    began = time.monotonic()
    (result,) = machines.run([case])
    after = _port(machines)
    row = {"incast": f"{transport}, {control}", "flows": INCAST_FLOWS}
    if not result["ok"]:
        return row | {"problem": result["problem"]}
    rx = result["rx"]
    return row | {
        "goodput_gbps": rounded(rx["messages"] * size * 8 / rx["phase_ns"]), "lane_gbps": INCAST_PORT["rate_mbps"] / 1000, "fairness": rounded(rx["fairness"]),
        "drops": after["queue_drop"] - before["queue_drop"], "ecn_marks": after["ecn_marked"] - before["ecn_marked"],
        "seconds": rounded(time.monotonic() - began),
    }  # fmt: skip


def _port(machines: Machines) -> dict[str, int]:
    name = f"n{SERVER}"
    return machines.switch("stats", port=name)["stats"][name]
