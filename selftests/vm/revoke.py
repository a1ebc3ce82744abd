# SPDX-License-Identifier: BSD-3-Clause
"""Memory that an application has back stays its own, and what it writes there never reaches the peer."""

import contextlib
import signal
import threading
from collections.abc import Iterator

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.pairs import Pair, fabric

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/programs/qp_revoke",), setup="full")
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]
ROUNDS = 8
# Much is under way when the moment comes: a short pipe, and a fabric that makes TCP send again.
SLOW = {"rate_mbps": 400, "queue_bytes": 400000, "loss": 0.01, "delay": 0.2, "delay_min_us": 500, "delay_max_us": 4000, "reorder": 0.02}


def _rounds(t: Guests, receiver: str, sender: str, engine: str, **faults) -> None:
    with fabric(t, **faults):
        Pair(t, "qp_revoke", receiver, sender, f"--rounds {ROUNDS} --engine {engine}", limit_s=120).done()


def test_receiver_memory(t: Guests) -> None:
    for engine in ("offload", "software"):
        _rounds(t, "--revoke memory", "", engine)


def test_receiver_memory_under_faults(t: Guests) -> None:
    _rounds(t, "--revoke memory --seed 2", "--seed 2", "offload", **SLOW)


@pytest.mark.long
def test_receiver_qp(t: Guests) -> None:
    for engine in ("offload", "software"):
        _rounds(t, "--revoke qp", "", engine)


def test_receiver_qp_under_faults(t: Guests) -> None:
    _rounds(t, "--revoke qp --seed 3", "--seed 3", "offload", **SLOW)


def test_sender_qp(t: Guests) -> None:
    for engine in ("offload", "software"):
        _rounds(t, "", "--revoke qp", engine, **SLOW)


# What leaves under an old message's name is what was there before, or nothing.
def test_sender_memory(t: Guests) -> None:
    for engine in ("offload", "software"):
        _rounds(t, "", "--revoke memory", engine, **SLOW)


# Trains: a message in the middle may be acknowledged when the moment comes, and all of them are sent from where they lie.
TRAINS = "--train 8 --depth 64 --bytes 6000"


@pytest.mark.long
def test_sender_memory_of_trains(t: Guests) -> None:
    for engine in ("offload", "software"):
        _rounds(t, f"{TRAINS} --seed 8", f"{TRAINS} --revoke memory --seed 8", engine, **SLOW)


def test_sender_qp_with_trains(t: Guests) -> None:
    for engine in ("offload", "software"):
        _rounds(t, f"{TRAINS} --seed 9", f"{TRAINS} --revoke qp --seed 9", engine, **SLOW)


def test_receiver_memory_of_trains(t: Guests) -> None:
    for engine in ("offload", "software"):
        _rounds(t, f"{TRAINS} --revoke memory --seed 10", f"{TRAINS} --seed 10", engine)


@contextlib.contextmanager
def _pauses(t: Guests, seconds: float) -> Iterator[None]:
    """The switch stands still for so long, again and again: what the drivers gave it waits in their rings."""
    switch, over = t.cluster.switch.process, threading.Event()

    def stop_and_go() -> None:
        while not over.wait(seconds):
            switch.send_signal(signal.SIGSTOP)
            over.wait(seconds)
            switch.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _rounds_with_pauses(t: Guests, receiver: str, sender: str, seed: int) -> None:
    for engine in ("offload", "software"):
        with _pauses(t, 0.05):
            _rounds(t, f"{receiver} --seed {seed}", f"{sender} --seed {seed}", engine)


def test_sender_qp_while_the_switch_pauses(t: Guests) -> None:
    _rounds_with_pauses(t, "", "--revoke qp", 4)


@pytest.mark.long
def test_sender_memory_while_the_switch_pauses(t: Guests) -> None:
    _rounds_with_pauses(t, "", "--revoke memory", 5)


@pytest.mark.long
def test_sender_fails_while_the_switch_pauses(t: Guests) -> None:
    _rounds_with_pauses(t, "", "--revoke error", 6)


@pytest.mark.long
def test_receiver_fails_while_the_switch_pauses(t: Guests) -> None:
    _rounds_with_pauses(t, "--revoke error", "", 7)


@pytest.mark.long
def test_trains_fail_while_the_switch_pauses(t: Guests) -> None:
    _rounds_with_pauses(t, TRAINS, f"{TRAINS} --revoke error", 11)
