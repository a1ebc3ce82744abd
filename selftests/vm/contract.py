# SPDX-License-Identifier: BSD-3-Clause
"""The calls of kernel/include/tqp_offload.h, in right and wrong orders, against each provider; selftests/vm/modules/offload_contract.

The module takes tcp_qp's place on the auxiliary bus.
"""

import re
from dataclasses import replace

import pytest

from harness.guests import Guests
from harness.needs import Needs
from vm import provider
from vm.provider import MODULE, UP, softnics

CONTRACT = "$KO/tests/offload_contract/offload_contract.ko"
CASES = 9
NEEDS = replace(provider.NEEDS, modules=("tcp_qp", "tests/softnic", "tests/offload_contract"), programs=())
pytestmark = pytest.mark.needs(NEEDS)
NUPA = Needs(modules=("tcp_qp", "nupa_dev", "tests/offload_contract"), setup="full")
BACK = "insmod $KO/tcp_qp/tcp_qp.ko"


def said(t: Guests, since: int = 0) -> list[str]:
    return [line.split("offload_contract: ", 1)[1] for line in t.kernel_log(0).splitlines() if "offload_contract: " in line][since:]


def holds(t: Guests, netdevs: tuple[str, ...]) -> None:
    """All cases, with tcp_qp out of the way."""
    before = len(said(t))
    t.run(0, f"insmod {CONTRACT}; rmmod offload_contract")
    lines = said(t, before)
    for netdev in netdevs:
        told = [line.removeprefix(f"{netdev}: ") for line in lines if line.startswith(f"{netdev}: ")]
        passed = [line for line in told if re.fullmatch(r"ok \w+", line)]
        t.check(len(passed) == CASES and "0 failed" in told, f"{netdev}: {told}")


def test_softnic(t: Guests) -> None:
    t.run(0, f"rmmod tcp_qp; insmod {MODULE}")
    try:
        holds(t, ("soft0", "soft1"))
    finally:
        t.run(0, f"rmmod softnic; {BACK}")


@pytest.mark.needs(NUPA)
def test_nupa_dev(t: Guests) -> None:
    t.run(0, "rmmod tcp_qp")
    try:
        holds(t, ("nupa0",))
    finally:
        t.run(0, f"{BACK}; rdma link add tcpqp0 type tcp_qp netdev nupa0; sh $REPO/tools/vm/guest/mkdev")


def test_provider_without_operations(t: Guests) -> None:
    """tcp_qp does not bind to it, and the RDMA device of its netdev is one without offload."""
    before = len(said(t))
    with softnics(t):
        t.run(0, f"insmod {CONTRACT} incomplete=lo; rmmod offload_contract")
    t.equal(said(t, before), ["lo: without operations, not bound"], "what came of it")


@pytest.mark.needs(provider.NEEDS)
def test_provider_comes_after_the_rdma_device(t: Guests) -> None:
    """An RDMA device that found no provider has none for its life; one that is made anew finds it."""
    t.run(0, f"ip netns add far; rmmod tcp_qp; insmod {MODULE} && ip link set soft1 netns far")
    t.run(0, f"echo 0 >/sys/bus/auxiliary/drivers_autoprobe; {BACK} && {{ {UP} }}")
    try:
        counters = provider.exchange(t, "--messages 20 --seed 47", engine="auto")
        t.equal([c["engine"] for c in counters], [1, 1], "engines, before tcp_qp had the provider")
        t.run(0, "cd /sys/bus/auxiliary; for d in devices/tqp_offload.qp.*; do echo ${d##*/} >drivers_probe; done")
        counters = provider.exchange(t, "--messages 20 --seed 48", engine="auto")
        t.equal([c["engine"] for c in counters], [1, 1], "engines of RDMA devices that were there before")
        t.run(0, "rdma link delete tcpqp8; rdma link delete tcpqp9")
        t.run(0, UP)
        provider.mostly_placed(t, provider.exchange(t, "--messages 60 --seed 49"))
    finally:
        t.run(0, "echo 1 >/sys/bus/auxiliary/drivers_autoprobe; rmmod softnic; ip netns delete far")
