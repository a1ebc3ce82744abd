#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A sender that went without credit for long, has some, and has none again: its next probe is as early as the first ever.

credit_again.py --listen PORT | --connect ADDRESS:PORT

Side 0, which listens, receives; nothing tells side 1 of receives posted late but its own probes.  Exit 0 only if they came in time.
"""

import argparse
import sys
import time
from pathlib import Path

from number_ends import SOON_S, SUCCESS, Control, End, Port, require

PROBES = Path("/sys/class/infiniband/tcpqp0/ports/1/hw_counters/tx_credit_probes")
LATE = 4  # probes; the one behind them comes after 2 s
UNSEEN_S = 0.4  # by then the receiver has stopped to look for receives that nobody rang for
FIRST_S, LAST_S = 0.2, 2.0  # TQP_PROBE_FIRST_MS, TQP_PROBE_LAST_MS


def probes() -> int:
    return int(PROBES.read_text())


def receiver(end: End, control: Control) -> None:
    control.meet()  # so many have come as the other has probed
    for number in range(LATE + 2):
        end.receive(number)
    require(all(wc.status == SUCCESS for wc in end.port.take(LATE + 2)), "early ones")
    control.meet()
    time.sleep(UNSEEN_S)
    end.receive(LATE + 2)
    require(end.port.take(1)[0].status == SUCCESS, "the last one")
    control.meet()


def sender(end: End, control: Control) -> None:
    before = probes()
    for number in range(LATE + 2):  # the first needs no credit
        end.post(number)
    until = time.monotonic() + SOON_S
    while probes() < before + LATE:
        require(time.monotonic() < until, f"{probes() - before} of {LATE} probes in {SOON_S} s")
        time.sleep(0.01)
    control.meet()
    require(all(wc.status == SUCCESS for wc in end.port.take(LATE + 2)), "early ones")
    begun = time.monotonic()
    end.post(LATE + 2)
    control.meet()
    require(end.port.take(1)[0].status == SUCCESS, "the last one")
    took = time.monotonic() - begun
    require(FIRST_S <= took < LAST_S / 2 + UNSEEN_S, f"a message without credit went after {took:.3f} s")
    control.meet()


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--listen", type=int, default=0)
    p.add_argument("--connect", default="")
    args = p.parse_args()
    control = Control(args.listen, args.connect)
    end = End(Port(0))
    (peer,) = control.numbers([end])
    end.connect(peer)
    control.meet()
    (receiver, sender)[control.side](end, control)
    return 0


if __name__ == "__main__":
    sys.exit(main())
