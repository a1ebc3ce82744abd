# SPDX-License-Identifier: BSD-3-Clause
"""Someone on the fabric who forges segments of a queue pair's connection, from the switch's uplink."""

import random
import struct
import subprocess
import time
from collections.abc import Callable

import pytest

from harness.guests import Failed, Guests
from harness.needs import Needs
from harness.segments import Interface, Segment, captured

TAP = "tqpraw0"
NEEDS = Needs(
    modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/programs/qp_exchange", "selftests/vm/hostile/attach_attacks"), tap=TAP,
    switch_args=("--tap", f"name=up0,ifname={TAP}"),
)  # fmt: skip
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]

PROGRAM = "$BUILD/cmake/selftests/vm/programs/qp_exchange"
PORT = 7600
LIMIT_S = 90
ROUND_S = 0.3
ROUNDS_MAX = 60
PER_ROUND = 30
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
FAR = 1 << 30
# What qp_exchange says when a byte landed where no message put it.
OUTSIDE = ("bytes beyond its end", "a resting buffer was written")


def _write_option(va: int, rkey: int, segment: Segment) -> bytes:
    """tcp_bth ver 1, WRITE_ONLY with a RETH of the forger's choice."""
    length = len(segment.payload)
    return struct.pack("!BBHBBHIIQII", 253, 32, 0x5150, 1, 0x0A, 0, segment.seq, length, va, rkey, length)


def _moved_option(segment: Segment, by: int) -> bytes:
    """The same ver 0 option with another offset in its message."""
    at = segment.options.find(b"\x51\x50")
    if at < 2 or segment.options[at + 2] & 3:
        return segment.options
    mbo_at = at + 6
    mbo = (struct.unpack_from("!I", segment.options, mbo_at)[0] >> 8) + by & 0xFFFFFF
    return segment.options[:mbo_at] + struct.pack("!I", mbo << 8) + segment.options[mbo_at + 4 :]


def _announced_train(s: Segment, dice: random.Random) -> list[Segment]:
    """TARGETS of the forger's choice, sometimes such as no table can be, and their train, of the length of @s."""
    lengths = [1 + dice.randrange(700) for _ in range(dice.randrange(1, 40))]
    lengths[0] = dice.choice((lengths[0], 0, 1 << 24, 0xFFFFFFFF))
    key = dice.getrandbits(32)
    table = struct.pack("!I", key)
    words = [key]
    for length in lengths:
        va = dice.getrandbits(47)
        table += struct.pack("!IQ", length, va)
        words += [length, va >> 32, va & 0xFFFFFFFF]
    check = 0x811C9DC5
    for word in words:
        mark = check ^ word
        check = (mark << 13 | mark >> 19) * 0x9E3779B1 & 0xFFFFFFFF
    start = s.seq + len(table) & 0xFFFFFFFF
    announce = struct.pack("!BBHBBHII", 253, 16, 0x5150, 1, 0x1C, 0, s.seq, len(table))
    train = struct.pack("!BBHBBHIII", 253, 20, 0x5150, 1, 0x1D, 0, start, check, sum(lengths) & 0xFFFFFFFF or 1)
    return [s.but(options=announce, payload=table), s.but(seq=start, options=train)]


def _past_or_far(s: Segment, dice: random.Random) -> list[Segment]:
    """Forgeries that TCP and the switch must see through: nothing of them lies in the window."""
    guessed = _write_option(dice.getrandbits(47) & ~0xFFF, dice.getrandbits(32), s)
    noise = dice.randbytes(4 * dice.randrange(1, 11))
    return [
        s,  # replayed
        s.but(payload=bytes(len(s.payload))),
        s.but(options=_moved_option(s, 1024)),
        s.but(options=guessed),
        s.but(options=noise),
        s.but(seq=s.seq - (1 << 24)),
        s.but(seq=s.seq + FAR),
        s.but(seq=s.seq + FAR, options=guessed),
        s.but(seq=s.seq + FAR, flags=RST, payload=b""),
        s.but(seq=s.seq + FAR, flags=SYN, payload=b""),
        s.but(seq=s.seq + FAR, flags=FIN | ACK),
    ]


def _in_window(s: Segment, dice: random.Random) -> list[Segment]:
    """Forgeries of one who knows the connection: they may ruin it, as they would plain TCP."""
    ahead = dice.randrange(1 << 18)
    guessed = _write_option(dice.getrandbits(47) & ~0xFFF, dice.getrandbits(32), s)
    return [
        s.but(seq=s.seq + ahead),
        s.but(seq=s.seq + ahead, options=_moved_option(s, dice.randrange(1 << 20))),
        s.but(seq=s.seq + ahead, options=guessed),
        *_announced_train(s.but(seq=s.seq + ahead), dice),
    ]


def _capture(t: Guests, round_: int) -> list[Segment]:
    """What went to node 0 in the last moments."""
    path = t.cluster.results / f"raw{round_}.pcap"
    t.switch("pcap", port="n0", file=str(path))
    time.sleep(ROUND_S)
    t.switch("pcap", port="n0", file=None)
    seen = [s for s in captured(path) if PORT in (s.sport, s.dport) and s.payload and s.dst == bytes((10, 77, 0, 1))]
    path.unlink()
    return seen


def mac_of(t: Guests, node: int) -> bytes:
    return bytes.fromhex(t.run(node, "cat /sys/class/net/nupa0/address").strip().replace(":", ""))


def _forge(t: Guests, forgeries: Callable[[Segment, random.Random], list[Segment]], options: str, seed: int) -> tuple[list, int]:
    """Both sides' results of an exchange beside which somebody forges; how many segments."""
    subprocess.run(["ip", "link", "set", TAP, "up"], check=True)
    dice, out, to = random.Random(seed), Interface(TAP), mac_of(t, 0)
    common = f"--timeout 10 --seed {seed} {options}"
    jobs = [
        t.start(0, f"{PROGRAM} --listen {PORT} --engine offload {common}", LIMIT_S),
        t.start(1, f"{PROGRAM} --connect 10.77.0.1:{PORT} --engine offload {common}", LIMIT_S),
    ]
    try:
        for round_ in range(ROUNDS_MAX):
            if any(job.done for job in jobs):
                break
            seen = _capture(t, round_)
            for segment in dice.sample(seen, min(PER_ROUND, len(seen))):
                for forged in forgeries(segment, dice):
                    out.send(to, forged)
        return [job.wait() for job in jobs], out.sent
    finally:
        out.close()


def test_replayed_and_out_of_window(t: Guests) -> None:
    before = t.switch_stats(0)
    results, sent = _forge(t, _past_or_far, "--messages 2500 --max-bytes 60000", 61)
    for node, result in enumerate(results):
        if not result.ok:
            raise Failed(f"node{node}: {result.status} {result.stderr}")
    t.check(sent > 500, f"only {sent} segments forged: no test")
    after = t.switch_stats(0)
    for reason in ("deliver_duplicate", "deliver_window"):
        t.check(after[reason] > before[reason] + sent // 20, f"{reason}: {before[reason]} .. {after[reason]}, {sent} forged")


def test_in_window_stays_in_its_buffers(t: Guests) -> None:
    for seed in (71, 72, 73):
        results, _ = _forge(t, _in_window, "--messages 2500 --max-bytes 60000", seed)
        for node, result in enumerate(results):
            t.check(not any(what in result.stderr for what in OUTSIDE), f"node{node}: {result.stderr}")
            t.check(result.status in (0, 1), f"node{node} ended with {result.status}: {result.stderr}")
