#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A BPF program for every new socket of a cgroup: sock_create.py CGROUP [MARK].  Without a mark it refuses them all.  It goes with the cgroup."""

import ctypes
import os
import struct
import sys

SYS_BPF = 321  # x86-64
PROG_LOAD, PROG_ATTACH = 5, 8
CGROUP_SOCK, SOCK_CREATE = 9, 2
MARK_AT = 16  # in struct bpf_sock
libc = ctypes.CDLL(None, use_errno=True)


def bpf(command: int, attributes: bytes) -> int:
    buffer = ctypes.create_string_buffer(attributes.ljust(160, b"\0"), 160)
    result = libc.syscall(SYS_BPF, command, buffer, 160)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf({command})")
    return result


def instruction(code: int, registers: int, offset: int, value: int) -> bytes:
    return struct.pack("<BBhi", code, registers, offset, value)


def program(mark: int) -> bytes:
    """r2 = mark; socket->mark = r2; return whether there is one."""
    store = instruction(0xB7, 2, 0, mark) + instruction(0x63, 0x21, MARK_AT, 0) if mark else b""
    return store + instruction(0xB7, 0, 0, int(bool(mark))) + instruction(0x95, 0, 0, 0)


def main() -> None:
    code = program(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    text, license = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    head = struct.pack("<IIQQ", CGROUP_SOCK, len(code) // 8, ctypes.addressof(text), ctypes.addressof(license))
    loaded = bpf(PROG_LOAD, head.ljust(68, b"\0") + struct.pack("<I", SOCK_CREATE))
    bpf(PROG_ATTACH, struct.pack("<IIII", os.open(sys.argv[1], os.O_RDONLY), loaded, SOCK_CREATE, 0))


if __name__ == "__main__":
    main()
