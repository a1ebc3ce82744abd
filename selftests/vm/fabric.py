# SPDX-License-Identifier: BSD-3-Clause
"""nupa0 is an ordinary network interface: ping, iperf3, jumbo frames, both families, link events."""

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.traffic import copy_file, iperf

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("tools/ncqp/ncqp",), setup="full")
pytestmark = pytest.mark.needs(NEEDS)


def test_behind_a_cxl_switch(t: Guests) -> None:
    if t.cluster.topology != "cxl":
        pytest.skip(f"these guests' topology is {t.cluster.topology}")
    path = t.run(0, "readlink -f /sys/class/net/nupa0/device").strip()
    bridges = [part for part in path.split("/") if part.count(":") == 2]
    t.equal(len(bridges), 4, f"root port, upstream, downstream, device in {path}")


def test_ping(t: Guests) -> None:
    for node in (0, 1):
        t.run(node, "ping -q -c 20 -i 0.01 $PEER")
        t.run(node, "ping -q -c 20 -i 0.01 $PEER6")


def test_ping_every_size(t: Guests) -> None:
    # Around the header slot, the minimum frame, and the MTU.
    for size in (0, 1, 17, 18, 200, 213, 214, 215, 255, 256, 1024, 1471, 1472):
        t.run(1, f"ping -q -c 2 -i 0.01 -M do -s {size} $PEER")


def test_fragments(t: Guests) -> None:
    t.run(1, "ping -q -c 3 -i 0.01 -s 8000 $PEER; ping -q -c 3 -i 0.01 -s 8000 $PEER6")


def test_tcp_both_ways(t: Guests) -> None:
    iperf(t, "")
    iperf(t, "-R")


def test_tcp_ipv6(t: Guests) -> None:
    iperf(t, "-6")


def test_tcp_many_streams(t: Guests) -> None:
    iperf(t, "-P 8")


def test_udp(t: Guests) -> None:
    report = iperf(t, "-u -b 20M")
    t.check(report["end"]["sum"]["lost_percent"] < 50, f"UDP lost {report['end']['sum']['lost_percent']} %")


def test_bytes_arrive_unchanged(t: Guests) -> None:
    copy_file(t, "/mnt/t/random")
    copy_file(t, "/mnt/t/random", family="-6")
    copy_file(t, "/mnt/t/random", sender=0)


def test_jumbo_frames(t: Guests) -> None:
    for node in (0, 1):
        t.run(node, "ip link set nupa0 mtu 9000")
    t.run(0, "ping -q -c 3 -i 0.01 -M do -s 8972 $PEER")
    t.run(1, "ping -q -c 3 -i 0.01 -M do -s 8952 $PEER6")
    iperf(t, "")
    copy_file(t, "/mnt/t/random")
    for node in (0, 1):
        t.run(node, "ip link set nupa0 mtu 1500")
    t.run(0, "ping -q -c 3 -i 0.01 $PEER")


def test_mtu_bounds(t: Guests) -> None:
    t.fails(0, "ip link set nupa0 mtu 9001")
    t.fails(0, "ip link set nupa0 mtu 67")
    t.equal(t.run(0, "cat /sys/class/net/nupa0/mtu").strip(), "1500", "MTU after refused changes")


def test_down_and_up(t: Guests) -> None:
    for _ in range(3):
        t.run(0, "ip link set nupa0 down; ip link set nupa0 up; ip -6 address replace $IP6/64 dev nupa0 nodad")
        t.run(0, "ping -q -c 2 -i 0.01 -W 2 $PEER")


def test_link_events(t: Guests) -> None:
    t.switch("link", port="n0", up=False)
    t.run(0, "until [ $(cat /sys/class/net/nupa0/carrier) = 0 ]; do sleep 0.05; done", 5)
    t.fails(0, "ping -q -c 1 -W 1 $PEER")
    t.switch("link", port="n0", up=True)
    t.run(0, "until [ $(cat /sys/class/net/nupa0/carrier) = 1 ]; do sleep 0.05; done", 5)
    t.run(0, "ping -q -c 3 -i 0.1 $PEER")
