# SPDX-License-Identifier: BSD-3-Clause
"""UD queue pairs over UDP (docs/ud.md): other people's programs, what a datagram may do, a bad fabric and a flood."""

import pytest

from harness.guests import Failed, Guests
from harness.needs import Needs
from harness.traffic import free_port

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), setup="full")
pytestmark = pytest.mark.needs(NEEDS)

LIMIT_S = 60


def pair(t: Guests, command: str, port: int) -> str:
    """The command at both nodes, at the client with the server's address; both must succeed, the client's output."""
    job = t.start(0, f"exec {command} -p {port}", LIMIT_S)
    t.wait_listening(0, port)
    result = t.nodes[1].run(f"{command} -p {port} {t.nodes[0].ip4}", LIMIT_S)
    if not result.ok:
        job.kill()
    served = job.wait()
    if not (result.ok and served.ok):
        raise Failed(f"{command}: {result.status}\n{result.stdout}{result.stderr}\nserver: {served.status}\n{served.stdout}{served.stderr}")
    return result.stdout


def counter(t: Guests, node: int, name: str) -> int:
    return int(t.run(node, f"cat /sys/class/infiniband/tcpqp0/ports/1/hw_counters/{name}"))


@pytest.mark.parametrize("options", ["", "-e"])
def test_ud_pingpong(t: Guests, options: str) -> None:
    out = pair(t, f"ibv_ud_pingpong -d tcpqp0 -g 0 -s 1024 -n 200 {options}", free_port())
    t.check("200 iters" in out, out)


@pytest.mark.parametrize("what", ["bw -s 1024 -n 1000", "lat -s 64 -n 200", "bw -s 512 -n 500 -b", "bw -s 1024 -n 500 --use-srq"])
def test_perftest(t: Guests, what: str) -> None:
    out = pair(t, f"ib_send_{what} -c UD -d tcpqp0 -x 0 -F", free_port())
    t.check("#bytes" in out, out)
