# SPDX-License-Identifier: BSD-3-Clause
"""Programs no one here wrote connect by rdma_cm: rdma-core's examples, perftest, qperf, libfabric."""

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.pairs import served
from harness.traffic import free_port, parameter, sysctl

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), setup="full")
pytestmark = pytest.mark.needs(NEEDS)

LIMIT_S = 60
LATE_MAX = 5  # delayed ACKs of whatever else the guest's TCP does
ATTEMPTS = 4  # a guest that others keep from running for 40 ms sends delayed ACKs, too
SERVER = {"4": "10.77.0.1", "6": "fd77::1"}


def pair(t: Guests, server: str, client: str, port: int, server_ends: bool = True) -> str:
    """Runs both, which must succeed; the client's output.  A server that does not end by itself is killed."""
    return served(t, server, client, port, server_ends=server_ends, limit_s=LIMIT_S)[0]


def counters(t: Guests, name: str) -> list[int]:
    return [int(t.run(node, f"cat /sys/class/infiniband/tcpqp0/ports/1/hw_counters/{name}")) for node in (0, 1)]


def rping(t: Guests, address: str) -> None:
    port = free_port()
    common = f"-a {address} -p {port} -C 20 -v -V"
    out = pair(t, f"rping -s {common}", f"rping -c {common}", port)
    t.equal(out.count("ping data: rdma-ping-"), 20, "pings")


def test_ucmatose(t: Guests) -> None:
    for address in SERVER.values():
        port = free_port()
        common = f"-p {port} -c 4 -C 20 -S 5000"
        out = pair(t, f"ucmatose -b {address} {common}", f"ucmatose -s {address} {common}", port)
        t.check("return status 0" in out, out)


def test_rdma_client(t: Guests) -> None:
    port = free_port()
    out = pair(t, f"rdma_server -s {SERVER['4']} -p {port}", f"rdma_client -s {SERVER['4']} -p {port}", port)
    t.check("end 0" in out, out)


@pytest.mark.parametrize(
    ("options", "shown"), [pytest.param("lat -n 200", "#iterations", id="lat"), pytest.param("bw -n 200 -s 65536", "65536      200", id="bw")]
)
def test_send(t: Guests, options: str, shown: str) -> None:
    port = free_port()
    command = f"ib_send_{options} -R -p {port}"
    out = pair(t, command, f"{command} $PEER", port)
    t.check(shown in out, out)


@pytest.mark.long
def test_qperf(t: Guests) -> None:
    # The server's child destroys a QP that it never had, when it ends; that is qperf's.
    with sysctl(t, "debug.exception-trace", 0, (0,)):
        out = pair(t, "qperf", "qperf -cm1 -t 2 $PEER rc_lat rc_bw rc_bi_bw", 19765, server_ends=False)
    t.equal(out.count(" bw "), 2, f"bandwidths in {out}")
    t.check("latency" in out, out)


def test_fi_pingpong(t: Guests) -> None:
    command = "fi_pingpong -p verbs -e msg -I 20"
    out = pair(t, command, f"{command} $PEER", 47592)
    t.check("1m" in out, out)


def delayed_acks(t: Guests) -> list[int]:
    """ACKs that TCP's own timer sent."""
    return [t.nstat(node, "TcpExtDelayedACKs") for node in (0, 1)]


@pytest.mark.long
def test_fi_pingpong_rxm(t: Guests) -> None:
    """ofi_rxm ends each transfer by a message that nothing answers, and waits for its send to complete: by TCP's timer alone 20 at each end."""
    command = "fi_pingpong -p 'verbs;ofi_rxm' -e rdm -I 20 -S 262144"
    for offload in (0, 1):
        with parameter(t, "offload", offload):
            late = []
            for _ in range(ATTEMPTS):
                delayed, quick = delayed_acks(t), counters(t, "rx_quick_acks")
                pair(t, command, f"{command} $PEER", 47592)
                late.append(max(now - was for now, was in zip(delayed_acks(t), delayed, strict=True)))
                t.check(sum(counters(t, "rx_quick_acks")) > sum(quick), "no ACK was sent for a message's end")
                if late[-1] <= LATE_MAX:
                    break
            t.check(late[-1] <= LATE_MAX, f"ACKs that TCP delayed at an end, each time: {late}")


def test_rping(t: Guests) -> None:
    for address in SERVER.values():
        rping(t, address)


def test_pyverbs(t: Guests) -> None:
    # Some of rdma-core's own tests; docs/compat.md says what becomes of the others.
    t.run(1, "mkdir /tmp/pyverbs && cp -r /usr/share/doc/rdma-core/tests /tmp/pyverbs && gunzip -r /tmp/pyverbs/tests")
    modules = "tests.test_device tests.test_pd tests.test_cq tests.test_fork tests.test_mr"
    result = t.nodes[1].run(f"cd /tmp/pyverbs && /usr/bin/python3 tests/run_tests.py --dev tcpqp0 -v {modules} 2>&1", LIMIT_S)
    t.run(1, "rm -r /tmp/pyverbs")
    t.check(result.ok and result.stdout.count("... ok") >= 15, result.stdout)


def test_offload_parameter(t: Guests) -> None:
    names = ("software_qps", "offload_qps")
    for value, grows in enumerate(names):
        with parameter(t, "offload", value):
            before = {name: counters(t, name) for name in names}
            rping(t, SERVER["4"])
            for name in names:
                gained = [now - was for now, was in zip(counters(t, name), before[name])]
                t.equal(gained, [int(name == grows)] * 2, f"{name} gained with offload={value}")


def test_rstream(t: Guests) -> None:
    # Not -T a: a client that finds its last data and the peer's end in one poll() takes that for an error.
    port = free_port()
    common = f"-p {port} -T b -T v -S 4096 -C 10"
    out = pair(t, f"rstream -b {SERVER['4']} {common}", f"rstream -s {SERVER['4']} {common}", port)
    t.check("custom" in out, out)
