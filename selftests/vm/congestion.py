# SPDX-License-Identifier: BSD-3-Clause
"""Linux's congestion controls under everything a path does to packets: every byte arrives, whatever it takes."""

from conditions import CONTROLS, checked_transfer, control, covering_cases, every_case
from fabric import NEEDS  # noqa: F401  (the same guests)
from vmtest import Guests, long


def _all(t: Guests, name: str) -> None:
    with control(t, name):
        t.equal(t.run(0, "sysctl -n net.ipv4.tcp_congestion_control").strip(), name, "congestion control")
        for case in covering_cases():
            if case[0] == name:
                checked_transfer(t, case)


def test_cubic(t: Guests) -> None:
    _all(t, "cubic")


def test_bbr(t: Guests) -> None:
    _all(t, "bbr")


def test_dctcp(t: Guests) -> None:
    _all(t, "dctcp")


@long
def test_every_case(t: Guests) -> None:
    for name in CONTROLS:
        with control(t, name):
            for case in (c for c in every_case() if c[0] == name):
                checked_transfer(t, case)
