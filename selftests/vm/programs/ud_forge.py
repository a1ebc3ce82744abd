#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Datagrams to the port of UD queue pairs from somebody who has none: ud_forge.py ADDRESS PORT COUNT SEED

Noise, and heads with a few bits wrong, for queue pairs of any number.
"""

import random
import socket
import struct
import sys

HEAD = "!BBHIIII"


def forged(dice: random.Random) -> bytes:
    payload = dice.randbytes(dice.choice((0, 1, 100, 1400)))
    if dice.random() < 0.2:
        return payload
    imm = dice.random() < 0.5
    opcode, value = (0x65, dice.getrandbits(32)) if imm else (0x64, 0)
    head = struct.pack(HEAD, 1, opcode, len(payload), dice.getrandbits(24), dice.getrandbits(24), dice.getrandbits(32), value)
    datagram = bytearray(head + payload)
    for _ in range(dice.randrange(3)):
        datagram[dice.randrange(len(head))] ^= 1 << dice.randrange(8)
    return bytes(datagram[: dice.randrange(len(datagram) + 1)] if dice.random() < 0.2 else datagram)


def main() -> None:
    address, port, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    dice = random.Random(seed)
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as link:
        for _ in range(count):
            link.sendto(forged(dice), (address, port))


main()
