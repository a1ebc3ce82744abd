#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The stock engine beside plain TCP, on loopback, on a veth pair, and there in option framing, under CUBIC: each bar, met or not (`make bars`).

Figures, so no test: another machine's load may miss a bar.  Exits with 1 if one was missed.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from ends import ADDRESSES, Ends, ends, missing, sh

PERF = "tools/tcpqp_perf/tcpqp_perf"
TABLE_LIMIT_S = 300
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")


def table(t: Ends, title: str, end: int, address: str, framing: str) -> bool:
    """What a client at @end sees of the server at end 0."""
    t.port += 1
    server = t.launch(0, framing, t.build / PERF, "-p", t.port)
    try:
        t.listening()
        client = t.launch(end, framing, t.build / PERF, "bars", "-p", t.port, address)
        print(f"{title}\n{client.communicate(timeout=TABLE_LIMIT_S)[0].decode()}", flush=True)
    finally:
        server.kill()
        server.communicate()
    return client.returncode == 0


@contextlib.contextmanager
def cubic_allowed() -> Iterator[None]:
    """A namespace takes what is not this machine's own choice only where all may use it."""
    before = ALLOWED.read_text()
    ALLOWED.write_text(f"{before.strip()} cubic")
    try:
        yield
    finally:
        ALLOWED.write_text(before)


def main() -> int:
    reason = missing()
    if reason:
        print(f"bars: {reason}")
        return 1
    with cubic_allowed(), ends(Path(sys.argv[1])) as t:
        sh(*t.within(0, "ip", "link", "set", "lo", "up"))
        for end in range(2):  # not what this machine prefers
            sh(*t.within(end, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=cubic"))
        met = [table(t, "loopback", 0, "127.0.0.1", "stream"), table(t, "veth", 1, ADDRESSES[0], "stream")]
        met.append(table(t, "veth, option framing", 1, ADDRESSES[0], "option"))
    return 0 if all(met) else 1


sys.exit(main())
