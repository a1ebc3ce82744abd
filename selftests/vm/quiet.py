# SPDX-License-Identifier: BSD-3-Clause
"""Who waits for a message that the switch completes has it before TCP hears of it (docs/dataflow.md, "Completed by the switch")."""

import contextlib
import json
from collections.abc import Iterator

import pytest

from harness.busy import shown
from harness.guests import Guests
from harness.needs import Needs, on_debug_kernel
from harness.pairs import Pair
from harness.traffic import nupa_bench

from vm.completions import counted, refused_by_tcp

PROGRAMS = ("bench/guest/nupa_bench", "selftests/vm/programs/lib_exchange", "selftests/vm/programs/cq_edge")
NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=PROGRAMS, setup="full")
pytestmark = pytest.mark.needs(NEEDS)

EXCHANGE = "TCPQP_ENGINE=offload exec $BUILD/cmake/selftests/vm/programs/lib_exchange --messages 40 --bytes 200 --shut"
PORT = 7710
LIMIT_S = 60
MESSAGES = 1500
HEARD_AT_ONCE = 5  # NUPA_RX_LATER_MAX
ATTEMPTS, BETWEEN_S = 8, 3
EDGES = 400  # messages of cq_edge, each way
LONGEST_HOLD_US = 10_000
QUIET_SHARE = 4  # of the hold time
QUIET, JOINED = "switch_rx_quiet", "rx_joined_packets"
PREDICTED = "TcpExtTCPHPHits"  # of nstat
LEAST = 0.001 if on_debug_kernel() else 0.5  # share of messages that are quiet; a debug kernel rarely answers in time


def counts(t: Guests, name: str) -> list[int]:
    return [t.stat(node, name) for node in range(2)]


@contextlib.contextmanager
def hold(t: Guests, usecs: int, nodes: tuple[int, ...] = (0, 1)) -> Iterator[None]:
    was = {node: t.run(node, "ethtool -c nupa0 | awk '$1 == \"rx-usecs:\" { print $2 }'").strip() for node in nodes}
    for node in nodes:
        t.run(node, f"ethtool -C nupa0 rx-usecs {usecs}")
    try:
        yield
    finally:
        for node in nodes:
            t.run(node, f"ethtool -C nupa0 rx-usecs {was[node]}")


def round_trips(t: Guests, options: str, counter: str = QUIET, transport: str = "offload") -> tuple[dict, list[float]]:
    """What the client says, and the share of messages that were counted at each end."""
    before = counts(t, counter)
    said = nupa_bench(t, f"transport={transport},mode=pingpong,bytes=64,messages={MESSAGES},warm_bytes=4096,{options}")
    return said, [(now - then) / MESSAGES for now, then in zip(counts(t, counter), before, strict=True)]


def quiet_round_trips(t: Guests, options: str, counter: str = QUIET) -> dict:
    """What the client says of messages that were mostly counted.  Guests answer within the time in which TCP hears nothing, unless others keep them from it."""

    def attempt() -> tuple[bool, float, tuple[dict, list[float]]]:
        said, shares = round_trips(t, options, counter)
        return min(shares) > LEAST, said["tx"]["rtt_ns"]["p999"] / 1000, (said, shares)

    return shown(t, attempt, LONGEST_HOLD_US / QUIET_SHARE, f"{counter}: share of messages", ATTEMPTS, BETWEEN_S)[0]


@pytest.mark.long
def test_spinning(t: Guests) -> None:
    """Who looks needs no interrupt: the answer leaves, and then the kernel looks, too."""
    with hold(t, LONGEST_HOLD_US):
        said = quiet_round_trips(t, "poll=1")
    for end in ("tx", "rx"):
        interrupts = said[end]["counters"]["interrupts"] / MESSAGES
        t.check(interrupts < 0.7 or on_debug_kernel(), f"{end}: {interrupts:.2f} interrupts a message")


@pytest.mark.long
def test_asleep(t: Guests) -> None:
    """Who sleeps is woken; else each message would wait until the hold time is over."""
    with hold(t, LONGEST_HOLD_US):
        said = quiet_round_trips(t, "poll=0")
    us = said["tx"]["rtt_ns"]["p50"] / 1000
    t.check(us < LONGEST_HOLD_US / QUIET_SHARE or on_debug_kernel(), f"a round trip takes {us:.0f} us: nobody was woken")


def test_asleep_until_an_edge(t: Guests) -> None:
    """So is who asks for edges, though nothing looks at his descriptor between an event and the next one."""

    def attempt() -> tuple[bool, float, float]:
        before = counts(t, QUIET)
        asker = Pair(t, "cq_edge", common="--engine offload").done()[1]
        quiet = min(now - then for now, then in zip(counts(t, QUIET), before, strict=True))
        return quiet > LEAST * EDGES / 4, asker["us"], asker["us"]

    with hold(t, LONGEST_HOLD_US):
        us = shown(t, attempt, LONGEST_HOLD_US / QUIET_SHARE, "messages that were quiet", ATTEMPTS, BETWEEN_S)
    t.check(us < LONGEST_HOLD_US / QUIET_SHARE or on_debug_kernel(), f"a round trip takes {us:.0f} us: nobody was woken")


def test_heard_together(t: Guests) -> None:
    """Nothing hurries: who answers does not stop for each question, and TCP hears of several as of one packet."""
    with hold(t, LONGEST_HOLD_US):
        quiet_round_trips(t, "poll=0", JOINED)


def exchanged(t: Guests) -> list[dict]:
    server = t.start(0, f"{EXCHANGE} --port {PORT}", LIMIT_S)
    t.wait_listening(0, PORT)
    return [json.loads(said) for said in (t.run(1, f"{EXCHANGE} --port {PORT} --connect $PEER"), server.wait().stdout)]


def test_heard_together_and_refused(t: Guests) -> None:
    """What TCP loses of them comes again, and is completed once."""
    before = counts(t, JOINED)
    with hold(t, LONGEST_HOLD_US), refused_by_tcp(t):
        for turn in range(5):
            t.equal([(end["sent"], end["received"]) for end in exchanged(t)], [(40, 40)] * 2, f"turn {turn}")
    t.check(sum(counts(t, JOINED)) > sum(before), "nothing was joined")


def predicted(t: Guests, transport: str) -> float:
    """Headers that TCP expected, for a message."""
    before = [t.nstat(node, PREDICTED) for node in range(2)]
    round_trips(t, "poll=0", transport=transport)
    return max(t.nstat(node, PREDICTED) - was for node, was in enumerate(before)) / MESSAGES


def test_headers_are_predicted(t: Guests) -> None:
    """Without its option a packet, of as many messages as TCP hears of at once, is what TCP expects next, unless its window moves, too: the fast path."""
    share = predicted(t, "offload")
    t.check(share > 0.7 / HEARD_AT_ONCE, f"{share} predicted headers for a message")


def test_headers_are_not_predicted_before_a_copy(t: Guests) -> None:
    """There TCP acknowledges what nobody has looked at: it may be refused yet, and is not in its place."""
    share = predicted(t, "software")
    t.check(share < 0.1, f"{share} predicted headers for a message")


def test_sends_that_are_awaited(t: Guests) -> None:
    """A program that an answer woke may look for its question's completion: that is there, or the message is not quiet."""
    before = [counted(t, node, "tx_nic_messages") for node in range(2)]
    _, shares = round_trips(t, "batch=1")
    for node, share in enumerate(shares):
        sends = counted(t, node, "tx_nic_messages") - before[node]
        t.check(sends >= share * MESSAGES, f"node{node}: {share} of {MESSAGES} messages were quiet, and the switch completed {sends} sends")


@pytest.mark.long
def test_shut_down_at_once(t: Guests) -> None:
    """Both ways, by who has the last message before TCP does: its sender is told that it came, and all of it is counted."""
    with hold(t, LONGEST_HOLD_US):
        for turn in range(15):
            ends = exchanged(t)
            for end, peer in zip(ends, reversed(ends), strict=True):
                t.equal((end["sent"], end["received"], end["rx_bytes"]), (40, 40, peer["tx_bytes"]), f"turn {turn}: {end}")


@pytest.mark.long
def test_turned_off(t: Guests) -> None:
    with hold(t, 0):
        _, shares = round_trips(t, "poll=1")
    t.equal(max(shares), 0, "share of quiet messages")
