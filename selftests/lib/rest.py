# SPDX-License-Identifier: BSD-3-Clause
"""What must be true of guests when a test is over: nothing of it is left."""

import re
import time

from vmtest import Guests

# An orphaned socket of a killed program keeps its QP's module until TCP gives up on the peer.
REST_S = 30.0
POLL_S = 0.2
# Sections of one command's output, so that a look at a guest costs one job.
LOOK = """
rdma resource show 2>/dev/null
for m in tcp_qp nupa_dev; do [ -d /sys/module/$m ] && echo "module $m $(cat /sys/module/$m/refcnt)"; done
rdma resource show qp 2>/dev/null | sed 's/^/left: /'
for d in /sys/class/infiniband/tcpqp*/ports/1/hw_counters; do
	[ -d $d ] && echo "bytes $(cat $d/rx_delivered_bytes $d/rx_placed_bytes $d/rx_copied_bytes | tr '\\n' ' ')"
done
true
"""
RESOURCES = re.compile(r"^\d+: (tcpqp\S*): (.*)$", re.MULTILINE)
COUNT = re.compile(r"(pd|cq|qp|mr|ctx|srq|cm_id) (\d+)")


def trouble(t: Guests) -> str:
    """What is left after a bounded wait; empty if nothing."""
    deadline = time.monotonic() + REST_S * t.cluster.slowness
    while True:
        found = look(t)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(POLL_S)


def look(t: Guests) -> str:
    found = [line for node, shown in zip(t.nodes, t.cluster.run_all(LOOK, 20)) for line in complaints(node.name, shown.stdout)]
    if t.cluster.switch:
        contexts = t.switch("qps")["qps"]
        found += [f"switch: {len(contexts)} QP contexts left: {contexts[:3]}"] if contexts else []
    return "\n".join(found)


def complaints(name: str, shown: str) -> list[str]:
    """What a guest's answer to LOOK says is left."""
    found = []
    for device, counts in RESOURCES.findall(shown):
        left = [f"{kind} {count}" for kind, count in COUNT.findall(counts) if count != "0"]
        if left:
            found.append(f"{name}: {device} still has {', '.join(left)}")
    for line in shown.splitlines():
        match line.split():
            case ["module", module, count] if count != "0":
                found.append(f"{name}: module {module} is held {count} times")
            case ["bytes", delivered, placed, copied] if int(placed) + int(copied) != int(delivered):
                found.append(f"{name}: placed {placed} + copied {copied} != delivered {delivered} bytes")
            case ["left:", *what]:
                found.append(f"{name}: {' '.join(what)}")
    return found
