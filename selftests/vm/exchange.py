# SPDX-License-Identifier: BSD-3-Clause
"""Every byte of every message, checked, between all pairs of engines; with and without faults in the fabric."""

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.pairs import fabric, outputs

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/programs/qp_exchange",), setup="full")
pytestmark = pytest.mark.needs(NEEDS)

PROGRAM = "$BUILD/cmake/selftests/vm/programs/qp_exchange"
PORT = 7000
LIMIT_S = 90
FAULTS = {"loss": 0.01, "reorder": 0.05, "duplicate": 0.01}


def exchange(t: Guests, engine0: str, engine1: str, options: str = "", address: str = "10.77.0.1") -> list[dict]:
    """Both nodes' counters after an exchange that both found right."""
    common = f"--timeout 30 {options}"
    server = t.start(0, f"{PROGRAM} --listen {PORT} --engine {engine0} {common}", LIMIT_S)
    client = t.start(1, f"{PROGRAM} --connect {address}:{PORT} --engine {engine1} {common}", LIMIT_S)
    return outputs([server, client])


def placed_share(counters: dict) -> float:
    return counters["placed"] / counters["delivered"]


def offload_pair(t: Guests, options: str = "", address: str = "10.77.0.1", share: float = 0.9) -> None:
    for node, counters in enumerate(exchange(t, "offload", "offload", options, address)):
        t.equal(counters["engine"], 2, f"node{node}: engine")
        t.check(placed_share(counters) >= share, f"node{node}: only {placed_share(counters):.3f} placed: {counters}")


def test_offload_ipv4(t: Guests) -> None:
    offload_pair(t, "--messages 200 --seed 11")


def test_offload_ipv6(t: Guests) -> None:
    offload_pair(t, "--messages 200 --seed 12", "fd77::1")


def test_offload_ver1_on_the_wire(t: Guests) -> None:
    offload_pair(t, "--messages 200 --wire 1 --seed 13")


def test_scatter_lists_and_inline(t: Guests) -> None:
    offload_pair(t, "--messages 200 --sges 16 --inline 128 --seed 14")


def test_small_messages(t: Guests) -> None:
    offload_pair(t, "--messages 1500 --max-bytes 300 --seed 15", share=0.5)


TRAINS = "--messages 4000 --max-bytes 200 --inline 200 --depth 128 --train 32"


def share_segments(t: Guests, counters: list[dict]) -> None:
    for node, c in enumerate(counters):
        t.check(c["tx_segments"] < TRAIN_SEGMENTS_MAX, f"node{node}: small messages do not share segments: {c}")


TRAIN_SEGMENTS_MAX = 3000  # half of the 4,000 messages have immediates and go alone


def test_trains(t: Guests) -> None:
    counters = exchange(t, "offload", "offload", f"{TRAINS} --seed 25")
    share_segments(t, counters)
    for node, c in enumerate(counters):
        t.check(placed_share(c) >= 0.9, f"node{node}: only {placed_share(c):.3f} placed: {c}")


def test_trains_of_software(t: Guests) -> None:
    share_segments(t, exchange(t, "software", "software", f"{TRAINS} --seed 26", "fd77::1"))


@pytest.mark.long
def test_trains_of_messages_that_are_not_inline(t: Guests) -> None:
    for engine in ("offload", "software"):
        share_segments(t, exchange(t, engine, engine, f"{TRAINS.replace('--inline 200', '--inline 16')} --seed 29"))


def test_trains_under_faults(t: Guests) -> None:
    for engines in (("offload", "offload"), ("software", "offload"), ("software", "software")):
        under_faults(t, *engines, f"{TRAINS} --seed 27")


# A quarter of the queue is a train; lengths up to a MiB have a burst for one or two.
LONG_TRAINS = "--messages 1600 --max-bytes 12000 --inline 100 --depth 128 --train 32 --sges 3"


def test_trains_of_long_messages(t: Guests) -> None:
    for engine, address in (("offload", "10.77.0.1"), ("software", "fd77::1")):
        counters = exchange(t, engine, engine, f"{LONG_TRAINS} --one-way --seed 31", address)
        limit = LONG_TRAIN_SEGMENTS_MAX * t.cluster.slowness  # TCP cuts more of them while its window is small
        t.check(counters[1]["tx_segments"] < limit, f"{engine}: long messages do not share bursts: {counters[1]}")
        if engine == "offload":
            t.check(placed_share(counters[0]) >= 0.9, f"only {placed_share(counters[0]):.3f} placed: {counters[0]}")


LONG_TRAIN_SEGMENTS_MAX = 1300  # half of the 1,600 have immediates and go alone; a segment is what TCP hands over
FEW_LONG_TRAINS = LONG_TRAINS.replace("1600", "400")


# Of any sizes, posted by dozens: mixed trains, of what is inline, copied or sent from where it lies.  Half have immediates and go alone.
MIXED_TRAINS = "--mixed --max-bytes 20000 --inline 100 --depth 128 --train 32 --sges 3"
TRAIN_MESSAGES = "cat /sys/class/infiniband/tcpqp0/ports/1/hw_counters/tx_train_messages"


def test_trains_of_unequal_messages(t: Guests) -> None:
    for engine, address in (("offload", "10.77.0.1"), ("software", "fd77::1")):
        before = int(t.run(1, TRAIN_MESSAGES))
        counters = exchange(t, engine, engine, f"{MIXED_TRAINS} --messages 640 --one-way --seed 61", address)
        of_trains = int(t.run(1, TRAIN_MESSAGES)) - before
        t.check(of_trains >= 160, f"{engine}: only {of_trains} messages of 640 were of trains")
        if engine == "offload":
            t.check(placed_share(counters[0]) >= 0.9, f"only {placed_share(counters[0]):.3f} placed: {counters[0]}")


def test_trains_of_unequal_messages_under_faults(t: Guests) -> None:
    for engines in (("offload", "offload"), ("software", "offload"), ("software", "software")):
        under_faults(t, *engines, f"{MIXED_TRAINS} --messages 320 --seed 62")


def test_trains_of_unequal_messages_with_late_receives(t: Guests) -> None:
    exchange(t, "offload", "offload", f"{MIXED_TRAINS} --messages 320 --late-receives --slow-ms 1 --seed 63")


@pytest.mark.long
def test_trains_of_long_messages_under_faults(t: Guests) -> None:
    for engines in (("offload", "offload"), ("software", "offload"), ("software", "software")):
        under_faults(t, *engines, f"{LONG_TRAINS} --seed 32")


def test_trains_of_long_messages_with_late_receives(t: Guests) -> None:
    exchange(t, "offload", "offload", f"{LONG_TRAINS} --late-receives --slow-ms 1 --seed 33")


@pytest.mark.long
def test_long_messages_without_trains(t: Guests) -> None:
    """ICRC and ver 0 know no trains."""
    exchange(t, "offload", "offload", f"{FEW_LONG_TRAINS} --icrc --seed 34")
    exchange(t, "software", "offload", f"{FEW_LONG_TRAINS} --wire 0 --seed 35")


def test_trains_with_late_receives(t: Guests) -> None:
    exchange(t, "offload", "offload", f"{TRAINS} --late-receives --slow-ms 1 --seed 28")


def test_large_messages(t: Guests) -> None:
    offload_pair(t, "--messages 24 --max-bytes 4000000 --depth 4 --seed 16", share=0.5)


def test_receives_posted_late(t: Guests) -> None:
    exchange(t, "offload", "offload", "--messages 100 --late-receives --seed 17")


def test_receives_without_doorbell(t: Guests) -> None:
    exchange(t, "offload", "software", "--messages 100 --no-doorbell --seed 18")


def test_offload_receives_from_software(t: Guests) -> None:
    counters = exchange(t, "offload", "software", "--messages 200 --seed 19")
    t.equal([c["engine"] for c in counters], [2, 1], "engines")
    t.equal([c["wire"] for c in counters], [0, 1], "wire versions")
    t.equal(counters[1]["placed"], 0, "bytes placed for the software engine")
    t.check(placed_share(counters[0]) >= 0.9, f"offload end: {counters[0]}")


def test_software_ver0_to_offload(t: Guests) -> None:
    counters = exchange(t, "offload", "software", "--messages 60 --wire 0 --seed 20")
    t.equal([c["wire"] for c in counters], [0, 0], "wire versions")
    t.check(placed_share(counters[0]) >= 0.9, f"offload end: {counters[0]}")


def test_software_pair_ipv6(t: Guests) -> None:
    counters = exchange(t, "software", "software", "--messages 200 --seed 21", "fd77::1")
    t.equal([c["placed"] for c in counters], [0, 0], "placed bytes")


def under_faults(t: Guests, engine0: str, engine1: str, options: str) -> list[dict]:
    before = lost(t)
    with fabric(t, **FAULTS):
        counters = exchange(t, engine0, engine1, options)
    t.check(lost(t) > before, "the fabric lost nothing: no test of loss")
    return counters


def lost(t: Guests) -> int:
    return sum(t.switch_stats(node)["fault_loss"] for node in (0, 1))


def test_offload_under_faults(t: Guests) -> None:
    for node, counters in enumerate(under_faults(t, "offload", "offload", "--messages 150 --seed 22")):
        t.check(placed_share(counters) >= 0.9, f"node{node}: what was lost is placed when it comes again: {counters}")


@pytest.mark.long
def test_mixed_engines_under_faults(t: Guests) -> None:
    under_faults(t, "software", "offload", "--messages 150 --seed 23")


def test_ver0_software_under_faults(t: Guests) -> None:
    under_faults(t, "software", "software", "--messages 60 --wire 0 --seed 24")
