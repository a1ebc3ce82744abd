# SPDX-License-Identifier: BSD-3-Clause
"""What a host shows of its queue pairs: tcpqp-stat beside ss and rdma, and the counters' names beside docs/observing.md."""

import json
import re

import pytest

from harness.guests import NCQP, Guests
from harness.needs import Needs
from harness.traffic import free_port, parameter

from nupavm.paths import REPO

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("tools/ncqp/ncqp", "tools/tcpqp_stat/tcpqp-stat"), setup="full")
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]

STAT = "$BUILD/cmake/tools/tcpqp_stat/tcpqp-stat"
LIMIT_S, WATCH_S = 40, 15
HEAD = "DEVICE QPN STATE LOCAL PEER ENGINE REASON CREDITS SENT LARGE OTHER PLACED COPIED RTT ms CWND RETRANS PROCESS"
DOCUMENT = REPO / "docs/observing.md"
PER_QUEUE = re.compile(r"[rt]x\d")
ROW = re.compile(r"^\| `(\w+)`", re.MULTILINE)


class Flow:
    """Endless bytes from node 1 to node 0, while it lasts."""

    def __init__(self, t: Guests, engine: str) -> None:
        self.t, self.port = t, free_port()
        self.jobs = [t.start(0, f"exec {NCQP} -q --engine {engine} -l -p {self.port} >/dev/null", LIMIT_S)]
        t.wait_listening(0, self.port)
        self.jobs.append(t.start(1, f"exec {NCQP} -q --engine {engine} -s $PEER -p {self.port} </dev/zero", LIMIT_S))

    def __enter__(self) -> "Flow":
        t = self.t
        t.run(0, f"until {STAT} | grep -Eq '10.77.0.1:{self.port} .*[0-9]{{6}}'; do sleep 0.1; done", LIMIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        for job in self.jobs:
            job.kill()
            job.wait()


def stat(t: Guests, node: int, port: int, options: str = "") -> dict:
    """The line of the connection by that port."""
    lines = [line for line in json.loads(t.run(node, f"{STAT} --json {options}")) if f":{port}" in line.get("local", "") + line.get("peer", "")]
    t.equal(len(lines), 1, f"lines of port {port} at node {node}: {lines}")
    return lines[0]


def test_offloaded_connection(t: Guests) -> None:
    with Flow(t, "offload") as flow:
        receiver, sender = (stat(t, node, flow.port) for node in (0, 1))
        t.equal((receiver["engine"], receiver["state"], receiver["reason"]), ("offload", "RTS", "NONE"), "the receiver's")
        t.equal(receiver["local"], f"10.77.0.1:{flow.port}", "its address")
        t.equal((receiver["peer"], receiver["local"]), (sender["local"], sender["peer"]), "both ends' addresses")
        t.equal(receiver["rx_placed_bytes"] + receiver["rx_copied_bytes"], receiver["rx_delivered_bytes"], "placed + copied")
        t.check(receiver["rx_placed_bytes"] > 10 * receiver["rx_copied_bytes"], f"placed too little: {receiver}")
        t.equal((receiver["process"], receiver["pid"] > 1), ("ncqp", True), "whose it is")
        t.check(sender["tx_bytes"] > 0 and sender["cwnd"] > 0 and sender["rtt_ms"] > 0, f"what TCP knows: {sender}")
        shown = t.run(1, f"ss -Htin 'dport = :{flow.port}'")
        t.equal(sender["congestion"], shown.split("\n")[1].split()[1 if "tcp-ulp" in shown.split("\n")[1].split()[0] else 0], f"as ss says: {shown}")
        t.equal(t.run(0, f"{STAT}").split("\n")[0].split(), HEAD.split(), "the table's head")


def test_reason_and_others(t: Guests) -> None:
    """Why it is not offloaded; another user sees the queue pair, and nobody's memory."""
    with Flow(t, "software") as flow:
        line = stat(t, 0, flow.port)
        t.equal((line["engine"], line["rx_placed_bytes"]), ("software", 0), "engine and bytes placed")
        other = json.loads(t.run(0, f"setpriv --reuid=65534 --regid=65534 --clear-groups {STAT} --json"))
        t.equal([o["qpn"] for o in other if o["engine"] == "software"], [line["qpn"]], "what another user sees")
    with parameter(t, "offload", "N", (0,)), Flow(t, "auto") as flow:
        line = stat(t, 0, flow.port)
        t.equal((line["engine"], line["reason"]), ("software", "OFFLOAD_OFF"), "engine and reason")
        t.check("administrator" in line["reason_text"], f"the reason's text: {line}")


def test_namespace_and_watch(t: Guests) -> None:
    """Elsewhere the queue pair is known, its addresses are not; --watch goes on."""
    with Flow(t, "software") as flow:
        stat(t, 0, flow.port)
        t.run(0, "ip netns add elsewhere")
        try:
            far = json.loads(t.run(0, f"ip netns exec elsewhere {STAT} --json"))
        finally:
            t.run(0, "ip netns del elsewhere")
        t.check(all("peer" not in line and "cwnd" not in line for line in far), f"another namespace's addresses: {far}")
        watched = t.run(0, f"timeout {WATCH_S} {STAT} --watch 0.2 | grep -m 2 -c DEVICE || true", 2 * WATCH_S)
        t.equal(int(watched), 2, f"tables in {WATCH_S} s")
    t.equal(json.loads(t.run(0, f"{STAT} --json")), [], "lines without a connection")


def documented(heading: str) -> set[str]:
    """Names in the table below that heading."""
    _, _, below = DOCUMENT.read_text().partition(f"\n## {heading}\n")
    return set(ROW.findall(below.partition("\n## ")[0]))


def test_every_counter_is_documented(t: Guests) -> None:
    counters = t.run(0, "ls /sys/class/infiniband/tcpqp0/ports/1/hw_counters").split()
    t.equal(documented("Counters of the RDMA device"), set(counters) - {"lifespan"}, "counters of the device")
    port = set(t.switch("stats")["stats"]["n0"])
    t.equal(documented("Counters of a switch port"), port, "counters of the port")
    statistics = t.run(0, "ethtool -S nupa0").splitlines()[1:]
    names = {line.split(":")[0].strip() for line in statistics}
    t.equal({name.removeprefix("switch_") for name in names if name.startswith("switch_")}, port, "the port's counters at the host")
    own = {name for name in names if not name.startswith("switch_") and not PER_QUEUE.match(name)}
    t.equal(documented("Counters of the interface"), own, "counters of the driver")
