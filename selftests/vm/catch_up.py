# SPDX-License-Identifier: BSD-3-Clause
"""TCP is told of what left without it (docs/grants.md): modules/catch_up sends within the windows, programs/catch_up.py looks at every byte."""

import json

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.pairs import fabric, served
from harness.traffic import free_port

NEEDS = Needs(modules=("tcp_qp", "nupa_dev", "tests/catch_up"), setup="full")
pytestmark = pytest.mark.needs(NEEDS)
PROGRAM = "/usr/bin/python3 $REPO/selftests/vm/programs/catch_up.py"
MODULE = "$KO/tests/catch_up/catch_up.ko"
LOSS = 0.01
MESSAGES = 120
SHAPES = ((64, True), (4096, False))  # bytes of a message, and whether it is answered
# Where TCP is told: by whom it must have been at least once.
WHERE = {"process": "told_in_process", "softirq": "told_in_softirq", "ack": "told_in_softirq", "ack+held": "told_in_backlog",
         "softirq+mixed": "told_in_softirq", "process+repair": "told_in_process"}  # fmt: skip
SHORT = ("ack+held",)  # the other ways are for `make soak`
RTT_TURNS, RTT_MESSAGES, RTT_TIMES = 8, 100, 2


@pytest.fixture(autouse=True)
def catch_up_is_loaded(t: Guests) -> None:
    t.run(1, f"insmod {MODULE}")
    try:
        yield
    finally:
        t.run(1, "rmmod catch_up")


def sent(t: Guests, how: str, length: int, messages: int, answered: bool) -> dict:
    """What the sender shows, once the receiver has found each byte in its place."""
    port = free_port()
    serve = f"{PROGRAM} serve {port} {length if answered else 0}"
    shown, received = served(t, serve, f"{PROGRAM} send {t.nodes[0].ip4} {port} {how} {length} {messages} {answered:d}", port)
    t.equal(json.loads(received), {"received": length * messages, "wrong": 0}, f"{how}, {length} bytes: what came")
    return json.loads(shown)


def told_right(t: Guests, how: str, length: int, answered: bool) -> dict:
    counts = sent(t, how, length, MESSAGES, answered)["counts"]
    told = sum(count for name, count in counts.items() if name.startswith("told_"))
    t.equal((told, counts["acks_ahead"], counts["failed"]), (counts["messages"], 0, 0), f"{how}, {length} bytes: {counts}")
    return counts


@pytest.mark.parametrize("how", [how if how in SHORT else pytest.param(how, marks=pytest.mark.long) for how in WHERE])
def test_loss(t: Guests, how: str) -> None:
    """Told in each context, with answers and without, beside TCP's own retransmissions."""
    with fabric(t, loss=LOSS):
        all_counts = [told_right(t, how, length, answered) for length, answered in SHAPES]
    t.check(any(counts[WHERE[how]] for counts in all_counts), f"{how}: never {WHERE[how]}: {all_counts}")
    t.equal(any(counts["dropped"] for counts in all_counts), "repair" not in how, f"{how}: packets of TCP's that were not sent again")


@pytest.mark.long
def test_round_trips_are_measured_as_ever(t: Guests) -> None:
    """From when a segment left, not from when TCP heard of it.  A guest's time is its host's: more turns until both had a quiet one."""
    shown: dict[str, list[float]] = {"plain": [], "ack": []}
    for _ in range(RTT_TURNS):
        for how, rtts in shown.items():
            rtts.append(sent(t, how, 64, RTT_MESSAGES, True)["rtt_us"])
        plain, hardware = (min(rtts) for rtts in shown.values())
        if plain / RTT_TIMES < hardware < plain * RTT_TIMES:
            return
    t.check(False, f"smoothed round trips in us: {shown}")
