#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Who waits in option framing sleeps, and goes on: for credit, for room to describe a message, for a module's first word.

wakeup.py BUILD: ends on a veth pair, as in `option.py`; peers by hand are bare_peer.py's.
"""

import hashlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path

from ends import LIMIT_S, Ends, main, wakes, wakes_asleep
from jobs import Job, pair, until

IDLE_S = 2
HANDFUL = 6  # wake-ups in that time; a look each millisecond would be 2000
WAITING_END = "selftests/stock/bpf/waiting_end"
BARE_PEER = Path(__file__).parent / "bare_peer.py"
MESSAGE_BYTES = 64  # waiting_end's
HELLO_BYTES = 24
CREDIT, ENTRIES = 2048, 4096  # messages that a stock end lets come, and that it can describe
BUFFER_BYTES = 32 << 20  # so that TCP's are not what is waited for
AWAITS_PEER, AWAITS_ACK = 1, 2
RTR_FLAGS = 0x30


def queue(t: Ends, port: int) -> tuple[int, int]:
    """Of the connector at @port: bytes not acknowledged, bytes that are."""
    said = subprocess.run(t.within(1, "ss", "-Htin", f"dport = :{port}"), capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
    return int(said.split()[2]), int(re.search(r"bytes_acked:(\d+)", said).group(1))


def mix(x: int) -> int:
    """pattern.hpp's."""
    mask = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & mask
    return x ^ x >> 31


def digest(messages: int) -> str:
    """Of what waiting_end sends after its hello and its first ACKNOWLEDGE, which has one byte."""
    stream = b"".join(mix(m + i).to_bytes(8, sys.byteorder) for m in range(messages) for i in range(0, MESSAGE_BYTES, 8))
    return hashlib.sha256(stream).hexdigest()


class Credit:
    """The peer posts no receive.  Late: its hello, which has the credit, came before we were admitted."""

    messages = 3000

    def __init__(self, t: Ends, role: str, *options: str) -> None:
        self.t, self.role = t, role
        same = ("--port", "PORT", "--messages", self.messages, "--buffers", BUFFER_BYTES)
        self.holder, self.sender = pair(t, "option", (t.build / WAITING_END, "holder", *same), (t.build / WAITING_END, role, *same, *options))
        self.port = t.port

    def waits(self) -> None:
        sent = CREDIT * MESSAGE_BYTES
        self.sender.expect("posted")
        until("all credit is used", lambda: queue(self.t, self.port)[1] >= sent)
        waiting, acked = queue(self.t, self.port)
        assert waiting == 0 and acked <= sent + HELLO_BYTES + 2, f"{waiting} bytes wait, {acked} were taken"  # SYN, a request for credit

    def let(self) -> None:
        self.holder.tell("go")

    def goes_on(self) -> None:
        self.holder.expect("done")
        if self.role == "left-alone":
            self.sender.tell("go")
        self.sender.expect("done")
        self.sender.end()
        self.holder.end()


class Room:
    """The peer, a module by its words, reads nothing and so acknowledges little."""

    messages = 6000

    def __init__(self, t: Ends, role: str) -> None:
        self.t, self.role = t, role
        sender = (t.build / WAITING_END, role, "--port", "PORT", "--messages", self.messages, "--buffers", BUFFER_BYTES)
        self.peer, self.sender = pair(t, "auto", (BARE_PEER, t.socket(0), "PORT", "--room", 4096), sender)
        self.port = t.port

    def waits(self) -> None:
        self.peer.expect('"admitted"')
        until("our hello is there", lambda: self.peer.ask("state")["unread"] == HELLO_BYTES)  # who is not admitted yet sees no rtr
        self.peer.ask("rtr")
        self.sender.expect("posted")
        until("all descriptions are used", lambda: queue(self.t, self.port)[0] > (ENTRIES - 1) * MESSAGE_BYTES)
        assert queue(self.t, self.port)[0] <= ENTRIES * MESSAGE_BYTES

    def let(self) -> None:
        self.peer.ask(f"read {HELLO_BYTES + 1}")
        self.peer.tell(f"read {self.messages * MESSAGE_BYTES}")

    def goes_on(self) -> None:
        assert json.loads(self.peer.hear()) == digest(self.messages), "a byte is wrong"
        if self.role == "left-alone":
            self.sender.tell("go")
        self.sender.expect("done")
        self.sender.end()
        self.peer.end()


class FirstWord:
    """The peer, a module, says nothing for long."""

    messages = 10

    def __init__(self, t: Ends, role: str, *options: str) -> None:
        self.role = role
        sender = (t.build / WAITING_END, role, "--port", "PORT", "--messages", self.messages, *options)
        self.peer, self.sender = pair(t, "auto", (BARE_PEER, t.socket(0), "PORT"), sender)

    def waits(self) -> None:
        self.peer.expect('"admitted"')
        until("our hello is there", lambda: self.peer.ask("state")["unread"] == HELLO_BYTES)

    def let(self) -> None:
        self.peer.ask("rtr-ack")

    def goes_on(self) -> None:
        self.sender.expect("posted")
        self.peer.ask(f"read {HELLO_BYTES + 1}")
        assert self.peer.ask(f"read {self.messages * MESSAGE_BYTES}") == digest(self.messages), "a byte is wrong"
        if self.role == "left-alone":
            self.sender.tell("go")
        self.sender.expect("done")
        self.sender.end()
        self.peer.end()


def another_threads_post_is_looked_after(t: Ends) -> None:
    """Its message has no credit, so goes after a time that began while the thread that waits slept without a limit."""
    credit = 5
    sender = (t.build / WAITING_END, "helped", "--port", "PORT", "--messages", credit + 1)
    peer, sender = pair(t, "auto", (BARE_PEER, t.socket(0), "PORT"), sender)
    peer.expect('"admitted"')
    until("our hello is there", lambda: peer.ask("state")["unread"] == HELLO_BYTES)
    peer.ask("rtr-ack")
    sender.expect("open")
    peer.ask(f"credit {credit}")
    sender.tell("go")
    sender.expect("posted")
    peer.ask(f"read {HELLO_BYTES + 1 + credit * MESSAGE_BYTES}")
    wakes_asleep([sender.process.pid])
    sender.tell("go")
    until("the message comes all the same", lambda: peer.ask("state")["unread"] == MESSAGE_BYTES)
    sender.expect("done")
    sender.end()
    peer.end()


def nobody_wakes(cases: list) -> None:
    pids = [case.sender.process.pid for case in cases]
    before = wakes_asleep(pids)
    time.sleep(IDLE_S)
    counts = [wakes(pid) - then for pid, then in zip(pids, before)]
    print(f"wake-ups in {IDLE_S} s: " + ", ".join(f"{type(case).__name__} {n}" for case, n in zip(cases, counts)))
    assert max(counts) <= HANDFUL, "who waits does not sleep"


def acknowledged(ours: Job, peer: Job) -> bool:
    """By the peer's message, which brings a wakeup, and not by a pure ACK before it."""
    before = ours.ask("state")
    ours.ask(f"await {AWAITS_ACK}")
    ours.ask("rtr")
    peer.ask("rtr")
    until("the peer's message", lambda: ours.ask("state")["unread"] > before["unread"])
    return ours.ask("state")["records"] > before["records"]


def wakeup_once(t: Ends) -> None:
    """One record for what was awaited, none else."""
    peer, ours = pair(t, "", (BARE_PEER, t.socket(0), "PORT"), (BARE_PEER, t.socket(1), "PORT"))
    for job in peer, ours:
        job.expect('"admitted"')

    def state(what: str, **wanted) -> None:
        until(f"{what}: {wanted}", lambda: wanted.items() <= ours.ask("state").items())

    peer.ask("credit 100")
    state("nobody waits", limit=100, records=0, readable=False)
    ours.ask(f"await {AWAITS_PEER}")
    peer.ask("credit 200")
    state("credit", limit=200, records=1, readable=True, awaits=0)
    peer.ask("credit 300")
    state("once", limit=300, records=1, awaits=0)
    ours.ask(f"await {AWAITS_PEER}")
    peer.ask("credit 300")
    state("nothing new", unread=4, records=1, awaits=AWAITS_PEER)
    peer.ask("rtr")
    state("rtr", flags=RTR_FLAGS, records=2, awaits=0)
    ours.ask(f"await {AWAITS_ACK}")
    peer.ask("rtr")
    state("acknowledges nothing", unread=6, records=2, awaits=AWAITS_ACK)
    until("an ACK's wakeup", lambda: acknowledged(ours, peer))
    for job in ours, peer:
        job.end()


def credit_that_nobody_reads(t: Ends) -> None:
    """More messages of credit than came in one look at the socket, once: their boundaries were lost."""
    same = ("--port", "PORT", "--messages", 20 * CREDIT, "--buffers", BUFFER_BYTES)
    holder, sender = pair(t, "option", (t.build / WAITING_END, "holder", *same), (t.build / WAITING_END, "deaf", *same))
    holder.tell("go")
    for job in sender, holder:
        job.expect("done")
    for job in sender, holder:
        job.end()


def sender_leaves_at_once(t: Ends) -> None:
    """5 % lost each way.  Credit that lay unread at a close made TCP reset the connection, and what was under way was lost."""
    same = ("--port", "PORT", "--messages", CREDIT + 500, "--buffers", BUFFER_BYTES)
    t.lose()
    for _ in range(5):
        holder, sender = pair(t, "option", (t.build / WAITING_END, "holder", *same), (t.build / WAITING_END, "deaf", *same, "--leave"))
        holder.tell("go")
        sender.expect("done")
        sender.end()
        holder.expect("done")
        holder.end()


def waits_of_all_kinds(t: Ends) -> None:
    cases = [
        Credit(t, "waiter"),
        Credit(t, "left-alone", "--late"),
        Room(t, "waiter"),
        Room(t, "left-alone"),
        FirstWord(t, "waiter"),
        FirstWord(t, "waiter", "--nowait"),
        FirstWord(t, "left-alone", "--nowait"),
    ]
    for case in cases:
        case.waits()
    nobody_wakes(cases)
    for case in cases:
        case.let()
    for case in cases:
        case.goes_on()


sys.exit(main(__doc__, wakeup_once, another_threads_post_is_looked_after, credit_that_nobody_reads, waits_of_all_kinds, sender_leaves_at_once))
