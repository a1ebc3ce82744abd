#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Who may call the module's function for BPF: stream_kfunc.py.  Says of each kind of program what the kernel's verifier does with it."""

import ctypes
import errno
import os
import struct

SYS_BPF = 321  # x86-64
PROG_LOAD, BTF_GET_FD_BY_ID, GET_INFO, BTF_GET_NEXT_ID = 5, 19, 15, 23
CGROUP_SKB, CGROUP_SOCK = 8, 9
SOCK_CREATE = 2
FUNC = 12
CALL, EXIT = struct.pack("<BBhi", 0x85, 0x20, 1, 0), struct.pack("<BBhi", 0x95, 0, 0, 0)
SOCK_BYTES = 80  # struct bpf_sock
LOG_BYTES = 1 << 16
libc = ctypes.CDLL(None, use_errno=True)


def bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    buffer = ctypes.create_string_buffer(attributes.ljust(160, b"\0"), 160)
    result = libc.syscall(SYS_BPF, command, buffer, 160)
    return (result if result >= 0 else -ctypes.get_errno()), buffer.raw


def btf_of(fd: int) -> tuple[bytes, bytes]:
    """Name, and types."""
    name = ctypes.create_string_buffer(64)
    text = ctypes.create_string_buffer(16 << 20)
    info = ctypes.create_string_buffer(struct.pack("<QIIQII", ctypes.addressof(text), len(text), 0, ctypes.addressof(name), 64, 0), 32)
    result, _ = bpf(GET_INFO, struct.pack("<IIQ", fd, 32, ctypes.addressof(info)))
    assert result == 0, result
    return name.value, text.raw[: struct.unpack_from("<I", info.raw, 8)[0]]


def module_btf() -> tuple[int, bytes, bytes]:
    at, kernel = 0, b""
    while True:
        result, raw = bpf(BTF_GET_NEXT_ID, struct.pack("<III", at, 0, 0))
        assert result == 0, "tcp_qp has no BTF"
        at = struct.unpack_from("<I", raw, 4)[0]
        fd, _ = bpf(BTF_GET_FD_BY_ID, struct.pack("<I", at))
        name, text = btf_of(fd)
        if name == b"vmlinux":
            kernel = text
        if name == b"tcp_qp":
            return fd, kernel, text
        os.close(fd)


EXTRA = {1: 4, 3: 12, 14: 4, 17: 4}  # INT, ARRAY, VAR, DECL_TAG
EACH = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}


def types(text: bytes):
    """(kind, where its name is)."""
    head, offset, length = struct.unpack_from("<4xIII", text)
    at, end = head + offset, head + offset + length
    while at < end:
        name, info = struct.unpack_from("<II", text, at)
        kind = info >> 24 & 31
        yield kind, name
        at += 12 + EXTRA.get(kind, 0) + EACH.get(kind, 0) * (info & 0xFFFF)


def strings(text: bytes) -> bytes:
    head, offset, length = struct.unpack_from("<4xI8xII", text)[0], *struct.unpack_from("<II", text, 16)
    return text[head + offset : head + offset + length]


def function_id(kernel: bytes, module: bytes) -> int:
    first, base = 1 + sum(1 for _ in types(kernel)), len(strings(kernel))
    own = strings(module)
    for i, (kind, name) in enumerate(types(module)):
        if kind == FUNC and name >= base and own[name - base :].startswith(b"tqp_stream_kfunc\0"):
            return first + i
    raise AssertionError("no such function")


def load(kind: int, attach: int, code: bytes, fd: int) -> tuple[int, str]:
    fds = (ctypes.c_int * 2)(-1, fd)
    log = ctypes.create_string_buffer(LOG_BYTES)
    text = ctypes.create_string_buffer(code)
    license = ctypes.create_string_buffer(b"GPL")
    head = struct.pack("<IIQQIIQ", kind, len(code) // 8, ctypes.addressof(text), ctypes.addressof(license), 1, LOG_BYTES, ctypes.addressof(log))
    tail = struct.pack("<II16sII", 0, 0, b"", 0, attach)
    attributes = (head + tail).ljust(120, b"\0") + struct.pack("<Q", ctypes.addressof(fds))
    return bpf(PROG_LOAD, attributes)[0], log.value.decode()


def main() -> None:
    fd, kernel, module = module_btf()
    call = CALL[:4] + struct.pack("<i", function_id(kernel, module))
    one = struct.pack("<BBhi", 0xB7, 0, 0, 1)
    clear = b"".join(struct.pack("<BBhi", 0x7A, 10, -at, 0) for at in range(8, SOCK_BYTES + 8, 8))
    stack = clear + struct.pack("<BBhi", 0xBF, 0xA1, 0, 0) + struct.pack("<BBhi", 0x07, 1, 0, -SOCK_BYTES)  # r1 = r10 - 80
    for name, kind, attach, code, expected in (
        ("its own socket", CGROUP_SOCK, SOCK_CREATE, call, 0),
        ("memory of its own", CGROUP_SOCK, SOCK_CREATE, stack + call, errno.EINVAL),
        ("memory of another type's", CGROUP_SKB, 0, stack + call, errno.EACCES),
    ):
        result, log = load(kind, attach, code + one + EXIT, fd)
        assert (result > 0) if expected == 0 else (result == -expected), f"{name}: {result}\n{log}"
        print(f"ok {name}")


if __name__ == "__main__":
    main()
