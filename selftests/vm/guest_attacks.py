# SPDX-License-Identifier: BSD-3-Clause
"""What a guest can do to its own port, and what the end of the switch does to guests: noticed soon, and nothing stays broken or held."""

import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.guests import Guests
from harness.pairs import Pair
from harness.traffic import ncqp
from vm import unplug

from nupavm.paths import slowness

pytestmark = [pytest.mark.needs(unplug.NEEDS), pytest.mark.beside]
SETUP = unplug.SETUP
COUNTED_MAX = 4096  # counted from one, with eight random bits: the first keys; of 24 random bits one in 4,000 is below
NOTICED_S = 15  # heartbeats missed, the reset given up, and the queue pairs ended
UNLOADED_S = 25
IDLE_S = 100  # how long the test looks for what it then finds too late
REGISTERS_BYTES = 256  # struct nupa_regs
# Linux lets root map a device's memory only if no driver has it.
SCRIBBLE = """device=$(cd /sys/bus/pci/drivers/nupa_dev && echo 0*); rmmod nupa_dev; DEVICE=$device python3 - <<'END'
import mmap, os
fd = os.open(f"/sys/bus/pci/devices/{os.environ['DEVICE']}/resource2", os.O_RDWR)
with mmap.mmap(fd, 1 << 16) as bar2:
    bar2[:] = os.urandom(1 << 16)
END"""
CARRIER_LOST = '[ "$(cat /sys/class/net/nupa0/carrier)" = 0 ]'


def _works(t: Guests) -> None:
    t.run(0, "ping -q -c 3 -i 0.1 $PEER")
    _, rx = ncqp(t, "offload", "-v 251 -n 4M", "-v 251 -n 4M")
    t.check(rx["placed_bytes"] > 3 << 20, f"placed {rx['placed_bytes']}")


def test_scribbled_registers_and_a_new_driver(t: Guests) -> None:
    """Its own BAR2 overwritten, by root: the driver loaded again has its port back."""
    t.run(0, SCRIBBLE)
    t.run(0, SETUP, 40)
    _works(t)


def test_scribbled_registers_and_a_rescan(t: Guests) -> None:
    t.run(0, f"path=$(readlink -f /sys/bus/pci/drivers/nupa_dev/0*); {SCRIBBLE}\necho 1 >$path/remove && echo 1 >/sys/bus/pci/rescan && {SETUP}", 40)
    _works(t)


def test_scribbled_registers_are_noticed(t: Guests) -> None:
    """Under its driver, the port fails and works again by itself; nobody sends meanwhile."""
    before, registers = unplug.resets(t, 0), unplug._registers(t, 0)
    try:
        os.pwrite(registers, b"\x5a" * REGISTERS_BYTES, 0)
    finally:
        os.close(registers)
    unplug.wait_recovered(t, 0, before)
    t.run(0, "until ping -q -c 1 -W 1 $PEER; do sleep 0.2; done", 30)
    t.run(0, "rdma link show tcpqp0/1 >/dev/null 2>&1 || rdma link add tcpqp0 type tcp_qp netdev nupa0; sh $REPO/tools/vm/guest/mkdev")
    _works(t)


def test_keys_are_no_sequence(t: Guests) -> None:
    """Keys and queue pair numbers of one process say nothing of another's."""
    pair = Pair(t, "qp_end", common="--engine offload", limit_s=60)
    pair.wait_moving()
    shown = t.run(0, "rdma -dd resource show mr; rdma -dd resource show qp type RC")
    numbers = [int(number, 0) for number in re.findall(r"(?:[lr]key|lqpn) (\w+)", shown)]
    for job in pair.jobs:
        job.kill()
        job.wait()
    t.check(len(numbers) > 2, f"keys and numbers in {shown}")
    t.check(all(number > COUNTED_MAX for number in numbers), f"keys or numbers look counted: {numbers}")


def _kill_switch(t: Guests) -> float:
    """Before it can say a word; returns when, by the monotonic clock."""
    began = time.monotonic()
    os.kill(t.cluster.switch.process.pid, signal.SIGKILL)
    t.cluster.stop_switch()
    return began


def _unload(t: Guests, node: int) -> None:
    unplug._unplug(t, node)
    t.run(node, "modprobe -qr rdma_ucm; until rmmod tcp_qp; do sleep 0.2; done", 150)


def _carrier_lost_s(t: Guests, began: float, limit_s: int) -> float:
    for node in (0, 1):
        t.run(node, f"until {CARRIER_LOST}; do sleep 0.1; done", limit_s)
    return time.monotonic() - began


@unplug.kills_the_switch
@pytest.mark.long
def test_killed_switch_is_noticed(t: Guests) -> None:
    """No word from the switch, and nothing to send: the heartbeat tells.  Nothing is held afterwards."""
    pair = Pair(t, "qp_end", common=f"--engine offload {unplug.USER_TIMEOUT}", limit_s=90)
    pair.wait_moving()
    began = _kill_switch(t)
    carrier_s = _carrier_lost_s(t, began, 30)
    unplug._all_end(t, pair, "switch killed", gone=(0, 1))
    ended_s = time.monotonic() - began
    with ThreadPoolExecutor() as both:  # a hotplug's slot alone waits for 5 s
        list(both.map(lambda node: _unload(t, node), (0, 1)))
    unloaded_s = time.monotonic() - began
    print(f"carrier lost after {carrier_s:.1f} s, queue pairs ended after {ended_s:.1f} s, tcp_qp unloaded after {unloaded_s:.1f} s", flush=True)
    unplug.new_switch(t)
    _works(t)
    slow = slowness()
    t.check(carrier_s < NOTICED_S * slow, f"carrier lost after {carrier_s:.1f} s")
    t.check(ended_s < NOTICED_S * slow, f"queue pairs ended after {ended_s:.1f} s")
    t.check(unloaded_s < UNLOADED_S * slow, f"tcp_qp unloaded after {unloaded_s:.1f} s")


@pytest.mark.long
@unplug.kills_the_switch
def test_killed_switch_is_noticed_by_idle_hosts(t: Guests) -> None:
    """Hosts that never send lose their carrier as soon: no transmit watchdog runs for them."""
    t.cluster.run_all("ip -6 addr flush dev nupa0; ip neigh flush dev nupa0; sleep 2")
    carrier_s = _carrier_lost_s(t, _kill_switch(t), IDLE_S)
    print(f"carrier lost after {carrier_s:.1f} s", flush=True)
    for node in (0, 1):
        unplug._unplug(t, node)
    unplug.new_switch(t)
    _works(t)
    t.check(carrier_s < NOTICED_S * slowness(), f"carrier lost after {carrier_s:.1f} s")
