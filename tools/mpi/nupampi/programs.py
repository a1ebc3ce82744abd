# SPDX-License-Identifier: BSD-3-Clause
"""What is run on each stack, how long it may take, and what is read from its output."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from .launch import PROGRAMS
from .stacks import Stack

KIB, MIB = 1 << 10, 1 << 20
SIZES = (8, 2 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB)
COLLECTIVE_SIZES = (8, 64 * KIB, MIB, 4 * MIB)
COLLECTIVES = ("allreduce", "allgather", "alltoall")
LINE = re.compile(r"^(\w+) (\d+) \d+: ([\d.]+) us$", re.MULTILINE)
NETPIPE_CHECKED = re.compile(r"(\d+) bytes .*Integrity check passed")
NETPIPE_TIMED = re.compile(r"^\s*\d+:\s+(\d+) bytes\s+\d+ times -->\s+[\d.]+ Mbps in\s+([\d.]+) usec", re.MULTILINE)
NETPIPE_LARGEST = 786433  # the last of its sizes below 1 MiB
HPCC_N, HPCC_NB = 256, 32
ADDITIONS = 16

# A figure: (operation, bytes, microseconds); 0 microseconds where only right or wrong is told.
Figures = list[tuple[str, int, float]]


@dataclass(frozen=True)
class Program:
    name: str
    command: Callable[[str], str]  # by MPI
    read: Callable[[str], Figures]
    limit_s: float
    before: str = ""
    mpis: tuple[str, ...] = ("openmpi", "mpich")
    right_only: bool = False  # it tells right from wrong, no times: once, and not over TCP

    def has(self, stack: Stack, turn: int) -> bool:
        return stack.mpi in self.mpis and (not self.right_only or (stack.placed and turn == 0))


def sizes_of(sizes: tuple[int, ...]) -> str:
    return ",".join(map(str, sizes))


def read_checked(out: str) -> Figures:
    return [(operation, int(size), float(us)) for operation, size, us in LINE.findall(out)]


def checked(sizes: tuple[int, ...], operations: tuple[str, ...]) -> Program:
    words = " ".join(operations)
    return Program("checked", lambda mpi: f"{PROGRAMS}/checked.{mpi} {sizes_of(sizes)} {words}", read_checked, 300)


def one_sided() -> Program:
    """UCX does it by the device's atomics."""
    return Program("one-sided", lambda mpi: f"{PROGRAMS}/checked.{mpi} {8 * ADDITIONS} fetchadd", read_checked, 120, right_only=True)


def netpipe_command(mpi: str, options: str) -> str:
    return f"{'NPopenmpi' if mpi == 'openmpi' else 'NPmpich2'} {options} -u {MIB} -o /dev/null 2>&1"


def read_netpipe_checked(out: str) -> Figures:
    sizes = [int(size) for size in NETPIPE_CHECKED.findall(out)]
    return [("integrity", size, 0) for size in sizes if size == NETPIPE_LARGEST]


def read_netpipe(out: str) -> Figures:
    return [("pingpong", int(size), float(us)) for size, us in NETPIPE_TIMED.findall(out)]


def netpipes() -> list[Program]:
    return [
        Program("netpipe -i", lambda mpi: netpipe_command(mpi, "-i"), read_netpipe_checked, 120, right_only=True),
        Program("netpipe", lambda mpi: netpipe_command(mpi, "-p 0 -n 10"), read_netpipe, 120),
    ]


def hpcc_input(ranks: int) -> str:
    """hpcc's input, small: its figures are of a processor that does not exist, its residuals are not."""
    ones = (f"1\n{HPCC_N}", f"1\n{HPCC_NB}", "0", "1\n1", str(ranks), "16.0", "1\n2", "1\n4", "1\n2", "1\n1", "1\n1", "1\n1", "2", "64", "0", "0", "1", "8")
    return "\n".join(("HPLinpack", "hpcc", "HPL.out", "8", *ones, "#", "0", "0", "0", "0")) + "\n"


def read_hpcc(out: str) -> Figures:
    """HPL's residual and those of PTRANS, and the errors that RandomAccess and the FFT found."""
    good = ("PASSED" in out) and "FAILED" not in out and "Success=1" in out
    return [("residuals", HPCC_N, 0)] if good else []


def hpcc(ranks: int) -> Program:
    """Debian builds it with Open MPI alone."""
    before = f"rm -f hpccoutf.txt && printf '%s' '{hpcc_input(ranks)}' >hpccinf.txt"
    return Program("hpcc", lambda _: "hpcc && cat hpccoutf.txt", read_hpcc, 240, before, ("openmpi",), right_only=True)


def of_two() -> list[Program]:
    return [checked(SIZES, ("pingpong", *COLLECTIVES)), one_sided(), *netpipes(), hpcc(2)]


def of_many(ranks: int) -> list[Program]:
    return [checked(COLLECTIVE_SIZES, COLLECTIVES), one_sided(), hpcc(ranks)]
