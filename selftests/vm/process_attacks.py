# SPDX-License-Identifier: BSD-3-Clause
"""What a process without privilege (uid 65534) tries against the kernel, its neighbours and its own end."""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from harness.busy import one_shows
from harness.guests import Guests
from harness.needs import Needs
from harness.pairs import PROGRAMS, Pair, served
from harness.traffic import free_port

from nupavm import Job

NEEDS = Needs(
    modules=("tcp_qp", "nupa_dev"),
    programs=tuple(f"selftests/vm/programs/{name}" for name in ("process_attack", "kept_locks", "cm_exchange")),
    setup="full",
    cpus=2,
)
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]
BESIDE = replace(NEEDS, cpus=3)  # a processor each for a process and two that feed it: one of them runs, whatever the host does
OPEN = "chmod 666 /dev/infiniband/*; sysctl -qw kernel.unprivileged_userns_clone=1 2>/dev/null || true"
NOBODY = "setpriv --reuid 65534 --regid 65534 --clear-groups --"
PARKED_S = 200  # a qdisc holds what is sent for so long
ENDS_S = 8.0  # a process that exits is gone in this time, whatever it holds
SUM_S = 30  # TQP_DRIVER_MS
REMOVED_S = 6.0
STARVED = 300  # more than a work queue runs at a time
FEW = 20
ATTACHES = 2  # threads of a process whose attach waits, without those that accept
KILLED_S = 2.0  # a process whose system calls take no turn longer than that
TURN_MS = 200.0  # of a doorbell: its own turn, and one that it waits for
LOCKUP_S = 3  # "soft lockup" is said after twice as much
RINGS_TAKEN = 4 << 14  # work requests; a ring has 2^14
OVERFLOWN_MS = 1000.0  # a NIC that hangs is waited for five times as long
LATE_MS = 40.0  # another thread, while a queue of 64 MiB is resized


def attack(what: str, options: str = "") -> str:
    return f"exec {NOBODY} {PROGRAMS}/process_attack --what {what} --port {free_port()} {options}"


def seconds(t: Guests) -> float:
    return time.monotonic() / t.cluster.slowness


def dies(t: Guests, node: int, job: Job, what: str, limit_s: float = ENDS_S) -> None:
    """The job's process is killed, and is gone in time."""
    t.run(node, "pkill -9 -x -o process_attack || pkill -9 -o -f process_attack")
    began = seconds(t)
    job.wait()
    took = seconds(t) - began
    t.check(took < limit_s, f"{what}: {took:.1f} s to die")


# ---- network namespaces ----


def test_socket_of_another_namespace(t: Guests) -> None:
    t.run(0, OPEN)
    said = json.loads(t.run(0, attack("foreign-socket")))
    t.equal((said["error"], said["reason"]), (18, "NAMESPACE"), "attach, errno (EXDEV) and reason")


def test_listen_in_another_namespace(t: Guests) -> None:
    """A wildcard listens where its maker lives, not where the device is; and no less elsewhere for that."""
    t.run(0, OPEN)
    port = free_port()
    job = t.start(0, f"exec {NOBODY} unshare -Urn {PROGRAMS}/cm_exchange --listen {port} 2>&1")
    t.wait_output(job, "listening")
    listens = t.run(0, f"ss -Hltn 'sport = :{port}'")
    alive = t.run(0, "pgrep -x cm_exchange || true")
    t.run(0, "pkill -9 -x cm_exchange || true")
    result = job.wait()
    t.check(bool(alive.strip()), f"the listener failed: {result.stdout}")
    t.equal(listens.strip(), "", "sockets that listen in the device's namespace")


# ---- what others may know ----


def test_addresses_of_others_are_not_told(t: Guests) -> None:
    t.run(0, OPEN)
    job = t.start(0, f"{PROGRAMS}/process_attack --what regions --port 1 --count 2")
    t.wait_output(job, "waiting")
    shown = t.run(0, f"{NOBODY} rdma resource show mr -dd")
    t.run(0, "pkill -9 -x process_attack")
    job.wait()
    t.check("drv_access" in shown, f"no region was shown: {shown}")
    t.check("iova" not in shown, f"addresses are shown: {shown}")


# ---- budgets ----


def _others_exchange(t: Guests, when: str) -> None:
    began = seconds(t)
    Pair(t, "qp_end", "--how wait", "--how close --after 200", "--engine software").done()
    took = seconds(t) - began
    t.check(took < SUM_S - ENDS_S, f"another process took {took:.1f} s {when}")


def _others_connect(t: Guests) -> None:
    """By rdma_cm, each step of which is a work item's."""
    port = free_port()
    command = f"{PROGRAMS}/cm_exchange --timeout {round(SUM_S * t.cluster.slowness)}"
    served(t, f"{command} --listen {t.nodes[0].ip4}:{port}", f"{command} --connect {t.nodes[0].ip4}:{port}", port)


def _fed(t: Guests, job: Job) -> dict:
    """What the process says of its doorbells, once the kernel has taken much more than was there at first."""

    def fed() -> dict | None:
        said = [json.loads(line) for line in job.output().splitlines()[:-1] if line.startswith("{")]
        return said[-1] if said and said[-1]["taken"] > RINGS_TAKEN and said[-1]["rung"] > 1 else None

    return t.wait_until(fed, "no doorbell returns, or the ring is not fed")


@pytest.mark.needs(BESIDE)
@pytest.mark.long
def test_producer_index_kept_ahead(t: Guests) -> None:
    """However far others feed its send queue: its doorbells return, it dies, and its neighbours get on."""
    t.run(0, f"{OPEN}; cat /proc/sys/kernel/watchdog_thresh >/tmp/thresh; echo {round(LOCKUP_S * t.cluster.slowness)} >/proc/sys/kernel/watchdog_thresh")
    job = t.start(0, attack("ahead", "--count 2"), 120)
    try:
        t.wait_output(job, "feeding", 20)
        said = _fed(t, job)
        t.check(said["longest_ms"] < TURN_MS * t.cluster.slowness, f"a doorbell kept the kernel busy: {said}")
        _others_exchange(t, "while it rings")
        dies(t, 0, job, "with a ring that is always full", KILLED_S)
        t.check(t.run(0, "pgrep -x process_attack || true").strip() != "", "who feeds the ring has gone, too")
        _others_exchange(t, "while its heirs feed the ring")
    finally:
        t.run(0, "pkill -9 process_attack; cat /tmp/thresh >/proc/sys/kernel/watchdog_thresh")


@pytest.mark.long
def test_resize_of_a_full_queue(t: Guests) -> None:
    t.run(0, OPEN)

    def said() -> dict:
        return json.loads(t.run(0, "taskset 1 sh -c '" + attack("resize") + "'", 60))

    one_shows(t, said, lambda s: s["late_ms"] < LATE_MS * t.cluster.slowness, "a thread waited")


def overflown(t: Guests, what: str) -> dict:
    """What the attack says that needs a plain peer behind the switch."""
    t.run(0, OPEN)
    options = f"process_attack --what {what} --port {free_port()}"
    peer = t.start(1, f"{PROGRAMS}/{options}")
    said = json.loads(t.run(0, f"exec {NOBODY} {PROGRAMS}/{options} --connect {t.nodes[1].ip4}"))
    peer.wait()
    return said


def test_resize_of_an_overflown_queue(t: Guests) -> None:
    """The switch shares it, and is not waited for: nobody writes to it any more."""
    one_shows(t, lambda: overflown(t, "overflown"), lambda s: s["took_ms"] < OVERFLOWN_MS * t.cluster.slowness, "it waited with interrupts off")


def test_overflown_queue_is_drained(t: Guests) -> None:
    """The switch shares it, and a train had more than it had room for: its descriptor is readable no longer than there is something to take."""
    t.check(overflown(t, "drained")["taken"] > 0, "nothing came")


# ---- ends ----


@contextlib.contextmanager
def parked(t: Guests, options: str, last: str) -> Iterator[Job]:
    """A process whose sends wait in a qdisc that does not let go inside the block."""
    t.run(0, f"{OPEN}; modprobe sch_netem; rm -f /tmp/parked")
    job = t.start(0, attack("park", f"--until /tmp/parked {options}"), 290)
    t.wait_output(job, "ready", 60)
    t.run(0, f"tc qdisc add dev lo root netem delay {PARKED_S}s limit 100000")
    try:
        t.run(0, "touch /tmp/parked")
        t.wait_output(job, last, 60)
        yield job
    finally:
        t.run(0, "tc qdisc del dev lo root; pkill -9 process_attack || true")


@pytest.mark.long
def test_dies_with_parked_sends(t: Guests) -> None:
    with parked(t, "--count 4", "waiting") as job:
        dies(t, 0, job, "4 queue pairs and regions")


def test_dies_while_it_destroys(t: Guests) -> None:
    """An explicit call waits, and a kill ends that."""
    with parked(t, "--count 4 --then destroy", "parked") as job:
        t.run(0, "until grep -q ib_dereg_mr /proc/$(pgrep -o -x process_attack)/stack; do sleep 0.1; done")
        dies(t, 0, job, "in the middle of dereg_mr")


@pytest.mark.long
def test_waits_are_bounded_in_sum(t: Guests) -> None:
    with parked(t, "--count 4 --then destroy", "parked") as job:
        began = seconds(t)
        result = job.wait()
        took = seconds(t) - began
        t.check(result.ok, f"{result.stdout}{result.stderr}")
        t.check(took < SUM_S + ENDS_S, f"4 regions and queue pairs took {took:.1f} s to destroy")


@pytest.mark.long
def test_link_deleted_with_parked_sends(t: Guests) -> None:
    try:
        with parked(t, "--count 4", "waiting") as job:
            began = seconds(t)
            t.run(0, "rdma link delete tcpqp0", 200)
            took = seconds(t) - began
            t.check(took < REMOVED_S, f"rdma link delete took {took:.1f} s")
            dies(t, 0, job, "without a device")
    finally:
        t.run(0, "rdma link add tcpqp0 type tcp_qp netdev nupa0; sh $REPO/tools/vm/guest/mkdev")


@pytest.mark.long
def test_ends_of_one_delay_nobody_else(t: Guests) -> None:
    """The connections of one process are all about to end, and a driver keeps what they sent."""
    with parked(t, f"--count {STARVED} --then close", "waiting") as job:
        _others_exchange(t, "meanwhile")
        dies(t, 0, job, f"{STARVED} queue pairs and regions", ENDS_S + 10)


def _claims(t: Guests, count: int) -> Job:
    """A queue pair whose attach waits for a peer that never comes, and accepts that name it: each has failed, or sleeps."""
    t.run(0, f"{OPEN}; rm -f /tmp/claimed")
    job = t.start(0, attack("claims", f"--connect {t.nodes[0].ip4} --count {count} --until /tmp/claimed"), 200)
    t.wait_output(job, "ready", 60)
    tasks = "/proc/$(pgrep -o -x process_attack)/task"
    asleep = f"$(cat {tasks}/*/stack | grep -c tqp_ep_claim)"
    t.run(0, f"until [ $(ls {tasks} | wc -l) -eq $(({ATTACHES} + {asleep})) ]; do sleep 0.1; done", 20)
    return job


def test_claims_of_a_busy_queue_pair_delay_nobody_else(t: Guests) -> None:
    """Then each of their peers says something."""
    job = _claims(t, STARVED)
    t.run(0, "touch /tmp/claimed")
    t.wait_output(job, "waiting")
    _others_connect(t)
    dies(t, 0, job, f"{STARVED} accepts that name a busy queue pair")


def test_link_deleted_with_a_claim(t: Guests) -> None:
    """By rdma_cm that was loaded after tcp_qp: it hears of the device's end first, and waits for who is in a call of it."""
    t.run(0, "modprobe -r rdma_ucm; [ ! -d /sys/module/rdma_cm ]; modprobe rdma_ucm; sh $REPO/tools/vm/guest/mkdev")
    try:
        job = _claims(t, 1)
        began = seconds(t)
        t.run(0, "rdma link delete tcpqp0", 40)
        took = seconds(t) - began
        t.check(took < REMOVED_S, f"rdma link delete took {took:.1f} s")
        dies(t, 0, job, "without a device")
    finally:
        t.run(0, "rdma link add tcpqp0 type tcp_qp netdev nupa0; sh $REPO/tools/vm/guest/mkdev")


def kept(t: Guests, count: int, limit_s: float) -> Job:
    """A process that has the locks of so many sockets whose queue pairs have something due, until it is killed or /tmp/let-go is there."""
    t.run(0, f"{OPEN}; sysctl -qw vm.unprivileged_userfaultfd=1; rm -f /tmp/let-go")
    job = t.start(0, f"exec {NOBODY} {PROGRAMS}/kept_locks --port {free_port()} --count {count} --until /tmp/let-go", limit_s)
    t.wait_output(job, "kept", limit_s)
    return job


def test_locks_that_are_kept_delay_nobody_else(t: Guests) -> None:
    """By page faults that a process answers when it likes; then all that was due is done."""
    job = kept(t, STARVED, 120)
    _others_connect(t)
    t.run(0, "touch /tmp/let-go")
    result = job.wait()
    t.check(result.ok, f"{STARVED} sockets whose locks were kept: {result.stdout}{result.stderr}")


def test_dies_with_locks_that_it_keeps(t: Guests) -> None:
    job = kept(t, FEW, 60)
    t.run(0, "pkill -9 -x kept_locks")
    began = seconds(t)
    job.wait()
    took = seconds(t) - began
    t.check(took < ENDS_S, f"{FEW} sockets whose locks were kept: {took:.1f} s to die")


def test_dies_with_many_regions(t: Guests) -> None:
    t.run(0, OPEN)
    job = t.start(0, attack("regions", "--count 1500"), 120)
    t.wait_output(job, "waiting", 60)
    dies(t, 0, job, "1500 regions and windows")
