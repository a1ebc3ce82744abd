#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Puts a connected socket and a listener into a BPF sockmap: sockmap.py.  Says of each what the kernel did."""

import ctypes
import errno
import socket
import struct

SYS_BPF = 321  # x86-64
MAP_CREATE, MAP_UPDATE_ELEM = 0, 2
SOCKMAP = 15
libc = ctypes.CDLL(None, use_errno=True)


def bpf(command: int, attributes: bytes) -> int:
    """What it returns, or -errno."""
    buffer = ctypes.create_string_buffer(attributes.ljust(160, b"\0"), 160)
    result = libc.syscall(SYS_BPF, command, buffer, 160)
    return result if result >= 0 else -ctypes.get_errno()


def put(into: int, link: socket.socket) -> str:
    key, value = ctypes.c_uint32(0), ctypes.c_uint32(link.fileno())
    result = bpf(MAP_UPDATE_ELEM, struct.pack("<IxxxxQQQ", into, ctypes.addressof(key), ctypes.addressof(value), 0))
    return "put" if result == 0 else errno.errorcode[-result]


def main() -> None:
    into = bpf(MAP_CREATE, struct.pack("<IIII", SOCKMAP, 4, 4, 1))
    assert into >= 0, errno.errorcode[-into]
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as link:
        print(put(into, link), put(into, listener))


main()
