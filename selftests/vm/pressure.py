# SPDX-License-Identifier: BSD-3-Clause
"""Memory runs out below our code: what is set up fails in an orderly way, what runs goes on, no byte is wrong, nothing leaks."""

import pytest

from harness.guests import NCQP, Guests
from harness.inject import KINDS, failing
from harness.needs import Needs
from harness.pairs import Pair, fabric
from harness.traffic import free_port
from vm.exchange import PORT, PROGRAM, exchange

NEEDS = Needs(
    modules=("tcp_qp", "nupa_dev"), setup="full",
    programs=("selftests/vm/programs/qp_end", "selftests/vm/programs/qp_exchange", "tools/ncqp/ncqp"),
)  # fmt: skip
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.debug_kernel]
ENGINES = ("offload", "software")
FAILURES = 40  # allocations that must have failed under a transfer
PERCENT = 5
MORE_BYTES = 1 << 20  # acknowledged after the last failure: progress
SET_UP = (("verbs", 1), ("tcp_qp", 3))  # code, per cent
ROUNDS = 3
WRONG = ("wrong", "out of order", "beyond its end", "resting buffer", "do not add up", "twice")
LIMIT_S = 60
# So that memory is gone in mid-transfer; nothing is dropped, for what is sent again needs memory as well.
LANE = {"rate_mbps": 40, "queue_bytes": 16 << 20}


def _acked(port: int) -> str:
    return f"ss -Hti state established 'dport = :{port}' | grep -Eo 'bytes_acked:[0-9]+' | cut -d: -f2"


def _goes_on(t: Guests, pair: Pair) -> None:
    acked = _acked(pair.port)
    t.run(1, f"was=$({acked}); until [ $({acked}) -gt $((was + {MORE_BYTES})) ]; do sleep 0.2; done", LIMIT_S)


def _transfer(t: Guests, kind: str, node: int, engine: str) -> None:
    what = f"{kind} on node{node}, {engine}"
    pair = Pair(t, "qp_end", common=f"--engine {engine} --limit-ms 60000", limit_s=4 * LIMIT_S)
    pair.wait_moving()
    with failing(t, node, kind, "tcp_qp", PERCENT) as injection:
        injection.wait_failed(FAILURES)
        print(f"# pressure: {what}: {injection.failed()} allocations failed", flush=True)
    _goes_on(t, pair)
    t.run(1, "pkill -9 -x qp_end")
    report = pair.survivor(0)
    t.equal(pair.jobs[1].wait().status, 128 + 9, f"{what}: status of the killed end")
    t.equal(report["unfinished"], 0, f"{what}: work requests without completion")
    t.equal(report["placed"] + report["copied"], report["delivered"], f"{what}: placed + copied")


def _set_up(t: Guests, kind: str, where: str, percent: int) -> None:
    """Both programs succeed, or say why not; neither sees a wrong byte."""
    common = f"--timeout 5 --messages 10 --max-bytes 20000 --engine {ENGINES[0]}"
    with failing(t, 0, kind, where, percent) as injection:
        for seed in range(ROUNDS):
            jobs = [
                t.start(0, f"{PROGRAM} --listen {PORT} {common} --seed {seed}", LIMIT_S),
                t.start(1, f"{PROGRAM} --connect 10.77.0.1:{PORT} {common} --seed {seed}", LIMIT_S),
            ]
            for result in (jobs[1].wait(), jobs[0].wait()):
                t.check(result.status in (0, 1), f"{kind} in {where}: status {result.status}: {result.stderr}")
                t.check(not any(word in result.stderr for word in WRONG), f"{kind} in {where}: {result.stderr}")
        print(f"# pressure: {kind} in {where}: {injection.failed()} allocations failed", flush=True)
        t.check(injection.failed() > 0, f"{kind} in {where}: nothing failed: no test")


def test_transfers_go_on(t: Guests) -> None:
    for kind in KINDS:
        for node, engine in enumerate(ENGINES):
            _transfer(t, kind, node, engine)
            _transfer(t, kind, 1 - node, engine)


def test_set_up_and_tear_down(t: Guests) -> None:
    for kind in KINDS:
        for where, percent in SET_UP:
            _set_up(t, kind, where, percent)
    exchange(t, "offload", "offload", "--messages 20 --seed 41")


def test_sender_whose_bytes_are_all_acknowledged_goes_on(t: Guests) -> None:
    """No ACK is due any more, and the application has nothing left to post: only tcp_qp itself can try again."""
    for engine in ENGINES:
        port = free_port()
        options = f"-q -p {port} --engine {engine} --timeout 30 --msg-size 64K -v 251 -n 12M"
        server = t.start(0, f"{NCQP} -l {options} >/dev/null", 2 * LIMIT_S)
        t.wait_listening(0, port)
        with fabric(t, **LANE):
            client = t.start(1, f"{NCQP} -s $PEER {options}", 2 * LIMIT_S)
            t.run(1, f"until [ 0$({_acked(port)}) -gt {MORE_BYTES} ]; do sleep 0.1; done", LIMIT_S)
            with failing(t, 1, "failslab", "tcp_qp", 100):
                t.run(1, f"while ss -Hti state established 'dport = :{port}' | grep -q unacked; do sleep 0.1; done", LIMIT_S)
        for end in (client.wait(), server.wait()):
            t.check(end.ok, f"{engine}: {end.stderr}")
