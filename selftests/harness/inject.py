# SPDX-License-Identifier: BSD-3-Clause
"""Failing allocations in a guest (failslab, fail_page_alloc; CONFIG_FAULT_INJECTION_STACKTRACE_FILTER), only below chosen code."""

import contextlib
from collections.abc import Iterator

from harness.guests import Failed, Guests

KINDS = ("failslab", "fail_page_alloc")
DEBUGFS = "/sys/kernel/debug"
TIMES = 1_000_000  # counts down with each failure
DEPTH = 32  # the deepest the kernel walks
LAST_FUNCTION_BYTES = 0x1000  # kallsyms knows starts only
FUNCTION = "awk '$3 == \"{}\" {{ print $1; n = $1; next }} n && $1 != n {{ print $1; exit }}' /proc/kallsyms"
# First and last line: where the code begins and ends.
FIND = {
    "tcp_qp": "awk '$4 == \"[tcp_qp]\" && $2 ~ /[tT]/ { print $1 }' /proc/kallsyms | sort | sed -n '1p;$p'",
    "verbs": FUNCTION.format("ib_uverbs_ioctl"),
}
# Without memory the core drops a completion event and tells nobody: its program would sleep for ever, whatever we do.
SPARED = FUNCTION.format("ib_uverbs_comp_handler")


class Injection:
    """Failing allocations of one kind on one node."""

    def __init__(self, t: Guests, node: int, kind: str) -> None:
        self.t, self.node, self.path = t, node, f"{DEBUGFS}/{kind}"

    def failed(self) -> int:
        return TIMES - int(self.t.run(self.node, f"cat {self.path}/times"))

    def wait_failed(self, count: int, limit_s: float = 60) -> None:
        self.t.run(self.node, f"until [ $(cat {self.path}/times) -le {TIMES - count} ]; do sleep 0.1; done", limit_s)

    def write(self, **files) -> None:
        self.t.run(self.node, "; ".join(f"echo {value} >{self.path}/{name.replace('_', '-')} || exit" for name, value in files.items()))


def code(t: Guests, node: int, find: str) -> tuple[int, int]:
    found = t.run(node, find).split()
    if len(found) != 2:
        raise Failed(f"node{node}: not in kallsyms: {find}: {found}")
    return int(found[0], 16), int(found[1], 16)


@contextlib.contextmanager
def failing(t: Guests, node: int, kind: str, where: str, percent: int) -> Iterator[Injection]:
    """One in so many allocations made below the code of `where` fails, in softirqs too, inside the block."""
    injection = Injection(t, node, kind)
    start, end = code(t, node, FIND[where])
    spared = code(t, node, SPARED)
    files = {"verbose": 0, "task_filter": "N", "interval": 1, "ignore_gfp_wait": "N", "times": TIMES, "stacktrace_depth": DEPTH,
             "require_start": hex(start), "require_end": hex(end + LAST_FUNCTION_BYTES),
             "reject_start": hex(spared[0]), "reject_end": hex(spared[1])}  # fmt: skip
    if kind == "fail_page_alloc":
        files |= {"min_order": 0, "ignore_gfp_highmem": "N"}
    injection.write(**files, probability=percent)
    try:
        yield injection
    finally:
        injection.write(probability=0)
