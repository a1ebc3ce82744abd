#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Option framing: sends that will never leave come back, whoever of both goes: without credit, or read by the network (SEND_ZC).

unsent.py BUILD: ends on a veth pair, as in `option.py`; peers by hand are bare_peer.py's.
"""

import sys
from pathlib import Path

from ends import Ends, main
from jobs import Job, pair, until

WAITING_END = "selftests/stock/bpf/waiting_end"
BARE_PEER = Path(__file__).parent / "bare_peer.py"
MESSAGE_BYTES, CREDIT, HELLO_BYTES, CONTROL_BYTES = 64, 2048, 24, 1
LONG_BYTES = 1 << 20  # more than any window of the peer's, which has room for a page


def starved(t: Ends, role: str) -> tuple[Job, Job]:
    """A sender that has used up its credit, asked for more, and was heard; and its peer, a stock end by its words."""
    sender = (t.build / WAITING_END, role, "--port", "PORT", "--messages", CREDIT + 500)
    peer, sender = pair(t, "option", (BARE_PEER, t.socket(0), "PORT"), sender)
    peer.expect('"admitted"')
    peer.ask(f"hello {CREDIT}")
    sender.expect("posted")
    peer.ask(f"read {HELLO_BYTES + CREDIT * MESSAGE_BYTES + CONTROL_BYTES}")
    return peer, sender


def peer_says_no_more(t: Ends) -> None:
    """Credit would have to come before its FIN.  No segment leaves either, which its TCP could answer by a reset."""
    peer, sender = starved(t, "left")
    peer.ask("finish")
    sender.tell("go")
    sender.expect("done")
    sender.end()
    peer.end()


def canceled_without_credit(t: Ends) -> None:
    peer, sender = starved(t, "quitter")
    sender.tell("go")
    sender.expect("done")
    sender.end()
    peer.end()


def canceled_while_the_network_reads(t: Ends) -> None:
    """The peer's window is full of the first message: TCP has references to the rest."""
    sender = (t.build / WAITING_END, "quitter", "--port", "PORT", "--messages", 4, "--bytes", LONG_BYTES, "--zerocopy", LONG_BYTES)
    peer, sender = pair(t, "auto", (BARE_PEER, t.socket(0), "PORT", "--room", 4096), sender)
    peer.expect('"admitted"')
    until("its hello is there", lambda: peer.ask("state")["unread"] == HELLO_BYTES)  # who is not admitted yet sees no rtr
    peer.ask("rtr")
    sender.expect("posted")
    until("the first message leaves", lambda: peer.ask("state")["unread"] > HELLO_BYTES + CONTROL_BYTES)
    sender.tell("go")
    sender.expect("done")
    sender.end()
    peer.end()


sys.exit(main(__doc__, canceled_without_credit, canceled_while_the_network_reads, peer_says_no_more))
