#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Who takes part in users_fuzz: users_fuzz_roles.py ROLE ...; each prints "ready", and ends with 0 when its input ends, or at once with what it saw amiss."""

import array
import contextlib
import errno
import json
import mmap
import os
import random
import resource
import select
import socket
import struct
import subprocess
import sys
from pathlib import Path

from user import ABI, ALL, ETH_P_ALL, LEVEL, REQUEST, SEND_ONLY_IMM, SLOT_BYTES, SND_NXT, TX_AT, TX_NEXT, Refused, answer, letter_to

FIRST_PORT, PORTS = 20000, 1000  # of each user's sockets: what leaves by them has that user's words, or none
MARK = 0x5EC20000  # of user n's immediates: MARK + n
FRESH = range(8, 12), range(64, 72)  # what the program writes into a slot before anybody has it: rx_seq, snd_nxt, rcv_nxt
SOCKETS_MAX, SLOTS_MAX = 24, 48
SHORT_S = 3
SO_RCVBUFFORCE, SO_ATTACH_FILTER = 33, 26
KIND, EXID = 253, b"\x51\x50"
REFUSALS = {errno.ENOTCONN, errno.EPROTOTYPE, errno.ENOTSOCK, errno.EPROTO, errno.EEXIST, errno.EOPNOTSUPP,
            errno.EXDEV, errno.EDQUOT, errno.ENOSPC, errno.ENETUNREACH}  # fmt: skip
GONE = (ConnectionError, TimeoutError, BlockingIOError)


class Amiss(Exception):
    pass


def ports_of(user: int) -> range:
    return range(FIRST_PORT + user * PORTS, FIRST_PORT + (user + 1) * PORTS)


class Slot:
    def __init__(self, fds: tuple[int, int]) -> None:
        self.memory = mmap.mmap(fds[0], SLOT_BYTES)
        for fd in fds:
            os.close(fd)

    def check_fresh(self) -> None:
        memory = bytearray(self.memory)
        for known in FRESH:
            memory[known.start : known.stop] = bytes(len(known))
        if any(memory):
            at = next(i for i, byte in enumerate(memory) if byte)
            raise Amiss(f"new memory has another's bytes: {memory[at:at + 16].hex()} at {at}")

    def describe(self, user: int) -> None:
        """Any segment is a part of our message."""
        struct.pack_into("=IIIHBB", self.memory, TX_AT, 0, ALL, MARK + user, 0, SEND_ONLY_IMM, 0)
        struct.pack_into("=I", self.memory, TX_NEXT, 1)

    def scribble(self, dice: random.Random) -> None:
        for _ in range(dice.randint(1, 20)):
            at = dice.choice((0, 64, 128, 192, 256, dice.randrange(SLOT_BYTES))) + dice.randrange(64)
            some = dice.randbytes(dice.randint(1, 16))[: SLOT_BYTES - at]
            if at + len(some) <= TX_AT:  # our mark stays as it is
                self.memory[at : at + len(some)] = some


class Hostile:
    """User @user, of uid 61000 + @user, who does what comes to mind."""

    def __init__(self, user: int, seed: int, helper: str, unconnect: str, address: str, port: int, scratch: str) -> None:
        self.user, self.dice, self.helper, self.unconnect = user, random.Random(seed), helper, unconnect
        self.peer, self.scratch = (address, port), Path(scratch)
        self.sockets: list[socket.socket] = []
        self.slots: list[Slot] = []
        self.silent: list[socket.socket] = []
        self.admitted = 0
        self.post = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.post.setblocking(False)
        here = self.scratch / f"post{user}"
        with contextlib.suppress(FileNotFoundError):
            here.unlink()
        self.post.bind(str(here))
        here.chmod(0o777)

    def any_socket(self) -> socket.socket:
        return self.dice.choice(self.sockets) if self.sockets else self.do_connect()

    def keep(self, new: socket.socket) -> socket.socket:
        new.settimeout(SHORT_S)
        self.sockets.append(new)
        if len(self.sockets) > SOCKETS_MAX:
            self.sockets.pop(self.dice.randrange(SOCKETS_MAX)).close()
        return new

    def do_connect(self, given_away: bool = False) -> socket.socket:
        new = socket.socket()
        new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not given_away:
            self.keep(new)
            for _ in range(20):
                with contextlib.suppress(OSError):
                    new.bind(("", self.dice.choice(ports_of(self.user))))
                    break
            else:
                return new
        new.settimeout(SHORT_S)
        new.connect(self.peer)
        return new

    def do_ask(self, of: socket.socket | None = None, ours: bool = True) -> None:
        of = of or self.any_socket()
        try:
            slot = Slot(answer(letter_to(self.helper, REQUEST, [of.fileno()])))
        except Refused as e:
            if e.errno not in REFUSALS | {errno.ECONNRESET}:
                raise Amiss(f"refused: {e}") from e
            return
        self.admitted += 1
        slot.check_fresh()
        if not ours:
            return
        slot.describe(self.user)
        self.slots.append(slot)
        if len(self.slots) > SLOTS_MAX:
            self.slots.pop(self.dice.randrange(SLOTS_MAX))

    def do_connect_and_ask(self) -> None:
        self.do_ask(self.do_connect())

    def do_ask_with_something_else(self) -> None:
        kind = self.dice.randrange(7)
        if kind == 0:
            return self.do_ask(socket.socket())
        if kind == 1:
            with socket.create_server(("", 0)) as listener:
                return self.do_ask(listener)
        if kind == 2:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
                return self.do_ask(datagrams)
        if kind == 3:
            a, b = socket.socketpair()
            with a, b:
                return self.do_ask(a)
        if kind == 4:
            with open("/dev/null", "rb") as file:
                return self.do_ask(file)
        data = self.dice.choice((b"x", REQUEST[:7], REQUEST + b"?", struct.pack("=II", ABI + 1, 0), struct.pack("=II", ABI, 1), REQUEST))
        letter_to(self.helper, data, [self.any_socket().fileno()] * self.dice.choice((0, 2, 3, 50))).close()

    def do_ask_and_leave(self) -> None:
        letter_to(self.helper, REQUEST, [self.any_socket().fileno()]).close()

    def do_ask_and_end(self) -> None:
        """It ends while it is being admitted."""
        of = self.do_connect()
        asked = letter_to(self.helper, REQUEST, [of.fileno()])
        self.dice.choice((lambda: self.do_disconnect(of), lambda: self.do_start(of), lambda: of.shutdown(socket.SHUT_RDWR)))()
        try:
            self.slots.append(Slot(answer(asked)))
            self.slots[-1].describe(self.user)
        except Refused:
            pass

    def do_say_nothing(self) -> None:
        self.silent.append(letter_to(self.helper, b"", []))
        if len(self.silent) > 5:
            self.silent.pop(0).close()

    def do_disconnect(self, of: socket.socket | None = None) -> None:
        number = (of or self.any_socket()).fileno()
        subprocess.run([self.unconnect, str(number)], pass_fds=[number], check=False)

    def do_disconnect_and_again(self) -> None:
        of = self.any_socket()
        self.do_disconnect(of)
        if self.dice.random() < 0.3:
            self.do_ask(of)
        of.connect(self.peer)
        self.do_start(of)
        self.do_send(of)

    def do_disconnect_and_listen(self) -> None:
        of = self.any_socket()
        self.do_disconnect(of)
        of.listen()
        self.do_start(of)

    def do_start(self, of: socket.socket | None = None) -> None:
        (of or self.any_socket()).setsockopt(LEVEL, self.dice.randint(0, 3), 0)

    def do_send(self, of: socket.socket | None = None) -> None:
        (of or self.any_socket()).send(self.dice.randbytes(self.dice.choice((1, 100, 10000))), socket.MSG_DONTWAIT)

    def do_scribble(self) -> None:
        if self.slots:
            slot = self.dice.choice(self.slots)
            slot.scribble(self.dice)
            if self.dice.random() < 0.5:
                slot.describe(self.user)

    def do_close(self) -> None:
        if self.sockets:
            of = self.sockets.pop(self.dice.randrange(len(self.sockets)))
            if self.dice.random() < 0.3:
                of.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, self.dice.choice((0, 1))))
            of.close()

    def do_give_away(self) -> None:
        """By a port of nobody's, as two users may have their words on it."""
        with self.do_connect(given_away=True) as gift:
            others = [p for p in self.scratch.glob("post*") if p.name != f"post{self.user}"]
            if others:
                socket.send_fds(self.post, [b"."], [gift.fileno()], 0, str(self.dice.choice(others)))
            if self.dice.random() < 0.5:
                self.do_ask(gift, ours=False)

    def do_take(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for fd in socket.recv_fds(self.post, 1, 1)[1]:
                with socket.socket(fileno=fd) as gift:
                    self.do_ask(gift, ours=False)

    def play(self) -> None:
        acts = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("do_")]
        while not select.select([sys.stdin], [], [], 0)[0]:
            with contextlib.suppress(*GONE, OSError):
                self.dice.choice(acts)()


def hostile(*words: str) -> None:
    user, seed, helper, unconnect, address, port, scratch = words
    uid = 61000 + int(user)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    who = Hostile(int(user), int(seed), helper, unconnect, address, int(port), scratch)
    print("ready", flush=True)
    who.play()
    print(json.dumps({"admitted": who.admitted}), flush=True)


def witness(helper: str, address: str, port: str) -> None:
    """Has a connection of which nothing moves: not a byte of its memory may."""
    this = socket.create_connection((address, int(port)))
    slot = Slot(answer(letter_to(helper, REQUEST, [this.fileno()])))
    slot.describe(99)
    before = bytes(slot.memory)
    print("ready", flush=True)
    looks = 0
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        looks += 1
        if (now := bytes(slot.memory)) != before:
            at = next(i for i, (a, b) in enumerate(zip(before, now)) if a != b)
            raise Amiss(f"memory of a quiet connection changed at {at} (snd_nxt is at {SND_NXT}): {before[at:at + 16].hex()} to {now[at:at + 16].hex()}")
    if looks < 1:
        raise Amiss("it did not look")
    print(json.dumps({"looks": looks}), flush=True)


def only_users() -> tuple[bytes, array.array]:
    """A filter: TCP from users' ports, IPv4 without options."""
    first, behind = FIRST_PORT, FIRST_PORT + 10 * PORTS
    program = ((0x30, 0, 0, 9), (0x15, 0, 4, socket.IPPROTO_TCP), (0x28, 0, 0, 20), (0x35, 0, 2, first), (0x35, 1, 0, behind), (0x6, 0, 0, 256), (0x6, 0, 0, 0))
    code = array.array("B", b"".join(struct.pack("=HBBI", *step) for step in program))
    return struct.pack("@HP", len(program), code.buffer_info()[0]), code


def options(packet: bytes) -> dict[int, bytes]:
    tcp = packet[(packet[0] & 15) * 4 :]
    left, found = tcp[20 : (tcp[12] >> 4) * 4], {}
    while left and left[0]:
        if left[0] == 1:
            left = left[1:]
            continue
        if len(left) < 2 or left[1] < 2:
            break
        found[left[0]] = left[2 : left[1]]
        left = left[left[1] :]
    return found


def watcher() -> None:
    """What leaves by a user's port has that user's immediate."""
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
    wire.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    how, _code = only_users()
    wire.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, how)
    print("ready", flush=True)
    seen = marked = 0
    while sys.stdin not in select.select([sys.stdin, wire], [], [])[0]:
        packet = wire.recv(256)
        seen += 1
        ours = options(packet).get(KIND, b"")
        if len(ours) != 18 or ours[:2] != EXID or ours[3] != SEND_ONLY_IMM:
            continue
        user = (int.from_bytes(packet[20:22], "big") - FIRST_PORT) // PORTS
        mark = int.from_bytes(ours[14:18], "big")
        marked += 1
        if mark != MARK + user:
            raise Amiss(f"a segment of user {user}'s has the immediate {mark:#x}")
    print(json.dumps({"seen": seen, "marked": marked}), flush=True)


def peer(port: str, seed: str) -> None:
    """Accepts and reads; now and then it ends, or resets, a connection.  Those to the next port it leaves alone."""
    dice = random.Random(int(seed))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    listeners = [socket.create_server(("", int(port) + n), backlog=1024) for n in range(2)]
    quiet, poll, links = [], select.poll(), {}
    for fd in (sys.stdin, *listeners):
        poll.register(fd, select.POLLIN)
    print("ready", flush=True)
    while True:
        for fd, _ in poll.poll():
            if fd == sys.stdin.fileno():
                return
            if fd == listeners[1].fileno():
                quiet.append(listeners[1].accept()[0])
            elif fd == listeners[0].fileno():
                new = listeners[0].accept()[0]
                links[new.fileno()] = new
                poll.register(new, select.POLLIN)
            else:
                over = True
                with contextlib.suppress(OSError):
                    over = not links[fd].recv(65536) or dice.random() < 0.02
                if over:
                    if dice.random() < 0.3:
                        links[fd].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    poll.unregister(fd)
                    links.pop(fd).close()


def main() -> int:
    try:
        {"hostile": hostile, "witness": witness, "watcher": watcher, "peer": peer}[sys.argv[1]](*sys.argv[2:])
    except Amiss as e:
        print(f"amiss: {sys.argv[1:4]}: {e}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
