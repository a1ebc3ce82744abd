#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""strays.py ADDRESS PORT SILENT NOISY: connections to a listening port that are no rdma_cm client's.

SILENT ones say nothing, NOISY ones, made first, send what is no request: random bytes, a request cut short, one with a wrong byte.
Prints "ready" when all are made, holds the silent ones until its input ends.
"""

import random
import socket
import struct
import sys

SEED = 7
KEY = b"tcp_qp cm req  \n"


def request(key: bytes = KEY, flags: int = 0, revision: int = 1, private: int = 0) -> bytes:
    return key + struct.pack(">BBHHH", flags, revision, private, 1, 1)


def noises() -> list[bytes]:
    r = random.Random(SEED)
    return [
        r.randbytes(1),
        r.randbytes(4096),
        b"GET / HTTP/1.0\r\n\r\n",
        b"MPA ID Req Frame" + bytes(4),
        KEY[:9],
        request()[:-1],
        request(flags=0x20),
        request(revision=2),
        request(private=256),
        request(private=65535) + bytes(100),
        request(private=200) + bytes(10),
        request() + b"too soon",
    ]


def connected(address: str, port: int) -> socket.socket:
    return socket.create_connection((address, port), timeout=10)


def main() -> int:
    address, port, silent, noisy = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    held = []
    kinds = noises()
    for i in range(noisy):
        link = connected(address, port)
        try:
            link.sendall(kinds[i % len(kinds)])
        except OSError:
            pass  # reset already
        if i % 2:
            held.append(link)
        else:
            link.close()
    held += [connected(address, port) for _ in range(silent)]
    print("ready", flush=True)
    sys.stdin.read()
    return 0


sys.exit(main())
