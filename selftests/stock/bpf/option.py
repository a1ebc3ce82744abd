#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Option framing between two stock ends on a veth pair: forced, not forced, with 5 % loss each way, without privilege, without the helper.

option.py BUILD [--runs N --messages N]: with --runs only the exchange under loss, so many times (make soak: 20 of 10,000 messages).
"""

import argparse
import errno
import socket
import sys
import time
from pathlib import Path

from ends import ADDRESSES, ADDRESSES_6, LIMIT_S, LINK_LOCAL, Ends, ends, skip_where_impossible, wakes, wakes_asleep
from jobs import until

IDLE_S = 1.1  # longer than any timer it could have
ABI_REQUEST = (4).to_bytes(4, sys.byteorder) + bytes(4)  # struct tcpqp_bpf_request
STREAM, OPTION = 1, 2


def descriptors_do_not_stay(t: Ends) -> None:
    """A client that sends two of them is refused, and leaves none behind: the helper, asleep again, has as many as before."""
    open_files = Path(f"/proc/{t.helpers[0].pid}/fd")
    before = len(list(open_files.iterdir()))
    for _ in range(8):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(LIMIT_S)
            client.connect(t.socket(0))
            socket.send_fds(client, [ABI_REQUEST], [0, 0])
            assert client.recv(8) == ABI_REQUEST[:4] + (-errno.EPROTO).to_bytes(4, sys.byteorder, signed=True)
    # the reply comes before the client is closed, and the desk with it
    until(f"the helper's {before} descriptors", lambda: len(list(open_files.iterdir())) == before)


def helpers_sleep(t: Ends) -> None:
    """Nobody asks for anything: not one wake-up."""
    pids = [helper.pid for helper in t.helpers]
    before = wakes_asleep(pids)  # they have just said that they are ready
    time.sleep(IDLE_S)
    now = [wakes(pid) for pid in pids]
    assert now == before, f"an idle helper woke: {before}, then {now}"


def everything(t: Ends) -> None:
    helpers_sleep(t)
    descriptors_do_not_stay(t)
    t.works(("option", "option"), OPTION)
    t.works(("auto", "auto"), STREAM)
    t.works(("auto", "option"), OPTION)
    t.works(("option", "option"), OPTION, privileged=False)
    t.works(("auto", "auto"), STREAM, helper=False)
    t.fails(("option", "option"), ("NO_BPF_HELPER", "NO_BPF_HELPER"), helper=False)
    t.fails(("option", "stream"), ("FRAMING",))
    t.works(("option", "option"), OPTION, messages=6000, size=200)  # more than there is credit or room for
    for _ in range(3):  # descriptions are read while the next ones are written in their places
        t.works(("option", "option"), OPTION, messages=100000, size=200)
    t.works(("option", "option"), OPTION, messages=3000, size=100000)  # large ones, several of them by one read
    by_zerocopy(t)
    t.lose()
    t.works(("option", "option"), OPTION, messages=600, size=100000)
    by_zerocopy(t)
    under_loss(t, 1, 3000)


def with_three_capabilities(t: Ends) -> None:
    """The helpers of nobody, with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON."""
    for helper in t.helpers:
        said = Path(f"/proc/{helper.pid}/status").read_text()
        assert "\nUid:\t65534\t65534\t65534\t65534\n" in said and "\nCapEff:\t000000c000001000\n" in said, said
    t.works(("option", "option"), OPTION, privileged=False)


def by_ipv6(t: Ends, messages: int) -> None:
    t.works(("option", "option"), OPTION, address=ADDRESSES_6[0])
    t.works(("option", "option"), OPTION, address=f"{LINK_LOCAL[0]}%v1")
    t.lose()
    under_loss(t, 1, messages, ADDRESSES_6[0])


def by_zerocopy(t: Ends) -> None:
    """Until the kernel says that it copies all the same, which it does on a veth pair."""
    said = t.works(("option", "option"), OPTION, "--zerocopy", 2000, messages=300, size=60000)
    assert all(end["zerocopy_asked"] > 0 and end["tx_zerocopy"] == 0 for end in said), said


def under_loss(t: Ends, runs: int, messages: int, address: str = ADDRESSES[0]) -> None:
    for _ in range(runs):
        t.works(("option", "option"), OPTION, messages=messages, size=4000, address=address)
    counters = t.counters()
    print(f"{runs} runs of {messages} messages each way, 5 % lost each way: {counters}")
    assert counters["rewritten"] > 0, "SACK never stood in the option's place: nothing was shown"
    assert counters["bare"] == counters["invalid"] == counters["lost"] == 0, counters


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("build", type=Path)
    p.add_argument("--runs", type=int, default=0)
    p.add_argument("--messages", type=int, default=10000)
    args = p.parse_args()
    skip_where_impossible()
    with ends(args.build) as t:
        if args.runs:
            t.lose()
            under_loss(t, args.runs, args.messages)
        else:
            everything(t)
    if not args.runs:
        with ends(args.build, confined=True) as t:
            with_three_capabilities(t)
        with ends(args.build) as t:
            by_ipv6(t, 2000)
    return 0


sys.exit(main())
