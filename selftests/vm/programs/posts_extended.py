#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Extended queue pairs and completion queues under tcpqp-run --verbs, by pyverbs, both ends in one process.

SENDs that find no receives wait in the kernel, which looks at them again by itself: so most posts leave their doorbell out, whatever time
this machine needs for them.  Then receives are posted, and every byte is compared.

posts_extended.py [each]      each: without tcpqp-run, where each post rings, and is counted at once
"""

import os
import sys
from pathlib import Path

import pyverbs.enums as e
from number_ends import DEPTH, REGION_BYTES, End, Numbers, Port, require
from pyverbs.cq import CQEX, CqInitAttrEx, PollCqAttr
from pyverbs.qp import QPCap, QPEx, QPInitAttrEx
from pyverbs.wr import SGE

DOORBELLS = Path(f"/sys/class/infiniband/{Port.name}/ports/1/hw_counters/doorbells")
INDEX = 0
BURSTS, BURST, BYTES = 4, DEPTH - 1, 64
RUNG = range(4)  # of a burst: the first goes, the second begins to wait
if "each" in sys.argv[1:]:
    RUNG = range(BURST, BURST + 1)
LIVES = 8
HALF = REGION_BYTES // 2


class Extended(End):
    """Posts by ibv_wr_*(), and is polled by ibv_start_poll()."""

    def __init__(self, port: Port) -> None:
        self.port, self.psn = port, 0
        self.scq = CQEX(port.context, CqInitAttrEx(cqe=2 * DEPTH))
        cap = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH)
        init = QPInitAttrEx(qp_type=e.IBV_QPT_RC, scq=self.scq, rcq=self.scq, cap=cap, sq_sig_all=1, pd=port.pd,
                            comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                            send_ops_flags=e.IBV_QP_EX_WITH_SEND)  # fmt: skip
        self.qp = QPEx(port.context, init)
        self.numbers = Numbers(self.qp.qp_num, port.gid, 0, port.mr.rkey, port.mr.buf)
        self.init()

    def send(self, slot: int) -> None:
        self.qp.wr_start()
        self.qp.wr_id, self.qp.wr_flags = slot, e.IBV_SEND_SIGNALED
        self.qp.wr_send()
        self.qp.wr_set_sge(SGE(self.port.mr.buf + slot * BYTES, BYTES, self.port.mr.lkey))
        self.qp.wr_complete()

    def burst(self) -> None:
        before = int(DOORBELLS.read_text())
        for slot in range(BURST):
            self.send(slot)
        rung = int(DOORBELLS.read_text()) - before
        require(rung in RUNG, f"{rung} doorbells for {BURST} posts")

    def reap(self, count: int) -> None:
        for expected in range(count):
            while self.scq.start_poll(PollCqAttr()):
                pass
            require((self.scq.wr_id, self.scq.status) == (expected, e.IBV_WC_SUCCESS), f"completion {self.scq.wr_id}: {self.scq.status}")
            self.scq.end_poll()

    def close(self) -> None:
        self.qp.close()
        self.scq.close()


def joined(port: Port) -> tuple[Extended, End]:
    """Connected, which only a message shows: before, each post rings."""
    one, other = Extended(port), End(port)
    one.connect(other.numbers)
    other.connect(one.numbers)
    one.send(0)
    arrive(one, other, 1)
    return one, other


def arrive(one: Extended, other: End, count: int) -> None:
    """What was posted, now that somebody wants it: to the same places in the region's second half."""
    for slot in range(count):
        other.receive(slot, HALF + slot * BYTES, BYTES)
    one.reap(count)
    other.port.take(count)


def bursts(port: Port) -> None:
    one, other = joined(port)
    for turn in range(BURSTS):
        data = os.urandom(BURST * BYTES // 2).hex()
        port.mr.write(data, len(data))
        one.burst()
        arrive(one, other, BURST)
        require(port.mr.read(len(data), HALF) == data.encode(), f"bytes of burst {turn}")
    one.close()
    other.qp.close()


def lives(port: Port) -> None:
    """Destroyed with posts that nobody has rung for: their handles and their places are the next one's."""
    for _ in range(LIVES):
        one, other = joined(port)
        one.burst()
        one.close()
        other.qp.close()


def strangers(one: Extended) -> int:
    """Files where our descriptors were, and a poll that finds nothing: bytes that it has written there."""
    last = max(int(name) for name in os.listdir("/proc/self/fd"))
    os.closerange(3, last + 1)
    files = [os.memfd_create("own") for _ in range(3, last + 1)]
    require(one.scq.start_poll(PollCqAttr()) != 0, "a completion")
    return sum(os.fstat(file).st_size for file in files)


def child(port: Port) -> None:
    """It has our memory and descriptors, and nothing to do with us."""
    one, other = joined(port)
    one.burst()
    if (pid := os.fork()) == 0:
        os._exit(os.write(1, b"") != 0 or strangers(one) != 0)
    require(os.waitpid(pid, 0)[1] == 0, "the child's end")
    arrive(one, other, BURST)


port = Port(INDEX)
bursts(port)
lives(port)
child(port)
print("ok")
