#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Receives that the switch places, against what was sent:

  stream_place.py send ADDRESS PORT SEED MIB [PAUSES]
  stream_place.py receive PORT SEED MIB CALLS [ADDRESS]

CALLS: "all" receives 4 MiB at a time by MSG_WAITALL; "any" draws calls, sizes and signals by chance; "peeked" is "all" while a
thread PEEKs; of "shared" two threads read; "windowed" is "all" with a receive window of TCP's choice, which is looked at; "prompt" compares
only every twelfth time, so that the window ends where its post does, and then reads in other ways.
Each byte is a function of its position.  Buffers have guards on both sides, and are looked at again when the next one is full:
what recv() has returned must never change.  Prints JSON: bytes, placed bytes, posts.
"""

import fcntl
import json
import mmap
import os
import random
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time
from typing import NoReturn

TCP_ULP = 31
NAME = b"tcp_qp_stream"
MIB = 1 << 20
PERIOD = 1048573  # a prime: no page has its bytes twice
GUARD = 4096
BUFFER = 4 * MIB
LARGEST = 11 * MIB  # more than two posts hold
WINDOW = 400000
IDLE_S = 3  # TQP_WINDOW_IDLE_MS, thrice
STALL_MS = 10000  # that a peer with much to send may be silent


def pattern(seed: int) -> memoryview:
    return memoryview(random.Random(seed).randbytes(PERIOD) * (LARGEST // PERIOD + 2))


def expected(whole: memoryview, at: int, count: int) -> memoryview:
    at %= PERIOD
    return whole[at : at + count]


class Buffer:
    """The reader's memory, between two guards, at any offset in a page."""

    def __init__(self) -> None:
        memory = mmap.mmap(-1, LARGEST + 2 * MIB)
        memory.madvise(mmap.MADV_HUGEPAGE)
        self.memory = memoryview(memory)
        self.begin = self.count = self.at = 0

    def take(self, count: int, offset: int) -> memoryview:
        self.begin, self.count = GUARD + offset, 0
        self.memory[self.begin - GUARD : self.begin] = b"\xa5" * GUARD
        self.memory[self.begin + count : self.begin + count + GUARD] = b"\x5a" * GUARD
        self.asked = count
        return self.memory[self.begin : self.begin + count]

    def check(self, whole: memoryview, what: str) -> None:
        if self.memory[self.begin : self.begin + self.count] != expected(whole, self.at, self.count):
            got, want = bytes(self.memory[self.begin : self.begin + self.count]), bytes(expected(whole, self.at, self.count))
            wrong = next(i for i in range(self.count) if got[i] != want[i])
            sys.exit(f"{what}: byte {wrong} of {self.count} from {self.at} is wrong: {got[wrong:wrong + 16].hex()} not {want[wrong:wrong + 16].hex()}")
        if self.memory[self.begin - GUARD : self.begin] != b"\xa5" * GUARD:
            sys.exit(f"{what}: written before the buffer")
        if self.memory[self.begin + self.asked : self.begin + self.asked + GUARD] != b"\x5a" * GUARD:
            sys.exit(f"{what}: written behind the buffer")


class Receiver:
    def __init__(self, sock: socket.socket, seed: int, total: int) -> None:
        self.sock, self.whole, self.total, self.at = sock, pattern(seed), total, 0
        self.dice = random.Random(seed)
        self.buffers = [Buffer(), Buffer()] if total else []
        self.signals, self.left, self.lock = 0, total, threading.Lock()

    def one(self, count: int, offset: int, flags: int) -> int:
        buffer = self.buffers[0]
        got = self.sock.recv_into(buffer.take(count, offset), count, flags)
        buffer.at, buffer.count = self.at, got
        buffer.check(self.whole, "just received")
        if not flags & socket.MSG_PEEK:
            self.buffers[1].count and self.buffers[1].check(self.whole, "received before")
            self.buffers.reverse()
            self.at += got
        return got

    def all(self) -> None:
        while self.at < self.total and self.one(min(BUFFER, self.total - self.at), 0, socket.MSG_WAITALL):
            pass

    def any(self) -> None:
        signal.signal(signal.SIGALRM, self.on_signal)
        while self.at < self.total:
            if not self.draw():
                break
            signal.setitimer(signal.ITIMER_REAL, 0)

    def peeked(self) -> None:
        """Somebody else looks at what comes next, all the time."""
        threading.Thread(target=self.peek, daemon=True).start()
        self.all()

    def peek(self) -> None:
        while True:
            try:
                self.sock.recv(1 << 16, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                pass

    def shared(self) -> None:
        """Two read: nobody knows who gets which bytes, but together they have each once."""
        sums = [0, 0]
        readers = [threading.Thread(target=self.share, args=(sums, i)) for i in range(2)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        want = sum(sum(expected(self.whole, at, min(MIB, self.total - at))) for at in range(0, self.total, MIB))
        if (self.at, sum(sums)) != (self.total, want):
            sys.exit(f"{self.at} bytes of {self.total}, their sum {sum(sums)} is not {want}")

    def window(self) -> int:
        """Bytes, as SO_RCVBUF has them."""
        return self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    def some(self) -> int:
        """A few receives of a buffer each; the smallest window behind one."""
        return min(self.window() for _ in range(16) if self.one(BUFFER, 0, socket.MSG_WAITALL))

    def wait_for(self, count: int) -> None:
        """The peer goes on while nobody reads, until so many bytes wait."""
        until = time.monotonic() + STALL_MS / 1000
        while (waiting := struct.unpack("i", fcntl.ioctl(self.sock, termios.FIONREAD, bytes(4)))[0]) < count:
            if time.monotonic() > until:
                sys.exit(f"{waiting} bytes wait after {self.at}, and not {count}")
            time.sleep(0.01)

    def windowed(self) -> None:
        """It is small while receives are posted, then again what it was; and what the program sets stays."""
        was = self.window()
        for _ in range(2):  # memory that is posted for the first time does not pay
            self.one(BUFFER, 0, socket.MSG_WAITALL)
            self.wait_for(2 * BUFFER)
        first = self.some()
        time.sleep(IDLE_S)
        then = self.window()
        second = self.some()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW)
        mine = self.window()
        time.sleep(IDLE_S)
        last = self.window()
        self.all()
        if not (max(first, second) <= was // 2 and then >= was and last == mine == self.window()):
            sys.exit(f"windows: {was} at first, {first} with posts, {then} idle, {second} with posts, {mine} set, {last} idle, {self.window()} at last")

    def prompt(self) -> None:
        """Posts one behind the other; then plain receives, late ones and cut short ones: the window never stays shut."""
        buffers = [Buffer() for _ in range(12)]
        signal.signal(signal.SIGALRM, self.on_signal)
        while self.at < self.total:
            for buffer in buffers:
                count = min(BUFFER, self.total - self.at)
                buffer.at, buffer.count = self.at, 0
                buffer.count = self.sock.recv_into(buffer.take(count, 0), count, socket.MSG_WAITALL)
                self.at += buffer.count
            for buffer in buffers:
                buffer.check(self.whole, "received at once")
            self.otherwise(self.dice.randrange(4))

    def otherwise(self, how: int) -> None:
        """2 MiB, not by posts."""
        end = min(self.total, self.at + 2 * MIB)
        if how == 0:
            self.wait_for(min(MIB, self.total - self.at))
        if how == 1 and self.at < self.total:
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            self.one(min(BUFFER, self.total - self.at), 0, socket.MSG_WAITALL)
            signal.setitimer(signal.ITIMER_REAL, 0)
        ready = select.poll()
        ready.register(self.sock, select.POLLIN)
        while self.at < end:
            if not ready.poll(STALL_MS):
                sys.exit(f"nothing comes any more after {self.at} bytes")
            self.one(min(self.dice.choice((1000, 65536, 300000)), end - self.at), 0, 0)

    def share(self, sums: list[int], which: int) -> None:
        memory = memoryview(mmap.mmap(-1, MIB))
        while True:
            with self.lock:
                count = min(self.left, MIB if which else 300000)
                self.left -= count
            if not count:
                return
            got = self.sock.recv_into(memory, count, socket.MSG_WAITALL)
            with self.lock:
                sums[which] += sum(memory[:got])
                self.at += got
                self.left += count - got

    def on_signal(self, *_: object) -> None:
        self.signals += 1

    def draw(self) -> int:
        d = self.dice
        left = self.total - self.at
        count, offset = min(left, d.choice((1, 1000, 65536, 300000, MIB, 3 * MIB, BUFFER, 9 * MIB)) + d.randrange(100)), d.choice((0, 0, 1, 100, 4095))
        way = d.randrange(12)
        if way == 0:
            self.one(count, offset, socket.MSG_PEEK)
            return self.one(count, offset, 0)
        if way == 1:
            try:
                return self.one(count, offset, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return 1
        if way == 2:
            return self.one(count, offset, 0)
        if way == 3 and os.fork() == 0:
            os._exit(0)  # it had the buffer, too
        if way <= 6:
            signal.setitimer(signal.ITIMER_REAL, d.choice((0.0005, 0.002, 0.01, 0.03)))
        return self.one(count, offset, socket.MSG_WAITALL)


def placed(port: int) -> dict:
    """What the kernel says of the connection."""
    out = os.popen(f"{os.environ.get('TCPQP_STAT', 'tcpqp-stat')} --json").read()
    for line in json.loads(out):
        if line.get("engine") == "stream" and str(line.get("local", "")).endswith(f":{port}"):
            return {name: line[name] for name in line if name.startswith("rx_")}
    return {}


def socket_for(address: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)


def receive(port: int, seed: int, mib: int, calls: str, at: str) -> None:
    with socket_for(at) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_TCP, TCP_ULP, NAME)
        if calls not in ("windowed", "prompt"):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW)  # what comes while a buffer is compared is copied
        listener.bind((at, port))
        listener.listen()
        sock = listener.accept()[0]
    receiver = Receiver(sock, seed, mib * MIB)
    begun, cpu = time.monotonic(), time.process_time()
    getattr(receiver, calls)()
    spent = {"s": round(time.monotonic() - begun, 3), "cpu_s": round(time.process_time() - cpu, 3)}
    if receiver.at != mib * MIB:
        sys.exit(f"{receiver.at} bytes of {mib * MIB}")
    print(json.dumps({"bytes": receiver.at, "signals": receiver.signals, **spent, **placed(port)}), flush=True)
    sock.sendall(b"!")


def send(address: str, port: int, seed: int, mib: int, pauses: float) -> None:
    whole, dice, total, at = pattern(seed), random.Random(seed + 1), mib * MIB, 0
    with socket_for(address) as sock:
        sock.connect((address, port))
        while at < total:
            count = min(total - at, dice.choice((100, 5000, 100000, MIB, 4 * MIB)) if pauses else 4 * MIB)
            sock.sendall(expected(whole, at, count))
            at += count
            if pauses:
                time.sleep(dice.random() * pauses)
        while (said := sock.recv(1)) != b"!":
            if not said:
                sys.exit("the receiver ended early")


def main() -> NoReturn:
    role, *words = sys.argv[1:]
    if role == "send":
        send(words[0], int(words[1]), int(words[2]), int(words[3]), float(words[4]) if len(words) > 4 else 0.0)
    else:
        receive(int(words[0]), int(words[1]), int(words[2]), words[3], words[4] if len(words) > 4 else "")
    sys.exit(0)


if __name__ == "__main__":
    main()
