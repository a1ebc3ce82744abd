# SPDX-License-Identifier: BSD-3-Clause
"""The other end of each test's connection: does what it is told over a control connection, a line of JSON each."""

import hashlib
import json
import os
import random
import select
import socket
import struct
import traceback

TCP_ULP = 31  # linux/tcp.h


def pattern(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def receive(link: socket.socket, size: int) -> bytes:
    """Exactly so many bytes, or all until the end."""
    parts = []
    while size != 0 and (part := link.recv(min(size, 1 << 16) if size > 0 else 1 << 16)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def family_of(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def ulp_of(link: socket.socket) -> str:
    return link.getsockopt(socket.IPPROTO_TCP, TCP_ULP, 16).split(b"\0")[0].decode()


class Actor:
    """Serves one tester: accepts its connections, one after the other, and plays with the newest."""

    def __init__(self, address: str, port: int = 0) -> None:
        self.listener = socket.create_server((address, port), family=family_of(address))
        self.port = self.listener.getsockname()[1]
        self.link: socket.socket | None = None

    def do_accept(self) -> dict:
        self.link, peer = self.listener.accept()
        return {"peer": peer[:2], "self": self.link.getsockname()[:2], "asked": self.link.getpeername()[:2], "ulp": ulp_of(self.link)}

    def do_send(self, seed: int, size: int) -> dict:
        self.link.sendall(pattern(seed, size))
        return {}

    def do_receive(self, size: int = -1) -> dict:
        try:
            data = receive(self.link, size)
        except OSError as error:
            return {"errno": error.errno}
        return {"bytes": len(data), "sha": hashlib.sha256(data).hexdigest()}

    def do_echo(self) -> dict:
        """Until the end, which it returns."""
        total = 0
        while data := self.link.recv(1 << 16):
            total += len(data)
            self.link.sendall(data)
        self.link.shutdown(socket.SHUT_WR)
        return {"bytes": total}

    def do_flood(self) -> dict:
        """Sends until that fails."""
        try:
            while True:
                self.link.sendall(bytes(4096))
        except OSError as error:
            return {"errno": error.errno}

    def do_urge(self) -> dict:
        self.link.sendall(b"a")
        self.link.send(b"!", socket.MSG_OOB)
        self.link.sendall(b"b")
        return {}

    def do_end(self) -> dict:
        self.link.shutdown(socket.SHUT_WR)
        return {}

    def do_reset(self) -> dict:
        self.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return self.do_close()

    def do_close(self) -> dict:
        self.link.close()
        self.link = None
        return {}

    def do_wait(self) -> dict:
        """Returns when something can be read."""
        select.select([self.link], [], [])
        return {}

    def serve(self) -> None:
        control, _ = self.listener.accept()
        with control, control.makefile("rw") as lines:
            for line in lines:
                order = json.loads(line)
                answer = getattr(self, "do_" + order.pop("do"))(**order)
                lines.write(json.dumps(answer) + "\n")
                lines.flush()


class Director:
    """The tester's side of the control connection."""

    def __init__(self, address: str, port: int) -> None:
        self.address = (address, port)
        self.control = socket.create_connection(self.address)
        self.lines = self.control.makefile("rw")

    def tell(self, do: str, **what) -> None:
        self.lines.write(json.dumps({"do": do, **what}) + "\n")
        self.lines.flush()

    def answer(self) -> dict:
        line = self.lines.readline()
        assert line, "the actor is gone"
        return json.loads(line)

    def ask(self, do: str, **what) -> dict:
        self.tell(do, **what)
        return self.answer()

    def here(self) -> str:
        """This end's own address."""
        return self.control.getsockname()[0]

    def unconnected(self) -> socket.socket:
        return socket.socket(family_of(self.address[0]))

    def pair(self) -> socket.socket:
        """A new connection to the actor."""
        self.tell("accept")
        link = socket.create_connection(self.address)
        link.settimeout(None)
        self.answer()
        return link


def start(address: str) -> int:
    """One in a process of its own, which ends with its tester; its port."""
    actor = Actor(address)
    if os.fork() == 0:
        try:
            actor.serve()
        except Exception:
            traceback.print_exc(limit=-2)
        finally:
            os._exit(0)
    actor.listener.close()
    return actor.port
