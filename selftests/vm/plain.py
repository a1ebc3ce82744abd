# SPDX-License-Identifier: BSD-3-Clause
"""The device works just as well straight on the PCI root bus."""

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.traffic import iperf

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), topology="plain", setup="full")
pytestmark = pytest.mark.needs(NEEDS)


@pytest.mark.long
def test_traffic(t: Guests) -> None:
    path = t.run(0, "readlink -f /sys/class/net/nupa0/device").strip()
    t.equal(len([part for part in path.split("/") if part.count(":") == 2]), 1, f"PCI devices in {path}")
    t.run(0, "ping -q -c 5 -i 0.01 $PEER; ping -q -c 5 -i 0.01 $PEER6")
    iperf(t, "")
