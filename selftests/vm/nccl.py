# SPDX-License-Identifier: BSD-3-Clause
"""NCCL's plugin between guests, driven by nccl_harness: the 15 cases on the module's engines, and with a bad fabric."""

import json

import pytest

from harness.busy import shown
from harness.guests import Failed, Guests
from harness.needs import Needs
from harness.traffic import free_port

from vm.completions import counted

NEEDS = Needs(
    modules=("tcp_qp", "nupa_dev"), programs=("tools/nccl_harness/nccl_harness", "user/nccl/libnccl-net-tcpqp.so"), setup="full",
)  # fmt: skip
pytestmark = pytest.mark.needs(NEEDS)

OURS = "user/nccl/libnccl-net-tcpqp.so"
CASES = 15
LIMIT_S = 180
SHORT_MESSAGES = 1000
SLOW_US = 2000
FAULTS = {"loss": 0.01, "reorder": 0.05, "seed": 41}


def harness_command(environment: str, options: str, plugin: str = OURS) -> str:
    """nccl_harness with a plugin, by its path in the build."""
    harness = "exec $BUILD/cmake/tools/nccl_harness/nccl_harness"
    return f"NCCL_SOCKET_IFNAME=nupa0 NCCL_DEBUG=INFO {environment} {harness} --plugin $BUILD/cmake/{plugin} --json {options}"


def run_ranks(t: Guests, commands: tuple[str, str], limit_s: float = LIMIT_S) -> tuple[dict, list[str]]:
    """A rank on each node.  What rank 0 printed, and what each logged."""
    port = free_port()
    jobs = [t.start(0, f"{commands[0]} --listen {port}", limit_s)]
    t.wait_listening(0, port)
    jobs.append(t.start(1, f"{commands[1]} --join $PEER:{port} --rank 1", limit_s))
    results = [job.wait() for job in jobs]
    if not all(r.ok for r in results):
        raise Failed("\n".join(f"node{n} ended with {r.status}: {r.stdout}{r.stderr[-3000:]}" for n, r in enumerate(results)))
    return json.loads(results[0].stdout), [r.stderr for r in results]


def run(t: Guests, engines: tuple[str, str], options: str = "", limit_s: float = LIMIT_S) -> tuple[dict, list[str]]:
    first, second = (harness_command(f"TCPQP_ENGINE={engine}", options) for engine in engines)
    return run_ranks(t, (first, second), limit_s)


def all_cases(t: Guests, engines: tuple[str, str], options: str = "") -> list[str]:
    result, logs = run(t, engines, options)
    t.equal([c["name"] for c in result["cases"] if not c["ok"]], [], f"{engines}: cases that failed: {result}")
    t.equal(len(result["cases"]), CASES, f"{engines}: cases")
    return logs


def test_cases_on_offload(t: Guests) -> None:
    for node, log in enumerate(all_cases(t, ("", ""))):
        t.check("engine offload" in log, f"node{node}: the log does not say that placement is used: {log[-2000:]}")


@pytest.mark.long
def test_cases_on_software(t: Guests) -> None:
    all_cases(t, ("software", "software"), "--no-self")


def test_old_nccl_polls_nothing_that_the_module_writes(t: Guests) -> None:
    """Before 2.24 NCCL does not say which receives a GPU polls, and neither engine of the module promises an order."""
    for engine in ("offload", "software"):
        _, logs = run(t, (engine, engine), "--no-self --api 8 --case connect")
        for node, log in enumerate(logs):
            t.check("NCCL_PROTO=Simple is set" in log, f"{engine}, node{node}: LL stays allowed: {log[-2000:]}")


def test_short_messages_need_few_acks(t: Guests) -> None:
    """Nobody waits for the acknowledgement of an eager message, which was copied: the receiver learns it.

    Where messages come hardly faster than TCP's timer of 4 ms ends, each has an ACK of its own in any case, and some are sent at once.
    """

    def attempt() -> tuple[bool, float, tuple[int, int]]:
        before = counted(t, 0, "rx_messages"), counted(t, 0, "rx_quick_acks")
        result, _ = run(t, ("", ""), f"--ranks 2 --measure --operation send_receive --least 8 --most 8 --iterations {SHORT_MESSAGES}")
        messages, acks = counted(t, 0, "rx_messages") - before[0], counted(t, 0, "rx_quick_acks") - before[1]
        t.check(messages >= SHORT_MESSAGES, f"{messages} messages")
        return acks < 0.2 * messages, round(result["rows"][0]["time_us"]), (acks, messages)

    shown(t, attempt, SLOW_US, "ACKs at once, and messages")


def under_faults(t: Guests, engine: str, options: str, limit_s: float = LIMIT_S) -> None:
    """Segments that are lost and that overtake each other: no flag of LL or LL128 is seen before its data."""
    for port in ("n0", "n1"):
        t.switch("faults", port=port, clear=True, set=FAULTS)
    try:
        result, _ = run(t, (engine, engine), f"{options} --no-self", limit_s)
        t.check(result["cases"] and all(c["ok"] for c in result["cases"]), f"{engine or 'offload'}: {result}")
    finally:
        for port in ("n0", "n1"):
            t.switch("faults", port=port, clear=True)


@pytest.mark.long
def test_polled_under_faults(t: Guests) -> None:
    under_faults(t, "", "--case polled,random")


@pytest.mark.long
def test_polled_under_faults_on_software(t: Guests) -> None:
    under_faults(t, "software", "--case polled,random")


@pytest.mark.long
@pytest.mark.parametrize("engine", ["offload", "software", "stock"])
def test_polled_for_ten_minutes(t: Guests, engine: str) -> None:
    under_faults(t, engine, "--case polled --seconds 600", 600 + LIMIT_S)
