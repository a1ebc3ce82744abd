# SPDX-License-Identifier: BSD-3-Clause
"""Memory that an application took back stays its own, and what it writes there never reaches the peer."""

from pairs import Pair, fabric
from vmtest import Guests, Needs

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/programs/qp_revoke",), setup="full")
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
