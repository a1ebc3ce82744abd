# SPDX-License-Identifier: BSD-3-Clause
"""Open MPI and UCX over queue pairs that are connected by number, wired up over UD; `make mpi` runs more of them (docs/mpi.md)."""

import shutil

import pytest

from harness.guests import Guests
from harness.needs import Needs
from nupampi import pairs, programs
from nupampi.launch import Outcome, launch
from nupampi.stacks import BY_NAME

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), setup="full")
pytestmark = pytest.mark.needs(NEEDS)

LIMIT_S = 60
LARGEST = 524288  # of NetPIPE's sizes, each sent there and back
ATOMICS = 50


def installed(program: str, package: str):
    return pytest.mark.skipif(not shutil.which(program), reason=f"{package} is not installed")


def succeeded(t: Guests, outcome: Outcome) -> None:
    t.check(outcome.ok, outcome.problem)


@installed("NPopenmpi", "netpipe-openmpi")
@pytest.mark.long
def test_open_mpi(t: Guests) -> None:
    """NetPIPE compares every byte that comes; what is long is placed by the switch."""
    outcome = launch(t.cluster, BY_NAME["openmpi-ucx"], f"NPopenmpi -i -l 4096 -u {LARGEST} -o /dev/null 2>&1", LIMIT_S)
    succeeded(t, outcome)
    t.equal(max(map(int, programs.NETPIPE_CHECKED.findall(outcome.out)), default=0), LARGEST, "largest message that was compared")
    t.check(outcome.moved["number_established"] and outcome.moved["ud_rx_messages"], f"not by number and UD: {outcome.moved}")
    t.check(outcome.moved["rx_placed_bytes"] > LARGEST, f"placed: {outcome.moved}")


@installed("ucx_perftest", "ucx-utils")
def test_ucx_atomics(t: Guests) -> None:
    """UCX uses a device's atomics only if it says IBV_ATOMIC_HCA."""
    outcome = pairs.uct("rc_verbs", "fadd", "short", 8, ATOMICS).run(t.cluster)
    succeeded(t, outcome)
    t.check(outcome.moved["rx_atomics"] >= ATOMICS, f"atomics: {outcome.moved}")
