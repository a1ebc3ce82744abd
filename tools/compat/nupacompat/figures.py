# SPDX-License-Identifier: BSD-3-Clause
"""The figure in a program's output; empty if it printed none."""

import re

_ROW = re.compile(r"^\s*\d+\s+\d+\s+[\d.]", re.MULTILINE)
_QPERF = re.compile(r"^\s+(bw|latency|msg_rate)\s+=\s+(.+)$", re.MULTILINE)
BW_MEAN, BW_RATE, LAT_TYPICAL, LAT_MEAN = 3, 4, 4, 5


def rows(out: str) -> list[list[str]]:
    """The table of a perftest program, a list of words for each message size."""
    return [line.split() for line in out.splitlines() if _ROW.match(line)]


def perftest_bw(out: str) -> str:
    """The best mean bandwidth of all sizes, with its size."""
    best = max(rows(out), key=lambda row: float(row[BW_MEAN]), default=None)
    return f"{float(best[BW_MEAN]):.2f} Gb/s at {best[0]} bytes" if best else ""


def perftest_rate(out: str) -> str:
    """Operations a second, of operations that have one size."""
    table = rows(out)
    return f"{float(table[-1][BW_RATE]) * 1e6:.0f} op/s" if table else ""


def perftest_lat(out: str) -> str:
    """The typical latency of the smallest size."""
    table = rows(out)
    return f"{float(table[0][LAT_TYPICAL]):.0f} us at {table[0][0]} bytes" if table else ""


def qperf(out: str) -> str:
    found = _QPERF.search(out)
    return f"{found[2].strip()}" if found else ""


def verified(out: str) -> str:
    """qperf's ver_ tests print their name, and end with an error if a value is wrong."""
    return "verified" if "ver_rc" in out else ""


def pings(out: str) -> str:
    count = len(re.findall(r"ping data: rdma-ping-\d+", out))
    return f"{count} pings, each compared" if count else ""


def pingpong(out: str) -> str:
    """ibv_rc_pingpong and its like."""
    found = re.search(r"= ([\d.]+) usec/iter", out)
    return f"{found[1]} us for both ways" if found else ""


def last_row(out: str) -> str:
    """rstream, fi_pingpong: the last line that is part of the table."""
    table = [line.split() for line in out.splitlines() if re.match(r"^(\d+[kmg]?(_lat|_bw)?|custom)\s", line)]
    return " ".join(table[-1]) if table else ""


def ended(out: str) -> str:
    """ucmatose, rdma_client: they say that they are through."""
    return "through" if re.search(r"return status 0|end 0", out) else ""


def units(out: str) -> str:
    """unittest's summary."""
    found = re.search(r"Ran (\d+) tests? in", out)
    skipped = re.search(r"skipped=(\d+)", out)
    return f"{found[1]} tests, {skipped[1] if skipped else 0} of them skipped" if found else ""
