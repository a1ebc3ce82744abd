# SPDX-License-Identifier: BSD-3-Clause
"""rdma_cm: listen, connect, accept, reject, private data, disconnect; strays and sudden ends harm nobody."""

import json

import pytest

from harness.guests import Failed, Guests
from harness.needs import Needs
from harness.traffic import free_port

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("selftests/vm/programs/cm_exchange",), setup="full")
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]

PROGRAM = "$BUILD/cmake/selftests/vm/programs/cm_exchange"
STRAYS = "$REPO/selftests/vm/programs/strays.py"
LIMIT_S = 60
ADDRESSES = {"ipv4": "10.77.0.1", "ipv6": "fd77::1"}


def counter(t: Guests, node: int, name: str) -> int:
    words = t.run(node, "rdma statistic show link tcpqp0/1").split()
    return int(words[words.index(name) + 1])


def host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def serve(t: Guests, options: str = "", address: str = "", port: int = 0, ports: int = 1):
    """A server on node 0: its job and port."""
    port = port or free_port()
    where = f"{address}:{port}" if address else f"{port}"
    job = t.start(0, f"exec {PROGRAM} --listen {where} --ports {ports} {options}", LIMIT_S)
    t.wait_listening(0, port + ports - 1)
    return job, port


def connect(t: Guests, port: int, options: str = "", address: str = ADDRESSES["ipv4"]) -> dict:
    return json.loads(t.run(1, f"{PROGRAM} --connect {address}:{port} {options}", LIMIT_S))


def served(t: Guests, job) -> dict:
    result = job.wait()
    if not result.ok:
        raise Failed(f"server ended with {result.status}: {result.stderr}")
    return json.loads(result.stdout)


def exchange(t: Guests, server_options: str = "", client_options: str = "", listen: str = "", to: str = "10.77.0.1", count: int = 1) -> None:
    job, port = serve(t, f"--count {count} {server_options}", listen)
    connect(t, port, f"--count {count} {client_options}", to)
    ended = served(t, job)
    t.equal((ended["accepted"], ended["ended"]), (count, count), "connections accepted and ended")


def test_ipv4(t: Guests) -> None:
    exchange(t, listen="10.77.0.1")


def test_ipv6(t: Guests) -> None:
    exchange(t, listen="fd77::1", to="fd77::1")


def test_wildcards(t: Guests) -> None:
    exchange(t, listen="0.0.0.0")
    exchange(t, listen="::", to="fd77::1")
    exchange(t, listen="::", to="10.77.0.1")


def test_private_data_of_all_sizes(t: Guests) -> None:
    for request, reply in ((0, 0), (1, 255), (255, 1), (56, 56)):
        options = f"--private-bytes {request} --reply-bytes {reply}"
        exchange(t, options, options)


def test_server_disconnects(t: Guests) -> None:
    exchange(t, "--server-disconnects", "--server-disconnects", count=5)


def test_reject_with_private_data(t: Guests) -> None:
    for address in ADDRESSES.values():
        job, port = serve(t, "--reject --count 3", address)
        connect(t, port, "--reject --count 3 --expect RDMA_CM_EVENT_REJECTED", address)
        t.equal(served(t, job)["rejected"], 3, "rejected")


def test_nobody_listens(t: Guests) -> None:
    took = connect(t, 9, "--expect RDMA_CM_EVENT_REJECTED")["seconds"]
    t.check(took < 5, f"being refused took {took} s")


def test_listener_that_knows_no_rdma(t: Guests) -> None:
    port = free_port()
    for answer in ("printf 'HTTP/1.0 400 no\\r\\n\\r\\n'", "true", "head -c 100000 /dev/urandom"):
        job = t.start(0, f"{answer} | busybox nc -l -p {port}", 20)
        t.wait_listening(0, port)
        connect(t, port, "--expect RDMA_CM_EVENT_REJECTED")
        job.wait()


@pytest.mark.long
def test_listener_that_never_answers(t: Guests) -> None:
    port = free_port()
    job = t.start(0, f"sleep 55 | busybox nc -l -p {port}", 60)
    t.wait_listening(0, port)
    took = connect(t, port, "--expect RDMA_CM_EVENT_UNREACHABLE --timeout 50")["seconds"]
    t.check(25 < took < 45, f"giving up took {took} s")
    job.kill()
    job.wait()


def test_port_in_use(t: Guests) -> None:
    port = free_port()
    job = t.start(0, f"busybox nc -l -p {port}", 20)
    t.wait_listening(0, port)
    result = t.fails(0, f"{PROGRAM} --listen {port}")
    t.check("in use" in result.stderr, result.stderr)
    job.kill()
    job.wait()
    server, port = serve(t, "--hold")
    t.fails(0, f"timeout 5 busybox nc -l -p {port}")
    server.kill()
    server.wait()


def test_hundred_connections(t: Guests) -> None:
    t.run(0, "echo scan > /sys/kernel/debug/kmemleak 2>/dev/null || true")
    before = [counter(t, node, "cm_established") for node in (0, 1)]
    exchange(t, count=100)
    t.equal([counter(t, node, "cm_established") - b for node, b in enumerate(before)], [100, 100], "established")


def test_many_ports(t: Guests) -> None:
    job, port = serve(t, "--count 80", ports=40)
    connect(t, port, "--ports 40 --count 80")
    t.equal(served(t, job)["ended"], 80, "connections ended")


def test_strays_keep_nobody_out(t: Guests) -> None:
    before = {name: counter(t, 0, name) for name in ("cm_garbage", "cm_evicted")}
    job, port = serve(t, "--count 5 --private-bytes 0")  # some strays' requests are quite right
    strays = t.start(1, f"sleep 30 | {STRAYS} 10.77.0.1 {port} 100 60", 50)
    t.wait_output(strays, "ready", 40)
    connect(t, port, "--count 5 --private-bytes 0")
    t.equal(served(t, job)["ended"], 5, "real clients served among strays")
    for name, was in before.items():
        t.check(counter(t, 0, name) > was, f"{name} did not move")
    strays.kill()
    strays.wait()


def test_strays_are_dropped_in_time(t: Guests) -> None:
    before = counter(t, 0, "cm_timeouts")
    job, port = serve(t, "--hold")
    strays = t.start(1, f"sleep 30 | {STRAYS} 10.77.0.1 {port} 10 0", 50)
    t.run(0, f"until [ $(ss -Htn 'sport = :{port}' | wc -l) -ge 10 ]; do sleep 0.1; done", 10)
    t.run(0, f"until [ $(ss -Htn state established 'sport = :{port}' | wc -l) = 0 ]; do sleep 0.2; done", 15)
    t.equal(counter(t, 0, "cm_timeouts") - before, 10, "timeouts")
    for each in (strays, job):
        each.kill()
        each.wait()


def holding(t: Guests, address: str = "10.77.0.1", options: str = ""):
    """A server and a client that do nothing but be connected."""
    before = counter(t, 1, "cm_established")
    server, port = serve(t, "--hold --count 1", address)
    client = t.start(1, f"exec {PROGRAM} --connect {address}:{port} --hold {options}", LIMIT_S)
    t.run(1, f"until rdma statistic show link tcpqp0/1 | grep -q 'cm_established {before + 1} '; do sleep 0.1; done", 20)
    t.run(0, "until rdma resource show qp link tcpqp0/1 | grep -q RTS; do sleep 0.1; done", 20)
    return server, client


def test_client_is_killed(t: Guests) -> None:
    server, client = holding(t)
    t.run(1, "pkill -9 -x cm_exchange")
    t.check(client.wait().status != 0, "a killed client has no success")
    t.equal(served(t, server)["ended"], 1, "the server was told")


def test_server_is_killed(t: Guests) -> None:
    server, client = holding(t)
    t.run(0, "pkill -9 -x cm_exchange")
    t.check(server.wait().status != 0, "a killed server has no success")
    result = client.wait()
    t.check(result.ok, f"the client was told: {result.stderr}")


@pytest.mark.parametrize(("address", "name"), (("10.77.0.1", "tos"), ("fd77::1", "tclass")), ids=("ipv4", "ipv6"))
def test_type_of_service(t: Guests, address: str, name: str) -> None:
    server, client = holding(t, address, "--tos 32")
    shown = t.run(1, "ss -Htn --tos state established")
    t.run(1, "pkill -9 -x cm_exchange")
    client.wait()
    served(t, server)
    t.check(f"{name}:0x20" in shown, shown)


def test_client_is_killed_while_connecting(t: Guests) -> None:
    port = free_port()
    silent = t.start(0, f"sleep 30 | busybox nc -l -p {port}", 40)
    t.wait_listening(0, port)
    client = t.start(1, f"exec {PROGRAM} --connect 10.77.0.1:{port}", LIMIT_S)
    t.run(1, f"until ss -Htn state established 'dport = :{port}' | grep -q .; do sleep 0.1; done; pkill -9 -x cm_exchange", 20)
    t.check(client.wait().status != 0, "a killed client has no success")
    silent.kill()
    silent.wait()


def test_device_leaves(t: Guests) -> None:
    for node in (0, 1):
        server, client = holding(t)
        t.run(node, "rdma link delete tcpqp0")
        for job in (server, client):
            result = job.wait()
            t.check(result.status < 124, f"ended with {result.status} when the device left: {result.stderr}")
        t.run(node, "rdma link add tcpqp0 type tcp_qp netdev nupa0; sh $REPO/tools/vm/guest/mkdev")
    exchange(t)


def test_network_namespace(t: Guests) -> None:
    inside = "ip netns exec quiet"
    t.run(0, "ip netns add quiet; ip link set nupa0 netns quiet")  # the RDMA device goes, its netdev left
    t.run(0, "until [ ! -e /sys/class/infiniband/tcpqp0 ]; do sleep 0.1; done", 20)
    t.run(0, f"{inside} sh -c 'ip link set lo up; ip link set nupa0 up; ip address add 10.77.0.1/24 dev nupa0;"
             " rdma link add tcpqp0 type tcp_qp netdev nupa0'; sh $REPO/tools/vm/guest/mkdev")  # fmt: skip
    port = free_port()
    server = t.start(0, f"exec {inside} {PROGRAM} --listen {port} --count 2", LIMIT_S)
    t.run(0, f"until {inside} ss -Hltn 'sport = :{port}' | grep -q .; do sleep 0.1; done", 20)
    t.equal(t.run(0, f"ss -Hltn 'sport = :{port}'"), "", "listeners outside the namespace")
    connect(t, port, "--count 2")
    t.equal(served(t, server)["ended"], 2, "connections ended")
    t.run(0, "ip -n quiet link set nupa0 netns 1; ip netns del quiet; until [ -e /sys/class/net/nupa0 ]; do sleep 0.1; done", 20)
    t.run(0, "until [ ! -e /sys/class/infiniband/tcpqp0 ]; do sleep 0.1; done; sh $REPO/tools/vm/guest/setup full", 30)
    exchange(t)


def test_module_leaves_under_listen(t: Guests) -> None:
    told, _ = serve(t, "--hold", "10.77.0.1")
    stays, port = serve(t, "--count 1")  # a wildcard waits for devices to come
    t.run(0, "rdma link delete tcpqp0; rmmod nupa_dev")
    result = told.wait()
    t.check(result.ok and json.loads(result.stdout)["removed"] == 1, f"a server was told: {result.status} {result.stderr}")
    t.run(0, "rmmod tcp_qp; sh $REPO/tools/vm/guest/setup full")
    connect(t, port)
    t.equal(served(t, stays)["ended"], 1, "connections ended after the device came back")
