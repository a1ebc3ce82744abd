#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""READs and atomics of a queue pair whose peer's processor has a task that never lets another one run.

rdma_answers.py --listen PORT | --connect ADDRESS:PORT [--spin SECONDS]

Side 0, which listens, spins in real time, and looks at its memory alone; side 1 asks, and writes there when it has all answers.  Exit 0 only if
side 0 saw that before its time was over.
"""

import argparse
import os
import struct
import sys
import time

import pyverbs.enums as e
from number_ends import SUCCESS, Control, End, Numbers, Port, ping, require
from pyverbs.wr import SGE, SendWR

SPIN_S = 60  # at most
ASKED = 12  # READs and atomics each, one by one
READ_BYTES = 20000
COUNTER_AT, FLAG_AT, DATA_AT = 0, 8, 4096
DONE = 0x5AFE


def asked(end: End, opcode: int, at: int, count: int, peer: Numbers, peer_at: int) -> None:
    wr = SendWR(num_sge=1, sg=[SGE(end.port.mr.buf + at, count, end.port.mr.lkey)], opcode=opcode)
    if opcode == e.IBV_WR_ATOMIC_FETCH_AND_ADD:
        wr.set_wr_atomic(peer.rkey, peer.address + peer_at, 1)
    else:
        wr.set_wr_rdma(peer.rkey, peer.address + peer_at)
    end.qp.post_send(wr)
    (wc,) = end.port.take(1)
    require(wc.status == SUCCESS, f"status {wc.status}")


def spin(end: End, control: Control, limit_s: float) -> None:
    mr = end.port.mr
    data = bytes(i % 251 for i in range(READ_BYTES))
    mr.write(data, READ_BYTES, DATA_AT)
    mr.write(bytes(16), 16, COUNTER_AT)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    control.meet()
    until = time.monotonic() + limit_s
    while struct.unpack("Q", mr.read(8, FLAG_AT))[0] != DONE and time.monotonic() < until:
        pass
    done = time.monotonic() < until
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    require(done, f"not all were answered in {limit_s} s")
    require(struct.unpack("Q", mr.read(8, COUNTER_AT))[0] == ASKED, "the counter")


def ask(end: End, control: Control, peer: Numbers) -> None:
    mr = end.port.mr
    data = bytes(i % 251 for i in range(READ_BYTES))
    control.meet()
    for turn in range(ASKED):
        asked(end, e.IBV_WR_RDMA_READ, DATA_AT, READ_BYTES, peer, DATA_AT)
        require(mr.read(READ_BYTES, DATA_AT) == data, "bytes of a READ")
        mr.write(bytes(READ_BYTES), READ_BYTES, DATA_AT)
        asked(end, e.IBV_WR_ATOMIC_FETCH_AND_ADD, COUNTER_AT, 8, peer, COUNTER_AT)
        require(struct.unpack("Q", mr.read(8, COUNTER_AT))[0] == turn, "what an atomic fetched")
    mr.write(struct.pack("Q", DONE), 8, FLAG_AT)
    asked(end, e.IBV_WR_RDMA_WRITE, FLAG_AT, 8, peer, FLAG_AT)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--listen", type=int, default=0)
    p.add_argument("--connect", default="")
    p.add_argument("--spin", type=float, default=SPIN_S)
    args = p.parse_args()
    control = Control(args.listen, args.connect)
    end = End(Port(0))
    (peer,) = control.numbers([end])
    end.connect(peer)
    ping(end, control)  # connected, and no task has anything left to do
    if control.side == 0:
        spin(end, control, args.spin)
    else:
        ask(end, control, peer)
    control.meet()
    return 0


if __name__ == "__main__":
    sys.exit(main())
