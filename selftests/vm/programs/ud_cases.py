#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What UD queue pairs of one host do for and to each other: ud_cases.py [CASE]..., all if none is named."""

import errno
import ipaddress
import sys

import pyverbs.enums as e
from pyverbs.addr import AH
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QPAttr
from pyverbs.wr import SGE

from ud_verbs import GRH_BYTES, QKEY, SLOT_BYTES, Host, Side, counter, pattern, until

MTUS = {e.IBV_MTU_256: 256, e.IBV_MTU_512: 512, e.IBV_MTU_1024: 1024, e.IBV_MTU_2048: 2048, e.IBV_MTU_4096: 4096}
OK, LENGTH, OPERATION, PROTECTION, FLUSH = e.IBV_WC_SUCCESS, e.IBV_WC_LOC_LEN_ERR, e.IBV_WC_LOC_QP_OP_ERR, e.IBV_WC_LOC_PROT_ERR, e.IBV_WC_WR_FLUSH_ERR
FROM, TO = 0, 32  # slots


def equal(got, expected, what: str) -> None:
    if got != expected:
        raise SystemExit(f"{what}: got {got!r}, expected {expected!r}")


def refused(call, expected: int, what: str) -> None:
    try:
        call()
    except PyverbsRDMAError as problem:
        equal(problem.error_code, expected, what)
    else:
        raise SystemExit(f"{what}: was not refused")


class World:
    """Two queue pairs of one device, and the way between them."""

    def __init__(self, shared: bool = False) -> None:
        self.host = Host()
        self.a, self.b = Side(self.host), Side(self.host, shared=shared)
        self.mtu = MTUS[self.host.ctx.query_port(1).active_mtu]
        self.ah = self.host.ah(self.host.gid(0))

    def send(self, length: int, seed: int = 1, **how) -> None:
        self.host.write(FROM, pattern(seed, length) if length else "")
        self.a.post_send(how.pop("ah", self.ah), how.pop("qpn", self.b.qpn), [self.host.sge(FROM, length)], **how)

    def sent(self, status: int = OK) -> None:
        equal(self.a.completion().status, status, "the send's status")

    def arrives(self, side: Side, length: int, seed: int = 1, slot: int = TO):
        wc = side.completion()
        equal((wc.status, wc.opcode, wc.wr_id, wc.byte_len), (OK, e.IBV_WC_RECV, slot, GRH_BYTES + length), "the receive's completion")
        equal((wc.src_qp, wc.qp_num, wc.pkey_index), (self.a.qpn, side.qpn, 0), "src_qp, qp_num, pkey_index")
        equal(self.host.read(slot, length, GRH_BYTES), pattern(seed, length).encode(), "payload")
        return wc

    def passes(self, length: int = 100, seed: int = 5) -> None:
        """Nothing of what was before is in the way."""
        self.b.post_recv(TO)
        self.send(length, seed)
        self.sent()
        self.arrives(self.b, length, seed)

    def dropped(self, name: str, length: int = 100, **how) -> None:
        before = counter(name)
        self.send(length, **how)
        self.sent()
        until(lambda: counter(name) > before, f"{name} does not grow")
        equal(counter(name), before + 1, name)
        equal(self.b.none(), True, "nothing completes at the receiver")


def case_sizes() -> None:
    w = World()
    for seed, length in enumerate((0, 1, 7, w.mtu - 1, w.mtu)):
        w.host.write(TO, "~" * SLOT_BYTES)
        w.b.post_recv(TO)
        w.send(length, seed)
        w.sent()
        wc = w.arrives(w.b, length, seed)
        equal(wc.wc_flags, e.IBV_WC_GRH, "wc_flags")
        equal(w.host.read(TO, 64, GRH_BYTES + length), b"~" * 64, "beyond the payload")


def case_immediate() -> None:
    w = World()
    w.b.post_recv(TO)
    w.send(20, imm=0x12345678)
    w.sent()
    wc = w.arrives(w.b, 20)
    equal((wc.wc_flags, wc.imm_data), (e.IBV_WC_GRH | e.IBV_WC_WITH_IMM, 0x12345678), "flags and immediate")


def grh_of(w: World, gid: str, index: int) -> None:
    w.b.post_recv(TO)
    w.send(64, ah=w.host.ah(gid, index, hop_limit=33, traffic_class=0x28))
    w.sent()
    w.arrives(w.b, 64)
    grh = w.host.read(TO, GRH_BYTES)
    word = int.from_bytes(grh[:4], "big")
    equal((word >> 28, word >> 20 & 0xFF), (6, 0x28), "version and traffic class")
    equal((int.from_bytes(grh[4:6], "big"), grh[6], grh[7]), (64, 0x1B, 33), "length, next header, hop limit")
    for part, what in ((grh[8:24], "sgid"), (grh[24:40], "dgid")):
        equal(ipaddress.IPv6Address(part), ipaddress.IPv6Address(gid), what)


def case_grh_ipv4() -> None:
    w = World()
    equal(ipaddress.IPv6Address(w.host.gid(0)).ipv4_mapped is not None, True, "an IPv4 address at index 0")
    grh_of(w, w.host.gid(0), 0)


def case_grh_ipv6() -> None:
    w = World()
    for starts in ("fd77:", "fe80:"):
        index = w.host.gid_of(starts)
        grh_of(w, w.host.gid(index), index)


def case_answer_by_completion() -> None:
    """ibv_create_ah_from_wc(): the way back out of the receive's GRH."""
    w = World()
    w.a.post_recv(FROM)
    w.b.post_recv(TO)
    w.send(10)
    w.sent()
    wc = w.arrives(w.b, 10)
    way_back = AH(w.host.pd, wc=wc, grh=w.host.mr.buf + TO * SLOT_BYTES, port_num=1)
    w.host.write(TO + 1, pattern(9, 30))
    w.b.post_send(way_back, wc.src_qp, [w.host.sge(TO + 1, 30)])
    equal(w.b.completion().status, OK, "the answer's send")
    answer = w.a.completion()
    equal((answer.status, answer.src_qp, answer.byte_len), (OK, w.b.qpn, GRH_BYTES + 30), "the answer")


def case_to_itself() -> None:
    w = World()
    w.a.post_recv(TO)
    w.send(50, qpn=w.a.qpn)
    kinds = sorted((wc.opcode, wc.status) for wc in (w.a.completion(), w.a.completion()))
    equal(kinds, sorted([(e.IBV_WC_SEND, OK), (e.IBV_WC_RECV, OK)]), "completions")
    equal(w.host.read(TO, 50, GRH_BYTES), pattern(1, 50).encode(), "payload")


def case_scattered() -> None:
    w = World()
    w.host.write(FROM, pattern(3, 300))
    w.b.post_recv(TO, sges=[w.host.sge(TO, 24), w.host.sge(TO, 0, 24), w.host.sge(TO, 100, 24), w.host.sge(TO, 500, 124)])
    w.a.post_send(w.ah, w.b.qpn, [w.host.sge(FROM, 1), w.host.sge(FROM, 0), w.host.sge(FROM, 200, 1), w.host.sge(FROM, 99, 201)])
    w.sent()
    w.arrives(w.b, 300, 3)


def case_inline() -> None:
    w = World()
    w.b.post_recv(TO)
    w.send(200, 4, flags=e.IBV_SEND_INLINE)
    w.host.write(FROM, pattern(6, 200))  # the application's again since post_send
    w.sent()
    w.arrives(w.b, 200, 4)


def case_wrong_qkey() -> None:
    w = World()
    w.b.post_recv(TO)
    w.dropped("ud_rx_bad_qkey", qkey=QKEY + 1)
    w.send(100, 8)
    w.sent()
    w.arrives(w.b, 100, 8)


def case_own_qkey() -> None:
    """The highest bit of a work request's QKEY asks for that of the queue pair."""
    w = World()
    w.b.post_recv(TO)
    w.send(100, 8, qkey=0x80000000)
    w.sent()
    w.arrives(w.b, 100, 8)


def case_no_receive() -> None:
    w = World()
    w.dropped("ud_rx_no_receive")
    w.passes()


def case_unknown_qpn() -> None:
    w = World()
    w.b.post_recv(TO)
    strangers = {w.a.qpn, w.b.qpn}
    w.dropped("ud_rx_unknown_qp", qpn=next(n for n in range(2, 9) if n not in strangers))
    w.dropped("ud_rx_unknown_qp", qpn=0xFFFFFF if 0xFFFFFF not in strangers else 0xFFFFFE)


def too_short(shared: bool) -> None:
    """A receive that is too small stays for the next one."""
    w = World(shared)
    w.b.post_recv(TO, GRH_BYTES + 99)
    w.dropped("ud_rx_too_short", 100)
    w.send(99, 2)
    w.sent()
    w.arrives(w.b, 99, 2)


def case_too_short() -> None:
    too_short(False)


def case_too_short_shared() -> None:
    too_short(True)


def case_shared() -> None:
    w = World(shared=True)
    for slot in range(TO, TO + 4):
        w.b.post_recv(slot)
    for slot in range(TO, TO + 4):
        w.send(100, slot)
        w.sent()
        w.arrives(w.b, 100, slot, slot)
    w.dropped("ud_rx_no_receive")


def send_error(status: int, w: World, post) -> None:
    """A send that is wrong leaves the send queue in error, and receives as they are; modify_qp heals it."""
    w.a.post_recv(FROM + 8)
    post()
    w.sent(status)
    equal(w.a.state(), e.IBV_QPS_SQE, "state")
    w.send(10)
    w.sent(FLUSH)
    w.host.write(TO, pattern(7, 10))
    w.b.post_send(w.ah, w.a.qpn, [w.host.sge(TO, 10)])
    equal((w.b.completion().status, w.a.completion().status), (OK, OK), "the receive queue goes on")
    w.a.modify(e.IBV_QPS_RTS)
    w.passes()


def case_too_long() -> None:
    w = World()
    send_error(LENGTH, w, lambda: w.send(w.mtu + 1))


def case_wrong_lkey() -> None:
    w = World()
    lkey = w.host.mr.lkey ^ 0x100
    send_error(PROTECTION, w, lambda: w.a.post_send(w.ah, w.b.qpn, [SGE(w.host.mr.buf, 10, lkey)]))


def case_handle_of_another_domain() -> None:
    w = World()
    stranger = w.host.ah(w.host.gid(0), pd=PD(w.host.ctx))
    send_error(OPERATION, w, lambda: w.send(10, ah=stranger))


def case_write() -> None:
    w = World()
    send_error(OPERATION, w, lambda: w.send(10, opcode=e.IBV_WR_RDMA_WRITE))


def case_receive_without_memory() -> None:
    """A receive whose key is wrong completes with that, and ends the queue pair."""
    w = World()
    w.b.post_recv(TO, sges=[SGE(w.host.mr.buf, SLOT_BYTES, w.host.mr.lkey ^ 0x100)])
    w.b.post_recv(TO + 1)
    w.send(10)
    w.sent()
    equal([w.b.completion().status for _ in range(2)], [PROTECTION, FLUSH], "completions")
    equal(w.b.state(), e.IBV_QPS_ERR, "state")
    w.dropped("ud_rx_unknown_qp")


def case_states() -> None:
    w = World()
    w.a.modify(e.IBV_QPS_SQD)
    w.b.post_recv(TO)
    w.send(10)  # waits
    equal((w.a.none(), w.b.none()), (True, True), "nothing is sent in SQD")
    w.a.modify(e.IBV_QPS_RTS)
    w.sent()
    w.arrives(w.b, 10)
    w.b.post_recv(TO)
    w.b.modify(e.IBV_QPS_ERR)
    equal(w.b.completion().status, FLUSH, "ERR flushes receives")
    w.dropped("ud_rx_unknown_qp")
    w.b.modify(e.IBV_QPS_RESET)
    attr = QPAttr(port_num=1)
    attr.qkey = QKEY
    w.b.qp.to_init(attr)
    w.b.post_recv(TO)
    w.dropped("ud_rx_unknown_qp")
    w.b.qp.to_rtr(attr)
    w.send(30, 2)
    w.sent()
    w.arrives(w.b, 30, 2)


def case_modify_is_checked() -> None:
    w = World()
    refused(lambda: w.a.modify(e.IBV_QPS_INIT), errno.EINVAL, "RTS to INIT")
    w.a.modify(e.IBV_QPS_RESET)
    refused(lambda: w.a.modify(e.IBV_QPS_INIT), errno.EINVAL, "INIT without QKEY")
    refused(lambda: w.a.modify(e.IBV_QPS_RTS), errno.EINVAL, "RESET to RTS")


def case_handles_are_checked() -> None:
    w = World()
    refused(lambda: w.host.ah("ff0e::1", w.host.gid_of("fd77:")), errno.EOPNOTSUPP, "multicast, IPv6")
    refused(lambda: w.host.ah("::ffff:224.0.0.1"), errno.EOPNOTSUPP, "multicast, IPv4")


CASES = {name.removeprefix("case_"): case for name, case in list(globals().items()) if name.startswith("case_")}


def main() -> None:
    for name in sys.argv[1:] or CASES:
        print(name, flush=True)
        CASES[name]()
    print("all passed")


main()
