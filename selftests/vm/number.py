# SPDX-License-Identifier: BSD-3-Clause
"""Connections by number: {QPN, GID, PSN} told out of band, then RTR and RTS, and no rdma_cm."""

import ipaddress

import pytest

from harness.guests import Guests
from harness.needs import Needs

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), setup="full")
pytestmark = pytest.mark.needs(NEEDS)

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


def test_gids_are_the_addresses(t: Guests) -> None:
    (local,) = [gid for gid in gids(t, 0) if gid.startswith("fe80:")]
    wait_gids(t, 0, ["10.77.0.1", "fd77::1", local])
    t.run(0, "ip address add 10.77.9.1/24 dev nupa0; ip address add fd77:9::1/64 dev nupa0")
    t.wait_until(lambda: len(gids(t, 0)) == 5, "the table has both new addresses")
    t.equal(gids(t, 0)[:2], ["10.77.0.1", "10.77.9.1"], "IPv4 first")
    t.equal(set(gids(t, 0)[2:]), {"fd77::1", "fd77:9::1", local}, "then IPv6")
    t.run(0, "ip address del 10.77.9.1/24 dev nupa0; ip address del fd77:9::1/64 dev nupa0")
    wait_gids(t, 0, ["10.77.0.1", "fd77::1", local])


def test_more_addresses_than_gids(t: Guests) -> None:
    before = gids(t, 0)
    each = "for i in $(seq 2 30); do ip address {} 10.77.8.$i/32 dev nupa0; done"
    t.run(0, each.format("add"))
    t.wait_until(lambda: len(gids(t, 0)) == 16, "the table is full")
    t.equal(gids(t, 0)[0], "10.77.0.1", "index 0")
    t.run(0, each.format("del"))
    wait_gids(t, 0, before)
