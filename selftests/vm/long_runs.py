# SPDX-License-Identifier: BSD-3-Clause
"""Plain TCP in long receive buffers: runs of up to a megabyte, every byte compared, whatever happens to path and port meanwhile."""

import contextlib
from collections.abc import Iterator

import pytest

from harness.guests import NCQP, Guests
from harness.needs import on_debug_kernel
from harness.pairs import fabric
from harness.traffic import copy_file, free_port, iperf, wait_moving
from vm import unplug
from vm.fabric import NEEDS  # the same guests

pytestmark = pytest.mark.needs(NEEDS)
RANDOM = "/mnt/t/random"
LONG_BYTES, SHORT_RUN_MAX = 65536, 65536
UNBOUNDED = 8 * 65535  # GRO_MAX_SIZE
LINK_MAX = "/usr/bin/python3 $REPO/selftests/vm/programs/link_max.py nupa0"
COPY_S = 60
NETNS = "far"
FAR = "10.78.0.2"


def _received(t: Guests) -> dict[str, int]:
    return {name: t.stat(0, name) for name in ("rx_bytes", "rx_merged_packets", "rx_long_buffers", "rx_drops", "rx_invalid")}


def _bulk(t: Guests, options: str = "") -> dict[str, int]:
    """What node 0 counted while iperf3 sent to it."""
    before = _received(t)
    iperf(t, options)
    return {name: value - before[name] for name, value in _received(t).items()}


@contextlib.contextmanager
def _copying(t: Guests, mib: int, address: str = "", at: str = "", again: bool = False) -> Iterator[int]:
    """A file goes from node 1 to this port of node 0 by plain TCP while the block runs; then what came is compared.  @at: before node 0's commands.
    @again: and again, so that it is under way when the block ends, however long that took."""
    port = free_port()
    server = t.start(0, f"bash -o pipefail -c '{at} {NCQP} -q --engine tcp -l -p {port} | cksum >/mnt/t/in'", COPY_S)
    t.run(0, f"until {at} ss -Htln 'sport = :{port}' | grep -q .; do sleep 0.1; done")
    t.run(1, f"head -c {mib}M /dev/urandom >{RANDOM}; {'' if again else 'touch /mnt/t/last'}")
    each = f"n=0; while cat {RANDOM}; n=$((n + 1)); [ ! -e /mnt/t/last ]; do :; done; echo $n >/mnt/t/sent"
    client = t.start(1, f"{{ {each}; }} | {NCQP} -q --engine tcp -s {address or t.nodes[0].ip4} -p {port}", COPY_S)
    yield port
    t.check(not again or not client.done, "the copy ended by itself")
    t.run(1, "touch /mnt/t/last")
    client.wait(check=True)
    server.wait(check=True)
    sent = t.run(1, f"for i in $(seq $(cat /mnt/t/sent)); do cat {RANDOM}; done | cksum; rm {RANDOM} /mnt/t/last /mnt/t/sent")
    t.equal(t.run(0, "cat /mnt/t/in; rm /mnt/t/in"), sent, "checksum and length of what was received")


def test_bulk_comes_in_long_buffers(t: Guests) -> None:
    got = _bulk(t)
    t.check(got["rx_long_buffers"] * LONG_BYTES > 0.7 * got["rx_bytes"], f"few long buffers: {got}")
    t.check(got["rx_bytes"] > 1.5 * SHORT_RUN_MAX * got["rx_merged_packets"], f"short runs: {got}")
    t.equal((got["rx_drops"], got["rx_invalid"]), (0, 0), "drops and completions that make no sense")


def test_bytes_arrive_unchanged(t: Guests) -> None:
    with _copying(t, 16):
        pass
    copy_file(t, RANDOM, family="-6", mib=4)
    t.run(1, f"rm {RANDOM}")


@pytest.mark.long
def test_bytes_arrive_unchanged_through_faults(t: Guests) -> None:
    for faults in ({"loss": 0.01, "reorder": 0.01, "duplicate": 0.01}, {"corrupt": 0.005, "delay": 0.01, "delay_max_us": 300}):
        with fabric(t, **faults), _copying(t, 4):
            pass


@pytest.mark.long
def test_bounded_by_gro_ipv4_max_size(t: Guests) -> None:
    """The administrator's bound of merged packets holds for the switch's, too; the most that can be said is none."""
    t.run(0, f"{LINK_MAX} 65536")
    t.run(1, "ping -q -c 3 -i 0.05 $PEER")  # NAPI sees it, and the switch is told
    got = _bulk(t)
    t.check(got["rx_bytes"] <= SHORT_RUN_MAX * got["rx_merged_packets"], f"runs beyond 64 KiB: {got}")
    t.run(0, f"{LINK_MAX} {UNBOUNDED}")
    t.run(1, "ping -q -c 3 -i 0.05 $PEER")


def test_without_long_buffers(t: Guests) -> None:
    was = t.run(0, "ethtool -g nupa0 | awk '/^RX Jumbo:/ { n = $3 } END { print n }'").strip()
    for wrong in ("32", "2048"):
        t.fails(0, f"ethtool -G nupa0 rx-jumbo {wrong}")
    t.run(0, "ethtool -G nupa0 rx-jumbo 0")
    got = _bulk(t)
    t.equal(got["rx_long_buffers"], 0, "long buffers of a ring that is not there")
    t.run(0, f"ethtool -G nupa0 rx-jumbo {was}")


@pytest.mark.skipif(on_debug_kernel(), reason="a driver that slow seldom lets the switch see a wild index")
@pytest.mark.long
def test_port_changes_under_traffic(t: Guests) -> None:
    """MTU, rings, bounds, link, and a port that fails and is reset: the connection goes on, and no byte is wrong."""
    changes = (
        "ethtool -G nupa0 rx-jumbo 0", f"{LINK_MAX} 131072", "ip link set nupa0 mtu 9000", "ethtool -G nupa0 rx-jumbo 256 rx 256",
        "ip link set nupa0 down; ip link set nupa0 up; ip -6 address replace $IP6/64 dev nupa0 nodad", f"{LINK_MAX} {UNBOUNDED}",
        "ip link set nupa0 mtu 1500", "ethtool -K nupa0 rx-gro-hw off; ethtool -K nupa0 rx-gro-hw on", "ethtool -G nupa0 rx-jumbo 64 rx 2048",
    )  # fmt: skip
    with fabric(t, rate_mbps=60, queue_bytes=4 << 20), _copying(t, 2, again=True) as port:
        wait_moving(t, 1, port)
        unplug.fail_port(t, 0)
        for change in changes:
            t.run(0, change)
    t.run(0, "until rdma link add tcpqp0 type tcp_qp netdev nupa0 2>/dev/null; do sleep 0.2; done; sh $REPO/tools/vm/guest/mkdev")
    got = _bulk(t)
    t.check(got["rx_bytes"] > 1.5 * SHORT_RUN_MAX * got["rx_merged_packets"], f"runs stayed short: {got}")


@pytest.mark.long
def test_forwarded(t: Guests) -> None:
    """What comes in runs of a megabyte leaves by another interface: here a veth to a namespace, cut where that wants it cut."""
    t.run(0, f"ip netns add {NETNS}; ip link add near type veth peer name far netns {NETNS}; ip address add 10.78.0.1/24 dev near; ip link set near up;"
             f"ip -n {NETNS} address add {FAR}/24 dev far; ip -n {NETNS} link set far up; ip -n {NETNS} route add default via 10.78.0.1;"
             "sysctl -qw net.ipv4.ip_forward=1")  # fmt: skip
    t.run(1, "ip route add 10.78.0.0/24 via 10.77.0.1")
    try:
        for offload in ("on", "off"):
            t.run(0, f"ethtool -K near tso {offload} gso {offload}")
            with _copying(t, 8, FAR, f"ip netns exec {NETNS}"):
                pass
    finally:
        t.run(1, "ip route del 10.78.0.0/24")
        t.run(0, f"sysctl -qw net.ipv4.ip_forward=0; ip netns del {NETNS}")


@pytest.mark.long
def test_memory_of_a_reader_that_does_not_read(t: Guests) -> None:
    """Whole buffers are charged to the socket, and keep to its receive buffer, but for the one run that it may be beyond."""
    port = free_port()
    reader = t.start(0, f"/usr/bin/python3 -c 'import socket, time; s = socket.create_server((\"\", {port})); c = s.accept()[0]; time.sleep(60)'")
    t.wait_listening(0, port)
    writer = t.start(1, f"head -c 64M /dev/zero | {NCQP} -q --engine tcp -s {t.nodes[0].ip4} -p {port}")
    state = f"ss -Htnm state established 'sport = :{port}' | tr -d '\\n'"
    t.run(0, f"until {state} | grep -Eq '^[1-9]'; do sleep 0.1; done; a=x; until b=$({state}); [ \"$a\" = \"$b\" ]; do a=$b; sleep 1; done")
    text = t.run(0, state)
    queued = int(text.split()[0])
    memory = dict((field[: field.index(next(c for c in field if c.isdigit()))], int("".join(c for c in field if c.isdigit())))
                  for field in text[text.index("skmem:(") + 7 :].rstrip(") \n").split(","))  # fmt: skip
    t.check(queued > 50_000, f"nothing waits: {text}")
    t.check(queued <= memory["r"] <= memory["rb"] + (1088 << 10), f"charged {memory['r']} of {memory['rb']} for {queued} bytes: {text}")
    for job in (reader, writer):
        job.kill()
        job.wait()
