# SPDX-License-Identifier: BSD-3-Clause
"""Sockets with ULP tcp_qp_stream are TCP sockets in all that a program can see; their large sends leave from large pages."""

import pytest

from harness.guests import Guests
from harness.needs import Needs

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("tools/tcpqp_stat/tcpqp-stat",), cpus=2, setup="full")
pytestmark = pytest.mark.needs(NEEDS)

PROGRAMS = "$REPO/selftests/vm/programs"
LIMIT_S = 240
LONG_S = 3000


def cases(t: Guests, *names: str) -> None:
    out = t.run(0, f"/usr/bin/python3 {PROGRAMS}/stream_cases.py {' '.join(names)}", LIMIT_S)
    t.equal(out.count("ok "), len(names), out)


def test_calls(t: Guests) -> None:
    cases(t, "inherited", "disconnect_and_listen", "time_limit", "signal", "reset_in_mid_send", "not_blocking", "other_ways_to_send", "ipv6_becomes_ipv4")


def test_bytes(t: Guests) -> None:
    cases(t, "bytes")


def calls(t: Guests, seeds: str, loss: str, workers: int = 6) -> None:
    """By programs/socket_calls.py, which says of a difference what led there, and plays a seed again."""
    t.run(0, f"modprobe sch_netem; tc qdisc add dev lo root netem loss {loss}")
    try:
        print(t.run(0, f"/usr/bin/python3 {PROGRAMS}/socket_calls.py {seeds} {workers}", LONG_S), flush=True)
    finally:
        t.run(0, "tc qdisc del dev lo root")


def test_says_what_a_plain_one_says(t: Guests) -> None:
    calls(t, "0-8", "2%")


@pytest.mark.long
@pytest.mark.parametrize("loss", ("0%", "2%"), ids=("clean", "lossy"))
def test_says_what_a_plain_one_says_for_long(t: Guests, loss: str) -> None:
    calls(t, "8-600", loss)


def test_other_ulps(t: Guests) -> None:
    cases(t, "yields")


def test_hostile_threads(t: Guests) -> None:
    cases(t, "threads", "listener_and_disturbers", "listeners_get_it")


def test_bounded(t: Guests) -> None:
    cases(t, "bounded")


def test_idle_pages(t: Guests) -> None:
    cases(t, "idle_pages")


def attacks(t: Guests, *names: str) -> None:
    nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups --"
    out = t.run(0, f"{nobody} /usr/bin/python3 {PROGRAMS}/stream_attacks.py {' '.join(names)}", LIMIT_S)
    t.equal(out.count("ok "), len(names), out)


def test_attacked_by_who_has_no_privilege(t: Guests) -> None:
    attacks(t, "listens_while_it_yields", "never_zero", "pages_that_others_hold")


def scale(t: Guests, sockets: int, seconds: float, syns: int) -> None:
    print(t.run(0, f"/usr/bin/python3 {PROGRAMS}/stream_scale.py {sockets} {seconds} {syns}", LONG_S), flush=True)


def test_many(t: Guests) -> None:
    scale(t, 1000, 0.5, 2000)
