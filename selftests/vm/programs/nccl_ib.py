#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The verbs calls of NCCL's IB transport, in its order, by pyverbs; written from what it does (docs/nccl.md), so that nothing is fetched.

nccl_ib.py --listen PORT | --connect ADDRESS:PORT  [--qps N --split --adaptive --inline --gid N --first N]

Side 0 receives.  It posts receives without buffers and WRITEs a record for each into a FIFO in the sender's memory: address, key,
length, tag.  The sender polls that memory, WRITEs the data, and ends each request by a WRITE with immediate; the sizes of a group
go with it.  A queue pair that is its own peer READs a byte back (NCCL's flush).  Last, memory that was announced is taken away.
Prints one JSON object; exit 0 only if all was as it should be.
"""

import argparse
import errno
import json
import random
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass

import pyverbs.enums as e
from number_ends import Control, require
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

SLOTS, GROUP = 256, 8  # requests under way, receives of one
RECORD = struct.Struct("<QQ8IIIQ")  # address, bytes, a key for each device, receives of the group, tag, number from 1
ROW = GROUP * RECORD.size
SIZES_ROW = GROUP * 4
ALIGN = 128  # a line of LL128 is never cut
THRESHOLD = 8192  # above it adaptive routing has data and immediate apart
AREA = 1 << 20
GUARD = 0xA5
DEPTH = 2 * SLOTS
LIMIT_S = 60
EVENT_S = 20
SIZES = (1, 0, 64, 4095, 4096, 70_001, 512 * 1024)
SEED = 23
HOST = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
DATA = HOST | e.IBV_ACCESS_REMOTE_ATOMIC | e.IBV_ACCESS_RELAXED_ORDERING
INIT = e.IBV_QP_STATE | e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT | e.IBV_QP_ACCESS_FLAGS
RTR = (
    e.IBV_QP_STATE | e.IBV_QP_AV | e.IBV_QP_PATH_MTU | e.IBV_QP_DEST_QPN | e.IBV_QP_RQ_PSN | e.IBV_QP_MAX_DEST_RD_ATOMIC | e.IBV_QP_MIN_RNR_TIMER
)
RTS = e.IBV_QP_STATE | e.IBV_QP_TIMEOUT | e.IBV_QP_RETRY_CNT | e.IBV_QP_RNR_RETRY | e.IBV_QP_SQ_PSN | e.IBV_QP_MAX_QP_RD_ATOMIC


@dataclass
class Peer:
    """What an end is told by, out of band."""

    qpns: list[int]
    gid: str
    mtu: int
    key: int  # of the FIFO, or of the sizes
    address: int


def pattern(seed: int, count: int) -> bytes:
    return random.Random(seed).randbytes(count)


def without_buffer(wr):
    """pyverbs makes none without."""
    wr.num_sge = 0
    return wr


class Device:
    """Opened, looked at and used as NCCL does."""

    name = "tcpqp0"

    def __init__(self, gid: int) -> None:
        self.context = Context(name=self.name)
        attr = self.context.query_device()
        port = self.context.query_port(1)
        require(attr.phys_port_cnt == 1 and attr.max_qp > 0, "one port, and queue pairs")
        require(port.state == e.IBV_PORT_ACTIVE and port.link_layer == e.IBV_LINK_LAYER_ETHERNET, f"state {port.state}, layer {port.link_layer}")
        require(port.active_speed > 0 and port.active_width > 0, "NCCL takes the speed for its search")
        require(port.gid_tbl_len > gid, "a GID table")
        self.gid_index, self.mtu = gid, port.active_mtu
        self.gid = self.context.query_gid(1, gid).gid
        # read when two addresses of one family are compared; a file that is missing ends NCCL
        with open(f"/sys/class/infiniband/{self.name}/ports/1/gid_attrs/types/{gid}") as file:
            self.gid_type = file.read().strip()
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 2 * DEPTH * 8)

    def create(self, sends: int, receives: int, inline: int, access: int) -> QP:
        cap = QPCap(max_send_wr=sends, max_recv_wr=receives, max_send_sge=1, max_recv_sge=1, max_inline_data=inline)
        qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=0))
        attr = QPAttr(qp_state=e.IBV_QPS_INIT, cur_qp_state=e.IBV_QPS_RESET, port_num=1)
        attr.qp_access_flags = access
        qp.modify(attr, INIT)
        try:
            qp.query_ece()
        except PyverbsRDMAError as error:
            require(error.error_code == errno.EOPNOTSUPP, f"query_ece says {error.error_code}: NCCL goes on after EOPNOTSUPP alone")
        return qp

    def connect(self, qp: QP, qpn: int, gid: str, mtu: int) -> None:
        attr = QPAttr(qp_state=e.IBV_QPS_RTR, cur_qp_state=e.IBV_QPS_INIT, port_num=1)
        route = GlobalRoute(dgid=GID(gid), sgid_index=self.gid_index, hop_limit=255)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        attr.dest_qp_num, attr.rq_psn, attr.path_mtu = qpn, 0, min(mtu, self.mtu)
        attr.max_dest_rd_atomic, attr.min_rnr_timer = 1, 12
        qp.modify(attr, RTR)
        attr = QPAttr(qp_state=e.IBV_QPS_RTS, cur_qp_state=e.IBV_QPS_RTR, port_num=1)
        attr.sq_psn, attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic = 0, 20, 7, 7, 1
        qp.modify(attr, RTS)

    def completion(self, limit_s: float = LIMIT_S):
        until = time.monotonic() + limit_s
        while True:
            count, found = self.cq.poll(1)
            if count:
                return found[0]
            require(time.monotonic() < until, f"no completion in {limit_s} s")
            time.sleep(0.0005)


class End:
    """What both ends of a comm have: queue pairs, of which a request uses one, or all of them."""

    def __init__(self, args, control: Control, access: int) -> None:
        self.device = Device(args.gid)
        self.args, self.control = args, control
        self.qps = [self.device.create(DEPTH, SLOTS, RECORD.size if args.inline else 0, access) for _ in range(args.qps)]
        self.area = MR(self.device.pd, AREA, DATA)
        self.head = args.first
        self.kept: list = []  # work requests that were posted: pyverbs frees what nobody holds

    def meet_peer(self, key: int, address: int) -> None:
        ours = Peer([qp.qp_num for qp in self.qps], self.device.gid, self.device.mtu, key, address)
        self.peer = Peer(**self.control.swap(vars(ours)))
        for qp, qpn in zip(self.qps, self.peer.qpns):
            self.device.connect(qp, qpn, self.peer.gid, self.peer.mtu)
        self.control.meet()

    def of_request(self) -> list[QP]:
        return self.qps if self.args.split else [self.qps[self.head % len(self.qps)]]

    def post(self, qp: QP, requests: list[SendWR]) -> None:
        for first, second in zip(requests, requests[1:]):
            first.next_wr = second
        qp.post_send(requests[0])
        self.kept = self.kept[-DEPTH:] + requests


class Sender(End):
    def __init__(self, args, control: Control) -> None:
        super().__init__(args, control, e.IBV_ACCESS_REMOTE_WRITE)
        self.fifo = MR(self.device.pd, SLOTS * ROW, HOST)
        self.fifo.write(bytes(SLOTS * ROW), SLOTS * ROW)
        self.sizes = MR(self.device.pd, SLOTS * SIZES_ROW, HOST)
        self.meet_peer(self.fifo.rkey, self.fifo.buf)

    def row(self) -> list[tuple]:
        return list(RECORD.iter_unpack(self.fifo.read(ROW, self.head % SLOTS * ROW)))

    def records(self) -> list[tuple]:
        """Of the next request, once all of them are there."""
        until = time.monotonic() + LIMIT_S
        while True:
            found = self.row()
            if found[0][-1] == self.head + 1 and all(r[-1] == self.head + 1 for r in found[: found[0][10]]):
                return self.row()[: found[0][10]]  # as NCCL does: a copy may have begun before what is written last was there
            require(time.monotonic() < until, f"request {self.head + 1} was not announced: {found[0]}")
            time.sleep(0.0005)

    def write(self, record: tuple, at: int, done: int, count: int) -> SendWR:
        sge = [SGE(self.area.buf + at + done, count, self.area.lkey)]
        wr = SendWR(wr_id=self.head % SLOTS, opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=sge, send_flags=0)
        wr.set_wr_rdma(record[2], record[0] + done)
        return wr if count else without_buffer(wr)

    def last(self, row: int, count: int, immediate: int) -> SendWR:
        """The WRITE with immediate; @count: sizes of a group to go with it."""
        sge = [SGE(self.sizes.buf + row * SIZES_ROW, 4 * count, self.sizes.lkey)]
        wr = SendWR(wr_id=self.head % SLOTS, opcode=e.IBV_WR_RDMA_WRITE_WITH_IMM, num_sge=1, sg=sge, send_flags=e.IBV_SEND_SIGNALED)
        wr.imm_data = socket.htonl(immediate)
        if not count:
            return without_buffer(wr)
        wr.set_wr_rdma(self.peer.key, self.peer.address + row * SIZES_ROW)
        return wr

    def send(self, sizes: list[int]) -> list[tuple]:
        """One request, from the beginning of our area on; the records it went to."""
        records = self.records()
        require([r[11] for r in records] == list(range(len(sizes))), "tags in order")
        row, qps = self.head % SLOTS, self.of_request()
        self.sizes.write(struct.pack(f"<{len(sizes)}i", *sizes), 4 * len(sizes), row * SIZES_ROW)
        at = [sum(sizes[:i]) for i in range(len(sizes))]
        done = [0] * len(sizes)
        for qp in qps:
            works = []
            for i, size in enumerate(sizes):
                chunk = -(-(-(-size // len(qps))) // ALIGN) * ALIGN
                count = min(chunk, size - done[i])
                works.append(self.write(records[i], at[i], done[i], count))
                done[i] += count
            if len(sizes) > 1:
                works.append(self.last(row, len(sizes), sizes[0]))
            elif self.args.adaptive and sizes[0] > THRESHOLD:
                works.append(self.last(row, 0, sizes[0]))
            else:
                works[0].opcode = e.IBV_WR_RDMA_WRITE_WITH_IMM
                works[0].imm_data = socket.htonl(sizes[0])
                works[0].send_flags = e.IBV_SEND_SIGNALED
            self.post(qp, works)
        return records

    def request(self, number: int, sizes: list[int]) -> None:
        content = pattern(number, sum(sizes))
        if content:
            self.area.write(content, len(content))
        self.send(sizes)
        for _ in self.of_request():
            wc = self.device.completion()
            require((wc.status, wc.wr_id) == (e.IBV_WC_SUCCESS, self.head % SLOTS), f"send of {sizes}: status {wc.status}, id {wc.wr_id}")
        self.head += 1
        self.control.meet()

    def refused(self) -> dict:
        """A WRITE into memory that has been taken away."""
        self.control.meet()
        self.send([4096])
        wc = self.device.completion()
        require(wc.status == e.IBV_WC_REM_ACCESS_ERR, f"status {wc.status} instead of a remote access error")
        self.control.meet()
        return {}


class Receiver(End):
    def __init__(self, args, control: Control) -> None:
        super().__init__(args, control, HOST & ~e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_ATOMIC)
        self.records = MR(self.device.pd, SLOTS * ROW, HOST)
        self.sizes = MR(self.device.pd, SLOTS * SIZES_ROW, HOST)
        self.flush_byte = MR(self.device.pd, 4, e.IBV_ACCESS_LOCAL_WRITE)
        self.flush_qp = self.device.create(SLOTS, 0, 0, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ)
        self.device.connect(self.flush_qp, self.flush_qp.qp_num, self.device.gid, self.device.mtu)
        self.meet_peer(self.sizes.rkey, self.sizes.buf)

    def announce(self, rooms: list[int]) -> None:
        row = self.head % SLOTS
        for qp in self.of_request():
            qp.post_recv(without_buffer(RecvWR(wr_id=row, num_sge=1, sg=[SGE(0, 0, 0)])))
        at, entries = 0, b""
        for tag, room in enumerate(rooms):
            keys = [self.area.rkey] + [0] * 7
            entries += RECORD.pack(self.area.buf + at, room, *keys, len(rooms), tag, self.head + 1)
            at += room
        self.records.write(entries, len(entries), row * ROW)
        sge = [SGE(self.records.buf + row * ROW, len(entries), self.records.lkey)]
        wr = SendWR(wr_id=row, opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=sge, send_flags=0)
        wr.set_wr_rdma(self.peer.key, self.peer.address + row * ROW)
        if self.args.inline and len(rooms) == 1:
            wr.send_flags |= e.IBV_SEND_INLINE
        if row == 0:  # now and then, or the send queue never empties
            wr.send_flags |= e.IBV_SEND_SIGNALED
        self.post(self.of_request()[0], [wr])

    def take(self) -> list:
        """The completions of the request; the one of an announcement may come between."""
        found = []
        while len(found) < len(self.of_request()):
            wc = self.device.completion()
            require(wc.status == e.IBV_WC_SUCCESS, f"receive: status {wc.status}")
            if wc.opcode != e.IBV_WC_RDMA_WRITE:
                found.append(wc)
        return found

    def request(self, number: int, sizes: list[int]) -> None:
        total = sum(sizes)
        self.area.write(bytes([GUARD]) * (total + ALIGN), total + ALIGN)
        self.announce(sizes)
        for wc in self.take():
            said = (wc.opcode, wc.wr_id, socket.ntohl(wc.imm_data))
            require(said == (e.IBV_WC_RECV_RDMA_WITH_IMM, self.head % SLOTS, sizes[0]), f"receive of {sizes}: {said}")
        if len(sizes) > 1:
            told = struct.unpack(f"<{len(sizes)}i", self.sizes.read(4 * len(sizes), self.head % SLOTS * SIZES_ROW))
            require(list(told) == sizes, f"sizes {told}, not {sizes}")
        require(self.area.read(total + ALIGN, 0) == pattern(number, total) + bytes([GUARD]) * ALIGN, f"request {number}: a byte is wrong")
        if total:
            self.flush(pattern(number, total)[0])
        self.head += 1
        self.control.meet()

    def flush(self, expected: int) -> None:
        self.flush_byte.write(bytes([expected ^ 0xFF]), 1)
        sge = [SGE(self.flush_byte.buf, 1, self.flush_byte.lkey)]
        wr = SendWR(wr_id=SLOTS, opcode=e.IBV_WR_RDMA_READ, num_sge=1, sg=sge, send_flags=e.IBV_SEND_SIGNALED)
        wr.set_wr_rdma(self.area.rkey, self.area.buf)
        self.post(self.flush_qp, [wr])
        wc = self.device.completion()
        require((wc.status, wc.opcode, wc.wr_id) == (e.IBV_WC_SUCCESS, e.IBV_WC_RDMA_READ, SLOTS), f"flush: status {wc.status}, {wc.opcode}")
        require(self.flush_byte.read(1, 0)[0] == expected, "the flush read another byte")

    def refused(self) -> dict:
        """NCCL has a thread that waits for events: what fails there ends the comm."""
        self.announce([4096])
        self.area.close()
        self.control.meet()
        signal.alarm(EVENT_S)
        event = self.device.context.get_async_event()
        event.ack()  # or the queue pair could not be destroyed
        signal.alarm(0)
        require(event.event_type == e.IBV_EVENT_QP_ACCESS_ERR, f"event {event.event_type} instead of an access error")
        self.control.meet()
        return {"gid_type": self.device.gid_type}


def run(args) -> dict:
    control = Control(args.listen, args.connect)
    end = Sender(args, control) if control.side else Receiver(args, control)
    numbers = random.Random(SEED)
    plans = [[size] for size in SIZES] + [[numbers.choice(SIZES[:-1]) for _ in range(n)] for n in range(2, GROUP + 1)]
    plans += [[numbers.randrange(20_000)] for _ in range(args.more)]
    for number, sizes in enumerate(plans):
        end.request(number, sizes)
    return {"requests": len(plans), **end.refused()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", type=int, default=0)
    parser.add_argument("--connect", default="")
    parser.add_argument("--gid", type=int, default=0)
    parser.add_argument("--qps", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first request: how far its FIFO has got")
    parser.add_argument("--more", type=int, default=20, help="requests of random sizes")
    parser.add_argument("--split", action="store_true", help="each request over all queue pairs")
    parser.add_argument("--adaptive", action="store_true", help="data and immediate apart, above a size")
    parser.add_argument("--inline", action="store_true")
    print(json.dumps(run(parser.parse_args())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
