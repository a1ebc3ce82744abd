# SPDX-License-Identifier: BSD-3-Clause
"""Memory of accelerators: from one to the other without a byte in a host's hands, and every way in which it may go away."""

import contextlib
import functools
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from harness.busy import nothing_copied, one_shows
from harness.guests import NCQP, Guests
from harness.leak_check import give_up
from harness.needs import Needs, debug_config, on_debug_kernel
from harness.pairs import fabric
from harness.traffic import free_port, ncqp, wait_moving
from vm.exchange import FAULTS, exchange, offload_pair
from vm.rdma import model, mostly_placed
from vm.unplug import LOST, kills_the_switch

DEVMEM = "tools/devmem/devmem_tcp"
TESTS = "selftests/vm/programs"
PROGRAMS = (*(f"{TESTS}/{name}" for name in ("accel_check", "accel_signal", "qp_bell", "qp_exchange", "qp_rdma")), "tools/ncqp/ncqp", DEVMEM)
MIB = 64
NEEDS = Needs(modules=("tcp_qp", "nupa_dev", "nupa_accel"), programs=PROGRAMS, setup="full", accelerator_mib=MIB)
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]
# One that was built before it was in its configuration; regions need it.
NO_PAGES = on_debug_kernel() and "CONFIG_ZONE_DEVICE=y" not in debug_config()
regions = pytest.mark.skipif(NO_PAGES, reason="the debug kernel has no ZONE_DEVICE: build it anew")
CHECK = "$BUILD/cmake/selftests/vm/programs/accel_check"
DRIVER = "/sys/bus/pci/drivers/nupa_accel"
REMOVE = f"for d in {DRIVER}/0*; do [ ! -e $d ] || echo 1 >$d/remove; done"
END_S = 60
LONG = "-d hbm -v 251 -n 4G --msg-size 256K"  # it is cut short
HBM = "-d hbm -v 251 --timeout 20"


def _info(t: Guests, node: int) -> dict:
    return json.loads(t.run(node, f"{CHECK} info"))


def _all_back(t: Guests) -> None:
    for node in (0, 1):
        t.run(node, f"until {CHECK} info | grep -q '\"buffers\":0'; do sleep 0.2; done", END_S)
        info = _info(t, node)
        t.equal(info["free_bytes"], info["memory_bytes"], f"node{node}: free memory of the accelerator")


def test_commands(t: Guests) -> None:
    t.run(0, f"{CHECK} engine && {CHECK} attacks", END_S)
    _all_back(t)


@regions
def test_registered_again_and_again(t: Guests) -> None:
    t.run(0, f"{CHECK} churn 1000", END_S)
    t.run(0, f"{CHECK} revoked", END_S)
    _all_back(t)


@regions
@pytest.mark.long
def test_registered_ten_thousand_times(t: Guests) -> None:
    t.run(0, f"{CHECK} churn 10000", END_S)
    _all_back(t)


@pytest.mark.parametrize("turns,held", ((3, 64), pytest.param(100, 64, marks=pytest.mark.long), pytest.param(10, 2000, marks=pytest.mark.long)))
def test_raced_by_threads(t: Guests, turns: int, held: int) -> None:
    """The device goes in the middle of buffers that are made, touched and closed, and comes back.  Many that are held make the walk over them long."""
    t.run(0, f"{CHECK} race {turns} {held}", END_S)
    _all_back(t)


def _moved(t: Guests, family: str = "") -> None:
    before = [_info(t, node) for node in (0, 1)]

    def transfer() -> tuple[dict, dict]:
        tx, rx = ncqp(t, "offload", "-d hbm -v 251 -n 32M", HBM, family=family)
        t.check(rx["validated"], "the accelerator compared nothing")
        return tx, rx

    tx, rx = nothing_copied(t, transfer)
    t.check(rx["placed_bytes"] >= 32 << 20, f"placed {rx['placed_bytes']}")
    t.check(tx["tx_zerocopy_bytes"] >= 32 << 20, f"sent from where they lay: {tx['tx_zerocopy_bytes']}")
    for node in (0, 1):
        t.equal(_info(t, node)["cpu_mapped_bytes"], before[node]["cpu_mapped_bytes"], f"node{node}: bytes that a program could touch")


@regions
def test_hbm_to_hbm(t: Guests) -> None:
    """The figure: no byte of the payload is in a processor's hands, or in host RAM, at either end."""
    _moved(t)
    _all_back(t)


@regions
@pytest.mark.long
def test_hbm_to_hbm_ipv6(t: Guests) -> None:
    _moved(t, "-6")


@regions
@pytest.mark.long
def test_hbm_and_host_memory(t: Guests) -> None:
    for sender, receiver in (("-d hbm", "-d udmabuf"), ("-d udmabuf", "-d hbm"), ("", "-d hbm"), ("-d hbm", "")):
        _, rx = ncqp(t, "offload", f"{sender} -v 251 -n 3000001", f"{receiver} -v 251")
        t.check(rx["validated"] and rx["ok"], f"{sender} to {receiver}: {rx}")
    _all_back(t)


@regions
@pytest.mark.long
def test_wrong_bytes_are_found(t: Guests) -> None:
    """The accelerator's own comparison fails where it must: a pattern of another period."""
    port = free_port()
    server = t.start(0, f"{NCQP} -q --engine offload -l -p {port} -d hbm -v 250 >/dev/null")
    t.wait_listening(0, port)
    t.fails(1, f"head -c 1M /dev/zero | {NCQP} -q --engine offload -s $PEER -p {port} -n 1M -v 251")
    t.check(not server.wait().ok, "the receiver is content with the wrong pattern")
    _all_back(t)


@regions
@pytest.mark.long
def test_messages(t: Guests) -> None:
    """Both ways, all sizes, every byte of every buffer checked by the programs, with and without the switch's placement."""
    offload_pair(t, "--memory hbm --messages 200 --seed 71")
    exchange(t, "software", "software", "--memory hbm --messages 200 --seed 72")
    with fabric(t, **FAULTS):
        exchange(t, "offload", "offload", "--memory hbm --messages 200 --seed 73")
    _all_back(t)


@regions
def test_one_sided(t: Guests) -> None:
    """WRITE, READ and atomics against the model."""
    mostly_placed(t, model(t, ("offload", "offload"), "--seed 61", "--memory hbm"))
    _all_back(t)


@regions
@pytest.mark.long
def test_one_sided_under_faults(t: Guests) -> None:
    with fabric(t, **FAULTS):
        model(t, ("offload", "offload"), "--seed 62", "--memory hbm")
    _all_back(t)


@contextlib.contextmanager
def _under_way(t: Guests) -> Iterator[list]:
    """A long transfer from accelerator to accelerator that must fail at both ends, in bounded time."""
    port = free_port()
    jobs = [t.start(0, f"{NCQP} -q --engine offload -l -p {port} {HBM} >/dev/null", END_S)]
    t.wait_listening(0, port)
    jobs.append(t.start(1, f"{NCQP} -q --engine offload -s $PEER -p {port} {LONG} --timeout 20", END_S))
    wait_moving(t, 1, port)
    yield jobs
    for node, job in enumerate(jobs):
        result = job.wait()
        t.check(not result.ok, f"node{node}: the transfer is said to have succeeded")
        t.check(result.status != 124, f"node{node}: no end: {result.stderr}")


@regions
@pytest.mark.long
def test_killed_in_mid_transfer(t: Guests) -> None:
    for node in (0, 1):
        with _under_way(t):
            t.run(node, "pkill -9 -x ncqp")
        _all_back(t)


@regions
@pytest.mark.parametrize("node", (0, pytest.param(1, marks=pytest.mark.long)))
def test_unplugged_in_mid_transfer(t: Guests, node: int) -> None:
    """The PCI function goes, at the receiver and at the sender: regions are dead, its struct pages are gone, and it comes back."""
    with _under_way(t):
        t.run(node, f"{REMOVE}; [ ! -e /dev/nupa_accel0 ]", END_S)
    t.run(node, "echo 1 >/sys/bus/pci/rescan; until [ -e /dev/nupa_accel0 ] || [ -e /dev/nupa_accel1 ]; do sleep 0.1; done; ls -l /dev/nupa_accel*")
    _moved(t)
    _all_back(t)


@regions
@pytest.mark.long
@pytest.mark.parametrize("node", (0, 1))
def test_revoked_in_mid_transfer(t: Guests, node: int) -> None:
    """The exporter takes the memory back from under a transfer, at the receiver and at the sender: nothing of it is in flight when it returns."""
    with _under_way(t):
        t.run(node, f"{CHECK} revoke $(pgrep -x ncqp)", END_S)
    _all_back(t)
    _moved(t)


HELD_S, KILLED_S = 40, 12  # a packet in the queue discipline; for a process to be gone
ERRORS = "/sys/class/infiniband/tcpqp0/ports/1/hw_counters/qp_errors"


@regions
@pytest.mark.long
def test_killed_while_taken_back(t: Guests) -> None:
    """Who ends waits for no driver that holds a packet of memory that its exporter takes back."""
    with _under_way(t):
        errors = int(t.run(1, f"cat {ERRORS}"))
        t.run(1, f"modprobe sch_netem; tc qdisc replace dev nupa0 root netem delay {HELD_S}s limit 100000")
        try:
            t.run(1, "until tc -s qdisc show dev nupa0 | grep -Eq 'backlog [1-9]'; do sleep 0.05; done")
            taker = t.start(1, f"{CHECK} revoke $(pgrep -x ncqp)", END_S)
            t.run(1, f"until [ $(cat {ERRORS}) -gt {errors} ]; do sleep 0.05; done")
            began = time.monotonic()
            t.run(1, "pkill -9 -x ncqp; while pgrep -x ncqp >/dev/null; do sleep 0.1; done", END_S)
            took = time.monotonic() - began
        finally:
            t.run(1, "tc qdisc del dev nupa0 root")
        taker.wait()
        t.check(took < KILLED_S, f"a process that was killed is gone after {took:.0f} s")
    _all_back(t)


@regions
@pytest.mark.long
def test_module_is_held(t: Guests) -> None:
    """By memory in use, and by nothing after kill -9."""
    job = t.start(0, f"exec {CHECK} hold 8", END_S)
    t.run(0, f"until {CHECK} info | grep -q '\"buffers\":1'; do sleep 0.1; done")
    t.fails(0, "rmmod nupa_accel")
    job.kill()
    _all_back(t)
    t.run(0, "rmmod nupa_accel && insmod $KO/nupa_accel/nupa_accel.ko")
    _moved(t)


@regions
@pytest.mark.long
def test_port_without_its_driver(t: Guests) -> None:
    """The accelerator is there first, or the port is; without a window the region is refused."""
    t.run(0, "rdma link delete tcpqp0; rmmod nupa_dev; sh $REPO/tools/vm/guest/setup full")
    _moved(t)
    t.run(0, "rdma link add tcpqp1 type tcp_qp netdev lo && sh $REPO/tools/vm/guest/mkdev")
    t.run(0, f"{CHECK} refused lo; status=$?; rdma link delete tcpqp1; exit $status")
    _all_back(t)


HANGS_MIB = 8


@regions
@kills_the_switch
@pytest.mark.long
@pytest.mark.needs(replace(NEEDS, accelerator_mib=2 * MIB))  # guests of its own: what is given up stays so
@pytest.mark.parametrize("how", ("killed", "revoked"))
def test_region_of_a_switch_that_hangs(t: Guests, how: str) -> None:
    """It forgets nothing, and may go on: the accelerator's memory is nobody else's any more, whoever ended the region."""
    free, lost = _info(t, 0)["free_bytes"], int(t.run(0, LOST))
    job, switch = t.start(0, f"exec {CHECK} hold {HANGS_MIB}", END_S), t.cluster.switch.process.pid
    t.wait_output(job, "held")
    os.kill(switch, signal.SIGSTOP)
    try:
        if how == "revoked":
            t.run(0, f"{CHECK} revoke $(pgrep -x accel_check)", END_S)
        job.kill()
        t.run(0, f"until [ $({LOST}) -gt {lost} ]; do sleep 0.2; done", END_S)
        t.equal(free - _info(t, 0)["free_bytes"], HANGS_MIB << 20, "memory that the switch may still write")
    finally:
        os.kill(switch, signal.SIGCONT)
    t.switch("ports")
    give_up(t, 0, "nupa_accel")
    t.cluster.run_all("rmmod nupa_dev && sh $REPO/tools/vm/guest/setup full", END_S, check=True)
    _moved(t)


SIGNAL = "$BUILD/cmake/selftests/vm/programs/accel_signal"
RINGS = "/sys/class/infiniband/tcpqp0/ports/1/hw_counters/tx_bell_rings"
ROUNDS = 56


def _signal(t: Guests, options: str, told: str = "") -> list:
    """Two ends of a chain; @told: they wait to be started."""
    port = free_port()
    jobs = [t.start(0, f"exec {SIGNAL} --port {port} {options} {told}", END_S)]
    t.wait_listening(0, port)
    jobs.append(t.start(1, f"exec {SIGNAL} --connect $PEER --port {port} {options} {told}", END_S))
    return jobs


def _ready(t: Guests, node: int) -> tuple[str, str]:
    """(process, its starter), when all is posted and the process sleeps in its one system call."""
    pid, starter = t.run(node, "until [ -e /tmp/told ]; do sleep 0.05; done; cat /tmp/told; rm /tmp/told").split()
    return pid, starter


def _has_run(t: Guests, node: int, pid: str) -> str:
    """Nanoseconds on a processor, times that it was put on one, and switches of each kind."""
    return t.run(node, f"cut -d' ' -f1,3 /proc/{pid}/schedstat; grep ctxt_switches /proc/{pid}/status")


def _chain(t: Guests, payload: int) -> tuple[bool, str]:
    """One attempt.  Behind a segment that TCP repeated, as where the machine stands still, a WRITE waits for the host, and is copied."""
    rounds = ROUNDS if payload < 100000 else 8
    stats = [t.switch_stats(node) for node in (0, 1)]
    rings = [int(t.run(node, f"cat {RINGS}")) for node in (0, 1)]
    jobs = _signal(t, f"--rounds {rounds} --payload {payload}", "--told /tmp/told")
    ready = [_ready(t, node) for node in (0, 1)]
    for node, (pid, _) in enumerate(ready):
        t.run(node, f"kill -STOP {pid}")
        t.equal(int(t.run(node, f"cat {RINGS}")), rings[node], f"node{node}: rings before anything began")
    before = [_has_run(t, node, pid) for node, (pid, _) in enumerate(ready)]
    for node, (_, starter) in enumerate(ready):
        t.run(node, f"kill -USR1 {starter}")
    for node in (0, 1):
        t.run(node, f"until [ $(cat {RINGS}) = {rings[node] + rounds} ]; do sleep 0.05; done")
    for node, (pid, starter) in enumerate(ready):
        t.equal(_has_run(t, node, pid), before[node], f"node{node}: what the process did meanwhile")
        t.run(node, f"kill -USR2 {starter}; kill -CONT {pid}")
    results = [job.wait() for job in jobs]
    counted = [t.switch_counted(node, stats[node]) for node in (0, 1)]
    said = "; ".join(f"{result.stderr.strip()} {each}" for result, each in zip(results, counted))
    shows = all(result.ok for result in results)
    t.check(shows or ("copied" in said and any(each["deliver_duplicate"] for each in counted)), said)
    if shows:
        t.equal([json.loads(result.stdout)["rounds"] for result in results], [rounds, rounds], "rounds")
    _all_back(t)
    return shows, said


@regions
@pytest.mark.parametrize("payload", (16384, pytest.param(0, marks=pytest.mark.long), pytest.param(400000, marks=pytest.mark.long)))
def test_direct_signal(t: Guests, payload: int) -> None:
    """Accelerator to accelerator and back, 56 times, while the processes that posted it all are stopped and never run."""
    one_shows(t, functools.partial(_chain, t, payload), lambda saw: saw[0], "a chain without a processor")


@regions
@pytest.mark.long
def test_direct_signal_under_faults(t: Guests) -> None:
    """Loss and reorder: what is behind a hole is delivered, so some bytes are copied; the flag never comes before its payload."""
    with fabric(t, **FAULTS):
        for job in _signal(t, "--rounds 40 --copied"):
            result = job.wait()
            t.check(result.ok, result.stderr)
    _all_back(t)


@regions
@pytest.mark.long
@pytest.mark.parametrize("end", ("kill", "remove"))
def test_direct_signal_ends(t: Guests, end: str) -> None:
    """In the middle of a chain one process is killed, or its accelerator is unplugged."""
    jobs = _signal(t, "--rounds 56 --payload 16384", "--told /tmp/told")
    ready = [_ready(t, node) for node in (0, 1)]
    rings = int(t.run(0, f"cat {RINGS}"))
    for node, (_, starter) in enumerate(ready):
        t.run(node, f"kill -USR1 {starter}")
    t.run(0, f"until [ $(cat {RINGS}) != {rings} ]; do :; done")
    if end == "kill":
        t.run(0, f"kill -9 {ready[0][0]}")
    else:
        t.run(0, f"{REMOVE}; [ ! -e /dev/nupa_accel0 ]", END_S)
    t.run(1, f"kill -9 {ready[1][0]}")  # its accelerator would wait 2 s for each answer
    for job in jobs:
        t.check(job.wait().status != 124, "no end")
    t.run(0, "echo 1 >/sys/bus/pci/rescan; until [ -e /dev/nupa_accel0 ]; do sleep 0.1; done")
    _all_back(t)


QUEUE = 1


@pytest.mark.long
@pytest.mark.parametrize("family", (4, 6))
def test_devmem_tcp(t: Guests, family: int) -> None:
    """devmem TCP into the accelerator's memory, compared there: no byte in host memory, none in a processor's hands."""
    program, port = f"$BUILD/cmake/{DEVMEM}", free_port()
    t.run(0, f"ethtool -L nupa0 combined 2; ethtool -X nupa0 equal {QUEUE}; {program} split nupa0 on")
    mapped = _info(t, 0)["cpu_mapped_bytes"]
    for period, right in ((251, True), (250, False)):
        receiver = t.start(0, f"{program} receive nupa0 --memory hbm --validate {period} --queue {QUEUE} --port {port}", END_S)
        t.wait_listening(0, port)
        peer = t.nodes[0].ip4 if family == 4 else t.nodes[0].ip6
        ready = "until [ -e /tmp/go ]; do sleep 0.05; done; rm /tmp/go"
        pattern = "bytes(range(1, 251)) + bytes(1)"
        send = f"import sys; sys.stdout.buffer.write((({pattern}) * 33421)[:8 << 20])"
        sender = t.start(1, f"sh -c '{ready}; /usr/bin/python3 -c \"{send}\"' | {NCQP} -q --engine tcp -s {peer} -p {port}", END_S)
        t.run(0, "until ethtool -n nupa0 | grep -q 'Total 1 rules'; do sleep 0.05; done")
        t.run(1, "touch /tmp/go")
        result = receiver.wait()
        sender.wait()
        if not right:
            t.check(not result.ok and "validation failed" in result.stderr, f"the wrong pattern: {result.status} {result.stderr}")
            continue
        got = json.loads(result.stderr)
        t.equal((got["bytes"], got["host_bytes"], got["validated"]), (8 << 20, 0, 8 << 20), f"received, in host memory, validated: {got}")
    t.equal(_info(t, 0)["cpu_mapped_bytes"], mapped, "bytes that a program could touch")
    t.run(0, f"{program} split nupa0 off")
    _all_back(t)


def _devmem_pair(t: Guests, bytes_: str) -> tuple:
    """From node 1's accelerator to node 0's by devmem TCP; both jobs."""
    program, port = f"$BUILD/cmake/{DEVMEM}", free_port()
    t.run(0, f"ethtool -L nupa0 combined 2; ethtool -X nupa0 weight 0 1; {program} split nupa0 on")
    receiver = t.start(0, f"exec {program} receive nupa0 --memory hbm --validate 251 --queue {QUEUE} --no-steering --port {port}", END_S)
    t.wait_listening(0, port)
    return receiver, t.start(1, f"exec {program} send nupa0 --memory hbm --pattern 251 --bytes {bytes_} --to {t.nodes[0].ip4} --port {port}", END_S)


def _sends_from_memory(t: Guests) -> None:
    if t.run(0, "uname -r").startswith("6.12."):
        pytest.skip("Linux 6.12 does not send from device memory")


@pytest.mark.long
def test_devmem_tcp_both_ways(t: Guests) -> None:
    """devmem TCP at both ends: no byte in host memory or in a processor's hands, and none that the switch could not reach."""
    _sends_from_memory(t)
    mapped = [_info(t, node)["cpu_mapped_bytes"] for node in (0, 1)]
    dropped = t.stat(1, "tx_map_errors")
    receiver, sender = _devmem_pair(t, str(8 << 20))
    sender.wait(check=True)
    got = json.loads(receiver.wait(check=True).stderr)
    t.equal((got["bytes"], got["host_bytes"], got["validated"]), (8 << 20, 0, 8 << 20), f"received, in host memory, validated: {got}")
    t.equal([_info(t, node)["cpu_mapped_bytes"] for node in (0, 1)], mapped, "bytes that a program could touch")
    t.equal(t.stat(1, "tx_map_errors"), dropped, "packets that were dropped")
    _all_back(t)


@pytest.mark.long
def test_devmem_tcp_sender_unplugged(t: Guests) -> None:
    """Its accelerator goes in mid-transfer: what lies behind no window is not shown to the switch, which would stop the port."""
    _sends_from_memory(t)
    receiver, sender = _devmem_pair(t, str(4 << 30))
    at = t.stat(1, "tx_bytes")
    t.wait_until(lambda: t.stat(1, "tx_bytes") > at + 1_000_000, "payload leaves")
    t.run(1, f"{REMOVE}; [ ! -e /dev/nupa_accel0 ]", END_S)
    t.wait_until(lambda: t.stat(1, "tx_map_errors") > 0, "packets without memory are dropped")
    for job in (sender, receiver):
        job.kill()
        job.wait()
    t.equal(t.stat(1, "recoveries"), 0, "recoveries of the port")
    # TCP would try for minutes to send what the process left, and the memory keeps the accelerator's number until then.
    t.run(1, "ss -Kt dst $PEER")
    t.run(1, f"until [ -e /dev/nupa_accel0 ]; do {REMOVE}; sleep 0.2; echo 1 >/sys/bus/pci/rescan; done", END_S)
    t.run(0, f"ethtool -X nupa0 equal {QUEUE}")
    _all_back(t)
    _moved(t)


def _payload_for_the_queue(t: Guests) -> list:
    """A connection whose payload comes to node 0's bound queue, as all does; TCP sends it again and again."""
    port = free_port()
    reader = t.start(0, f"exec {NCQP} -q --engine tcp -l -p {port} >/dev/null", END_S)
    t.wait_listening(0, port)
    return [reader, t.start(1, f"head -c 1M /dev/zero | {NCQP} -q --engine tcp -s {t.nodes[0].ip4} -p {port}", END_S)]


DEVMEM_BYTES = 2 << 20  # few enough that the reader keeps up
RESETS_S = 12  # in which a port is reset twice: every 5 s at most
ASKS_PER_S = 20  # a timer that tries again would ask a hundred times


@pytest.mark.long
def test_devmem_tcp_receiver_unplugged(t: Guests) -> None:
    """The port is reset once, for what the switch had of its accelerator, and not again and again; nor does the queue look for buffers."""
    program, port = f"$BUILD/cmake/{DEVMEM}", free_port()
    t.run(0, f"ethtool -L nupa0 combined 2; ethtool -X nupa0 weight 0 1; {program} split nupa0 on")
    receiver = t.start(0, f"exec {program} receive nupa0 --memory hbm --queue {QUEUE} --no-steering --port {port} >/dev/null", END_S)
    t.wait_listening(0, port)
    sender = t.start(1, f"(head -c {DEVMEM_BYTES} /dev/zero; exec sleep {END_S}) | {NCQP} -q --engine tcp -s {t.nodes[0].ip4} -p {port}", END_S)
    at = t.stat(0, "rx_device_bytes")
    t.wait_until(lambda: t.stat(0, "rx_device_bytes") >= at + DEVMEM_BYTES, "payload comes")
    t.run(0, f"pkill -STOP devmem_tcp; {REMOVE}; [ ! -e /dev/nupa_accel0 ]", END_S)  # what it has bound stays bound
    jobs = [receiver, sender, *_payload_for_the_queue(t)]
    t.wait_until(lambda: t.stat(0, "recoveries") > 0, "the switch writes to a buffer that is gone", 20)
    failures = t.stat(0, "rx_alloc_failures")
    t.run(0, f"sleep {RESETS_S}", END_S)
    t.equal(t.stat(0, "recoveries"), 1, "recoveries of the port")
    asked = t.stat(0, "rx_alloc_failures") - failures
    t.check(asked < RESETS_S * ASKS_PER_S, f"looked for buffers {asked} times in {RESETS_S} s")
    t.run(0, "pkill -KILL devmem_tcp")
    for job in jobs:
        job.kill()
        job.wait()
    t.run(0, "ss -Kt dst $PEER")
    t.run(0, f"until [ -e /dev/nupa_accel0 ]; do {REMOVE}; sleep 0.2; echo 1 >/sys/bus/pci/rescan; done", END_S)
    t.run(0, f"{program} split nupa0 off; ethtool -X nupa0 equal {QUEUE}")
    t.run(0, "rdma link show tcpqp0/1 >/dev/null 2>&1 || rdma link add tcpqp0 type tcp_qp netdev nupa0; sh $REPO/tools/vm/guest/mkdev")
    _all_back(t)
    _moved(t)


def test_devmem_tcp_never_reaches_the_next_owner(t: Guests) -> None:
    """The accelerator goes under a bound queue and comes back where it lay: what the binding still has of it is given to nobody else."""
    program, port = f"$BUILD/cmake/{DEVMEM}", free_port()
    t.run(0, f"ethtool -L nupa0 combined 2; ethtool -X nupa0 weight 0 1; {program} split nupa0 on")
    receiver = t.start(0, f"exec {program} receive nupa0 --memory hbm --queue {QUEUE} --no-steering --port {port}", END_S)
    t.wait_listening(0, port)
    lies = f"head -n 3 {DRIVER}/0*/resource | tail -n 1"
    lay = t.run(0, f"pkill -STOP devmem_tcp; {lies}")
    t.run(0, f"{REMOVE}; echo 1 >/sys/bus/pci/rescan; until [ -e /dev/nupa_accel1 ]; do sleep 0.1; done", END_S)
    t.equal(t.run(0, lies), lay, "where its memory lies")
    owner = t.start(0, f"(until [ -e /tmp/look ]; do sleep 0.1; done; rm /tmp/look) | {CHECK} stay_zero", END_S)
    t.wait_output(owner, "held")
    at = t.stat(0, "rx_device_bytes")
    sender = t.start(1, f"head -c 1M /dev/zero | tr '\\000' '\\245' | {NCQP} -q --engine tcp --send -s {t.nodes[0].ip4} -p {port}", END_S)
    t.wait_until(lambda: t.stat(0, "rx_device_bytes") > at + 30_000, "payload comes to the binding")
    t.run(0, "touch /tmp/look")
    result = owner.wait()
    t.check(result.ok, f"the next owner of the memory: {result.stderr}")
    t.run(0, "pkill -KILL devmem_tcp")
    for job in (sender, receiver):
        job.kill()
        job.wait()
    t.run(0, "ss -Kt dst $PEER")
    t.run(0, f"until [ -e /dev/nupa_accel0 ]; do {REMOVE}; sleep 0.2; echo 1 >/sys/bus/pci/rescan; done", END_S)
    t.run(0, f"{program} split nupa0 off; ethtool -X nupa0 equal {QUEUE}")
    _all_back(t)
