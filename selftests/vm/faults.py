# SPDX-License-Identifier: BSD-3-Clause
"""The fabric misbehaves; every byte still arrives once, in order and unchanged (ncqp checks the pattern)."""

import pytest

from harness.guests import Failed, Guests
from harness.traffic import copy_file, ncqp, sysctl
from vm.fabric import NEEDS  # the same guests

pytestmark = pytest.mark.needs(NEEDS)
SEED = 20240607
BOTH = ("n0", "n1")
CHECKED = "-v 251 -n 8M"


def _with_faults(t: Guests, faults: dict, engines: tuple[str, ...] = ("software", "offload")) -> list[dict]:
    reports = []
    for port in BOTH:
        t.switch("faults", port=port, clear=True, set={"seed": SEED, **faults})
    try:
        for engine in engines:
            reports.append(ncqp(t, engine, CHECKED, CHECKED, limit_s=90)[0])
    finally:
        for port in BOTH:
            t.switch("faults", port=port, clear=True)
    return reports


def _counted(t: Guests, name: str) -> int:
    return sum(t.switch_stats(node)[name] for node in (0, 1))


def test_loss(t: Guests) -> None:
    before = _counted(t, "fault_loss")
    reports = _with_faults(t, {"loss": 0.005})
    t.check(_counted(t, "fault_loss") > before, "the switch dropped nothing")
    t.check(all(r["retrans"] > 0 for r in reports), "loss without retransmission")


def test_reorder(t: Guests) -> None:
    before = _counted(t, "fault_reorder")
    _with_faults(t, {"reorder": 0.02, "reorder_packets": 8})
    t.check(_counted(t, "fault_reorder") > before, "the switch reordered nothing")


def test_duplicate(t: Guests) -> None:
    before = _counted(t, "fault_duplicate")
    _with_faults(t, {"duplicate": 0.05})
    t.check(_counted(t, "fault_duplicate") > before, "the switch duplicated nothing")


def test_corrupt(t: Guests) -> None:
    before = _counted(t, "fault_corrupt")
    _with_faults(t, {"corrupt": 0.005})
    t.check(_counted(t, "fault_corrupt") > before, "the switch corrupted nothing")


def test_option_stripped_on_the_way(t: Guests) -> None:
    # A middlebox that blanks unknown options: slower or refused, never wrong.
    for port in BOTH:
        t.switch("faults", port=port, clear=True, set={"seed": SEED, "bleach": 0.02})
    try:
        try:
            ncqp(t, "offload", f"--timeout 8 {CHECKED}", f"--timeout 8 {CHECKED}", limit_s=60)
        except Failed as refused:
            t.check("pattern" not in str(refused), str(refused))
    finally:
        for port in BOTH:
            t.switch("faults", port=port, clear=True)


def test_slow_lane_with_short_queue(t: Guests) -> None:
    _with_faults(t, {"rate_mbps": 200, "queue_bytes": 60000, "delay": 1.0, "delay_min_us": 500, "delay_max_us": 2000}, ("offload",))


def test_congestion_marks(t: Guests) -> None:
    before = _counted(t, "ecn_marked")
    with sysctl(t, "net.ipv4.tcp_ecn", 1):
        _with_faults(t, {"rate_mbps": 200, "queue_bytes": 500000, "ecn_bytes": 20000}, ("offload",))
    t.check(_counted(t, "ecn_marked") > before, "nothing was marked")


def test_all_at_once(t: Guests) -> None:
    _with_faults(t, {"loss": 0.003, "reorder": 0.01, "reorder_packets": 5, "duplicate": 0.01, "corrupt": 0.002})


def test_plain_tcp_too(t: Guests) -> None:
    for port in BOTH:
        t.switch("faults", port=port, clear=True, set={"seed": SEED, "loss": 0.005, "reorder": 0.01, "corrupt": 0.002})
    try:
        copy_file(t, "/mnt/t/random", mib=4)
    finally:
        for port in BOTH:
            t.switch("faults", port=port, clear=True)
