# SPDX-License-Identifier: BSD-3-Clause
"""Finds what the kernel complained about in its log."""

import re
from collections.abc import Iterator

SPLATS = re.compile(
    r"WARNING: |BUG: |BUG at |Oops|general protection fault|KASAN|UBSAN|KCSAN|Kernel panic|Call Trace"
    r"|possible circular locking|possible recursive locking|inconsistent lock state|INFO: task .* blocked"
    r"|rcu.*(stall|detected expedited)|soft lockup|hard LOCKUP|refcount_t|page_pool.*stalled|unregister_netdevice: waiting"
    r"|scheduling while atomic|sleeping function called|Bad page state|list_(add|del) corruption|double free"
    r"|memory leak|DMA-API:|slab .*(corrupt|redzone)|nobody cared|nupa-init: |segfault at .* in"
)
# The last one: DMA debugging itself got no memory, and is off from then on, as where tests have allocations fail.
HARMLESS = re.compile(
    r"Kernel command line|clearcpuid|nupa-init: probe ok|DMA-API: (preallocated|debugging enabled)|leak detector initialized|kcsan: \S+ mode configured"
    r"|DMA-API: cacheline tracking ENOMEM"
)
# The agent asks for these traces when a job has had its time: a task in them waits, which is no fault by itself.
ASKED, ASKED_END = "agent: blocked tasks, asked for", "agent: end of blocked tasks"
TRACE = "Call Trace"
# Data races within the kernel itself are many, known, and not ours to judge: a report counts if a stack of it comes through a module of ours.
RACE, REPORT_END, OURS = "BUG: KCSAN: ", "=" * 60, re.compile(r"\+0x[0-9a-f]+/0x[0-9a-f]+ \[(tcp_qp|nupa_dev|nupa_accel)\b")
CONTEXT_LINES = 40
EFLAGS = re.compile(r"EFLAGS: ([0-9a-f]{8})")
EFLAGS_BITS = 0x3F7FD7  # that an x86 processor can set
INT3 = "Oops: int3"
# RIP, in angle brackets, is behind the breakpoint; what stands before it is what was executed.
INT3_CODE = re.compile(r"Oops: int3.*?Code: (?:[0-9a-f]{2} )*([0-9a-f]{2}) <", re.DOTALL)
BREAKPOINT = "cc"
MADE_UP = "no processor does that, QEMU's TCG made it up"


def splats(log: str) -> list[str]:
    """The offending lines, in order."""
    lines = log.splitlines()
    return [lines[at] for at in _offending(lines)]


def around_first(log: str) -> str:
    """The first offending line with what follows it."""
    lines = log.splitlines()
    for at in _offending(lines):
        return "\n".join([*lines[max(0, at - 3) : at + CONTEXT_LINES], *emulator_fault(log)])
    return ""


def emulator_fault(log: str) -> list[str]:
    """A line that says so of what only the emulator can do: impossible flags; a breakpoint of the kernel's own patching that is gone."""
    if INT3 in log:
        return [f"{INT3}: {MADE_UP} (docs/known-faults.md)"]
    lost = impossible_flags(log)
    return [f"EFLAGS {lost}: {MADE_UP} (docs/known-faults.md)"] if lost else []


def impossible_flags(log: str) -> str:
    """EFLAGS with bits that no processor sets, whatever its software does; empty if there are none."""
    return next((word for word in EFLAGS.findall(log) if int(word, 16) & ~EFLAGS_BITS), "")


def made_up(log: str) -> bool:
    """Whether a guest died of what no processor does: impossible flags, or a breakpoint where there is none."""
    return bool(impossible_flags(log)) or any(byte != BREAKPOINT for byte in INT3_CODE.findall(log))


def _offending(lines: list[str]) -> Iterator[int]:
    asked = False
    for at, line in enumerate(lines):
        asked = ASKED in line or asked and ASKED_END not in line
        found = SPLATS.search(line)
        if found and not HARMLESS.search(line) and not (asked and found[0] == TRACE) and (RACE not in line or _race_of_ours(lines, at)):
            yield at


def _race_of_ours(lines: list[str], at: int) -> bool:
    """Whether the report that begins there goes through our code; one that is not at its end yet may still."""
    for line in lines[at:]:
        if OURS.search(line):
            return True
        if REPORT_END in line:
            break
    return False
