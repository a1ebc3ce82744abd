#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A peer without libtcpqp: tcpqp-bpf admits it, and it says in tcp_bth what it is told to.

bare_peer.py HELPER PORT [--connect ADDR] [--room BYTES]: commands on standard input, each answered by a line of JSON:
  rtr            sends a message with rtr and rtr_ack, as a module's end may
  rtr-ack        the same by a pure ACK, as it does at first: nothing to read
  hello LIMIT    sends a stock end's hello, with credit
  finish         will send no more (FIN)
  credit LIMIT   sends an ACKNOWLEDGE: the peer may send messages below LIMIT
  await WHAT     asks for a wakeup (TCPQP_BPF_AWAITS_*)
  state          {"records", "readable", "awaits", "flags", "limit", "unread"}
  read BYTES     reads so many, with a larger buffer from now on, and answers with their SHA-256
"""

import argparse
import array
import fcntl
import hashlib
import json
import mmap
import select
import socket
import struct
import sys
import termios

LIMIT_S = 60
LEVEL, START = 0x5150, 1
ABI = 4
SLOT_BYTES, TX_AT, ENTRIES = 229568, 164032, 4096  # struct tcpqp_bpf_slot
TX_NEXT, RX_SEQ, AWAITS, SND_NXT, RCV_NXT, FLAGS, LIMIT = 4, 8, 12, 64, 68, 72, 76
SEND_ONLY, ACKNOWLEDGE = 0x04, 0x11
HELLO = struct.pack(">HBB12xB7x", 0x5150, 1, 1, 2 | 4)  # userspace/frames/frame.hpp: speaks the option, and wants to
RTR, RTR_ACK = 0x10, 0x20
KIND, EXID, VERSION, OPTION_BYTES = 253, 0x5150, 1, 20
TCP_ACK, TCP_HEADER_BYTES = 0x10, 20
BUFFER_BYTES = 64 << 10  # fewer messages than a slot has room for
READ_BYTES = 4096  # TCP's window opens before the slot hears of it
RECORD_BYTES = 16  # in the ring: its header and four bytes, aligned


def internet_checksum(data: bytes) -> int:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Bare:
    def __init__(self, helper: str, connection: socket.socket) -> None:
        self.connection = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)  # let data bear the ACK
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
            asked.settimeout(LIMIT_S)
            asked.connect(helper)
            socket.send_fds(asked, [struct.pack("=II", ABI, 0)], [connection.fileno()])
            reply, fds, *_ = socket.recv_fds(asked, 8, 3)
        if struct.unpack("=Ii", reply) != (ABI, 0) or len(fds) != 2:
            raise RuntimeError(f"tcpqp-bpf said {reply} and sent {len(fds)} descriptors")
        self.slot = mmap.mmap(fds[0], SLOT_BYTES)
        self.words = memoryview(self.slot).cast("I")  # each read and written at once, which struct does not: it writes zeros first
        self.ring = fds[1]
        self.producer = mmap.mmap(self.ring, mmap.PAGESIZE, prot=mmap.PROT_READ, offset=mmap.PAGESIZE)
        connection.setsockopt(LEVEL, START, 0)
        self.seq = self.word(SND_NXT)
        self.put(RX_SEQ, (self.word(RCV_NXT) - self.unread()) % (1 << 32))
        self.announced = self.msn = self.control_msn = 0

    def word(self, at: int) -> int:
        return self.words[at // 4]

    def put(self, at: int, value: int) -> None:
        self.words[at // 4] = value

    def say(self, opcode: int, msn: int, ext4: int, flags: int, payload: bytes = b"\0") -> None:
        entry = struct.pack("=IIIHBB", self.seq, len(payload), ext4, msn, opcode, flags)
        at = TX_AT + self.announced % ENTRIES * len(entry)
        self.slot[at : at + len(entry)] = entry
        self.announced += 1
        self.seq = (self.seq + len(payload)) % (1 << 32)
        self.put(TX_NEXT, self.announced)
        self.connection.send(payload, socket.MSG_EOR)

    def rtr(self) -> None:
        self.say(SEND_ONLY, self.msn, 0, RTR | RTR_ACK)
        self.msn += 1

    def rtr_ack(self) -> None:
        option = struct.pack(">BBHBBHIII", KIND, OPTION_BYTES, EXID, VERSION | RTR | RTR_ACK, ACKNOWLEDGE, 0, 0, 0, 0)
        (source, source_port), (target, target_port) = self.connection.getsockname(), self.connection.getpeername()
        doff = (TCP_HEADER_BYTES + OPTION_BYTES) // 4 << 4
        received = (self.word(RX_SEQ) + self.unread()) % (1 << 32)

        def segment(checksum: int) -> bytes:
            return struct.pack(">HHIIBBHHH", source_port, target_port, self.seq, received, doff, TCP_ACK, 1, checksum, 0) + option

        bare = segment(0)
        pseudo = socket.inet_aton(source) + socket.inet_aton(target) + struct.pack(">BBH", 0, socket.IPPROTO_TCP, len(bare))
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
            raw.sendto(segment(internet_checksum(pseudo + bare)), (target, 0))

    def credit(self, limit: str) -> None:
        self.say(ACKNOWLEDGE, self.control_msn, int(limit), 0)
        self.control_msn += 1

    def hello(self, limit: str) -> None:
        self.say(ACKNOWLEDGE, self.control_msn, int(limit), RTR, HELLO)
        self.control_msn += 1

    def finish(self) -> None:
        self.connection.shutdown(socket.SHUT_WR)

    def wait_for_wakeup(self, what: str) -> None:
        self.put(AWAITS, int(what))

    def state(self) -> dict:
        readable = bool(select.select([self.ring], [], [], 0)[0])
        records = struct.unpack_from("@Q", self.producer)[0] // RECORD_BYTES
        words = {"awaits": self.word(AWAITS), "flags": self.word(FLAGS), "limit": self.word(LIMIT)}
        return {"records": records, "readable": readable, **words, "unread": self.unread()}

    def unread(self) -> int:
        count = array.array("i", [0])
        fcntl.ioctl(self.connection, termios.FIONREAD, count)
        return count[0]

    def read(self, count: str) -> str:
        left, digest = int(count), hashlib.sha256()
        self.connection.settimeout(LIMIT_S)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        while left:
            some = self.connection.recv(min(left, READ_BYTES))
            if not some:
                raise RuntimeError(f"the stream ends {left} bytes early")
            digest.update(some)
            left -= len(some)
            self.put(RX_SEQ, (self.word(RX_SEQ) + len(some)) % (1 << 32))
        return digest.hexdigest()


def connected(args: argparse.Namespace) -> socket.socket:
    if args.connect:
        return socket.create_connection((args.connect, args.port), LIMIT_S)
    with socket.create_server(("", args.port)) as listener:
        if args.room:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, args.room)
        return listener.accept()[0]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("helper")
    p.add_argument("port", type=int)
    p.add_argument("--connect")
    p.add_argument("--room", type=int, default=0)
    args = p.parse_args()
    bare = Bare(args.helper, connected(args))
    commands = {
        "rtr": bare.rtr,
        "rtr-ack": bare.rtr_ack,
        "hello": bare.hello,
        "finish": bare.finish,
        "credit": bare.credit,
        "await": bare.wait_for_wakeup,
        "state": bare.state,
        "read": bare.read,
    }
    print(json.dumps("admitted"), flush=True)
    for line in sys.stdin:
        name, *operands = line.split()
        print(json.dumps(commands[name](*operands)), flush=True)


main()
