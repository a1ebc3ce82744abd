# SPDX-License-Identifier: BSD-3-Clause
"""Guests come up the way every other test relies on."""

import pytest

from harness.guests import Guests
from vm.fabric import NEEDS  # the same guests

pytestmark = pytest.mark.needs(NEEDS)


def test_fair_memory_copies(t: Guests) -> None:
    # TCG runs `rep movsb` a byte at a time: a kernel that uses it would be a slow baseline.
    for flag in ("erms", "fsrm"):
        t.equal(t.run(0, f"grep -cw {flag} /proc/cpuinfo || true").strip(), "0", f"CPU flag {flag}")


def test_no_cmpxchg16b_under_tcg(t: Guests) -> None:
    """QEMU 7.2's makes up flags (docs/known-faults.md)."""
    if t.cluster.accel == "kvm":
        pytest.skip("KVM: the processor's own")
    t.equal(t.run(0, "grep -cw cx16 /proc/cpuinfo || true").strip(), "0", "CPU flag cx16")


def test_host_root_is_read_only(t: Guests) -> None:
    t.run(0, "echo scratch >$REPO/.written-by-a-guest && cat $REPO/.written-by-a-guest")
    t.check(not (t.cluster.node[0].results.parents[3] / ".written-by-a-guest").exists(), "a guest wrote to the host's root")


def test_results_reach_the_host(t: Guests) -> None:
    t.run(1, "seq 100000 >/results/numbers")
    numbers = (t.nodes[1].results / "numbers").read_text().split()
    t.equal((len(numbers), numbers[-1]), (100000, "100000"), "file written by a guest")


def test_barrier_and_words(t: Guests) -> None:
    getter = t.start(0, "nupa-ctl get port; nupa-ctl barrier met")
    t.run(1, "nupa-ctl post port 4711; nupa-ctl barrier met")
    t.equal(getter.wait().stdout.strip(), "4711", "word from the other node")


def test_command_time_limit(t: Guests) -> None:
    result = t.nodes[0].run("sleep 60", limit_s=1)
    t.equal(result.status, 124, "status of a command past its limit")
