# SPDX-License-Identifier: BSD-3-Clause
"""A memory region of 1 GiB, used all over."""

import pytest

from harness.guests import Guests
from harness.needs import Needs
from vm.rdma import model, mostly_placed

# a region each, and the active side's model of the other's
NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/programs/qp_rdma",), setup="full", mem_mb=2560)
pytestmark = pytest.mark.needs(NEEDS)


@pytest.mark.long
def test_region_of_a_gibibyte(t: Guests) -> None:
    for engine in ("offload", "software"):
        counters = model(t, (engine, engine), "--seed 61", "--region-mib 1024 --operations 300", limit_s=300)
        if engine == "offload":
            mostly_placed(t, counters)
