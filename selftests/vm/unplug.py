# SPDX-License-Identifier: BSD-3-Clause
"""The device goes away under load: driver, port, PCI function or the whole switch; and works again when it is back.

QEMU 7.2 leaves the handlers of an ivshmem device's closed eventfds behind when it is unplugged (tools/vm/nupavm/monitor.py keeps them quiet),
and crashes if its server still lives then.  So the slot is emptied only after the switch is dead.
"""

import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.guests import Failed, Guests
from harness.needs import Needs, on_debug_kernel
from harness.pairs import Pair
from harness.traffic import ncqp

from vm import shared

from nupavm import Job

# A boot of its own: these guests end up with other devices than they began with.
PROGRAMS = ("selftests/vm/programs/qp_end", "selftests/vm/programs/qp_shared", "tools/ncqp/ncqp")
NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=PROGRAMS, setup="full", topology="slot")
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]
SETUP = "sh $REPO/tools/vm/guest/setup full"
GONE = "[ ! -e /sys/class/net/nupa0 ]"
NUPA = "for d in /sys/bus/pci/drivers/nupa_dev/0*; do echo 1 >$d/remove; done"
STATUS_AT, STATUS_FAILED, MAC_AT, TXQ_AT, RING_CTL_BYTES, QUEUES = 12, 4, 16, 0x1000, 128, 16  # include/tcp_qp/nupa_hw.h
CONTROL_GEN_AT, ADMIN_PROD_AT, ADMIN_CONS_AT = 132, 0x400, 0x440
WILD, FAIL_S = b"\xff\xff\xff\x7f", 20
RESET = "port was reset and works again"
# Memory is given up to a switch that may only hang: DMA debugging takes it for a leak.
kills_the_switch = pytest.mark.skipif(on_debug_kernel(), reason="memory given up to a switch is a leak to DMA debugging")
USER_TIMEOUT = "--user-timeout-ms 4000"


def _busy(t: Guests) -> Pair:
    pair = Pair(t, "qp_end", common=f"--engine offload {USER_TIMEOUT}", limit_s=90)
    pair.wait_moving()
    return pair


def _all_end(t: Guests, pair: Pair, what: str, gone: tuple[int, ...] = (0,)) -> None:
    """Both programs were told: by errors for all they had posted or, on these nodes, that the device is gone (EIO)."""
    for node, report in enumerate(pair.done()):
        if report["device_gone"]:
            t.check(node in gone, f"{what}: the device of node{node} is gone")
            continue
        t.equal(report["unfinished"], 0, f"{what}, node{node}: work requests without completion")
        t.check(sum(report["errors"].values()) > 0, f"{what}, node{node}: no error: {report}")


def _registers(t: Guests, node: int) -> int:
    """A descriptor of the port's shared registers, taken from the switch; found by its MAC address."""
    mac = bytes.fromhex(t.run(node, "cat /sys/class/net/nupa0/address").strip().replace(":", ""))
    for fd in Path(f"/proc/{t.cluster.switch.process.pid}/fd").iterdir():
        if "nupa-bar2" in os.readlink(fd):
            opened = os.open(fd, os.O_RDWR)
            if os.pread(opened, len(mac), MAC_AT) == mac:
                return opened
            os.close(opened)
    raise Failed(f"node{node}: no registers with MAC {mac.hex()}")


def wait_recovered(t: Guests, node: int, more_than: int = 0, then: str = "") -> None:
    """Until the driver has reset its port more often than that, and not failed since."""
    recovered = f"dmesg | awk '/port failed:/ {{ ok = 0 }} /{RESET}/ {{ ok = 1; n++ }} END {{ exit !(ok && n > {more_than}) }}'"
    t.run(node, f"until {recovered}; do sleep 0.2; done; {then}", 30)


def resets(t: Guests, node: int) -> int:
    return int(t.run(node, f"dmesg | grep -c '{RESET}' || true"))


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.001)
    return True


STOPS = 500


def stop_at_work(pid: int) -> None:
    """Stops a child while one of its threads is in no system call; after so many stops wherever it is."""
    for _ in range(STOPS):
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED)
        if any(thread.read_text().startswith("-1") for thread in Path(f"/proc/{pid}/task").glob("*/syscall")):
            return
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.001)  # it works meanwhile
    os.kill(pid, signal.SIGSTOP)


HELD_MIB = 64  # as much as a reader's memory many times over
HELD = "head -c {0}M /dev/zero | tr '\\000' '\\245' >/dev/shm/held"
HELD_IS_RIGHT = "[ $(tr -d '\\245' </dev/shm/held | wc -c) = 0 ] && [ $(stat -c %s /dev/shm/held) = $(({0} << 20)) ] && rm /dev/shm/held"
QPS_HELD_MIB = 8  # the same of queue pairs that have little


def fail_port(t: Guests, node: int) -> None:
    """Wild producer indices in all transmit queues, until the switch refuses the port; then until the driver has reset it.

    Both sides stand still meanwhile: the driver would write over them just before each doorbell."""
    registers, until = _registers(t, node), time.monotonic() + FAIL_S
    guest, switch = t.nodes[node].process.pid, t.cluster.switch.process.pid

    def failed() -> bool:
        return bool(os.pread(registers, 1, STATUS_AT)[0] & STATUS_FAILED)

    try:
        for turn in itertools.count(1):
            if failed():
                break
            if time.monotonic() > until:
                raise Failed("the switch did not mind wild indices")
            for pid in (guest, switch):
                os.kill(pid, signal.SIGSTOP)
            for at in range(TXQ_AT, TXQ_AT + QUEUES * RING_CTL_BYTES, RING_CTL_BYTES):
                os.pwrite(registers, WILD, at)
            os.kill(switch, signal.SIGCONT)
            _until(failed, min(0.002 * turn, 0.1))  # on a busy machine it is some time until its turn
            os.kill(guest, signal.SIGCONT)
            _until(failed, 0.01)
        # a failure before this one may have come and gone unseen: so its line in the log says nothing yet
        if not _until(lambda: not failed(), FAIL_S):
            raise Failed("the driver did not reset its port")
    finally:
        for pid in (switch, guest):
            os.kill(pid, signal.SIGCONT)
        os.close(registers)
    wait_recovered(t, node)


def _works(t: Guests) -> None:
    t.run(1, "ping -q -c 3 -i 0.1 $PEER")
    _, rx = ncqp(t, "offload", "-v 251 -n 4M", "-v 251 -n 4M")
    t.check(rx["placed_bytes"] > 3 << 20, f"placed {rx['placed_bytes']}")


def test_module_removed(t: Guests) -> None:
    pair = _busy(t)
    t.run(0, "rmmod nupa_dev")
    _all_end(t, pair, "rmmod nupa_dev")
    t.run(0, SETUP)
    _works(t)


def test_tcp_qp_is_held_by_its_sockets(t: Guests) -> None:
    pair = _busy(t)
    t.fails(0, "rmmod tcp_qp")
    t.run(0, "rdma link delete tcpqp0")
    _all_end(t, pair, "rdma link delete")
    t.run(0, "until rmmod tcp_qp 2>/dev/null; do sleep 0.2; done; rmmod nupa_dev")
    t.run(0, SETUP)
    _works(t)


def test_port_refuses_its_driver(t: Guests) -> None:
    """What a driver writes wrong fails the port; it is reset, and the QPs on it end."""
    pair = _busy(t)
    fail_port(t, 0)
    _all_end(t, pair, "port failure")
    t.run(0, "until rdma link add tcpqp0 type tcp_qp netdev nupa0 2>/dev/null; do sleep 0.2; done; sh $REPO/tools/vm/guest/mkdev")
    _works(t)


def test_removed_by_sysfs(t: Guests) -> None:
    pair = _busy(t)
    t.run(0, NUPA)
    _all_end(t, pair, "sysfs remove")
    t.run(0, f"{GONE} && echo 1 >/sys/bus/pci/rescan; {SETUP}")
    _works(t)


def _unplug(t: Guests, node: int) -> None:
    with t.monitor(node) as monitor:
        found = [d["qdev_id"] for bus in monitor.command("query-pci") for d in _devices(bus)]
        monitor.unplug(next(device for device in found if device.startswith("nupa")))


def _plug(t: Guests, node: int) -> None:
    with t.monitor(node) as monitor:
        monitor.plug_port(t.cluster.run_dir / f"port{node}")
    t.run(node, f"until [ -e /sys/bus/pci/drivers/nupa_dev/0* ]; do sleep 0.2; done; {SETUP}", 40)


def new_switch(t: Guests) -> None:
    """For guests whose slots are empty."""
    t.cluster.start_switch()
    for node in (0, 1):
        _plug(t, node)


@pytest.mark.emulator_may_crash
@kills_the_switch
def test_switch_dies(t: Guests) -> None:
    """The fabric falls silent: errors on both sides in bounded time, no splat; new devices on a new switch work."""
    pair, sharers = _busy(t), shared.endless(t)
    t.cluster.stop_switch()
    _all_end(t, pair, "switch killed", gone=(0, 1))
    shared.both_end(t, sharers, "switch killed")
    for node in (0, 1):
        _unplug(t, node)
    new_switch(t)
    _works(t)


@kills_the_switch
@pytest.mark.long
def test_switch_hangs(t: Guests) -> None:
    """For good, so to the driver, whatever it was doing: the programs end, and what it does later is done to nobody's memory."""
    pair, sharers = _busy(t), shared.endless(t)
    switch = t.cluster.switch.process.pid
    stop_at_work(switch)
    try:
        for node in (0, 1):
            t.run(node, "until dmesg | grep -q 'port is dead'; do sleep 0.2; done", 60)
        _all_end(t, pair, "switch hangs", gone=(0, 1))
        shared.both_end(t, sharers, "switch hangs")
        for node in (0, 1):
            t.run(node, "dmesg | grep -q 'memory is lost: the NIC may still write it'")
            t.run(node, HELD.format(QPS_HELD_MIB))  # what the programs let go is others' now
    finally:
        os.kill(switch, signal.SIGCONT)
    t.switch("ports")  # it goes on
    for node in (0, 1):
        t.run(node, HELD_IS_RIGHT.format(QPS_HELD_MIB))
        t.run(node, f"rmmod nupa_dev && {SETUP}", 60)
    _works(t)


LOST = "dmesg | grep -c 'memory is lost: the NIC may still write it' || true"
GO = "/tmp/late-region"


def _late_region(t: Guests) -> Job:
    """A program that registers a region once GO is there."""
    t.run(0, f"rm -f {GO}")
    job = t.start(0, f"exec /usr/bin/python3 $REPO/selftests/vm/programs/late_region.py {GO}", 90)
    t.wait_output(job, "ready")
    return job


@kills_the_switch
@pytest.mark.long
def test_region_told_to_a_switch_that_hangs(t: Guests) -> None:
    """It gave no answer, and may register the region when it comes to life: the region's memory is given up, and not others'."""
    job, lost, dead = _late_region(t), int(t.run(0, LOST)), "dmesg | grep -c 'port is dead' || true"
    deaths, switch = int(t.run(0, dead)), t.cluster.switch.process.pid
    os.kill(switch, signal.SIGSTOP)
    try:
        t.run(0, f"touch {GO}")
        t.run(0, f"until [ $({dead}) -gt {deaths} ]; do sleep 0.2; done", 60)
        result = job.wait()
        t.check(result.ok, f"{result.status}\n{result.stdout}{result.stderr}")
        t.check(int(t.run(0, LOST)) > lost, f"the memory of a region that the switch may know went back: {result.stdout}")
    finally:
        os.kill(switch, signal.SIGCONT)
    t.switch("ports")
    t.cluster.run_all(f"rmmod nupa_dev && {SETUP}", 60, check=True)
    _works(t)


TRIES = 8  # on a busy machine most come too late
SOON_S = 1.0


def _word(registers: int, at: int) -> int:
    return int.from_bytes(os.pread(registers, 4, at), "little")


def _say_failed(registers: int) -> None:
    os.pwrite(registers, bytes([_word(registers, STATUS_AT) & 0xFF | STATUS_FAILED]), STATUS_AT)


def _regions(t: Guests) -> int:
    return next(port["mrs"] for port in t.switch("ports")["ports"] if port["name"] == "n0")


def _region_in_a_port_that_fails(t: Guests) -> bool:
    """The port fails a second time, and its reset waits for its turn; false: it came too soon to see anything."""
    job, recovered = _late_region(t), resets(t, 0)
    registers, switch = _registers(t, 0), t.cluster.switch.process.pid
    generation = _word(registers, CONTROL_GEN_AT)

    def is_reset() -> bool:
        if _word(registers, CONTROL_GEN_AT) != generation:
            return True
        _say_failed(registers)
        return False

    t.check(_until(is_reset, FAIL_S), "the driver did not reset its port")
    wait_recovered(t, 0, recovered, "until rdma link add tcpqp0 type tcp_qp netdev nupa0 2>/dev/null; do sleep 0.1; done; sh $REPO/tools/vm/guest/mkdev")
    generation = _word(registers, CONTROL_GEN_AT)
    os.kill(switch, signal.SIGSTOP)
    try:
        t.run(0, f"touch {GO}")
        t.wait_until(lambda: _word(registers, ADMIN_PROD_AT) != _word(registers, ADMIN_CONS_AT), "no command came")
        _say_failed(registers)
        t.run(0, "until dmesg | awk '/port failed:/ { ok = 1 } /port was reset/ { ok = 0 } END { exit !ok }'; do sleep 0.1; done", 20)
        ended = _until(lambda: job.done or _word(registers, CONTROL_GEN_AT) != generation, SOON_S) and job.done
        early = _word(registers, CONTROL_GEN_AT) == generation
    finally:
        os.kill(switch, signal.SIGCONT)
        _until(lambda: _regions(t) > 0 or _word(registers, CONTROL_GEN_AT) != generation, SOON_S)
        regions = _regions(t)
        early = early and _word(registers, CONTROL_GEN_AT) == generation
        os.close(registers)
    print(f"reset {'not ' if early else ''}asked for, program {'' if ended else 'not '}ended, {regions} regions", flush=True)
    t.check(not (early and ended and regions), "the switch knows a region whose memory went back")
    job.wait()
    wait_recovered(t, 0)
    t.run(0, "until rdma link add tcpqp0 type tcp_qp netdev nupa0 2>/dev/null; do sleep 0.2; done; sh $REPO/tools/vm/guest/mkdev")
    return early


@pytest.mark.long
def test_region_in_a_port_that_fails(t: Guests) -> None:
    """What the switch was told, and did not answer, it may still do until the port is reset: who told it waits for that."""
    lost = int(t.run(0, LOST))
    t.check(any(_region_in_a_port_that_fails(t) for _ in range(TRIES)), "the port was always reset at once")
    t.equal(int(t.run(0, LOST)), lost, "regions whose memory was given up")
    _works(t)


def _devices(bus: dict) -> list[dict]:
    """All PCI devices below a bus of query-pci."""
    below = [d for device in bus["devices"] for d in _devices(device.get("pci_bridge", {"devices": []}))]
    return [*bus["devices"], *below]
