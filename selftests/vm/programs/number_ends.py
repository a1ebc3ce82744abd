#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One or two ends whose queue pairs are connected by number, by pyverbs; what each scenario promises is checked here.

number_ends.py SCENARIO --listen PORT | --connect ADDRESS:PORT | (neither: alone)  [options]

Both ends run the same scenario; side 0 is the one that listens.  Prints one JSON object; exit 0 only if all was as it should be.
"""

import argparse
import json
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
INIT = e.IBV_QP_STATE | e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT | e.IBV_QP_ACCESS_FLAGS
RTR = (
    e.IBV_QP_STATE | e.IBV_QP_AV | e.IBV_QP_PATH_MTU | e.IBV_QP_DEST_QPN | e.IBV_QP_RQ_PSN | e.IBV_QP_MAX_DEST_RD_ATOMIC | e.IBV_QP_MIN_RNR_TIMER
)
RTS = e.IBV_QP_STATE | e.IBV_QP_TIMEOUT | e.IBV_QP_RETRY_CNT | e.IBV_QP_RNR_RETRY | e.IBV_QP_SQ_PSN | e.IBV_QP_MAX_QP_RD_ATOMIC
DEPTH = 16
REGION_BYTES = 65536
CONTROL_LIMIT_S = 120
SOON_S = 30
ABSENT = 4  # queue pairs that say RTR and RTS to nobody
QUIET_S = 1.0  # as long as nothing is to happen
TIMEOUT, RETRIES = 14, 7  # of IBTA: 0.5 s, hence the least that there is, 5 s
TRIES_S = 0.5
PATIENCE_S = 5.0
UNREAD_BYTES = 60000
LAST_S = 60  # a closed window is looked at again
LONG_TIMEOUT = 21  # 70 s, hence the most that there is, 60 s
SUCCESS, FLUSHED, UNREACHABLE = e.IBV_WC_SUCCESS, e.IBV_WC_WR_FLUSH_ERR, e.IBV_WC_RETRY_EXC_ERR


@dataclass
class Numbers:
    """What an end is told by, out of band."""

    qpn: int
    gid: str
    psn: int = 0
    rkey: int = 0
    address: int = 0


def require(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)


class Port:
    """The device with its region; queue pairs of it share both, and the CQ."""

    name = "tcpqp0"

    def __init__(self, index: int, queues: int = 1) -> None:
        self.index = index
        self.context = Context(name=self.name)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 2 * DEPTH * queues)
        self.mr = MR(self.pd, REGION_BYTES, ACCESS)
        self.gid = self.context.query_gid(1, index).gid

    def take(self, count: int, limit_s: float = SOON_S) -> list:
        """So many completions."""
        found, until = [], time.monotonic() + limit_s
        while len(found) < count:
            found += self.cq.poll(count - len(found))[1]
            require(time.monotonic() < until, f"{len(found)} of {count} completions in {limit_s} s")
            time.sleep(0.001)
        return found

    def expect_event(self, expected: int) -> None:
        """That one, and no other for a while."""
        (events,) = (int(fd) for fd in os.listdir("/proc/self/fd") if self._is_async(fd))
        require(bool(select.select([events], [], [], SOON_S)[0]), "no event came")
        event = self.context.get_async_event()
        event.ack()
        require(event.event_type == expected, f"event {event.event_type}")
        require(not select.select([events], [], [], QUIET_S)[0], "a second event came")

    @staticmethod
    def _is_async(fd: str) -> bool:
        try:
            return os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:[infinibandevent]"
        except OSError:  # listdir()'s own
            return False

    def silent(self, seconds: float = QUIET_S) -> None:
        time.sleep(seconds)
        found = [(wc.wr_id, wc.status) for wc in self.cq.poll(4)[1]]
        require(not found, f"completions that nothing asked for: {found}")


class End:
    """A queue pair."""

    def __init__(self, port: Port, psn: int = 0, depth: int = DEPTH, srq: SRQ | None = None) -> None:
        self.port, self.psn = port, psn
        cap = QPCap(max_send_wr=depth, max_recv_wr=0 if srq else depth)
        self.qp = QP(port.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=port.cq, rcq=port.cq, srq=srq, cap=cap, sq_sig_all=1))
        self.numbers = Numbers(self.qp.qp_num, port.gid, psn, port.mr.rkey, port.mr.buf)
        self.init()

    def init(self) -> None:
        attr = QPAttr(qp_state=e.IBV_QPS_INIT, cur_qp_state=e.IBV_QPS_RESET, port_num=1)
        attr.qp_access_flags = ACCESS
        self.qp.modify(attr, INIT)

    def reset(self) -> None:
        self.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)

    def error(self) -> None:
        self.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)

    def rtr(self, peer: Numbers) -> float:
        """Seconds that it took."""
        attr = QPAttr(qp_state=e.IBV_QPS_RTR, cur_qp_state=e.IBV_QPS_INIT, port_num=1)
        attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=GID(peer.gid), sgid_index=self.port.index, hop_limit=64), is_global=1, port_num=1)
        attr.dest_qp_num, attr.rq_psn = peer.qpn, peer.psn
        attr.path_mtu, attr.max_dest_rd_atomic, attr.min_rnr_timer = e.IBV_MTU_1024, 4, 12
        begun = time.monotonic()
        self.qp.modify(attr, RTR)
        return time.monotonic() - begun

    def rts(self, psn: int | None = None, timeout: int = TIMEOUT) -> float:
        attr = QPAttr(qp_state=e.IBV_QPS_RTS, cur_qp_state=e.IBV_QPS_RTR, port_num=1)
        attr.sq_psn = self.psn if psn is None else psn
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic = timeout, RETRIES, 7, 4
        begun = time.monotonic()
        self.qp.modify(attr, RTS)
        return time.monotonic() - begun

    def connect(self, peer: Numbers, timeout: int = TIMEOUT) -> float:
        return self.rtr(peer) + self.rts(timeout=timeout)

    def receive(self, wr_id: int, at: int = 0, count: int = 64) -> None:
        self.qp.post_recv(RecvWR(wr_id=wr_id, num_sge=1, sg=[SGE(self.port.mr.buf + at, count, self.port.mr.lkey)]))

    def post(self, wr_id: int, opcode: int = e.IBV_WR_SEND, at: int = 0, count: int = 64, peer: Numbers | None = None, peer_at: int = 0) -> None:
        wr = SendWR(wr_id=wr_id, num_sge=1, sg=[SGE(self.port.mr.buf + at, count, self.port.mr.lkey)], opcode=opcode)
        if peer:
            wr.set_wr_rdma(peer.rkey, peer.address + peer_at)
        self.qp.post_send(wr)

    def state(self) -> int:
        return self.qp.query(e.IBV_QP_STATE)[0].qp_state


class Control:
    """The connection by which both ends tell their numbers, and wait for each other."""

    def __init__(self, listen: int, connect: str) -> None:
        if listen:
            with socket.create_server(("", listen)) as server:
                self.link = server.accept()[0]
        else:
            address, _, port = connect.rpartition(":")
            self.link = socket.create_connection((address, int(port)))
        self.side = 0 if listen else 1
        self.link.settimeout(CONTROL_LIMIT_S)
        self.lines = self.link.makefile("r")

    def swap(self, said):
        self.link.sendall(json.dumps(said).encode() + b"\n")
        return json.loads(self.lines.readline())

    def meet(self) -> None:
        self.swap("here")

    def numbers(self, ends: list[End]) -> list[Numbers]:
        return [Numbers(**said) for said in self.swap([vars(end.numbers) for end in ends])]


def ping(a: End, control: Control, wr_id: int = 1) -> None:
    """A message each way, both ends at it."""
    a.receive(wr_id, at=1024)
    control.meet()
    a.post(wr_id + 1)
    found = sorted((wc.wr_id, wc.status) for wc in a.port.take(2))
    require(found == [(wr_id, SUCCESS), (wr_id + 1, SUCCESS)], f"completions {found}")


def joined(args, control: Control, queues: int = 1) -> End:
    """Connected: a message went each way."""
    end = End(Port(args.gid, queues))
    (peer,) = control.numbers([end])
    end.connect(peer)
    ping(end, control)
    return end


def order(args, control: Control) -> dict:
    """RTR of side args.first, then of the other args.delay seconds later; both say RTS at once and post at once."""
    end = End(Port(args.gid), psn=0x123456 + control.side)
    (peer,) = control.numbers([end])
    end.receive(1, at=1024)
    if control.side != args.first:
        control.meet()
        time.sleep(args.delay)
    took = end.connect(peer)
    end.post(2)
    if control.side == args.first:
        control.meet()
    found = sorted((wc.wr_id, wc.status) for wc in end.port.take(2))
    require(found == [(1, SUCCESS), (2, SUCCESS)], f"completions {found}")
    control.meet()
    return {"modify_s": took}


def many(args, control: Control) -> dict:
    """args.count queue pairs, RTR of all of them in opposite orders; done when a message came on each."""
    port = Port(args.gid, queues=args.count)
    ends = [End(port, depth=1) for _ in range(args.count)]
    peers = control.numbers(ends)
    for number, end in enumerate(ends):
        end.receive(number, at=1024)
    control.meet()
    begun = time.monotonic()
    for end, peer in list(zip(ends, peers))[:: 1 - 2 * control.side]:
        end.connect(peer, LONG_TIMEOUT)
        end.post(args.count)
    found = port.take(2 * args.count, CONTROL_LIMIT_S)
    took = time.monotonic() - begun
    require(all(wc.status == SUCCESS for wc in found), f"statuses {sorted({wc.status for wc in found})}")
    require(sorted(wc.wr_id for wc in found)[: args.count] == list(range(args.count)), "one receive for each")
    control.meet()
    if args.stay:
        stay()
    return {"seconds": took}


def quiet_end(args, control: Control) -> dict:
    """Side 1 destroys its queue pair; the other hears of it by its next send, and by nothing else."""
    end = joined(args, control)
    control.meet()
    if control.side == 1:
        end.qp.close()
        control.meet()
        return {}
    control.meet()
    end.receive(9, at=2048)
    end.port.silent()
    require(end.state() == e.IBV_QPS_RTS, f"state {end.state()}")
    end.post(7)
    end.post(8)
    return failed(end, [7, 8], 9, 0, SOON_S)


def last_wqe(args, control: Control) -> dict:
    """A queue pair of a shared receive queue goes into ERR, without a peer, and when its peer has left: each time that is told once."""
    port = Port(args.gid)
    srq = SRQ(port.pd, SrqInitAttr(SrqAttr(max_wr=DEPTH)))
    lonely, end = End(port, srq=srq), End(port, srq=srq)
    lonely.error()
    port.expect_event(e.IBV_EVENT_QP_LAST_WQE_REACHED)
    (peer,) = control.numbers([end])
    end.connect(peer)
    srq.post_recv(RecvWR(wr_id=1, num_sge=1, sg=[SGE(port.mr.buf, 64, port.mr.lkey)]))
    control.meet()
    end.post(2)
    require(sorted((wc.wr_id, wc.status) for wc in port.take(2)) == [(1, SUCCESS), (2, SUCCESS)], "a message each way")
    control.meet()
    if control.side == 1:
        end.qp.close()
        control.meet()
        return {}
    control.meet()
    port.silent()
    end.error()
    port.expect_event(e.IBV_EVENT_QP_LAST_WQE_REACHED)
    return {}


def taken(args, control: Control) -> dict:
    """Side 1 destroys each queue pair while it sends, as soon as it has a message: that arrived, whatever becomes of what is under way."""
    port = Port(args.gid, queues=args.count)
    ends = [End(port) for _ in range(args.count)]
    for end, peer in zip(ends, control.numbers(ends)):
        end.connect(peer)
        ping(end, control)
    for end in ends:
        end.receive(1, at=1024, count=UNREAD_BYTES)
        control.meet()
        end.post(2, count=UNREAD_BYTES if control.side == 1 else 64)
        wanted = 1 if control.side == 1 else 2
        while (wc := port.take(1)[0]).wr_id != wanted:  # the others' ends are of no interest
            pass
        require(wc.status == SUCCESS, f"side {control.side}: {wc.status}")
        if control.side == 1:
            end.qp.close()
    control.meet()
    return {}


def retried(args, control: Control) -> dict:
    """Side 1 destroys its queue pair with no receive posted: what waits for one fails when IBTA's tries are over, and not before."""
    end = joined(args, control)
    if control.side == 0:
        end.receive(9, at=2048)
        end.post(7)
        end.post(8)
    control.meet()
    if control.side == 0:
        return failed(end, [7, 8], 9, TRIES_S, SOON_S)
    end.qp.close()
    return {}


def failed(end: End, sends: list[int], receive: int, least_s: float, most_s: float) -> dict:
    """The first send says what became of the peer, everything else is flushed, in that order for each queue."""
    begun = time.monotonic()
    found = [(wc.wr_id, wc.status) for wc in end.port.take(len(sends) + 1, most_s)]
    took = time.monotonic() - begun
    require([f for f in found if f[0] != receive] == [(sends[0], UNREACHABLE)] + [(s, FLUSHED) for s in sends[1:]], f"sends {found}")
    require((receive, FLUSHED) in found, f"receive {found}")
    require(end.state() == e.IBV_QPS_ERR, f"state {end.state()}")
    require(took >= least_s, f"given up after {took} s")
    return {"seconds": took}


def absent(args, _) -> dict:
    """Nobody is there: RTR and RTS do not wait, sends fail in time."""
    port = Port(args.gid, queues=ABSENT)
    ends = [End(port) for _ in range(ABSENT)]
    modify_s = min(end.connect(Numbers(args.qpn, args.peer)) for end in ends)  # others may have the processor
    end = ends[-1]
    end.receive(9)
    time.sleep(args.delay)  # the time runs from the first send
    for number in (1, 2, 3):
        end.post(number)
    return {"modify_s": modify_s, **failed(end, [1, 2, 3], 9, 0.9 * PATIENCE_S, 3 * PATIENCE_S)}


def alone(args, _) -> dict:
    """A queue pair that is its own peer: SEND, WRITE, READ."""
    end = End(Port(args.gid))
    end.connect(end.numbers)
    mr = end.port.mr
    for round_ in range(20):
        data = bytes((round_ + i) % 251 for i in range(4000))
        mr.write(data, 4000, 0)
        end.receive(1, at=8192, count=4000)
        end.post(2, count=4000)
        end.post(3, opcode=e.IBV_WR_RDMA_WRITE, count=4000, peer=end.numbers, peer_at=16384)
        end.post(4, opcode=e.IBV_WR_RDMA_READ, at=32768, count=4000, peer=end.numbers)
        found = sorted((wc.wr_id, wc.status) for wc in end.port.take(4))
        require(found == [(n, SUCCESS) for n in (1, 2, 3, 4)], f"completions {found}")
        for at in (8192, 16384, 32768):
            require(mr.read(4000, at) == data, f"bytes at {at} in round {round_}")
    return {}


def mismatch(args, control: Control) -> dict:
    """Side 0 begins at another PSN than the peer expects, which it may say when they are long connected: its sends reach nobody, the other's do."""
    end = End(Port(args.gid))
    (peer,) = control.numbers([end])
    end.receive(9, at=1024)
    end.rtr(peer)
    time.sleep(args.rts_after)
    end.rts(psn=5 if control.side == 0 else 0)
    if control.side == 1:
        end.post(1)
        (wc,) = end.port.take(1)
        require((wc.wr_id, wc.status) == (1, SUCCESS), f"side 1's send: {wc.wr_id} {wc.status}")
        control.meet()
        end.port.silent(args.delay)
        control.meet()
        return {}
    (wc,) = end.port.take(1)
    require((wc.wr_id, wc.status) == (9, SUCCESS), f"side 0's receive: {wc.wr_id} {wc.status}")
    control.meet()
    end.receive(9, at=1024)
    end.post(1)
    said = failed(end, [1], 9, 0.9 * PATIENCE_S, 3 * PATIENCE_S)
    control.meet()
    return said


def again(args, control: Control) -> dict:
    """The same queue pairs by RESET, time after time, with new partners."""
    port = Port(args.gid, queues=2)
    ends = [End(port, psn=control.side) for _ in range(2)]
    peers = control.numbers(ends)
    for round_ in range(args.count):
        for end, peer in zip(ends, peers[:: 1 - 2 * (round_ % 2)]):
            end.connect(peer)
        for end in ends[:: 1 if control.side == 0 else 1 - 2 * (round_ % 2)]:
            ping(end, control)
        control.meet()
        for end in ends:
            end.reset()
            end.init()
        control.meet()
    return {}


def stay() -> None:
    """Until somebody ends it."""
    print("held", flush=True)
    while True:
        signal.pause()


def hold(args, control: Control) -> dict:
    """Connected until somebody ends it; args.unread messages each way that nobody receives."""
    end = joined(args, control)
    for number in range(args.unread):
        end.post(number, count=UNREAD_BYTES)
    stay()
    return {}


def closed(args, control: Control) -> dict:
    """Side 1 receives nothing for args.delay seconds: its window is closed, and probed ever more seldom.  That is no silence."""
    end = joined(args, control, queues=2)
    if control.side == 0:
        for number in range(args.unread):
            end.post(number, count=UNREAD_BYTES)
    time.sleep(args.delay)
    require(end.state() == e.IBV_QPS_RTS, f"state {end.state()}")
    control.meet()
    if control.side == 1:
        for number in range(args.unread):
            end.receive(number, count=UNREAD_BYTES)
    require({wc.status for wc in end.port.take(args.unread, LAST_S)} == {SUCCESS}, "statuses")
    control.meet()
    return {}


def silent(args, control: Control) -> dict:
    """Connected until the other end is cut off, which a signal says; its silence is noticed by the next send, and in time."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    end = joined(args, control)
    end.receive(9, at=2048)
    print("held", flush=True)
    signal.sigwait({signal.SIGUSR1})
    end.post(7)
    end.post(8)
    return failed(end, [7, 8], 9, 0.9 * PATIENCE_S, 3 * PATIENCE_S)


def told(args, control: Control) -> dict:
    """RTR and RTS, and nothing to send until a signal says so."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    end = End(Port(args.gid))
    (peer,) = control.numbers([end])
    end.connect(peer)
    print("held", flush=True)
    signal.sigwait({signal.SIGUSR1})
    ping(end, control)
    return {}


SCENARIOS = {f.__name__: f for f in (order, many, quiet_end, last_wqe, taken, retried, absent, alone, mismatch, again, hold, closed, silent, told)}


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("scenario", choices=SCENARIOS)
    p.add_argument("--listen", type=int, default=0)
    p.add_argument("--connect", default="")
    p.add_argument("--device", default=Port.name)
    p.add_argument("--gid", type=int, default=0, help="index of our own")
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--delay", type=float, default=0)
    p.add_argument("--rts-after", type=float, default=0, help="seconds from RTR to RTS, of mismatch")
    p.add_argument("--count", type=int, default=1)
    p.add_argument("--stay", action="store_true", help="of many: connected until somebody ends it")
    p.add_argument("--unread", type=int, default=0)
    p.add_argument("--peer", default="", help="GID")
    p.add_argument("--qpn", type=int, default=0x424242)
    args = p.parse_args()
    Port.name = args.device
    control = Control(args.listen, args.connect) if args.listen or args.connect else None
    print(json.dumps(SCENARIOS[args.scenario](args, control)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
