# SPDX-License-Identifier: BSD-3-Clause
"""Bells of send queues: an eventfd lets posted requests go; what is held, refused, flooded, and what is left when somebody goes."""

import contextlib
import json
from collections.abc import Iterator

import pytest

from harness.guests import Guests
from harness.pairs import PROGRAMS
from vm.accel import NEEDS

# Guests as the accelerators' tests have them: one boot for both.
pytestmark = pytest.mark.needs(NEEDS)
CASES = 10


@contextlib.contextmanager
def _loopback(t: Guests) -> Iterator[None]:
    t.run(0, "rdma link add tcpqp1 type tcp_qp netdev lo && sh $REPO/tools/vm/guest/mkdev")
    yield
    t.run(0, "rdma link delete tcpqp1 2>/dev/null || true")


def test_one_process(t: Guests) -> None:
    with _loopback(t):
        t.equal(json.loads(t.run(0, f"{PROGRAMS}/qp_bell", 60))["cases"], CASES, "cases")


def test_one_process_whose_queues_are_watched(t: Guests) -> None:
    """`tcpqp-run --verbs` asks for a watch over the send queues, which must not take what a bell holds for something to send."""
    with _loopback(t):
        run = "$BUILD/cmake/user/tcpqp_run/tcpqp-run --verbs"
        t.equal(json.loads(t.run(0, f"{run} {PROGRAMS}/qp_bell", 60))["cases"], CASES, "cases")


def test_device_goes(t: Guests) -> None:
    """While its queue pair's bell rings without a pause; the process and its eventfd live on."""
    with _loopback(t):
        job = t.start(0, f"exec {PROGRAMS}/qp_bell --ring")
        t.wait_output(job, "ringing")
        t.run(0, "rdma link delete tcpqp1")
        t.run(0, "[ ! -e /sys/class/infiniband/tcpqp1 ]")
        job.kill()
