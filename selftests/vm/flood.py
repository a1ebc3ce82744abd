# SPDX-License-Identifier: BSD-3-Clause
"""A peer that writes without end, and a receiver with one processor that has other things to do."""

from dataclasses import dataclass

import pytest

from harness.guests import Failed, Guests
from harness.needs import Needs
from harness.traffic import SOFTIRQ_PERCENT, free_port, softirq_percent

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), setup="full")
pytestmark = pytest.mark.needs(NEEDS)

PARAMETERS = "/sys/module/tcp_qp/parameters"
WRITTEN = "/sys/class/infiniband/tcpqp0/ports/1/hw_counters/rx_write_bytes"
FORKS = 20
FLOOD_S = 40  # it is killed before
DEFAULT_PERCENT_MAX = 50
SHARE_PERCENT = 15  # of the processor, for receiving in softirq
SOFTIRQ_MAX = 0.45  # of the processor: beside that, TCP's own part is up to 0.2; receiving was 0.3 to 0.5 without a share
LIMIT_S = 120
WORK = f"head -1 /proc/stat; for i in $(seq {FORKS}); do /bin/true; done; head -1 /proc/stat"
USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ = range(7)  # of /proc/stat, behind "cpu"


@dataclass
class Flood:
    """perftest's ib_write_bw with the software engine, from node 1 to node 0, until the end of the block."""

    t: Guests

    def __enter__(self) -> "Flood":
        for node in (0, 1):
            self.t.run(node, f"echo 0 >{PARAMETERS}/offload")
        port = free_port()
        common = f"exec ib_write_bw -R -F -D {FLOOD_S} -s 65536 -p {port}"
        self.jobs = [self.t.start(0, common, LIMIT_S)]
        self.t.wait_listening(0, port)
        self.jobs.append(self.t.start(1, f"{common} {self.t.nodes[0].ip4}", LIMIT_S))
        self.t.run(0, f"until grep -Eq '[0-9]{{8}}' {WRITTEN}; do sleep 0.1; done", LIMIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        for node in (1, 0):
            self.t.run(node, f"pkill -9 -x ib_write_bw; echo 1 >{PARAMETERS}/offload")
        for job in self.jobs:
            job.wait()

    def written(self) -> int:
        return int(self.t.run(0, f"cat {WRITTEN}"))

    def softirq(self) -> float:
        """Its share of the processor while processes begin and end."""
        before = self.written()
        shown = [[int(n) for n in line.split()[1:8]] for line in self.t.run(0, WORK, LIMIT_S).splitlines()]
        if self.written() == before:
            raise Failed("nothing was written meanwhile")
        spent = [b - a for a, b in zip(*shown)]
        return spent[SOFTIRQ] / sum(spent)


def test_writes_leave_a_processor_to_others(t: Guests) -> None:
    t.check(int(t.run(0, f"cat {SOFTIRQ_PERCENT}")) <= DEFAULT_PERCENT_MAX, "softirq may take more than half of a processor")
    with softirq_percent(t, SHARE_PERCENT, (0,)), Flood(t) as flood:
        shares = [flood.softirq() for _ in range(3)]
    print(f"# flood: softirq's shares {', '.join(f'{share:.2f}' for share in shares)}", flush=True)
    t.check(min(shares) < SOFTIRQ_MAX, f"softirq had {shares} of the processor")
