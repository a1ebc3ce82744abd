# SPDX-License-Identifier: BSD-3-Clause
"""The rate of the host's time stamp counter, which a TCG guest sees as its own.

A guest that measures it itself against an emulated timer, on a busy host, may be wrong by factors: then its time limits fire
early, its TCP timers are off and its CPU seconds mean nothing.
"""

import ctypes
import mmap
import platform
import time

RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx, 32; or rax, rdx; ret
SPAN_S = 0.05
TRIES = 20


def host_tsc_khz() -> int | None:
    """None where there is no such counter."""
    if platform.machine() != "x86_64":
        return None
    try:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:  # forbidden here
        return None
    code.write(RDTSC)
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    began = _pair(read)
    time.sleep(SPAN_S)
    ended = _pair(read)
    return round((ended[1] - began[1]) * 1_000_000 / (ended[0] - began[0]))


def _pair(read) -> tuple[int, int]:
    """(nanoseconds, ticks) of one moment: the try least disturbed."""
    tries = []
    for _ in range(TRIES):
        before, ticks, after = time.monotonic_ns(), read(), time.monotonic_ns()
        tries.append((after - before, (before + after) // 2, ticks))
    return min(tries)[1:]
