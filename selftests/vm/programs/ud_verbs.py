# SPDX-License-Identifier: BSD-3-Clause
"""UD queue pairs by pyverbs, for the programs beside this one."""

import ipaddress
import time
from pathlib import Path

import pyverbs.enums as e
from pyverbs.addr import GID, AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

DEVICE = "tcpqp0"
QKEY = 0x11111111
GRH_BYTES = 40
SLOT_BYTES = 8192
SLOTS = 64
LIMIT_S = 20
HW_COUNTERS = Path(f"/sys/class/infiniband/{DEVICE}/ports/1/hw_counters")


def counter(name: str) -> int:
    return int((HW_COUNTERS / name).read_text())


def until(condition, what: str):
    end = time.monotonic() + LIMIT_S
    while not (found := condition()):
        if time.monotonic() > end:
            raise SystemExit(f"in {LIMIT_S} s: {what}")
        time.sleep(0.001)
    return found


def pattern(seed: int, length: int) -> str:
    """Text, as pyverbs writes it; no two seeds alike in any eight bytes."""
    return (f"{seed & 0xFFFFFFF:07x}." * (length // 8 + 1))[:length]


class Host:
    """A context with one protection domain and one region of SLOTS slots."""

    def __init__(self) -> None:
        self.ctx = Context(name=DEVICE)
        self.pd = PD(self.ctx)
        self.mr = MR(self.pd, SLOTS * SLOT_BYTES, e.IBV_ACCESS_LOCAL_WRITE)

    def gid(self, index: int) -> str:
        return str(self.ctx.query_gid(1, index))

    def gid_of(self, starts: str) -> int:
        """The index of the first address that begins so."""
        for index in range(self.ctx.query_port(1).gid_tbl_len):
            if self.gid(index).startswith(starts):
                return index
        raise SystemExit(f"no GID begins with {starts}")

    def ah(self, gid: str, index: int = 0, hop_limit: int = 64, traffic_class: int = 0, pd: PD | None = None) -> AH:
        route = GlobalRoute(dgid=GID(ipaddress.IPv6Address(gid).exploded), sgid_index=index, hop_limit=hop_limit, traffic_class=traffic_class)
        return AH(pd or self.pd, attr=AHAttr(port_num=1, is_global=1, gr=route))

    def sge(self, slot: int, length: int, offset: int = 0) -> SGE:
        return SGE(self.mr.buf + slot * SLOT_BYTES + offset, length, self.mr.lkey)

    def write(self, slot: int, text: str) -> None:
        self.mr.write(text, len(text), slot * SLOT_BYTES)

    def read(self, slot: int, length: int, offset: int = 0) -> bytes:
        return bytes(self.mr.read(length, slot * SLOT_BYTES + offset))


class Side:
    """A UD queue pair in RTS with a completion queue of its own."""

    def __init__(self, host: Host, qkey: int = QKEY, shared: bool = False, receives: int = SLOTS) -> None:
        self.host, self.ctx = host, host.ctx
        self.cq = CQ(self.ctx, 4 * SLOTS)
        self.srq = SRQ(host.pd, SrqInitAttr(SrqAttr(max_wr=receives, max_sge=4))) if shared else None
        cap = QPCap(max_send_wr=SLOTS, max_recv_wr=receives, max_send_sge=4, max_recv_sge=4, max_inline_data=256)
        init = QPInitAttr(qp_type=e.IBV_QPT_UD, scq=self.cq, rcq=self.cq, srq=self.srq, cap=cap, sq_sig_all=1)
        self.qp = QP(host.pd, init)
        attr = QPAttr(port_num=1)
        attr.qkey, attr.pkey_index = qkey, 0
        self.qp.to_rts(attr)

    @property
    def qpn(self) -> int:
        return self.qp.qp_num

    def state(self) -> int:
        return self.qp.query(e.IBV_QP_STATE)[0].qp_state

    def modify(self, state: int, **values: int) -> None:
        attr = QPAttr(qp_state=state)
        for name, value in values.items():
            setattr(attr, name, value)
        self.qp.modify(attr, e.IBV_QP_STATE | (e.IBV_QP_SQ_PSN if "sq_psn" in values else 0))

    def post_recv(self, slot: int, length: int = SLOT_BYTES, sges: list[SGE] | None = None) -> None:
        sges = sges or [self.host.sge(slot, length)]
        (self.srq or self.qp).post_recv(RecvWR(wr_id=slot, num_sge=len(sges), sg=sges))

    def post_send(
        self, ah: AH, qpn: int, sges: list[SGE], qkey: int = QKEY, imm: int | None = None, flags: int = 0, opcode: int | None = None
    ) -> None:
        if opcode is None:
            opcode = e.IBV_WR_SEND if imm is None else e.IBV_WR_SEND_WITH_IMM
        wr = SendWR(opcode=opcode, num_sge=len(sges), imm_data=imm or 0, sg=sges, send_flags=flags | e.IBV_SEND_SIGNALED)
        wr.set_wr_ud(ah, qpn, qkey)
        self.qp.post_send(wr)

    def completion(self):
        return until(lambda: self.cq.poll(1)[1], f"QP {self.qpn:#x}: no completion")[0]

    def none(self) -> bool:
        return self.cq.poll(1)[0] == 0
