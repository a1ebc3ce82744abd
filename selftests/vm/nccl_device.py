# SPDX-License-Identifier: BSD-3-Clause
"""NCCL's plugin with a GPU's memory, which an accelerator's is here: by its dma-bufs, and no CPU touches it."""

import json

import pytest

from harness.guests import Failed, Guests
from harness.needs import Needs
from harness.traffic import free_port
from vm.accel import MIB

TOOLS = "tools/nccl_harness"
NEEDS = Needs(
    modules=("tcp_qp", "nupa_dev", "nupa_accel"), setup="full", accelerator_mib=MIB,
    programs=(f"{TOOLS}/nccl_harness", f"{TOOLS}/libnccl-net-socketlike.so", "user/nccl/libnccl-net-tcpqp.so", "selftests/vm/programs/accel_check"),
)  # fmt: skip
pytestmark = pytest.mark.needs(NEEDS)

OURS, SOCKETS = "user/nccl/libnccl-net-tcpqp.so", f"{TOOLS}/libnccl-net-socketlike.so"
ACCELERATOR = "--accelerator /dev/nupa_accel0"
COLLECTIVES = f"--measure --least 64K --most 512K --iterations 1 {ACCELERATOR}"
LIMIT_S = 120


def command(plugin: str, options: str, environment: str = "") -> str:
    return f"NCCL_SOCKET_IFNAME=nupa0 NCCL_DEBUG=INFO {environment} exec $BUILD/cmake/{TOOLS}/nccl_harness --plugin $BUILD/cmake/{plugin} --json {options}"


def run(t: Guests, plugin: str, options: str, environment: str = "") -> tuple[dict, list[str]]:
    """What rank 0 printed, and what each end logged."""
    port = free_port()
    line = command(plugin, options, environment)
    jobs = [t.start(0, f"{line} --listen {port}", LIMIT_S)]
    t.wait_listening(0, port)
    jobs.append(t.start(1, f"{line} --join $PEER:{port} --rank 1", LIMIT_S))
    results = [job.wait() for job in jobs]
    if not all(r.ok for r in results):
        raise Failed("\n".join(f"node{n} ended with {r.status}: {r.stdout}{r.stderr[-3000:]}" for n, r in enumerate(results)))
    return json.loads(results[0].stdout), [r.stderr for r in results]


def all_back(t: Guests) -> None:
    for node in (0, 1):
        t.run(node, "until $BUILD/cmake/selftests/vm/programs/accel_check info | grep -q '\"buffers\":0'; do sleep 0.2; done", LIMIT_S)


def test_messages(t: Guests) -> None:
    result, logs = run(t, OURS, f"--case properties,device {ACCELERATOR}", "TCPQP_DEVICE_MEMORY=1")
    t.equal([c["ok"] for c in result["cases"]], [True, True], str(result))
    for node, log in enumerate(logs):
        t.check("NCCL_PROTO=Simple is set" in log, f"node{node}: LL stays allowed in a GPU's memory: {log[-2000:]}")
        t.check("engine offload" in log, f"node{node}: the log does not say that placement is used: {log[-2000:]}")
    all_back(t)


def test_collectives_touched_by_no_cpu(t: Guests) -> None:
    rows = run(t, OURS, COLLECTIVES, "TCPQP_DEVICE_MEMORY=1")[0]["rows"]
    t.equal([(r["operation"], r["bytes"]) for r in rows if r["wrong"]], [], "wrong values")
    t.equal([(r["operation"], r["touched_bytes"]) for r in rows if r["touched_bytes"]], [], "bytes of accelerators' memory that CPUs touched")
    all_back(t)


def test_collectives_of_sockets_are_counted(t: Guests) -> None:
    """The same by a plugin that has to copy: right, too, and the counter sees it."""
    rows = run(t, SOCKETS, f"{COLLECTIVES} --operation all_reduce")[0]["rows"]
    t.equal([(r["operation"], r["bytes"]) for r in rows if r["wrong"]], [], "wrong values")
    t.check(max(r["touched_bytes"] for r in rows) > 0, f"no CPU touched what sockets received: {rows}")
    all_back(t)


def test_needs_the_engine_that_reaches_it(t: Guests) -> None:
    """NCCL is told of no device memory where the engine does not get to it, and stages then."""
    result = t.fails(0, command(OURS, f"--case device {ACCELERATOR}", "TCPQP_DEVICE_MEMORY=1 TCPQP_ENGINE=stock"), LIMIT_S)
    t.check("it takes no dma-bufs of GPUs" in result.stderr, f"{result.stdout}{result.stderr}")
    t.check("needs TCPQP_ENGINE=offload" in result.stderr, f"the plugin does not say why: {result.stderr}")
