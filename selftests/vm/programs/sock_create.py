#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A BPF program for every new socket of a cgroup: sock_create.py CGROUP [MARK].  Without a mark it refuses them all.  It goes with the cgroup.

sock_create.py CGROUP count: how many such programs the cgroup has.
"""

import ctypes
import os
import struct
import sys

SYS_BPF = 321  # x86-64
PROG_LOAD, PROG_ATTACH, PROG_QUERY = 5, 8, 16
CGROUP_SOCK, SOCK_CREATE = 9, 2
MARK_AT = 16  # in struct bpf_sock
COUNT_AT = 24  # in PROG_QUERY's attributes
libc = ctypes.CDLL(None, use_errno=True)


def bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    """What it returns, and the attributes as the kernel leaves them."""
    buffer = ctypes.create_string_buffer(attributes.ljust(160, b"\0"), 160)
    result = libc.syscall(SYS_BPF, command, buffer, 160)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf({command})")
    return result, buffer.raw


def instruction(code: int, registers: int, offset: int, value: int) -> bytes:
    return struct.pack("<BBhi", code, registers, offset, value)


def program(mark: int) -> bytes:
    """r2 = mark; socket->mark = r2; return whether there is one."""
    store = instruction(0xB7, 2, 0, mark) + instruction(0x63, 0x21, MARK_AT, 0) if mark else b""
    return store + instruction(0xB7, 0, 0, int(bool(mark))) + instruction(0x95, 0, 0, 0)


def count(cgroup: int) -> int:
    _, answer = bpf(PROG_QUERY, struct.pack("<II", cgroup, SOCK_CREATE))
    return struct.unpack_from("<I", answer, COUNT_AT)[0]


def attach(cgroup: int, mark: int) -> None:
    code = program(mark)
    text, license = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    head = struct.pack("<IIQQ", CGROUP_SOCK, len(code) // 8, ctypes.addressof(text), ctypes.addressof(license))
    loaded, _ = bpf(PROG_LOAD, head.ljust(68, b"\0") + struct.pack("<I", SOCK_CREATE))
    bpf(PROG_ATTACH, struct.pack("<IIII", cgroup, loaded, SOCK_CREATE, 0))


def main() -> None:
    cgroup, what = os.open(sys.argv[1], os.O_RDONLY), sys.argv[2:]
    if what == ["count"]:
        print(count(cgroup))
    else:
        attach(cgroup, int(what[0]) if what else 0)


if __name__ == "__main__":
    main()
