# SPDX-License-Identifier: BSD-3-Clause
"""Who wakes up when there is nothing to do."""

from pathlib import Path

from .figures import rounded
from .machines import SERVER, Machines

SPAN_S = 5
# The interrupts of the device, and what a CPU does for itself while it idles (the timer's are its wake-ups).
GUEST = "ethtool -S nupa0 | awk '$1 == \"interrupts:\" { print $2 }'; awk '/LOC:/ { print $2 }' /proc/interrupts"


def switch_wakeups(pid: int) -> int:
    """How often the switch went to sleep, and so woke up, in all its threads."""
    count = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                count += int(line.split()[1])
    return count


def measure(machines: Machines) -> list[dict]:
    """Wake-ups in SPAN_S: of the guest, with what lets it sleep, and of the switch."""
    cluster = machines.cluster
    node, pid = cluster.node[SERVER], cluster.switch.process.pid
    script = f"{GUEST}; sleep {SPAN_S}; {GUEST}"
    job = node.start(script, SPAN_S + 20)
    before = switch_wakeups(pid)
    irqs0, timers0, irqs1, timers1 = (int(word) for word in job.wait(check=True).stdout.split())
    # the guest asked the switch for its statistics, four admin commands
    switch = switch_wakeups(pid) - before
    return [
        {"idle": "guest", "wakeups_per_s": rounded((irqs1 - irqs0) / SPAN_S), "kernel_alone_per_s": 0, "timer_per_s": rounded((timers1 - timers0) / SPAN_S)},
        {"idle": "switch", "wakeups_per_s": rounded(switch / SPAN_S), "kernel_alone_per_s": 0},
    ]
