#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The interface by which a connection leaves has tcpqp-bpf's program, and shares it: with other helpers', of any cgroup, and with others' filters.

egress.py BUILD: ends on a veth pair, as in `option.py`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from ends import ADDRESSES, HELPER, LIMIT_S, Ends, cgroup2, main, sh

TABLE = 77
TOS = 0x10
FILTER = re.compile(r" handle \S+ .* id (\d+) ")
EXCHANGE = ("--messages", 200, "--bytes", 1000)


def filters(t: Ends, direction: str, interface: str = "v0") -> list[str]:
    """The programs there, by their numbers."""
    said = subprocess.run(t.within(0, "tc", "filter", "show", "dev", interface, direction), capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
    return FILTER.findall(said)


def new_cgroup(t: Ends) -> Path:
    cgroup = cgroup2() / f"tcpqpc.{os.getpid()}"
    cgroup.mkdir()
    t.cleanup.callback(cgroup.rmdir)
    return cgroup


def add_end(t: Ends, cgroup: Path) -> int:
    """In the first one's namespace, with a helper's socket of its own."""
    t.names.append(t.names[0])
    t.cgroups.append(cgroup)
    return len(t.names) - 1


def talk(t: Ends, listener: int, *argv) -> None:
    t.port += 1
    jobs = [t.start(listener, "option", *EXCHANGE, *argv)]
    t.listening(jobs[0])
    jobs.append(t.start(1, "option", *EXCHANGE, "--connect", ADDRESSES[0]))
    for job in jobs:
        out, err = job.communicate(timeout=LIMIT_S)
        assert job.returncode == 0, f"{out}{err}"


def routed_by_a_rule(t: Ends) -> None:
    """TCP, or what has a TOS, has a routing table of its own; all else would leave by another interface."""
    commands = (
        "ip link add d0 type veth peer name d1",
        "ip link set d0 up",
        f"ip route add {ADDRESSES[1]}/32 dev d0",
        f"ip route add {ADDRESSES[1]}/32 dev v0 table {TABLE}",
    )
    for command in commands:
        sh(*t.within(0, *command.split()))
    for selector, argv in (("ipproto tcp", ()), (f"tos {TOS:#x}", ("--tos", TOS))):
        sh(*t.within(0, *f"ip rule add {selector} lookup {TABLE}".split()))
        talk(t, 0, *argv)
        programs = [filters(t, "egress", interface) for interface in ("v0", "d0")]
        assert [len(there) for there in programs] == [1, 0], f"{selector}: the program is not where the connection leaves: {programs}"
        sh(*t.within(0, *f"ip rule del {selector} lookup {TABLE}".split()))
    sh(*t.within(0, *"ip link del d0".split()))


def two_helpers(t: Ends, cgroup: Path) -> None:
    """Each has its own program there, and takes off no other."""
    talk(t, 0)
    first = filters(t, "egress")
    assert len(first) == 1, first
    end = add_end(t, cgroup)
    second = t.start_helper(end)
    talk(t, end)
    both = filters(t, "egress")
    assert len(both) == 2 and first[0] in both, f"{first}, then {both}"
    talk(t, 0)
    t.stop(second)
    assert filters(t, "egress") == first, f"{both}, then {filters(t, 'egress')}"


def two_helpers_of_two_cgroups(t: Ends) -> None:
    two_helpers(t, new_cgroup(t))


def two_helpers_of_one_cgroup(t: Ends) -> None:
    two_helpers(t, t.cgroups[0])


def two_helpers_of_one_socket(t: Ends) -> None:
    """The second one goes, and says why; the first one is asked as before."""
    before = filters(t, "egress")
    argv = t.within(0, t.build / HELPER, "--cgroup", t.cgroups[0], "--socket", t.socket(0))
    second = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert second.returncode == 1 and "Address already in use" in second.stderr, second
    talk(t, 0)
    assert filters(t, "egress") == before, f"{before}, then {filters(t, 'egress')}"


def killed_helper(t: Ends) -> None:
    """What it left is replaced by the next one's."""
    before = filters(t, "egress")
    t.helpers[0].kill()
    t.helpers[0].wait()
    assert filters(t, "egress") == before
    t.helpers[0] = t.start_helper(0)
    talk(t, 0)
    after = filters(t, "egress")
    assert len(after) == 1 and after != before, f"{before}, then {after}"


def filter_of_others(t: Ends) -> None:
    """It stays when the helper ends, whose program does not."""
    t.lose()
    others = filters(t, "ingress")
    assert len(others) == 1, others
    t.stop(t.helpers[0])
    assert filters(t, "egress") == []
    assert filters(t, "ingress") == others, "the helper took another's filter along"


TESTS = (routed_by_a_rule, two_helpers_of_two_cgroups, two_helpers_of_one_cgroup, two_helpers_of_one_socket, killed_helper, filter_of_others)
sys.exit(main(__doc__, *TESTS))
