# SPDX-License-Identifier: BSD-3-Clause
"""A second offload provider, selftests/vm/modules/softnic: two NICs on one wire in one guest, without nupa_dev.

What docs/offload-provider.md promises is enough to place every kind of payload, and tcp_qp keeps its side of the contract.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from harness.guests import Failed, Guests, Job
from harness.needs import Needs
from harness.pairs import PROGRAMS, outputs
from harness.traffic import free_port
from vm.exchange import TRAINS, placed_share, share_segments

NAMES = ("qp_end", "qp_exchange", "qp_litmus", "qp_many", "qp_rdma", "qp_refused", "qp_revoke", "qp_window")
NEEDS = Needs(modules=("tcp_qp", "tests/softnic"), programs=tuple(f"selftests/vm/programs/{name}" for name in NAMES), nodes=1, switch=False, setup="full")
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]
LIMIT_S = 90
MODULE = "$KO/tests/softnic/softnic.ko"
FAR = "nsenter --net=/run/netns/far"  # keeps /sys, where devices are looked for
NEAR_IP, NEAR_IP6 = "10.78.0.1", "fd78::1"
DEVICES = ("tcpqp8", "tcpqp9")
UP = f"""
set -e
ip link set soft0 up
{FAR} ip link set soft1 up
ip address replace {NEAR_IP}/24 dev soft0
ip -6 address replace {NEAR_IP6}/64 dev soft0 nodad
{FAR} ip address replace 10.78.0.2/24 dev soft1
{FAR} ip -6 address replace fd78::2/64 dev soft1 nodad
rdma link add {DEVICES[0]} type tcp_qp netdev soft0
{FAR} rdma link add {DEVICES[1]} type tcp_qp netdev soft1
sh $REPO/tools/vm/guest/mkdev
"""
MESSAGES = 600  # more than come before the link goes down
FAULTS = {"lose_ppm": 10000, "double_ppm": 10000, "hold_ppm": 50000, "spoil_ppm": 2000}


@contextlib.contextmanager
def softnics(t: Guests, **parameters: int) -> Iterator[None]:
    """soft0 here and soft1 in the namespace `far`, each with an RDMA device; gone again after the block."""
    words = " ".join(f"{name}={value}" for name, value in parameters.items())
    t.run(0, f"ip netns add far; insmod {MODULE} {words} && ip link set soft1 netns far && {{ {UP} }}")
    try:
        yield
        for end in (0, 1):
            t.equal(stats(t, end)["wrong_order"], 0, f"soft{end}: calls of tcp_qp in a wrong order")
    finally:
        t.run(0, "rmmod softnic 2>/dev/null; ip netns delete far")


def stats(t: Guests, end: int) -> dict[str, int]:
    lines = t.run(0, f"{FAR if end else ''} ethtool -S soft{end}").splitlines()[1:]
    return {name.strip(): int(value) for name, _, value in (line.partition(":") for line in lines)}


def counter(t: Guests, end: int, name: str) -> int:
    return int(t.run(0, f"cat /sys/class/infiniband/{DEVICES[end]}/ports/1/hw_counters/{name}"))


def wire(t: Guests, **faults: int) -> None:
    t.run(0, "cd /sys/module/softnic/parameters; " + "; ".join(f"echo {value} >{name}" for name, value in faults.items()))


@contextlib.contextmanager
def bad_wire(t: Guests, seed: int) -> Iterator[None]:
    wire(t, seed=seed, **FAULTS)
    try:
        yield
    finally:
        wire(t, **dict.fromkeys(FAULTS, 0))


def start(t: Guests, program: str, listener: str = "", connector: str = "", common: str = "", address: str = NEAR_IP,
          limit_s: float = LIMIT_S) -> list[Job]:  # fmt: skip
    """The program on both ends: it listens on soft0."""
    port, path = free_port(), f"{PROGRAMS}/{program}"
    listens, connects = f"--port {port}", f"--port {port} --connect {address}"
    if program == "qp_exchange":
        listens, connects = f"--listen {port}", f"--connect {address}:{port}"
    return [
        t.start(0, f"exec {path} {listens} --interface soft0 {common} {listener}", limit_s),
        t.start(0, f"exec {FAR} {path} {connects} --interface soft1 {common} {connector}", limit_s),
    ]


def both(t: Guests, program: str, listener: str = "", connector: str = "", common: str = "--engine offload", address: str = NEAR_IP,
         limit_s: float = LIMIT_S) -> list[dict]:  # fmt: skip
    return outputs(start(t, program, listener, connector, common, address, limit_s))


def exchange(t: Guests, options: str, address: str = NEAR_IP, engine: str = "offload") -> list[dict]:
    return both(t, "qp_exchange", common=f"--engine {engine} --timeout 30 {options}", address=address)


def mostly_placed(t: Guests, counters: list[dict], share: float = 0.9) -> None:
    for end, c in enumerate(counters):
        t.equal(c["engine"], 2, f"soft{end}: engine")
        t.check(placed_share(c) >= share, f"soft{end}: only {placed_share(c):.3f} placed: {c}")


def test_sends(t: Guests) -> None:
    """Both ways at once, every byte compared; what the NIC says it placed is what tcp_qp received as placed."""
    with softnics(t):
        for seed, address in ((11, NEAR_IP), (12, NEAR_IP6)):
            counters = exchange(t, f"--messages 200 --seed {seed}", address)
            mostly_placed(t, counters)
            t.equal([c["wire"] for c in counters], [1, 1], "a NIC that writes no ver 0: version on the wire")
        for end in (0, 1):
            t.equal(stats(t, end)["placed_bytes"], counter(t, end, "rx_placed_bytes"), f"soft{end}: bytes placed, by the NIC and by tcp_qp")


@pytest.mark.long
def test_scatter_lists_and_late_receives(t: Guests) -> None:
    with softnics(t):
        mostly_placed(t, exchange(t, "--messages 200 --sges 16 --inline 128 --seed 14"))
        exchange(t, "--messages 100 --late-receives --seed 17")
        mostly_placed(t, exchange(t, "--messages 24 --max-bytes 4000000 --depth 4 --seed 16"), share=0.5)


def test_trains(t: Guests) -> None:
    with softnics(t):
        counters = exchange(t, f"{TRAINS} --seed 25")
        share_segments(t, counters)
        mostly_placed(t, counters)


def test_bad_wire(t: Guests) -> None:
    with softnics(t):
        with bad_wire(t, seed=22):
            mostly_placed(t, exchange(t, "--messages 200 --seed 22"), share=0.8)
            exchange(t, f"{TRAINS} --seed 27")
        for end in (0, 1):
            seen = stats(t, end)
            for name in ("wire_lost", "wire_duplicated", "wire_held", "wire_corrupted", "deliver_seen", "deliver_checksum"):
                t.check(seen[name] > 0, f"soft{end}: no {name}: no test of it")


@pytest.mark.needs(replace(NEEDS, cpus=2))
@pytest.mark.long
def test_counters_of_two_processors(t: Guests) -> None:
    """They are kept for each processor: of what several programs moved at once, none is lost."""
    with softnics(t):
        jobs = [start(t, "qp_exchange", common=f"--engine offload --timeout 30 --messages 150 --seed {seed}") for seed in (50, 51, 52)]
        counters = [outputs(pair) for pair in jobs]
        for end in (0, 1):
            for field, name in (("delivered", "rx_delivered_bytes"), ("placed", "rx_placed_bytes")):
                t.equal(counter(t, end, name), sum(pair[end][field] for pair in counters), f"soft{end}: {name}")


def test_one_sided(t: Guests) -> None:
    """WRITE, READ and atomics against a model, and the litmus tests of docs/ordering.md."""
    with softnics(t):
        counters = [result["counters"] for result in both(t, "qp_rdma", connector="--seed 31 --operations 200")]
        for end, c in enumerate(counters):
            t.check(c["placed"] >= 0.9 * c["delivered"], f"soft{end}: placed too little: {c}")
        both(t, "qp_litmus", common="--engine offload --rounds 10")


@pytest.mark.long
def test_rights_and_windows(t: Guests) -> None:
    """What vm/rdma asks of the switch."""
    with softnics(t):
        for program in ("qp_refused", "qp_window"):
            both(t, program)


@pytest.mark.long
def test_one_sided_on_a_bad_wire(t: Guests) -> None:
    with softnics(t), bad_wire(t, seed=37):
        both(t, "qp_rdma", connector="--seed 37 --operations 300")
        both(t, "qp_litmus", common="--engine offload --rounds 10")


@pytest.mark.long
def test_many(t: Guests) -> None:
    with softnics(t):
        for end, report in enumerate(both(t, "qp_many", common="--engine offload --count 200 --messages 10 --bytes 2000", limit_s=120)):
            t.equal(report["offload"], 200, f"soft{end}: queue pairs offloaded")
            t.check(report["placed"] > 0.5 * report["delivered"], f"soft{end}: placed too little: {report}")


def refused(t: Guests, common: str) -> None:
    for job in start(t, "qp_exchange", common=common, limit_s=20):
        result = job.wait()
        t.check(0 < result.status < 124, f"{common}: ended with {result.status}: {result.stdout}{result.stderr}")


def test_what_it_cannot_do(t: Guests) -> None:
    """It said that it has no ICRC, so it is not asked; a QP that wants one is served by software."""
    with softnics(t):
        refused(t, "--engine offload --icrc --messages 10 --timeout 5")
        counters = exchange(t, "--icrc --messages 60 --seed 40", engine="auto")
        t.equal([(c["engine"], c["placed"]) for c in counters], [(1, 0), (1, 0)], "engine, and bytes placed")
        t.check(counter(t, 0, "offload_refused") > 0, "not counted as refused")


def test_full_tables(t: Guests) -> None:
    """No room for a queue pair: software serves it.  No room for a region: its payload is delivered, and copied."""
    with softnics(t, qps_max=0):
        counters = exchange(t, "--messages 60 --seed 41", engine="auto")
        t.equal([c["engine"] for c in counters], [1, 1], "engines without room for a queue pair")
        refused(t, "--engine offload --messages 10 --timeout 5")
    with softnics(t, mrs_max=0):
        counters = exchange(t, "--messages 60 --seed 42")
        t.equal([(c["engine"], c["placed"]) for c in counters], [(2, 0), (2, 0)], "engine, and bytes placed")
        t.check(stats(t, 0)["deliver_key"] > 0, "nothing was delivered for want of a region")


def test_revoked_while_placing(t: Guests) -> None:
    """Memory that the application has back is not written any more, whatever lies in the queues of the NIC."""
    with softnics(t), bad_wire(t, seed=43):
        for seed, what in enumerate(("memory", "qp", "error")):
            both(t, "qp_revoke", f"--revoke {what}", common=f"--rounds 8 --engine offload --seed {seed}", limit_s=120)
        both(t, "qp_revoke", "", "--revoke memory", common="--rounds 8 --engine offload", limit_s=120)
        t.check(stats(t, 0)["placed_bytes"] > 1 << 20, "hardly anything was placed: no test of revocation")


# The end, while messages run.
def busy(t: Guests, listener: str = "", connector: str = "") -> list[Job]:
    """Returns when a megabyte has been placed."""
    jobs = start(t, "qp_end", listener, connector, "--engine offload --user-timeout-ms 3000")
    t.run(0, f"until [ $(cat /sys/class/infiniband/{DEVICES[0]}/ports/1/hw_counters/rx_placed_bytes) -gt 1000000 ]; do sleep 0.1; done")
    return jobs


def told(t: Guests, report: dict, what: str, gone: bool = False) -> None:
    if gone and report["device_gone"]:
        return
    t.equal(report["unfinished"], 0, f"{what}: work requests without completion")
    t.equal(report["placed"] + report["copied"], report["delivered"], f"{what}: placed + copied")
    t.check(sum(report["errors"].values()) > 0, f"{what}: no error: {report}")


def test_provider_removed(t: Guests) -> None:
    with softnics(t):
        jobs = busy(t)
        before = [stats(t, end)["wrong_order"] for end in (0, 1)]
        t.run(0, "rmmod softnic")
        for end, report in enumerate(outputs(jobs)):
            told(t, report, f"soft{end}", gone=True)
        t.equal(before, [0, 0], "calls in a wrong order")
        t.run(0, f"insmod {MODULE} && ip link set soft1 netns far && {{ {UP} }}")
        mostly_placed(t, exchange(t, "--messages 60 --seed 44"))


def test_rdma_link_deleted(t: Guests) -> None:
    with softnics(t):
        jobs = busy(t)
        t.run(0, f"rdma link delete {DEVICES[0]}")
        for end, report in enumerate(outputs(jobs)):
            told(t, report, f"soft{end}", gone=not end)
        t.run(0, f"rdma link add {DEVICES[0]} type tcp_qp netdev soft0; sh $REPO/tools/vm/guest/mkdev")
        mostly_placed(t, exchange(t, "--messages 60 --seed 45"))


def test_killed(t: Guests) -> None:
    with softnics(t):
        jobs = busy(t)
        t.run(0, "pkill -9 -f 'qp_end.*--connect'")
        jobs[1].wait()
        result = jobs[0].wait()
        if not result.ok:
            raise Failed(f"the survivor ended with {result.status}: {result.stdout}{result.stderr}")
        told(t, json.loads(result.stdout), "the survivor")


@pytest.mark.long
def test_link_comes_back(t: Guests) -> None:
    """Frames in the queue are lost, the contexts stay; TCP repairs it."""
    with softnics(t):
        jobs = busy(t, "--how wait", f"--how close --after {MESSAGES}")
        t.run(0, f"ip link set soft0 down; sleep 0.5; ip link set soft0 up; ip -6 address replace {NEAR_IP6}/64 dev soft0 nodad")
        reports = outputs(jobs)
        t.check(reports[1]["received"] >= MESSAGES, f"traffic did not go on: {reports}")


def test_tcp_qp_comes_later(t: Guests) -> None:
    """Neither module needs the other to load, and the RDMA device that is made later finds the provider."""
    t.run(0, "rmmod tcp_qp; ip netns add far")
    try:
        t.run(0, f"insmod {MODULE} && ip link set soft1 netns far && insmod $KO/tcp_qp/tcp_qp.ko && {{ {UP} }}")
        mostly_placed(t, exchange(t, "--messages 60 --seed 46"))
        t.fails(0, "rmmod tcp_qp && rmmod tcp_qp")
        t.run(0, "insmod $KO/tcp_qp/tcp_qp.ko")
    finally:
        t.run(0, "rmmod softnic; ip netns delete far; [ -d /sys/module/tcp_qp ] || insmod $KO/tcp_qp/tcp_qp.ko")
