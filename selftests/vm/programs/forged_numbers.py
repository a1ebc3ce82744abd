#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""forged_numbers.py ADDRESS PORT COUNT QPN...: connections to the listener of connections by number that no kernel makes.

Most name queue pairs that are not there, or those QPNs with another peer; others send what is no hello, or half of one, or nothing.
A few are held open until the end.  Prints "ready" after the first hundred, and how many were made.
"""

import random
import socket
import struct
import sys

SEED = 11
KEY = b"tcp_qp number  \n"
FIRST = 100
HELD = 400


def hello(dest: int, src: int, psn: int = 0, key: bytes = KEY, flags: int = 0, revision: int = 1, private: int = 12, depth: int = 0) -> bytes:
    return key + struct.pack(">BBHHH", flags, revision, private, depth, depth) + struct.pack(">III", dest, src, psn)


def forged(r: random.Random, qpns: list[int]) -> bytes:
    dest, src = r.choice([*qpns, r.randrange(1 << 24)]), r.randrange(1 << 24)
    return r.choice(
        (
            hello(dest, src), hello(dest, src, r.randrange(1 << 24)), hello(dest, dest), hello(dest, src) + b"too soon",
            hello(dest | 1 << 24, src), hello(dest, src, private=13), hello(dest, src, flags=1), hello(dest, src, depth=1), hello(dest, src, revision=2),
            hello(dest, src)[: r.randrange(36)], b"tcp_qp cm req  \n" + bytes(20), r.randbytes(64), b"",
        )
    )  # fmt: skip


def main() -> int:
    address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    qpns = [int(word) for word in sys.argv[4:]]
    r, held, made = random.Random(SEED), [], 0
    for number in range(count):
        if number == FIRST:
            print("ready", flush=True)
        try:
            link = socket.create_connection((address, port), timeout=10)
            link.sendall(forged(r, qpns))
        except OSError:
            continue  # reset already, or nobody listens any more
        made += 1
        held.append(link)
        if len(held) > HELD:
            held.pop(r.randrange(HELD)).close()
    print(made)
    return 0


sys.exit(main())
