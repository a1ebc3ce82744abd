# SPDX-License-Identifier: BSD-3-Clause
"""The netfilter hook is there while a queue pair is, and nobody else's packets mean more by it."""

import json

import pytest

from harness.guests import Guests
from harness.needs import Needs
from vm.attach_attacks import PROGRAM

from nupavm import Job

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/hostile/attach_attacks",), nodes=1, setup="full")
pytestmark = pytest.mark.needs(NEEDS)


@pytest.fixture(autouse=True)
def hooks_are_listed(t: Guests) -> None:
    if not t.nodes[0].run("modprobe nfnetlink_hook").ok:
        pytest.skip("the kernel has no nfnetlink_hook")


def hooks(t: Guests, where: str = "") -> list[str]:
    return [hook for hook in json.loads(t.run(0, f"{where} /usr/bin/python3 $REPO/selftests/vm/programs/nf_hooks.py")) if "tqp" in hook]


def until_hooks(t: Guests, count: int, where: str = "") -> None:
    t.wait_until(lambda: len(hooks(t, where)) == count, f"not {count} netfilter hooks of tcp_qp {where}")


def hold(t: Guests) -> Job:
    job = t.start(0, f"mkfifo /tmp/held; exec {PROGRAM} --case hold <>/tmp/held")
    t.wait_output(job, "attached")
    return job


def let_go(t: Guests, job: Job) -> None:
    t.run(0, "pkill -x attach_attacks; rm -f /tmp/held")
    job.wait()


def test_hooks_only_while_there_is_a_queue_pair(t: Guests) -> None:
    until_hooks(t, 0)
    job = hold(t)
    t.equal(len(hooks(t)), 2, "netfilter hooks of tcp_qp, with a queue pair")
    t.run(0, "ip netns add aside")
    try:
        t.equal(hooks(t, "ip netns exec aside"), [], "hooks of a namespace without one")
    finally:
        let_go(t, job)
        t.run(0, "ip netns delete aside")
    until_hooks(t, 0)


def test_mptcp_beside_queue_pairs(t: Guests) -> None:
    """A segment with tcp_bth is to an MPTCP connection what it is without us."""
    forge = "cd $REPO/selftests && /usr/bin/python3 -m vm.hostile.mptcp_forge"
    t.run(0, "sysctl -qw net.mptcp.enabled=1")
    until_hooks(t, 0)
    without = json.loads(t.run(0, forge))
    job = hold(t)
    try:
        beside = json.loads(t.run(0, forge))
    finally:
        let_go(t, job)
    t.equal(beside, without, "what MPTCP makes of it")
