# SPDX-License-Identifier: BSD-3-Clause
"""Connections by number: {QPN, GID, PSN} told out of band, then RTR and RTS, and no rdma_cm."""

import functools
import ipaddress
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from harness.busy import one_shows, shown
from harness.guests import Failed, Guests
from harness.needs import Needs
from harness.pairs import Job, served
from harness.traffic import done_and_undone, free_port, parameter, sysctl

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/programs/qp_rdma",), setup="full")
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]

LIMIT_S = 60
BULK_MESSAGES, BULK_SLOW_US = 2000, 2000
ADDRESSES = ("10.77.0.1", "10.77.0.2")  # what programs talk by before they know each other's numbers
ADDRESS = ADDRESSES[0]
PORTS = ("n0", "n1")  # of the switch
PORT = 791  # TCP_QP_NUMBER_PORT
GIDS = "/sys/class/infiniband/tcpqp0/ports/1/gids"


def gids(t: Guests, node: int) -> list[str]:
    """The device's GIDs, as addresses, but for the empty ones at the end."""
    words = t.run(node, f"cd {GIDS} && for i in $(ls | sort -n); do cat $i; done").split()
    found = [ipaddress.IPv6Address(word) for word in words]
    while found and not int(found[-1]):
        found.pop()
    return [str(gid.ipv4_mapped or gid) for gid in found]


def wait_gids(t: Guests, node: int, expected: list[str]) -> None:
    """The table is read again some time after an address has come or gone."""
    t.wait_until(lambda: gids(t, node) == expected, f"GIDs are {expected}, were {gids(t, node)}")


@pytest.mark.long
def test_gids_are_the_addresses(t: Guests) -> None:
    (local,) = [gid for gid in gids(t, 0) if gid.startswith("fe80:")]
    wait_gids(t, 0, ["10.77.0.1", "fd77::1", local])
    t.run(0, "ip address add 10.77.9.1/24 dev nupa0; ip address add fd77:9::1/64 dev nupa0")
    t.wait_until(lambda: len(gids(t, 0)) == 5, "the table has both new addresses")
    t.equal(gids(t, 0)[:2], ["10.77.0.1", "10.77.9.1"], "IPv4 first")
    t.equal(set(gids(t, 0)[2:]), {"fd77::1", "fd77:9::1", local}, "then IPv6")
    t.run(0, "ip address del 10.77.9.1/24 dev nupa0; ip address del fd77:9::1/64 dev nupa0")
    wait_gids(t, 0, ["10.77.0.1", "fd77::1", local])


@pytest.mark.long
def test_more_addresses_than_gids(t: Guests) -> None:
    before = gids(t, 0)
    each = "for i in $(seq 2 30); do ip address {} 10.77.8.$i/32 dev nupa0; done"
    t.run(0, each.format("add"))
    t.wait_until(lambda: len(gids(t, 0)) == 16, "the table is full")
    t.equal(gids(t, 0)[0], "10.77.0.1", "index 0")
    t.run(0, each.format("del"))
    wait_gids(t, 0, before)


APPEARS_S = 1.0
REGISTRATIONS = 5


@pytest.mark.long
@pytest.mark.needs(replace(NEEDS, cpus=2))
def test_address_that_comes_with_the_link(t: Guests) -> None:
    """In the middle of the registration; its GID is there soon."""
    before, address = gids(t, 0), "10.77.9.1"
    for _ in range(REGISTRATIONS):
        t.run(0, "rdma link delete tcpqp0")
        job = t.start(0, f"exec $REPO/selftests/vm/programs/early_address.py nupa0 {address} tcpqp0")
        t.wait_output(job, "ready")
        t.run(0, "rdma link add tcpqp0 type tcp_qp netdev nupa0")
        t.check(job.wait().ok, "no address")
        t.wait_until(lambda: address in gids(t, 0), "no GID of the address", APPEARS_S)
        t.run(0, f"ip address del {address}/8 dev nupa0")
    t.run(0, "sh $REPO/tools/vm/guest/mkdev")
    wait_gids(t, 0, before)


TRACING = "/sys/kernel/tracing"
GID_CHANGE = 18  # IB_EVENT_GID_CHANGE


def test_link_comes_without_an_address(t: Guests) -> None:
    """Then no GID of it is taken away and made anew, by which a connect in between would fail."""
    events = f"{TRACING}/events/kprobes/gids"
    t.run(0, f"echo 'p:gids tcp_qp:tqp_device_event type=%si:u32' >{TRACING}/kprobe_events; echo type=={GID_CHANGE} >{events}/filter; echo 1 >{events}/enable")
    try:
        t.run(0, "rdma link delete tcpqp0; rdma link add tcpqp0 type tcp_qp netdev nupa0; sh $REPO/tools/vm/guest/mkdev")
        t.equal(t.run(0, f"grep -c gids: {TRACING}/trace || true").strip(), "0", "events that make the core read all GIDs again")
        t.run(0, "ip address add 10.77.9.1/24 dev nupa0; ip address del 10.77.9.1/24 dev nupa0")
        t.check(int(t.run(0, f"grep -c gids: {TRACING}/trace || true")) > 0, "no address is told of")
    finally:
        t.run(0, f"echo 0 >{events}/enable; echo >{TRACING}/kprobe_events; echo >{TRACING}/trace")


def by_number(t: Guests, command: str, client_node: int = 1) -> str:
    """What the server says of a program that takes its peer's name, and whose ends exchange numbers over a socket."""
    port = free_port()
    full = f"{command} -d tcpqp0 -p {port}"
    return served(t, full, f"{full} {ADDRESS}", port, client_node=client_node)[0]


def pingpong(t: Guests, options: str, client_node: int = 1, program: str = "ibv_rc_pingpong") -> None:
    out = by_number(t, f"{program} -n 200 {options}", client_node)
    t.check("200 iters in" in out, out)


def test_pingpong(t: Guests) -> None:
    for options in ("-g 0 -c", "-g 0 -e -c", "-g 1 -c", "-g 2"):
        pingpong(t, options)


def test_pingpong_on_one_device(t: Guests) -> None:
    for options in ("-g 0 -c", "-g 1 -c"):
        pingpong(t, options, client_node=0)


ENDS = "$REPO/selftests/vm/programs/number_ends.py"
ABSENT_LIMIT_S = 0.01  # RTR and RTS of one queue pair, nobody being there;
MODIFY_LIMIT_S = 0.1  # or while the peer connects: what that does is done under the same lock
GIDS_BY_FAMILY = (0, 1)  # indices of the IPv4 and the global IPv6 address


def ends(t: Guests, scenario: str, options: str = "", nodes: tuple[int, int] = (0, 1), limit_s: float = LIMIT_S) -> list[dict]:
    """What both ends of a scenario say, which must succeed; side 0 is on the first of the nodes."""
    port = free_port()
    jobs = [t.start(nodes[0], f"exec {ENDS} {scenario} --listen {port} {options}", limit_s)]
    t.wait_listening(nodes[0], port)
    jobs.append(t.start(nodes[1], f"exec {ENDS} {scenario} --connect {ADDRESSES[nodes[0]]}:{port} {options}", limit_s))
    results = [job.wait() for job in jobs]
    for side, result in enumerate(results):
        if not result.ok:
            raise Failed(f"{scenario} {options}, side {side}: {result.status}\n{result.stdout}{result.stderr}\nthe other: {results[1 - side].stderr}")
    return [json.loads(result.stdout) for result in results]


def end(t: Guests, scenario: str, options: str = "", node: int = 1) -> dict:
    return json.loads(t.run(node, f"{ENDS} {scenario} {options}", LIMIT_S))


def gid_of(address: str) -> str:
    """As pyverbs reads it."""
    given = ipaddress.ip_address(address)
    return (ipaddress.IPv6Address(f"::ffff:{address}") if given.version == 4 else given).exploded


def never_waited(t: Guests, said: dict, limit_s: float = ABSENT_LIMIT_S) -> None:
    t.check(said["modify_s"] < limit_s * t.cluster.slowness, f"RTR and RTS took {said['modify_s']} s")


def in_order(t: Guests, options: str, nodes: tuple[int, int] = (0, 1)) -> None:
    """Neither end's RTR and RTS wait for the other's; another task of the machine may be what they waited for."""

    def longest_s() -> float:
        return max(said["modify_s"] for said in ends(t, "order", options, nodes=nodes))

    one_shows(t, longest_s, lambda s: s < MODIFY_LIMIT_S * t.cluster.slowness, "RTR and RTS")


@pytest.mark.long
def test_rtr_in_any_order(t: Guests) -> None:
    for gid in GIDS_BY_FAMILY:
        for first in (0, 1):
            in_order(t, f"--gid {gid} --first {first}")


@pytest.mark.parametrize("first", (0, pytest.param(1, marks=pytest.mark.long)))
def test_rtr_late(t: Guests, first: int) -> None:
    in_order(t, f"--first {first} --delay 3")


@pytest.mark.long
def test_rtr_half_a_minute_late(t: Guests) -> None:
    for first in (0, 1):
        in_order(t, f"--first {first} --delay 29")


@pytest.mark.long
def test_rtr_on_one_device(t: Guests) -> None:
    for first in (0, 1):
        in_order(t, f"--first {first} --delay 0.5", nodes=(0, 0))


def test_software_engine(t: Guests) -> None:
    with parameter(t, "offload", 0):
        pingpong(t, "-g 0 -c")
        ends(t, "order", "--gid 1")


def test_own_peer(t: Guests) -> None:
    for gid in GIDS_BY_FAMILY:
        end(t, "alone", f"--gid {gid}")


def test_reset_and_again(t: Guests) -> None:
    ends(t, "again", "--count 6")


@pytest.mark.long
def test_many(t: Guests) -> None:
    said = ends(t, "many", "--count 1000", limit_s=150)
    for side in said:
        t.check(side["seconds"] < 60 * t.cluster.slowness, f"1000 queue pairs took {side['seconds']} s")


@pytest.mark.long
def test_peers_share_local_ports(t: Guests) -> None:
    """A connection takes its port from those to the same address alone."""
    other = "10.77.0.3"
    count = "--count 15"  # and 20 ports
    with (
        sysctl(t, "net.ipv4.ip_local_port_range", "40000 40019", (0,)),
        done_and_undone(t, (1,), f"ip address add {other}/24 dev nupa0", f"ip address del {other}/24 dev nupa0"),
    ):
        t.wait_until(lambda: gids(t, 1)[1] == other, "the second GID")
        jobs = staying(t, f"many {count} --stay", "--gid 1", wait_s=40)
        ends(t, "many", count)
        for job in jobs:
            job.kill()
            job.wait()


# Errors: as RoCE's


def test_peer_that_left(t: Guests) -> None:
    for sides in ((0, 1), (1, 0)):
        ends(t, "quiet_end", nodes=sides)
    ends(t, "quiet_end", nodes=(0, 0))


def test_last_receive_of_a_shared_queue(t: Guests) -> None:
    ends(t, "last_wqe")


@pytest.mark.parametrize("offload", [1, pytest.param(0, marks=pytest.mark.long)], ids=["offload", "software"])
def test_peer_that_left_while_it_sent(t: Guests, offload: int) -> None:
    """Its connection ends with a RST, and TCP takes no acknowledgement from that: what it received is acknowledged before."""
    with parameter(t, "offload", offload):
        ends(t, "taken", "--count 40")


@pytest.mark.long
def test_peer_that_left_is_tried_again(t: Guests) -> None:
    ends(t, "retried")


NOBODY_LONG = [pytest.param(*host, marks=pytest.mark.long) for host in ((0, "10.77.0.77"), (1, "fd77::77"))]


@pytest.mark.parametrize("gid,address", [(0, ADDRESS), *NOBODY_LONG])
def test_nobody_there(t: Guests, gid: int, address: str) -> None:
    """A host without the QP, and addresses without a host."""
    never_waited(t, end(t, "absent", f"--peer {gid_of(address)} --gid {gid}"))


@pytest.mark.parametrize(("node", "side"), (pytest.param(0, "src", id="passive"), pytest.param(1, "dst", id="active", marks=pytest.mark.long)))
def test_handshake_that_one_side_does_not_hear(t: Guests, node: int, side: str) -> None:
    """One side's word that its queue pair is there is a pure ACK, and lost until the other has given up: then both connect again."""
    lost = f"tc filter add dev nupa0 ingress protocol ip flower ip_proto tcp {side}_port {PORT} tcp_flags 0x10/0x3f action drop"
    timeouts = "cat /sys/class/infiniband/tcpqp0/ports/1/hw_counters/rtr_timeouts"
    before = int(t.run(node, timeouts))
    undo = "tc qdisc del dev nupa0 clsact"
    with done_and_undone(t, (node,), f"modprobe -a sch_ingress cls_flower act_gact; tc qdisc add dev nupa0 clsact && {lost}", undo):
        jobs = staying(t, "told")
        t.wait_until(lambda: int(t.run(node, timeouts)) > before, "no end gives up", 20)
    for end_node in (0, 1):
        t.run(end_node, "pkill -USR1 -f '[n]umber_ends.py told'")
    for side_, result in enumerate([job.wait() for job in jobs]):
        t.check(result.ok, f"side {side_}: {result.status}: {result.stdout}{result.stderr}")


@contextmanager
def cut_off(t: Guests) -> Iterator[None]:
    """Nothing arrives, and nobody is told."""
    for port in PORTS:
        t.switch("faults", port=port, clear=True, set={"loss": 1})
    try:
        yield
    finally:
        for port in PORTS:
            t.switch("faults", port=port, clear=True)


def silent_peer(t: Guests, side: int) -> None:
    """TCP alone would send again for a quarter of an hour."""
    port = free_port()
    scenarios = ("silent", "hold")[:: 1 - 2 * side]
    jobs = [t.start(0, f"exec {ENDS} {scenarios[0]} --listen {port}", LIMIT_S)]
    t.wait_listening(0, port)
    jobs.append(t.start(1, f"exec {ENDS} {scenarios[1]} --connect {ADDRESS}:{port}", LIMIT_S))
    for job in jobs:
        t.wait_output(job, "held", 30)
    with cut_off(t):
        t.run(side, "pkill -USR1 -f '[n]umber_ends.py silent'")
        result = jobs[side].wait()
    jobs[1 - side].kill()
    jobs[1 - side].wait()
    t.check(result.ok, f"{result.status}: {result.stdout}{result.stderr}")


@pytest.mark.long
def test_silent_peer(t: Guests) -> None:
    silent_peer(t, 0)


@pytest.mark.long
def test_silent_peer_of_the_other_side(t: Guests) -> None:
    silent_peer(t, 1)


@pytest.mark.long
def test_closed_window_is_no_silence(t: Guests) -> None:
    """For longer than the timeout, by TCP's probes, which come ever more seldom."""
    ends(t, "closed", "--unread 8 --delay 25", limit_s=2 * LIMIT_S)


@pytest.mark.long
def test_time_runs_from_the_first_send(t: Guests) -> None:
    never_waited(t, end(t, "absent", f"--peer {gid_of(ADDRESS)} --delay 8"))


@pytest.mark.long
@pytest.mark.parametrize("sides", (pytest.param((0, 1), id="here"), pytest.param((1, 0), id="there")))
def test_sequence_numbers_differ(t: Guests, sides: tuple[int, int]) -> None:
    ends(t, "mismatch", "--delay 8", nodes=sides)


@pytest.mark.long
def test_sequence_numbers_differ_once_connected(t: Guests) -> None:
    ends(t, "mismatch", "--delay 8 --rts-after 1")


# Nobody gets a queue pair by what he says

FORGER = "$REPO/selftests/vm/programs/forged_numbers.py"


def qpns(t: Guests, node: int) -> str:
    return " ".join(str(qp["lqpn"]) for qp in json.loads(t.run(node, "rdma -j resource show qp")) if qp["lqpn"] > 1)


def slab_kib(t: Guests, node: int) -> int:
    return int(t.run(node, "awk '/^Slab:/ {print $2}' /proc/meminfo"))


def staying(t: Guests, scenario: str, connector: str = "", limit_s: float = LIMIT_S, wait_s: float = 30) -> list[Job]:
    """Both ends of a scenario that have come as far as to stay."""
    port = free_port()
    jobs = [t.start(0, f"exec {ENDS} {scenario} --listen {port}", limit_s)]
    t.wait_listening(0, port)
    jobs.append(t.start(1, f"exec {ENDS} {scenario} {connector} --connect {ADDRESS}:{port}", limit_s))
    for job in jobs:
        t.wait_output(job, "held", wait_s)
    return jobs


def hold(t: Guests, limit_s: float) -> list[Job]:
    """Both ends of a connected pair, which stay."""
    return staying(t, "hold", limit_s=limit_s)


def forged(t: Guests, count: int, limit_s: float) -> None:
    """An honest pair is connected before, during and after; what the forger holds is bounded."""
    jobs = hold(t, limit_s)
    before = slab_kib(t, 0)
    forger = t.start(1, f"exec {FORGER} {ADDRESS} {PORT} {count} {qpns(t, 0)}", limit_s)
    t.wait_output(forger, "ready", 60)
    ends(t, "order", "--delay 0.5")
    ends(t, "order", "--first 1 --delay 0.5")
    result = forger.wait()
    t.check(result.ok and int(result.stdout.split()[-1]) > count * 0.9, f"{result.status}: {result.stdout}{result.stderr}")
    held = int(t.run(0, f"ss -Htn state established 'sport = :{PORT}' | wc -l"))
    t.check(held <= 1024 + 1, f"{held} connections are held")
    grown = slab_kib(t, 0) - before
    t.check(grown < 64 * 1024, f"the kernel's memory has grown by {grown} KiB")
    ends(t, "order")
    for job in jobs:
        t.check(not job.done, "the honest pair has ended")
        job.kill()
        job.wait()


SETTLED_S, COUNTED_S = 3, 5  # the pauses between two connections have grown by then; and these are counted
CONNECTS_PER_S = 3


@pytest.mark.long
def test_peer_that_seems_ready(t: Guests) -> None:
    """It says so, has never heard that the other end is, and resets the connection: that end tries again, and ever later."""
    t.run(1, f"until ! ss -Hltn 'sport = :{PORT}' | grep -q .; do sleep 0.05; done", 20)
    count = "cat /sys/class/infiniband/tcpqp0/ports/1/hw_counters/number_"
    connects, established = f"{count}connects", f"{count}established"
    at = int(t.run(0, established))
    with sysctl(t, "net.ipv4.tcp_timestamps", 0, (1,)):
        forger = t.start(1, f"cd $REPO/selftests && exec /usr/bin/python3 -m vm.hostile.number_forge {PORT}", LIMIT_S)
        t.wait_output(forger, "ready")
        lonely = t.start(0, f"exec {ENDS} absent --peer {gid_of(ADDRESSES[1])} --delay 30", LIMIT_S)
        t.wait_until(lambda: int(t.run(0, established)) > at, "no end is told that the peer is ready")
        before, after = (int(word) for word in t.run(0, f"sleep {SETTLED_S}; {connects}; sleep {COUNTED_S}; {connects}").split())
    for job in (lonely, forger):
        job.kill()
        job.wait()
    t.check(0 < after - before <= COUNTED_S * CONNECTS_PER_S, f"{after - before} connections in {COUNTED_S} s")


@pytest.mark.long
def test_forged_hellos(t: Guests) -> None:
    forged(t, 3000, 120)


@pytest.mark.long
def test_hundred_thousand_forged_hellos(t: Guests) -> None:
    forged(t, 100_000, 1800)


ANSWERS = "$REPO/selftests/vm/programs/rdma_answers.py"
SPIN_S = 10  # then it lets others run: the answers came too late
FAIR_SERVER = "/sys/kernel/debug/sched/fair_server"  # from 6.12 on it lets ordinary tasks run beside real time


@contextmanager
def real_time_alone(t: Guests, node: int) -> Iterator[None]:
    """A task in real time that does not sleep is the only one that runs."""
    each = f"for f in {FAIR_SERVER}/cpu*/runtime; do if [ -e $f ]; then {{}}; fi; done"
    saved = t.run(node, f"cat /proc/sys/kernel/sched_rt_runtime_us; {each.format('cat $f')}").split()
    t.run(node, f"echo -1 >/proc/sys/kernel/sched_rt_runtime_us; {each.format('echo 0 >$f')}")
    try:
        yield
    finally:
        t.run(node, f"echo {saved[0]} >/proc/sys/kernel/sched_rt_runtime_us; {each.format(f'echo {saved[-1]} >$f')}")


@pytest.mark.long
@pytest.mark.parametrize(
    ("offload", "percent"), [(1, 50), (1, 1), (0, 50)], ids=["offload", "share_used_up", "software"]
)
def test_answers_wait_for_no_task(t: Guests, offload: int, percent: int) -> None:
    """READs and atomics, of a host whose processor has a task that never lets another one run, as ranks of MPI nearly do."""
    port = free_port()
    with parameter(t, "offload", offload), parameter(t, "softirq_percent", percent), real_time_alone(t, 0):
        jobs = [t.start(0, f"exec {ANSWERS} --listen {port} --spin {SPIN_S * t.cluster.slowness}", LIMIT_S)]
        t.wait_listening(0, port, LIMIT_S)
        jobs.append(t.start(1, f"exec {ANSWERS} --connect {ADDRESS}:{port}", LIMIT_S))
        for side, result in enumerate([job.wait() for job in jobs]):
            t.check(result.ok, f"side {side}: {result.status}: {result.stdout}{result.stderr}")


@pytest.mark.long
def test_bulk_gets_no_more_acks(t: Guests) -> None:
    """Messages in a row are acknowledged as TCP does it; vm/cm_programs/fi_pingpong_rxm has the ones that nothing answers."""
    counter = "cat /sys/class/infiniband/tcpqp0/ports/1/hw_counters/rx_quick_acks"

    def attempt(size: int) -> tuple[bool, float, int]:
        before, began = int(t.run(0, counter)), time.monotonic()
        perftest(t, f"ib_send_bw -s {size} -n {BULK_MESSAGES}")
        quick = int(t.run(0, counter)) - before
        return quick < BULK_MESSAGES / 20, 1e6 * (time.monotonic() - began) / BULK_MESSAGES, quick

    for offload in (1, 0):
        with parameter(t, "offload", offload):
            for size in (64, 65536):
                shown(t, functools.partial(attempt, size), BULK_SLOW_US, f"offload {offload}, {size} bytes: ACKs at once for {BULK_MESSAGES} messages")


def test_no_application_has_the_port(t: Guests) -> None:
    """Neither end of a connection to the port gets a queue pair by attach.  Who is refused first ends the connection, maybe before the other asks."""
    command = f"$BUILD/cmake/selftests/vm/programs/qp_rdma --port {PORT}"
    told: set[int] = set()
    for _ in range(20):
        jobs = [t.start(0, command, LIMIT_S), t.start(1, f"{command} --connect {ADDRESS}", LIMIT_S)]
        for node, job in enumerate(jobs):
            result = job.wait()
            t.equal(result.status, 1, f"node{node}: {result.stderr}")
            if "reason RESERVED_PORT" in result.stderr:
                told.add(node)
        if told == {0, 1}:
            return
    t.equal(told, {0, 1}, "the ends that were told RESERVED_PORT")


def test_another_namespace_does_not_connect(t: Guests) -> None:
    t.run(0, "ip netns add elsewhere")
    result = t.fails(0, f"ip netns exec elsewhere {ENDS} absent --peer {gid_of(ADDRESSES[1])}", LIMIT_S)
    t.run(0, "ip netns del elsewhere")
    t.check("unreachable" in result.stderr, result.stderr)


FAR = "nsenter --net=/run/netns/far"
FAR_PORT = "tcpqp1"
FAR_UP = f"""
ip netns add far; modprobe veth; ip link add num0 type veth peer name num1 netns far
ip address add 10.78.0.1/24 dev num0; ip link set num0 up
ip -n far address add 10.78.0.2/24 dev num1; ip -n far link set num1 up; ip -n far link set lo up
rdma link add tcpqp2 type tcp_qp netdev num0; {FAR} rdma link add {FAR_PORT} type tcp_qp netdev num1; sh $REPO/tools/vm/guest/mkdev
until [ "$(cat /sys/class/infiniband/tcpqp1/ports/1/gids/0)" = 0000:0000:0000:0000:0000:ffff:0a4e:0002 ]; do sleep 0.05; done
"""


@pytest.mark.long
def test_namespace_ends(t: Guests) -> None:
    """While queue pairs of it are connected, connect to nobody, and one is asked for that is not in RTR yet."""
    t.run(0, FAR_UP)
    far = f"exec {FAR} {ENDS} {{}} --device {FAR_PORT}"
    jobs = []
    for scenario in ("hold", "order --first 0 --delay 40"):
        port = free_port()
        jobs.append(t.start(0, f"exec {ENDS} {scenario} --device tcpqp2 --listen {port}", LIMIT_S))
        t.wait_listening(0, port)
        jobs.append(t.start(0, far.format(f"{scenario} --connect 10.78.0.1:{port}"), LIMIT_S))
    jobs.append(t.start(0, far.format(f"absent --peer {gid_of('10.78.0.77')} --delay 40"), LIMIT_S))
    for job in jobs[:2]:
        t.wait_output(job, "held", 30)
    parked = f"/sys/class/infiniband/{FAR_PORT}/ports/1/hw_counters/number_parked"
    t.run(0, f"until [ $(cat {parked}) = 1 ] && [ $(rdma resource show qp link {FAR_PORT} | grep -c RTS) -ge 5 ]; do sleep 0.05; done", 30)
    t.run(0, f"ip netns del far; pkill -9 -f '[d]evice {FAR_PORT}'")
    t.run(0, f"until [ ! -e /sys/class/infiniband/{FAR_PORT} ] && [ ! -e /sys/class/net/num0 ]; do sleep 0.1; done", LIMIT_S)
    for job in jobs:
        job.kill()
        job.wait()
    ends(t, "order")


@pytest.mark.long
def test_listener_goes_with_the_last(t: Guests) -> None:
    ends(t, "order")
    for node in (0, 1):
        t.run(node, f"until ! ss -Hltn 'sport = :{PORT}' | grep -q .; do sleep 0.05; done", 20)


@pytest.mark.long
@pytest.mark.parametrize("node", (pytest.param(0, id="here"), pytest.param(1, id="there")))
def test_device_leaves(t: Guests, node: int) -> None:
    """While queue pairs are connected, others connect to nobody, and hellos come."""
    jobs = hold(t, LIMIT_S)
    forger = t.start(1 - node, f"exec {FORGER} {ADDRESSES[node]} {PORT} 2000 {qpns(t, node)}", LIMIT_S)
    t.wait_output(forger, "ready", 30)
    lonely = [t.start(node, f"exec {ENDS} absent --peer {gid_of(address)} --delay 30", LIMIT_S) for address in (ADDRESSES[1 - node], "10.77.0.77")]
    t.run(node, "until [ $(rdma resource show qp | grep -c RTS) -ge 3 ]; do sleep 0.05; done", 30)
    t.run(node, "rdma link delete tcpqp0")
    for job in [*jobs, *lonely, forger]:
        job.kill()
        job.wait()
    t.run(node, "rdma link add tcpqp0 type tcp_qp netdev nupa0; sh $REPO/tools/vm/guest/mkdev")
    ends(t, "order")


@pytest.mark.long
def test_module_leaves(t: Guests) -> None:
    """The same of the module; connections of queue pairs keep it, others do not."""
    ends(t, "order")
    forger = t.start(1, f"sleep 1; exec {FORGER} {ADDRESS} {PORT} 2000", LIMIT_S)
    lonely = t.start(0, f"exec {ENDS} absent --peer {gid_of(ADDRESSES[1])} --delay 30", LIMIT_S)
    t.wait_output(forger, "ready", 30)
    t.run(0, "rdma link delete tcpqp0; rmmod nupa_dev; rmmod tcp_qp", 60)
    for job in (forger, lonely):
        job.kill()
        job.wait()
    t.run(0, "sh $REPO/tools/vm/guest/setup full", 60)
    ends(t, "order")


@pytest.mark.long
def test_killed_at_any_moment(t: Guests) -> None:
    """Of so many queue pairs that none of the moments is after the end."""
    for seconds in (0.05, 0.5):
        port = free_port()
        jobs = [t.start(0, f"exec {ENDS} many --count 250 --listen {port}", LIMIT_S)]
        t.wait_listening(0, port)
        jobs.append(t.start(1, f"exec {ENDS} many --count 250 --connect {ADDRESS}:{port}", LIMIT_S))
        t.run(1, f"until rdma resource show qp | grep -q RTS; do sleep 0.02; done; sleep {seconds}; pkill -9 -f number_ends || true", 40)
        t.run(0, "pkill -9 -f number_ends || true")
        for job in jobs:
            job.wait()
    ends(t, "order")


# Programs that no one here wrote


def perftest(t: Guests, command: str) -> None:
    by_number(t, f"{command} -x 0 -F")


@pytest.mark.parametrize("verb", ("write", *(pytest.param(verb, marks=pytest.mark.long) for verb in ("send", "read", "atomic"))))
def test_perftest(t: Guests, verb: str) -> None:
    sizes = ("",) if verb == "atomic" else ("-s 64", "-s 65536")
    for size in sizes:
        perftest(t, f"ib_{verb}_bw -n 200 {size}")
        perftest(t, f"ib_{verb}_lat -n 100 {size}")
    perftest(t, f"ib_{verb}_bw -n 200 -q 8")


@pytest.mark.long
@pytest.mark.parametrize("offload", [1, 0], ids=["offload", "software"])
@pytest.mark.parametrize("verb", ("send", "write", "read", "atomic"))
def test_perftest_of_64_queue_pairs(t: Guests, verb: str, offload: int) -> None:
    with parameter(t, "offload", offload):
        perftest(t, f"ib_{verb}_bw -n 200 -q 64")


@pytest.mark.long
def test_perftest_both_ways(t: Guests) -> None:
    perftest(t, "ib_send_bw -n 200 -b")
    perftest(t, "ib_write_bw -n 200 -b -q 4")
    perftest(t, "ib_send_bw -n 200 -e")


@pytest.mark.needs(replace(NEEDS, cpus=2))
@pytest.mark.long
def test_perftest_asleep(t: Guests) -> None:
    """It wants one send completion at a time, and can have two where it runs beside TCP: an answer is told of before its request's ACK."""
    perftest(t, "ib_send_lat -n 2000 -s 64 -e")


def test_srq_pingpong(t: Guests) -> None:
    pingpong(t, "-g 0 -q 4", program="ibv_srq_pingpong")
