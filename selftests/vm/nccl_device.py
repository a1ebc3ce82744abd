# SPDX-License-Identifier: BSD-3-Clause
"""NCCL's plugin with a GPU's memory, which an accelerator's is here: by its dma-bufs, and no CPU touches it."""

import pytest

from harness.guests import Guests
from harness.needs import Needs
from vm.accel import MIB
from vm.nccl import OURS, harness_command, run_ranks

TOOLS = "tools/nccl_harness"
NEEDS = Needs(
    modules=("tcp_qp", "nupa_dev", "nupa_accel"), setup="full", accelerator_mib=MIB,
    programs=(f"{TOOLS}/nccl_harness", f"{TOOLS}/libnccl-net-socketlike.so", OURS, "selftests/vm/programs/accel_check"),
)  # fmt: skip
pytestmark = pytest.mark.needs(NEEDS)

SOCKETS = f"{TOOLS}/libnccl-net-socketlike.so"
ACCELERATOR = "--accelerator /dev/nupa_accel0"
COLLECTIVES = f"--measure --least 64K --most 512K --iterations 1 {ACCELERATOR}"
LIMIT_S = 120


def run(t: Guests, plugin: str, options: str, environment: str = "") -> tuple[dict, list[str]]:
    line = harness_command(environment, options, plugin)
    return run_ranks(t, (line, line))


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
    result = t.fails(0, harness_command("TCPQP_DEVICE_MEMORY=1 TCPQP_ENGINE=stock", f"--case device {ACCELERATOR}"), LIMIT_S)
    t.check("it takes no dma-bufs of GPUs" in result.stderr, f"{result.stdout}{result.stderr}")
    t.check("needs TCPQP_ENGINE=offload" in result.stderr, f"the plugin does not say why: {result.stderr}")
