#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
Receives that the switch places, while somebody has the socket's lock for as long as he likes: in a page fault that he answers himself.

  stream_held.py send|receive PORT SEED MIB

The first half is received as stream_place.py's "all" does, from its sender.  Then a send() reads from a page that there is none of, beside the
reader; or a receive has such a buffer.  Says "held" then, and goes on after SIGUSR1.  Prints JSON at its end: bytes, posts of the first half and of all.
"""

import json
import mmap
import signal
import socket
import sys
import threading

from absent import Absent
from stream_place import BUFFER, MIB, NAME, TCP_ULP, Receiver, expected, placed


def held(absent: Absent, act) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    absent.wait()
    print("held", flush=True)
    return thread


def until_told(absent: Absent) -> None:
    signal.sigwait({signal.SIGUSR1})
    absent.give()


def beside_a_send(receiver: Receiver) -> None:
    absent = Absent(mmap.PAGESIZE)
    reader = threading.Thread(target=receiver.all, daemon=True)
    reader.start()
    sender = held(absent, lambda: receiver.sock.sendall(memoryview(absent.memory)[:1]))
    until_told(absent)
    sender.join()
    reader.join()


def in_a_receive(receiver: Receiver) -> None:
    absent = Absent(BUFFER)
    reader = held(absent, lambda: receiver.sock.recv_into(absent.memory, BUFFER, socket.MSG_WAITALL))
    until_told(absent)
    reader.join()
    if memoryview(absent.memory) != expected(receiver.whole, receiver.at, BUFFER):
        sys.exit("what was received where pages were missing is wrong")
    receiver.at += BUFFER
    receiver.all()


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    who, port, seed, mib = sys.argv[1], *map(int, sys.argv[2:5])
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_TCP, TCP_ULP, NAME)
        listener.bind(("", port))
        listener.listen()
        sock = listener.accept()[0]
    receiver = Receiver(sock, seed, mib * MIB // 2)
    receiver.all()
    first = placed(port)["rx_posts"]
    receiver.total = mib * MIB
    {"send": beside_a_send, "receive": in_a_receive}[who](receiver)
    if receiver.at != mib * MIB:
        sys.exit(f"{receiver.at} bytes of {mib * MIB}")
    print(json.dumps({"bytes": receiver.at, "first_posts": first, "posts": placed(port)["rx_posts"]}), flush=True)
    sock.sendall(b"!")


if __name__ == "__main__":
    main()
