# SPDX-License-Identifier: BSD-3-Clause
"""The leak check: when a test is over, nothing of it is left in its guests and their switch."""

import re
import time

from harness.guests import Guests

# An orphaned socket of a killed program keeps its QP's module until TCP gives up on the peer, or has its FIN acknowledged: 40 s in a namespace
# of user_fuzz, whose queue keeps each packet for 20; and 61 s where the program asked for it by TCP_LINGER2, and the peer went in silence
# (TCP_REPAIR).  What leaks is there for ever.
LEFT_S = 100.0
POLL_S = 0.2
GIVEN_UP = "/run/given_up"  # in a guest, until it ends: how often each module is held for ever, and pages are pinned
# One job, and but one program started in it: this runs after every test.
LOOK = f"""
rdma resource show 2>/dev/null
for m in tcp_qp nupa_dev nupa_accel; do
	held=0
	[ -e {GIVEN_UP}/$m ] && read -r held <{GIVEN_UP}/$m
	[ -d /sys/module/$m ] && read -r n </sys/module/$m/refcnt && echo "module $m $((n - held))"
done
for d in /sys/class/infiniband/tcpqp*/ports/1/hw_counters; do
	[ -d $d ] && read -r all <$d/rx_delivered_bytes && read -r placed <$d/rx_placed_bytes && read -r copied <$d/rx_copied_bytes &&
		echo "bytes $all $placed $copied"
done
true
"""
HOLDERS = """
rdma resource show qp
ss -Htane
cat /proc/net/sockstat
ls -l /proc/[0-9]*/fd 2>/dev/null | grep -F /dev/infiniband
true
"""
RESOURCES = re.compile(r"^\d+: (tcpqp\S*): (.*)$", re.MULTILINE)
COUNT = re.compile(r"(pd|cq|qp|mr|ctx|srq|cm_id) (\d+)")


def trouble(t: Guests) -> str:
    """What is left after a bounded wait; empty if nothing."""
    deadline = time.monotonic() + LEFT_S * t.cluster.slowness
    while True:
        found = look(t)
        if not found or time.monotonic() > deadline:
            return found and f"{_holders(t)}\n{found}"  # the last line is all that a summary shows
        time.sleep(POLL_S)


def give_up(t: Guests, node: int, what: str, count: int = 1) -> None:
    """So many more references to a module, or "pages", stay for ever: they were given up to a switch that hung."""
    held = given_up(t, node, what)
    t.run(node, f"mkdir -p {GIVEN_UP}; echo {held + count} >{GIVEN_UP}/{what}")


def given_up(t: Guests, node: int, what: str) -> int:
    return int(t.run(node, f"cat {GIVEN_UP}/{what} 2>/dev/null || echo 0"))


def look(t: Guests) -> str:
    found = [line for node, shown in zip(t.nodes, t.cluster.run_all(LOOK, 20)) for line in complaints(node.name, shown.stdout)]
    if t.cluster.switch:
        contexts = t.switch("qps")["qps"]
        found += [f"switch: {len(contexts)} QP contexts left: {contexts[:3]}"] if contexts else []
    return "\n".join(found)


def _holders(t: Guests) -> str:
    """Who may hold what is left: queue pairs, sockets, orphans among them, and processes with a device open."""
    return "\n".join(shown.stdout for shown in t.cluster.run_all(HOLDERS, 20))


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
    return found
