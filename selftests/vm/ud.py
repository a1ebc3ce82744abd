# SPDX-License-Identifier: BSD-3-Clause
"""UD queue pairs over UDP (docs/ud.md): other people's programs, what a datagram may do, a bad fabric, a flood, ends."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.pairs import fabric, served
from harness.traffic import done_and_undone, free_port, parameter, softirq_share

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), setup="full")
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]

PROGRAMS = "/usr/bin/python3 $REPO/selftests/vm/programs"
UDP_PORT = 4793
MTU_9000 = 4096  # the largest UD message there
LIMIT_S = 60
FORGED = 20000
FLOOD_S = 30  # it is killed before
SOFTIRQ_MAX = 0.45  # of the processor, as in vm/flood


def pair(t: Guests, command: str, port: int, server: str = "") -> str:
    """The command at both nodes, at the client with the server's address; both must succeed, the client's output."""
    return served(t, f"{command} -p {port}", f"{command} -p {port} {server or t.nodes[0].ip4}", port)[0]


def counter(t: Guests, node: int, name: str) -> int:
    return int(t.run(node, f"cat /sys/class/infiniband/tcpqp0/ports/1/hw_counters/{name}"))


def exchange(t: Guests, options: str = "", count: int = 640) -> int:
    """Datagrams from node 1 to node 0, each compared; how many came."""
    port = free_port()
    command = f"{PROGRAMS}/ud_exchange.py"
    _, received = served(t, f"{command} receive {port} {options}", f"{command} send {port} --peer {t.nodes[0].ip4} --count {count} {options}", port)
    came, of, sent = received.split()
    t.equal((of, int(sent)), ("of", count), "datagrams sent")
    return int(came)


LINK = "rdma link add tcpqp0 type tcp_qp netdev nupa0; sh $REPO/tools/vm/guest/mkdev"
UNLOAD = "rdma link delete tcpqp0 2>/dev/null; until rmmod tcp_qp; do sleep 0.1; done"
NODE_TYPE = "cat /sys/module/tcp_qp/parameters/node_type"


@contextmanager
def node_type_ca(t: Guests) -> Iterator[None]:
    """perftest writes credits on what says it is an RNIC, on a UD queue pair, too, and dies of that."""
    changed = [node for node in (0, 1) if t.run(node, NODE_TYPE).strip() != "ca"]
    for node in changed:
        t.run(node, f"{UNLOAD}; insmod $KO/tcp_qp/tcp_qp.ko node_type=ca; {LINK}", 40)
    try:
        yield
    finally:
        for node in changed:
            t.run(node, f"{UNLOAD}; insmod $KO/tcp_qp/tcp_qp.ko; {LINK}", 40)


def perftest(t: Guests, options: str) -> str:
    with node_type_ca(t):
        return pair(t, f"{options} -c UD -d tcpqp0 -x 0 -F", free_port())


@pytest.mark.parametrize("options", [pytest.param("", id="polled"), pytest.param("-e", id="events")])
def test_ud_pingpong(t: Guests, options: str) -> None:
    out = pair(t, f"ibv_ud_pingpong -d tcpqp0 -g 0 -s 1024 -n 100 {options}", free_port())
    t.check("100 iters" in out, out)


# All receives are posted before the first send, so none is dropped for want of one.
PERFTESTS = {
    "bw": ("ib_send_bw -s 1024 -n 400 -r 512", "1024       400"),
    "lat": ("ib_send_lat -s 64 -n 200", "64      200"),
    "bidirectional": ("ib_send_bw -b -s 512 -n 200 -r 512", "512        200"),
    "events": ("ib_send_bw -e -s 1024 -n 400 -r 512", "1024       400"),
    "shared": ("ib_send_bw --use-srq -s 1024 -n 400 -r 512", "1024       400"),
}


@pytest.mark.parametrize("what", PERFTESTS)
def test_perftest(t: Guests, what: str) -> None:
    command, shown = PERFTESTS[what]
    out = perftest(t, command)
    t.check(shown in out, out)


def test_cases(t: Guests) -> None:
    """Sizes, GRH, immediates, drops, errors, states, handles; the program names the case that fails."""
    t.check("all passed" in t.run(0, f"exec {PROGRAMS}/ud_cases.py", LIMIT_S), "not all cases ran")


@pytest.mark.parametrize("gid", [pytest.param("0000:", id="ipv4"), pytest.param("fd77:", id="ipv6"), pytest.param("fe80:", id="link_local")])
def test_exchange(t: Guests, gid: str) -> None:
    t.equal(exchange(t, f"--gid {gid}"), 640, "datagrams that came")


def test_largest_mtu(t: Guests) -> None:
    with done_and_undone(t, (0, 1), "ip link set nupa0 mtu 9000", "ip link set nupa0 mtu 1500; ip -6 address replace $IP6/64 dev nupa0 nodad"):
        t.equal(exchange(t, f"--size {MTU_9000}", 320), 320, "datagrams that came")


@pytest.mark.long
def test_narrow_path(t: Guests) -> None:
    """Where the path's MTU is smaller than the port's, IP cuts and joins."""
    fragments = "IpFragCreates"
    with done_and_undone(t, (1,), "ip route replace $PEER/32 dev nupa0 mtu 600", "ip route del $PEER/32; ip route flush cache"):
        before = t.nstat(1, fragments)
        t.equal(exchange(t, "--seed 3", 320), 320, "datagrams that came")
        t.check(t.nstat(1, fragments) > before + 100, "no fragments were made")


def test_bad_fabric(t: Guests) -> None:
    with fabric(t, loss=0.05, duplicate=0.05, reorder=0.1, corrupt=0.02):
        came = exchange(t, "--seed 4 --late 0.2")
    t.check(320 < came < 640, f"{came} of 640 came")


@pytest.mark.long
def test_netem_loss(t: Guests) -> None:
    with done_and_undone(t, (1,), "modprobe sch_netem; tc qdisc replace dev nupa0 root netem loss 10%", "tc qdisc del dev nupa0 root"):
        came = exchange(t, "--seed 5 --late 0.2")
    t.check(320 < came < 640, f"{came} of 640 came")


@pytest.mark.long
def test_full_send_buffer(t: Guests) -> None:
    """A qdisc that keeps datagrams fills the socket's buffer: the queue waits, and nothing is lost."""
    slow = "modprobe sch_netem; tc qdisc replace dev nupa0 root netem delay 50ms limit 100000"
    with done_and_undone(t, (1,), f"sysctl -qw net.core.wmem_default=8192; {slow}", "sysctl -qw net.core.wmem_default=212992; tc qdisc del dev nupa0 root"):
        before = counter(t, 1, "ud_tx_dropped")
        t.equal(exchange(t, "--seed 7", 96), 96, "datagrams that came")
        t.equal(counter(t, 1, "ud_tx_dropped"), before, "datagrams dropped by the sender")


@pytest.mark.long
def test_received_by_work(t: Guests) -> None:
    """Softirq has no share of the processor: what comes is received by a task."""
    with parameter(t, "softirq_percent", 0, (0,)):
        t.equal(exchange(t, "--seed 6"), 640, "datagrams that came")


@pytest.mark.parametrize("address", [pytest.param("$PEER", id="ipv4"), pytest.param("fd77::1", id="ipv6", marks=pytest.mark.long)])
def test_forged(t: Guests, address: str) -> None:
    """Noise to the port does nothing but count, and leaves no trace on who has queue pairs."""
    before = {name: counter(t, 0, name) for name in ("ud_rx_malformed", "ud_rx_unknown_qp", "ud_rx_messages")}
    forger = t.start(1, f"exec {PROGRAMS}/ud_forge.py {address} {UDP_PORT} {FORGED} 7", LIMIT_S)
    t.equal(exchange(t, "--seed 8", 320), 320, "datagrams that came")
    t.check(forger.wait().ok, "the forger failed")
    gained = {name: counter(t, 0, name) - was for name, was in before.items()}
    print(f"# forged: {gained}", flush=True)
    t.equal(gained["ud_rx_messages"], 320, "datagrams received")
    t.check(min(gained["ud_rx_malformed"], gained["ud_rx_unknown_qp"]) > FORGED / 10, f"counted {gained}")


@contextmanager
def flood(t: Guests) -> Iterator[None]:
    """perftest's datagrams from node 1 to node 0, until the end of the block; under node_type_ca()."""
    port = free_port()
    command = f"exec ib_send_bw -c UD -d tcpqp0 -x 0 -F -D {FLOOD_S} -s 1024 -p {port}"
    before = counter(t, 0, "ud_rx_messages")
    jobs = [t.start(0, command, LIMIT_S)]
    t.wait_listening(0, port)
    jobs.append(t.start(1, f"{command} {t.nodes[0].ip4}", LIMIT_S))
    t.wait_until(lambda: counter(t, 0, "ud_rx_messages") > before + 1000, "the flood does not begin", LIMIT_S)
    try:
        yield
    finally:
        for node in (1, 0):
            t.run(node, "pkill -9 -x ib_send_bw || true")
        for job in jobs:
            job.wait()


@pytest.mark.long
def test_flood(t: Guests) -> None:
    """Datagrams without end: others still get to run, and others' datagrams come, too."""
    names = ("ud_rx_messages", "ud_rx_no_receive", "ud_rx_overload")
    with node_type_ca(t), flood(t):
        before = {name: counter(t, 0, name) for name in names}
        shares = [softirq_share(t) for _ in range(2)]
        gained = {name: counter(t, 0, name) - was for name, was in before.items()}
        t.check(exchange(t, "--seed 9 --late 0.5", 64) > 0, "nothing of somebody else's datagrams came")
    print(f"# flood: softirq's shares {', '.join(f'{s:.2f}' for s in shares)}; meanwhile {gained}", flush=True)
    t.check(sum(gained.values()) > 500, "hardly a flood")
    t.check(min(shares) < SOFTIRQ_MAX, f"softirq had {shares} of the processor")


@pytest.mark.long
def test_killed(t: Guests) -> None:
    for victim in (0, 1):
        with node_type_ca(t), flood(t):
            t.run(victim, "pkill -9 -x ib_send_bw")
    t.equal(exchange(t, "", 64), 64, "datagrams that came")


@pytest.mark.long
def test_link_goes(t: Guests) -> None:
    """The device of either end goes in mid-traffic, and comes again."""
    with node_type_ca(t):
        for node in (0, 1):
            with flood(t):
                t.run(node, "rdma link delete tcpqp0")
            t.run(node, LINK)
    t.equal(exchange(t, "", 64), 64, "datagrams that came")


def test_module_goes(t: Guests) -> None:
    with node_type_ca(t):
        with flood(t):
            t.run(0, f"pkill -9 -x ib_send_bw; {UNLOAD}", 20)
        t.run(0, f"insmod $KO/tcp_qp/tcp_qp.ko node_type=ca; {LINK}")
    t.equal(exchange(t, "", 64), 64, "datagrams that came")


def test_port_is_held(t: Guests) -> None:
    """From a namespace's first link on nobody else has the port; who had it before keeps it, and there is no UD."""
    take = f"import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', {UDP_PORT}))"
    refused = t.fails(0, f'/usr/bin/python3 -c "{take}"')
    t.check("Address already in use" in refused.stderr, refused.stderr)
    t.run(0, UNLOAD, 20)
    squatter = t.start(0, f"exec /usr/bin/python3 -c \"{take}; print('has it', flush=True); import time; time.sleep(60)\"", LIMIT_S)
    t.wait_output(squatter, "has it")
    t.run(0, f"insmod $KO/tcp_qp/tcp_qp.ko; {LINK}")
    t.check("Address already in use" in t.fails(0, f"exec {PROGRAMS}/ud_cases.py to_itself").stderr, "a UD queue pair without its port")
    squatter.kill()
    squatter.wait()
    t.run(0, f"exec {PROGRAMS}/ud_cases.py to_itself", LIMIT_S)


def test_namespace(t: Guests) -> None:
    """A namespace has a port of its own, serves nobody from outside, and goes after its last queue pair."""
    add = "ip netns add far; modprobe veth; ip link add ud0 type veth peer name ud1 netns far"
    up = "ip address add 10.78.0.1/24 dev ud0; ip link set ud0 up; ip -n far address add 10.78.0.2/24 dev ud1; ip -n far link set ud1 up"
    t.run(0, f"{add}; {up}")
    try:
        t.run(0, "nsenter --net=/run/netns/far rdma link add tcpqp1 type tcp_qp netdev ud1; sh $REPO/tools/vm/guest/mkdev")
        sockets = "ss -Hulpn sport = :4793 | wc -l"
        t.equal((t.run(0, sockets).strip(), t.run(0, f"nsenter --net=/run/netns/far {sockets}").strip()), ("1", "1"), "sockets of either namespace")
        outside = t.fails(0, "exec ibv_ud_pingpong -d tcpqp1 -g 0 -s 1024")
        t.check("create QP" in outside.stderr, f"a queue pair on another namespace's device: {outside.stderr}")
        inside = t.start(0, "exec nsenter --net=/run/netns/far ibv_ud_pingpong -d tcpqp1 -g 0 -s 1024 -p 7000", LIMIT_S)
        t.wait_until(lambda: "7000" in t.run(0, "nsenter --net=/run/netns/far ss -Htln"), "ibv_ud_pingpong does not listen")
    finally:
        t.run(0, "ip netns del far")
    t.run(0, "pkill -9 -x ibv_ud_pingpong || true; until [ ! -e /sys/class/infiniband/tcpqp1 ]; do sleep 0.1; done; ip link del ud0 2>/dev/null || true", 20)
    inside.wait()
    t.run(0, f"exec {PROGRAMS}/ud_cases.py to_itself", LIMIT_S)
