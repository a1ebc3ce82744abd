# SPDX-License-Identifier: BSD-3-Clause
"""Middleboxes that rewrite the option: every message is right, or the QP fails and says why.  Never wrong bytes as a good completion."""

import re

import pytest

from harness.guests import Guests
from vm.exchange import LIMIT_S, NEEDS, PORT, PROGRAM  # the same guests

pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]
ROUNDS, ROUNDS_MAX = 3, 12  # more only until the fault has hit anything
RATE = 0.01
# What qp_exchange says when data were wrong, whatever the completion's status.
WRONG = ("wrong bytes", "wrong immediate", "bytes, not", "bytes beyond its end", "a resting buffer was written", "out of order", "do not add up")
# How it ends when a QP failed in an orderly way, on either side.
FAILED = re.compile(r"completion \d+: |no completion for|attach|Connection|connect|query|post_")


def _exchange(t: Guests, engines: tuple[str, str], options: str, undetectable: tuple[str, ...]) -> bool:
    common = f"--timeout 8 --messages 120 {options}"
    server = t.start(0, f"{PROGRAM} --listen {PORT} --engine {engines[0]} {common}", LIMIT_S)
    client = t.start(1, f"{PROGRAM} --connect 10.77.0.1:{PORT} --engine {engines[1]} {common}", LIMIT_S)
    results = [server.wait(), client.wait()]
    for node, result in enumerate(results):
        told = [what for what in WRONG if what in result.stderr and what not in undetectable]
        t.check(not told, f"node{node}: {result.stderr}")
        t.check(result.ok or (result.status == 1 and FAILED.search(result.stderr)), f"node{node}: {result.status} {result.stderr}")
    return all(result.ok for result in results)


def _under(t: Guests, fault: str, engines: tuple[str, str], options: str, undetectable: tuple[str, ...] = (), must_work: bool = False) -> None:
    def changed() -> int:
        return sum(t.switch_stats(node)[f"fault_{fault}"] for node in (0, 1))

    before = changed()
    for seed in range(ROUNDS_MAX):
        if seed >= ROUNDS and changed() > before:
            break
        for port in ("n0", "n1"):
            # The QP's flow alone: by its port, in either direction.
            side = "dport" if port == "n0" else "sport"
            t.switch("faults", port=port, clear=True)
            t.switch("faults", port=port, flow={side: PORT}, set={fault: RATE, "seed": seed + 1})
        try:
            right = _exchange(t, engines, f"--seed {seed + 40} {options}", undetectable)
            t.check(right or not must_work, f"a queue pair failed: {fault}, {engines}, {options}")
        finally:
            for port in ("n0", "n1"):
                t.switch("faults", port=port, clear=True)
    t.check(changed() > before, f"the switch did not {fault} anything")
    t.equal(t.switch("qps")["qps"], [], "QP contexts left in the switch")
    t.check(_exchange(t, engines, "--seed 99", ()), "a clean exchange afterwards")


def test_bleach(t: Guests) -> None:
    _under(t, "bleach", ("offload", "offload"), "")


@pytest.mark.long
def test_copy(t: Guests) -> None:
    _under(t, "copy", ("offload", "offload"), "")
    _under(t, "copy", ("offload", "offload"), "--wire 1")


def test_mangle(t: Guests) -> None:
    # Immediates and lengths are as free as payload is (docs/fabric.md): not looked at here.
    _under(t, "mangle", ("offload", "offload"), "", ("wrong immediate", "bytes, not"))
    _under(t, "mangle", ("offload", "offload"), "--wire 1", ("wrong immediate", "bytes, not"))


@pytest.mark.long
def test_software_engine_too(t: Guests) -> None:
    _under(t, "mangle", ("software", "software"), "", ("wrong immediate", "bytes, not"))


# An option that is another segment's does not fit the CRC: the segment counts as damaged, TCP sends it again.
@pytest.mark.long
def test_icrc_tells(t: Guests) -> None:
    _under(t, "copy", ("offload", "offload"), "--icrc", must_work=True)
    _under(t, "copy", ("software", "software"), "--icrc", must_work=True)
