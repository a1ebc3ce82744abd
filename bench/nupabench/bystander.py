# SPDX-License-Identifier: BSD-3-Clause
"""What the module costs a host that has no queue pair: plain TCP over loopback in one guest, with tcp_qp loaded and without."""

import json
import statistics

from nupavm import Cluster, CommandFailed

from .cases import KIB
from .figures import rounded
from .machines import PROGRAM, count_loop

STREAM_BYTES, TRIP_BYTES = 64 * KIB, 64
STREAM_MESSAGES, TRIPS = 2048, 2000
SPECS = {
    "64 KiB of stream": f"transport=tcp,bytes={STREAM_BYTES},messages={STREAM_MESSAGES},warm_bytes={128 * STREAM_BYTES}",
    "64 B round trip": f"transport=tcp,mode=pingpong,bytes={TRIP_BYTES},messages={TRIPS},warm_bytes={256 * TRIP_BYTES}",
}
LOAD, UNLOAD = "sh $REPO/tools/vm/guest/setup full", "rmmod tcp_qp"
# Buffers that grow would make two turns differ by a quarter; these make sender and receiver take turns in one way.
BUFFERS = "sysctl -qw net.ipv4.tcp_moderate_rcvbuf=0 net.ipv4.tcp_rmem='4096 262144 262144' net.ipv4.tcp_wmem='4096 262144 262144'"
LIMIT_S = 60


def measure(cluster: Cluster, turns: int) -> list[dict]:
    """Turn by turn without and with the module, so that what drifts meets both."""
    node = cluster.node[0]
    count_loop(node)
    node.run(f"{LOAD}; {UNLOAD}", LIMIT_S, check=True)  # what the module needs of others stays loaded
    counts: dict[str, dict[bool, list[float]]] = {name: {False: [], True: []} for name in SPECS}
    for turn in range(2 * turns):
        loaded = turn % 4 in (1, 2)  # without, with, with, without
        change = LOAD if loaded else f"{{ [ ! -d /sys/module/tcp_qp ] || {UNLOAD}; }}"
        node.run(f"{change} && {BUFFERS}", LIMIT_S, check=True)
        for name, count in _turn(cluster).items():
            counts[name][loaded].append(count)
    return [row(name, both[False], both[True]) for name, both in counts.items()]


def _turn(cluster: Cluster) -> dict[str, float]:
    """Instructions of the whole guest, both ends of the connection, for a message."""
    lines = cluster.node[0].run(f"{PROGRAM} --loopback --interface lo {' '.join(SPECS.values())}", LIMIT_S, check=True).stdout.splitlines()
    results = [json.loads(line) for line in lines]
    if len(results) != len(SPECS) or not all(result["ok"] for result in results):
        raise CommandFailed(f"loopback: {lines}")
    return {name: result["tx"]["counters"]["busy_ns"] / result["tx"]["messages"] for name, result in zip(SPECS, results)}


def row(name: str, without: list[float], loaded: list[float]) -> dict:
    """The median of each, and how far the turns without the module lie apart: what can be told at all."""
    base = statistics.median(without)
    return {
        "bystander": name, "n": len(loaded), "instructions_without": rounded(base), "instructions_with": rounded(statistics.median(loaded)),
        "spread_without": rounded((max(without) - min(without)) / base), "spread_with": rounded((max(loaded) - min(loaded)) / base),
    }  # fmt: skip
