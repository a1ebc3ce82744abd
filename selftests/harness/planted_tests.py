# SPDX-License-Identifier: BSD-3-Clause
"""Tests that pass, fail and are skipped on purpose; planted_outcomes.py has their guests, and knows what must become of each."""

from dataclasses import replace

import pytest

from harness.guests import Guests
from harness.needs import Needs

from nupavm import EmulatorCrashed, MadeUpByEmulator

NEEDS = Needs(switch=False, nodes=1)
NO_BOOT = replace(NEEDS, append="never boots")
pytestmark = pytest.mark.needs(NEEDS)


def booted(t: Guests, count: int) -> None:
    t.equal(t.cluster.number, count, "guests booted so far")


@pytest.mark.needs(NO_BOOT)
@pytest.mark.parametrize("time", (1, 2, 3))
def test_does_not_boot(t: Guests, time: int) -> None:
    booted(t, 0)


def test_passes(t: Guests) -> None:
    booted(t, 1)


def test_fails(t: Guests) -> None:
    booted(t, 1)
    t.check(False, "a planted failure")


def test_skipped(t: Guests) -> None:
    booted(t, 2)
    pytest.skip("after a look")


def test_wrong_in_itself(t: Guests) -> None:
    booted(t, 2)
    raise ZeroDivisionError


def test_kernel_complains(t: Guests) -> None:
    booted(t, 3)
    t.nodes[0].kernel_says("WARNING: planted")


@pytest.mark.parametrize("engine", ("software", "offload"))
def test_fresh(t: Guests, engine: str) -> None:
    booted(t, 4)


@pytest.mark.debug_kernel
def test_other_kernel(t: Guests) -> None:
    booted(t, 0)


@pytest.mark.emulator_may_crash
def test_emulator_crashes_once(t: Guests) -> None:
    if t.cluster.number == 4:
        raise EmulatorCrashed("planted")
    booted(t, 5)


@pytest.mark.emulator_may_crash
def test_emulator_crashes_twice(t: Guests) -> None:
    raise EmulatorCrashed(f"planted in guests {t.cluster.number}")


def test_emulator_crashes_unmarked(t: Guests) -> None:
    booted(t, 7)
    raise EmulatorCrashed("planted, unmarked")


def test_impossible_flags(t: Guests) -> None:
    if t.cluster.number == 8:
        raise MadeUpByEmulator("planted")
    booted(t, 9)


def test_late_complaint(t: Guests) -> None:
    booted(t, 9)
    t.cluster.late = "WARNING: planted late"


@pytest.mark.long
def test_long(t: Guests) -> None:
    booted(t, 0)
