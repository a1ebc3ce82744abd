# SPDX-License-Identifier: BSD-3-Clause
"""What an unprivileged user's threads and processes can do to a socket while it gets, has or loses a queue pair."""

import json

import pytest

from harness.guests import Guests
from harness.needs import Needs, on_debug_kernel
from harness.pairs import Pair, succeeded
from harness.traffic import done_and_undone

from vm.quiet import LONGEST_HOLD_US, hold

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/hostile/attach_attacks",), cpus=2, setup="full")
pytestmark = pytest.mark.needs(NEEDS)

NOBODY = "chmod 666 /dev/infiniband/*; exec setpriv --reuid 65534 --regid 65534 --clear-groups"
PROGRAM = "$BUILD/cmake/selftests/vm/hostile/attach_attacks --port 7700"
LIMIT_S = 90
SNDBUF_BYTES = 8 << 20


def attack(t: Guests, case: str, rounds: int = 100, who: str = NOBODY) -> str:
    few = max(5, rounds // 5) if on_debug_kernel() else rounds
    return t.run(0, f"{who} {PROGRAM} --case {case} --rounds {few}", LIMIT_S)


def test_setsockopt_steals_no_attach(t: Guests) -> None:
    attack(t, "steal", 40)


def test_two_queue_pairs_to_one_socket(t: Guests) -> None:
    attack(t, "same_socket", 40)


def test_failed_attach_leaves_the_socket_as_it_was(t: Guests) -> None:
    attack(t, "reattach", 100)


def test_another_queue_pair_takes_its_place(t: Guests) -> None:
    attack(t, "another", 12)


SUCCESSORS = 24


def test_a_message_on_its_way_is_not_its_successors(t: Guests) -> None:
    """The switch has placed it, and TCP has not heard of it."""
    command = f"{PROGRAM} --engine offload --case successor --rounds {SUCCESSORS}"
    with hold(t, LONGEST_HOLD_US, nodes=(0,)):
        server = t.start(0, f"exec {command}", LIMIT_S)
        t.wait_listening(0, 7700)
        client = t.start(1, f"exec {command} --connect $PEER", LIMIT_S)
        for end in server, client:
            result = end.wait()
            t.check(result.ok, result.stderr)


def test_reset_completes_nothing_with_success(t: Guests) -> None:
    attack(t, "reset", 10)


def test_attach_waits_for_no_sleeper(t: Guests) -> None:
    attack(t, "blocked")


def test_send_beside_attach(t: Guests) -> None:
    attack(t, "slip", 12)


def test_two_readers_of_plain_bytes(t: Guests) -> None:
    attack(t, "readers", 20)


def _timestamps(t: Guests) -> None:
    for engine in ("software", "offload"):
        rounds = 40 if on_debug_kernel() else 150
        t.run(0, "chmod 666 /dev/infiniband/*")
        t.run(1, "chmod 666 /dev/infiniband/*")
        pair = Pair(t, "../hostile/attach_attacks", common=f"--case timestamps --engine {engine} --rounds {rounds}", limit_s=LIMIT_S)
        succeeded(pair.jobs)


@pytest.mark.long
def test_timestamps_of_every_packet(t: Guests) -> None:
    _timestamps(t)


@pytest.mark.long
def test_timestamps_of_delayed_packets(t: Guests) -> None:
    """The qdisc's timer sends, on any processor: the socket hears of its stamps beside whoever holds its lock."""
    with done_and_undone(t, (0, 1), "modprobe sch_netem; tc qdisc replace dev nupa0 root netem delay 1ms", "tc qdisc del dev nupa0 root"):
        _timestamps(t)


def test_send_buffer_is_the_administrators(t: Guests) -> None:
    limits = "sysctl -qw net.core.wmem_max={} net.ipv4.tcp_wmem='4096 131072 {}'"
    before = t.run(0, "sysctl -n net.core.wmem_max net.ipv4.tcp_wmem").split()
    try:
        t.run(0, limits.format(1 << 20, 3 << 20))
        t.equal(json.loads(attack(t, "send_buffer"))["send_buffer"], 3 << 20, "a user's send buffer")
        t.run(0, limits.format(2 << 20, 1 << 20))
        t.equal(json.loads(attack(t, "send_buffer"))["send_buffer"], 4 << 20, "a user's send buffer")
        t.equal(json.loads(attack(t, "send_buffer", who=""))["send_buffer"], SNDBUF_BYTES, "root's send buffer")
    finally:
        t.run(0, limits.format(before[0], before[3]))
