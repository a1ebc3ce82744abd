# SPDX-License-Identifier: BSD-3-Clause
"""Queue pairs end in every way there is while messages run; every work request completes, on both sides."""

import re

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.pairs import Pair, fabric

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/programs/qp_end",), setup="full")
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]
ENGINES = ("software", "offload")
USER_TIMEOUT = "--user-timeout-ms 3000"
FLUSHED = "Work Request Flushed Error"


def _ends(t: Guests, how: str, ender: int, engine: str, common: str = "") -> None:
    options = ["--how wait", "--how wait"]
    options[ender] = f"--how {how}"
    reports = Pair(t, "qp_end", *options, f"--engine {engine} {common}").done()
    what = f"{engine}, node{ender} ends by {how}"
    _flushed(t, reports[1 - ender], what)
    _adds_up(t, reports[ender], what)  # all that it had posted may just have completed


def _flushed(t: Guests, report: dict, what: str) -> None:
    t.check(report["errors"].get(FLUSHED, 0) > 0, f"{what}: nothing was flushed: {report}")
    _adds_up(t, report, what)


def _adds_up(t: Guests, report: dict, what: str) -> None:
    t.equal(report["unfinished"], 0, f"{what}: work requests without completion")
    t.equal(report["placed"] + report["copied"], report["delivered"], f"{what}: placed + copied")


def test_close(t: Guests) -> None:
    for engine in ENGINES:
        for ender in (0, 1):
            _ends(t, "close", ender, engine)


def test_reset(t: Guests) -> None:
    for engine in ENGINES:
        _ends(t, "reset", 0, engine)


def test_fin_amid_a_message(t: Guests) -> None:
    for engine in ENGINES:
        _ends(t, "fin", 1, engine, "--bytes 3000000 --depth 2 --after 3")


def test_program_exits(t: Guests) -> None:
    for engine in ENGINES:
        pair = Pair(t, "qp_end", "--how abandon", "--how wait", f"--engine {engine}")
        _flushed(t, pair.survivor(1), engine)


def test_kill_9(t: Guests) -> None:
    for victim in (0, 1):
        pair = Pair(t, "qp_end", common="--engine offload")
        pair.wait_moving(victim)
        t.run(victim, "pkill -9 -x qp_end")
        _flushed(t, pair.survivor(1 - victim), f"node{1 - victim}")


@pytest.mark.long
def test_peer_vanishes(t: Guests) -> None:
    for engine in ENGINES:
        pair = Pair(t, "qp_end", common=f"--engine {engine} {USER_TIMEOUT}")
        pair.wait_moving()
        t.switch("link", port="n0", up=False)
        try:
            for report in pair.done():
                _flushed(t, report, engine)
        finally:
            t.switch("link", port="n0", up=True)


RETRIED = "transport retry counter exceeded"
MESSAGE_BYTES, TRAIN = 30_000, 64
TAKEN = 10  # and more messages, when the rest is lost
LANE = {"rate_mbps": 1, "queue_bytes": 100_000}  # all take fifteen seconds
KEEPALIVE = "--one-way --keepalive-s 2"  # the receiver has nothing in flight to find out by


def _cut_off(t: Guests, options: str, least: int) -> list[dict]:
    """Both reports; when so many of the sender's bytes had been acknowledged nothing arrived any more."""
    with fabric(t, **LANE):
        pair = Pair(t, "qp_end", common=f"{KEEPALIVE} {USER_TIMEOUT} --engine software {options}")
        acked = f"ss -Hti state established 'dport = :{pair.port}' | grep -Eo 'bytes_acked:[0-9]+' | cut -d: -f2"
        t.run(1, f"until [ 0$({acked}) -gt {least} ]; do sleep 0.05; done", 30)
        with fabric(t, loss=1.0):
            return pair.done()


@pytest.mark.long
def test_train_is_taken_in_part(t: Guests) -> None:
    """All of a train completes at once: what was taken with success, then the first that was lost with the reason; qp_end sees the order."""
    receiver, sender = _cut_off(t, f"--bytes {MESSAGE_BYTES} --depth {4 * TRAIN} --train {TRAIN} --messages {TRAIN}", TAKEN * MESSAGE_BYTES)
    t.check(TAKEN <= sender["sent"] <= receiver["received"], f"{TAKEN} messages and more were acknowledged: {sender}, {receiver}")
    t.check(sender["sent"] < TRAIN - 1, f"all were taken: no test: {sender}")
    t.equal(sender["errors"], {RETRIED: 1, FLUSHED: TRAIN - sender["sent"] - 1}, "the others")


def test_message_is_sent_in_part(t: Guests) -> None:
    """TCP never had all of it, nor all of any other."""
    _, sender = _cut_off(t, "--bytes 24000000 --depth 2 --train 2 --messages 2", 500_000)
    t.equal(sender["sent"], 0, "messages that succeeded")
    t.equal(sender["errors"], {RETRIED: 1, FLUSHED: 1}, "the others")


def test_peer_dies_unheard(t: Guests) -> None:
    """Its RST is lost, and a receiver has nothing in flight to find out by: keepalive asks."""
    for engine in ENGINES:
        pair = Pair(t, "qp_end", common=f"--one-way --engine {engine} --keepalive-s 2")
        pair.wait_moving()
        with fabric(t, loss=1.0):
            t.run(1, "pkill -9 -x qp_end; until ! ss -Htn state established | grep -q .; do sleep 0.1; done; sleep 0.3")
        _flushed(t, pair.survivor(0), engine)


def test_keepalive_is_on(t: Guests) -> None:
    """Where the application set none."""
    pair = Pair(t, "qp_end", common="--one-way --engine software")
    pair.wait_moving()
    timer = t.run(0, f"ss -Htno state established 'sport = :{pair.port}'")
    t.run(1, "pkill -9 -x qp_end")
    pair.survivor(0)
    # "29sec", "9.120ms"; a slow machine looks late, TCP's own would be at "119min"
    left = re.search(r"timer:\(keepalive,(\d+)(sec|\.\d+ms|ms)", timer)
    t.check(left and (left[2] == "ms" or int(left[1]) <= 30), f"no keepalive timer of tcp_qp's on the receiver: {timer}")


def test_link_comes_back(t: Guests) -> None:
    messages = 200  # after the link is back; of these few can have been under way
    for toggle in ("link", "interface"):
        pair = Pair(t, "qp_end", "--how wait", f"--how close --when-told --after {messages}", "--engine offload")
        pair.wait_moving()
        if toggle == "link":
            t.switch("link", port="n0", up=False)
            t.run(0, "until [ $(cat /sys/class/net/nupa0/carrier) = 0 ]; do sleep 0.05; done; sleep 0.5")
            t.switch("link", port="n0", up=True)
        else:
            t.run(0, "ip link set nupa0 down; sleep 0.5; ip link set nupa0 up; ip -6 address replace $IP6/64 dev nupa0 nodad")
        t.run(1, "pkill -USR1 -x qp_end")
        reports = pair.done()
        t.check(reports[1]["received"] >= messages, f"{toggle}: traffic did not go on: {reports}")


def test_rdma_link_deleted(t: Guests) -> None:
    pair = Pair(t, "qp_end", common=f"--engine offload {USER_TIMEOUT}")
    pair.wait_moving()
    t.run(0, "rdma link delete tcpqp0")
    pair.survivor(1)
    t.run(0, "rdma link add tcpqp0 type tcp_qp netdev nupa0; sh $REPO/tools/vm/guest/mkdev")
