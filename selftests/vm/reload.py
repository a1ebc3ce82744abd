# SPDX-License-Identifier: BSD-3-Clause
"""Modules and RDMA devices come and go, also while they are busy."""

import functools

import pytest

from harness.busy import one_shows
from harness.guests import NCQP, Guests
from harness.needs import Needs
from harness.traffic import ENDLESS, ENDLESS_S, free_port, iperf, ncqp, wait_moving

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("tools/ncqp/ncqp",), setup="full")
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]
SETUP = "sh $REPO/tools/vm/guest/setup full"
BUSY_S = 120


def test_rdma_link_add_del(t: Guests) -> None:
    for _ in range(5):
        t.run(0, "rdma link delete tcpqp0; rdma link add tcpqp0 type tcp_qp netdev nupa0")
    t.check("netdev nupa0" in t.run(0, "rdma link show tcpqp0/1"), "the device is back")
    t.fails(0, "rdma link add tcpqp1 type tcp_qp netdev nonesuch")
    t.run(0, "sh $REPO/tools/vm/guest/mkdev")


def test_driver_reload_under_load(t: Guests) -> None:
    for _ in range(2):
        port = free_port()
        server = t.start(1, f"iperf3 -s -1 -p {port}", BUSY_S)
        t.wait_listening(1, port)
        client = t.start(0, f"iperf3 -t {ENDLESS_S} -c $PEER -p {port}", BUSY_S)
        wait_moving(t, 0, port)
        t.run(0, "rmmod nupa_dev")
        client.kill()
        server.kill()
        client.wait()
        server.wait()
        t.run(0, SETUP)
        t.run(0, "ping -q -c 3 -i 0.1 $PEER")
    iperf(t, "")


@pytest.mark.long
def test_driver_reload_under_offload(t: Guests) -> None:
    # The QP's buffers, its context in the switch and the connection all lose the device beneath them.
    port = free_port()
    options = f"-q --engine offload --timeout {round(5 * t.cluster.slowness)} -v 251 -n {ENDLESS}"
    server = t.start(0, f"{NCQP} {options} -l -p {port} >/dev/null", BUSY_S)
    t.wait_listening(0, port)
    client = t.start(1, f"{NCQP} {options} -s $PEER -p {port}", BUSY_S)
    wait_moving(t, 1, port)
    t.run(0, "rmmod nupa_dev")
    for job in (client, server):
        result = job.wait()
        t.check(0 < result.status < 124, f"ended with {result.status} when the device went away: {result.stderr}")
    t.run(0, SETUP)
    t.run(0, "ping -q -c 3 -i 0.1 $PEER")


def test_transfer_after_reload(t: Guests) -> None:
    transfer = functools.partial(ncqp, t, "offload", "-v 251 -n 4M", "-v 251 -n 4M")
    one_shows(t, transfer, lambda ends: ends[1]["placed_bytes"] >= 4 << 20, "all is placed")


def test_everything_unloads(t: Guests) -> None:
    for node in (0, 1):
        t.run(node, "rdma link delete tcpqp0; rmmod nupa_dev; modprobe -qr rdma_ucm; rmmod tcp_qp")
        t.run(node, SETUP)
    t.run(0, "ping -q -c 3 -i 0.1 $PEER")
    ncqp(t, "software", "-v 251 -n 2M", "-v 251 -n 2M")
