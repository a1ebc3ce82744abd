# SPDX-License-Identifier: BSD-3-Clause
"""Finds what the kernel complained about in its log."""

import re

SPLATS = re.compile(
    r"WARNING: |BUG: |BUG at |Oops|general protection fault|KASAN|UBSAN|KCSAN|Kernel panic|Call Trace"
    r"|possible circular locking|possible recursive locking|inconsistent lock state|INFO: task .* blocked"
    r"|rcu.*(stall|detected expedited)|soft lockup|hard LOCKUP|refcount_t|page_pool.*stalled|unregister_netdevice: waiting"
    r"|scheduling while atomic|sleeping function called|Bad page state|list_(add|del) corruption|double free"
    r"|memory leak|DMA-API:|slab .*(corrupt|redzone)|nobody cared|nupa-init: |segfault at .* in"
)
HARMLESS = re.compile(r"Kernel command line|clearcpuid|nupa-init: probe ok|DMA-API: (preallocated|debugging enabled)|leak detector initialized")
CONTEXT_LINES = 40


def splats(log: str) -> list[str]:
    """The offending lines, in order."""
    return [line for line in log.splitlines() if SPLATS.search(line) and not HARMLESS.search(line)]


def around_first(log: str) -> str:
    """The first offending line with what follows it."""
    lines = log.splitlines()
    for at, line in enumerate(lines):
        if SPLATS.search(line) and not HARMLESS.search(line):
            return "\n".join(lines[max(0, at - 3) : at + CONTEXT_LINES])
    return ""
