# SPDX-License-Identifier: BSD-3-Clause
"""Packets that need not be: ACKs that an answer carries, and bursts that are told of by piece (docs/dataflow.md, "Transmit" 4 and 7)."""

import pytest

from harness.busy import shown
from harness.guests import Guests
from harness.needs import Needs, on_debug_kernel
from harness.pairs import fabric
from harness.traffic import nupa_bench, route, sysctl

from vm.completions import counted
from vm.exchange import lost

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("bench/guest/nupa_bench",), setup="full")
pytestmark = pytest.mark.needs(NEEDS)

MESSAGES = 1000
BYTES = 4096  # more than a segment, which TCP acknowledges at once
CARRIED, ALONE, DELAYED = "rx_carried_acks", "tx_pure_acks", "TcpExtDelayedACKs"
LEAST = 0.01 if on_debug_kernel() else 0.5
TIMER_US = 4000  # TQP_DELACK_MAX_MS


def acks(t: Guests) -> list[list[int]]:
    return [[counted(t, node, CARRIED), t.stat(node, ALONE), t.nstat(node, DELAYED)] for node in range(2)]


def timed_round_trips(t: Guests, transport: str, options: str, size: int = BYTES, messages: int = MESSAGES) -> tuple[int, list[list[float]]]:
    """What 99 of 100 round trips took at most, in us; ACKs of each end that were carried, left alone, and were TCP's timer's, for a message."""
    before = acks(t)
    said = nupa_bench(t, f"transport={transport},mode=pingpong,bytes={size},messages={messages},warm_bytes={16 * size},{options}")
    ends = [[(now - then) / messages for now, then in zip(*end, strict=True)] for end in zip(acks(t), before, strict=True)]
    return said["tx"]["rtt_ns"]["p99"] // 1000, ends


def round_trips(t: Guests, transport: str, options: str, size: int = BYTES, messages: int = MESSAGES) -> list[list[float]]:
    return timed_round_trips(t, transport, options, size, messages)[1]


@pytest.mark.parametrize(
    "transport, poll",
    [pytest.param("offload", 0, id="offload_asleep"), pytest.param("offload", 1, id="offload_spinning", marks=pytest.mark.long),
     pytest.param("software", 0, id="software_asleep"), pytest.param("software", 1, id="software_spinning", marks=pytest.mark.long)],
)  # fmt: skip
def test_answers_carry_acks(t: Guests, transport: str, poll: int) -> None:
    """An answer that the machine's other work makes late carries none, so one of a few runs must show it, unless many answers are late."""

    def attempt() -> tuple[bool, float, list[list[float]]]:
        p99_us, ends = timed_round_trips(t, transport, f"poll={poll}")
        shows = all(carried > LEAST and (alone < 0.5 or on_debug_kernel()) and delayed < 0.1 for carried, alone, delayed in ends)
        return shows, p99_us, ends

    shown(t, attempt, TIMER_US, "carried, left alone, waited for the timer; of each end, for a message")


@pytest.mark.long
def test_small_congestion_windows_wait_for_no_timer(t: Guests) -> None:
    """A congestion window of less than two messages, beside ACKs that are left to answers."""
    with route(t, "cwnd lock 4"):
        for transport in ("offload", "software"):
            for node, (_, _, delayed) in enumerate(round_trips(t, transport, "poll=0")):
                t.check(delayed < 0.1, f"{transport}, node{node}: {delayed} waited for the timer")


def test_small_windows_are_told_of(t: Guests) -> None:
    with sysctl(t, "net.ipv4.tcp_rmem", "4096 16384 32768"):
        for node, (carried, _, _) in enumerate(round_trips(t, "offload", "poll=0")):
            t.equal(carried, 0, f"node{node}")


@pytest.mark.long
def test_every_round_trip_ends_under_loss(t: Guests) -> None:
    before = lost(t)
    with fabric(t, loss=0.01, reorder=0.02):
        for transport in ("offload", "software"):
            round_trips(t, transport, "poll=0", messages=200)
    t.check(lost(t) > before, "the fabric lost nothing: no test of loss")


def test_long_messages_are_tcps(t: Guests) -> None:
    """A sender may need the ACK of much to go on: what a message has beyond 8,760 bytes is acknowledged as ever, before the answer."""
    for node, (_, alone, delayed) in enumerate(round_trips(t, "software", "poll=0", 64 << 10)):
        t.check(alone > 0.9 or on_debug_kernel(), f"node{node}: {alone} left alone")
        t.check(delayed < 0.1, f"node{node}: {delayed} waited for the timer")


def test_scattered_pages_are_told_of_together(t: Guests) -> None:
    """1 MiB from pages that lie anywhere takes 16 skbs, of whole segments and none marked as the last one: the switch tells of them as of a burst."""
    messages = 100
    before = [t.stat(node, "switch_rx_packets") for node in range(2)]
    nupa_bench(t, f"transport=offload,mode=pingpong,bytes={1 << 20},messages={messages},warm_bytes={16 << 20},poll=0,scattered=1")
    told = [(t.stat(node, "switch_rx_packets") - was) / (messages + 16) for node, was in enumerate(before)]
    t.check(max(told) < 16, f"{told} packets for a message and for the ACKs of another")
