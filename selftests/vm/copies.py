# SPDX-License-Identifier: BSD-3-Clause
"""Each way in which the switch can copy, by force: the best one alone would be tested otherwise, and that is another on another processor."""

from dataclasses import replace

import pytest

from harness.guests import Guests
from harness.needs import by_each_copy
from harness.pairs import Pair
from vm.exchange import NEEDS as EXCHANGE, offload_pair, under_faults

PROGRAMS = ("qp_exchange", "qp_rdma", "qp_litmus", "qp_many")
NEEDS = replace(EXCHANGE, programs=tuple(f"selftests/vm/programs/{name}" for name in PROGRAMS))


@pytest.mark.long
@by_each_copy(NEEDS)
def test_by(t: Guests, copy: str) -> None:
    offload_pair(t, "--messages 200 --sges 16 --inline 128 --seed 31")
    offload_pair(t, "--messages 300 --max-bytes 3000 --seed 32", "fd77::1", share=0.5)
    under_faults(t, "offload", "offload", "--messages 150 --seed 33")
    Pair(t, "qp_rdma", common="--engine offload --operations 400 --seed 34").done()
    Pair(t, "qp_litmus", common="--engine offload --rounds 20").done()
    Pair(t, "qp_many", common="--engine offload --count 300 --messages 6", limit_s=120).done()
