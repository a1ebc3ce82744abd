# SPDX-License-Identifier: BSD-3-Clause
"""libtcpqp with the module and without, the choice between them, and what each end is told."""

import json
import re

import pytest

from harness.guests import Failed, Guests
from harness.needs import Needs, on_debug_kernel
from harness.traffic import free_port, sysctl

EXAMPLES = tuple(f"user/libtcpqp/examples/tcpqp_{name}" for name in ("echo", "hello", "pipe"))
PROGRAMS = ("selftests/vm/programs/lib_exchange", "selftests/vm/programs/lib_waiter", *EXAMPLES, "tools/tcpqp_perf/tcpqp_perf")
NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=PROGRAMS, setup="full")
pytestmark = pytest.mark.needs(NEEDS)

EXCHANGE = "$BUILD/cmake/selftests/vm/programs/lib_exchange"
WAITER = "$BUILD/cmake/selftests/vm/programs/lib_waiter"
HELLO = "$BUILD/cmake/user/libtcpqp/examples/tcpqp_hello"
PIPE = "$BUILD/cmake/user/libtcpqp/examples/tcpqp_pipe"
PERF = "$BUILD/cmake/tools/tcpqp_perf/tcpqp_perf"
ECHO = "$BUILD/cmake/user/libtcpqp/examples/tcpqp_echo"
INLINE_BYTES = 128  # messages this short are copied into the send queue
HUGE_PAGES = 8  # of 2 MiB
PORT = free_port()
SAID = re.compile(r"done \((?P<reason>\w+)\): (?P<engine>\w+), (?P<received>\d+) bytes received, (?P<placed>\d+) placed by the switch, (?P<copied>\d+) copied")
SLEPT = re.compile(r"^slept (\d+)$", re.MULTILINE)


def run_both(t: Guests, listener: str, connector: str, engines: tuple[str, str], port: int) -> list:
    """How both ended; @engines are values of TCPQP_ENGINE, "" for none."""
    jobs = [t.start(0, f"TCPQP_ENGINE={engines[0]} exec {listener}")]
    t.wait_listening(0, port)
    jobs.append(t.start(1, f"TCPQP_ENGINE={engines[1]} exec {connector}"))
    return [job.wait() for job in jobs]


def exchange(t: Guests, engines: tuple[str, str], options: str = "", listener: str = "") -> list[dict]:
    port = free_port()
    results = run_both(t, f"{EXCHANGE} --port {port} {options} {listener}", f"{EXCHANGE} --port {port} --connect $PEER {options}", engines, port)
    if not all(r.ok for r in results):
        raise Failed("\n".join(f"node{n} ended with {r.status}: {r.stderr}" for n, r in enumerate(results)))
    return [json.loads(r.stdout) for r in results if r.stdout]


def echo(t: Guests, engines: tuple[str, str], address: str = "$PEER", count: int = 60, size: int = 20000, under: str = "") -> list[dict]:
    """What both ends say of themselves, and the program under which they run, if it is given."""
    port = free_port()
    listener, connector = f"{under} {ECHO} {port}", f"{under} {ECHO} {address} {port} {count} {size}"
    ends = []
    for node, result in enumerate(run_both(t, listener, connector, engines, port)):
        said = SAID.search(result.stdout)
        if not result.ok or said is None:
            raise Failed(f"node{node} ended with {result.status}: {result.stdout}{result.stderr}")
        ends.append({key: int(value) if value.isdigit() else value for key, value in said.groupdict().items()})
        if slept := SLEPT.search(result.stdout):
            ends[-1]["slept"] = int(slept[1])
        t.equal(ends[-1]["received"], count * size, f"node{node}: bytes received")
        t.equal(ends[-1]["placed"] + ends[-1]["copied"], count * size, f"node{node}: placed + copied")
    return ends


def test_the_readme(t: Guests) -> None:
    """What a newcomer sees: the same messages, and on offload no byte copied."""
    for engine, last in (("", "offload: 27 bytes received, 0 copied"), ("stock", "stock: 27 bytes received, 27 copied")):
        port = free_port()
        receiver, _ = run_both(t, f"{HELLO} {port}", f"{HELLO} {port} $PEER", (engine, engine), port)
        t.equal((receiver.stdout, receiver.stderr.strip()), ("message 0\nmessage 1\nmessage 2\n", last), f"engine {engine or 'auto'}")


def test_echo_on_offload_copies_nothing(t: Guests) -> None:
    for node, end in enumerate(echo(t, ("offload", "offload"))):
        t.equal((end["engine"], end["copied"]), ("offload", 0), f"node{node}: {end}")


def test_echo_on_software(t: Guests) -> None:
    for node, end in enumerate(echo(t, ("software", "software"))):
        t.equal((end["engine"], end["placed"]), ("software", 0), f"node{node}: {end}")


def round_trips(t: Guests, sends: int) -> float:
    """Of half a round trip the typical time, us."""
    perf, port = f"TCPQP_ENGINE=offload exec {PERF}", free_port()
    server = t.start(0, f"{perf} -s 64 -p {port} --once", 60)
    t.wait_listening(0, port)
    said = json.loads(t.run(1, f"{perf} lat -s 64 -n 500 -N 3 -t {sends} -p {port} --out_json $PEER", 60))
    t.check(server.wait().ok, "the server")
    return said[0]["queue_pair"]["typical_us"]


@pytest.mark.long
@pytest.mark.parametrize("sends", (1, 4, 64))
def test_round_trips_with_few_sends(t: Guests, sends: int) -> None:
    """The answer may be here before its question is done."""
    round_trips(t, sends)


@pytest.mark.long
@pytest.mark.parametrize("sends", (1, 4, 64))
def test_few_sends_are_acknowledged_in_time(t: Guests, sends: int) -> None:
    """On a machine with processors for all who spin: beside other work each turn lasts for milliseconds, plain TCP's as well if it spins."""
    us = round_trips(t, sends)
    t.check(us < 2000 or on_debug_kernel(), f"{us} us for half a round trip")


BUSY_POLLED = "TcpExtBusyPollRxPackets"
COUNTS_SLEEPS = (
    "python3 -c 'import resource, subprocess, sys; ended = subprocess.run(sys.argv[1:]).returncode; "
    "print(\"slept\", resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw); sys.exit(ended)'"
)


BUSY_READ = "net.core.busy_read"  # what sockets that are made meanwhile have as SO_BUSY_POLL


@pytest.mark.long
@pytest.mark.parametrize("engine", ("offload", "software"))
def test_busy_polling(t: Guests, engine: str) -> None:
    """Who waits for a queue pair looks for himself, if its socket has SO_BUSY_POLL: into the NIC's queue, or at the ring to which the NIC writes."""
    count = 300  # beside some 150 sleeps of a program that begins and ends
    echo(t, (engine, engine), count=count)  # the programs' pages are here from now on
    polled, slept = {}, {}
    for us in (0, 200_000):
        before = [t.nstat(node, BUSY_POLLED) for node in (0, 1)]
        with sysctl(t, BUSY_READ, us):
            ends = echo(t, (engine, engine), count=count, under=COUNTS_SLEEPS)
        polled[us] = [t.nstat(node, BUSY_POLLED) - was for node, was in enumerate(before)]
        slept[us] = [end["slept"] for end in ends]
    with sysctl(t, BUSY_READ, 10**6):  # more than the wait's limit, which holds all the same
        exchange(t, (engine, engine), "--messages 30 --in-vain-ms 300")
    # a close and a query look once
    t.check(sum(polled[0]) <= 4, f"packets, with nobody who asked for it: {polled[0]}")
    t.check(sum(slept[200_000]) <= sum(slept[0]) - count / 2, f"sleeps {slept} with {count} messages each way")
    if engine == "software":  # all its messages come by the NIC's queue
        t.check(sum(polled[200_000]) >= count / 4, f"packets that waiters found: {polled[200_000]} of {count} messages each way")


def test_the_choice(t: Guests) -> None:
    for node, end in enumerate(echo(t, ("", ""))):
        t.equal(end["engine"], "offload", f"node{node}: {end}")
    mixed = echo(t, ("", "software"))
    t.equal([end["engine"] for end in mixed], ["offload", "software"], "one end forced")
    for node, end in enumerate(echo(t, ("", "stock"))):
        t.equal(end["engine"], "stock", f"node{node}: {end}")
        t.equal(end["placed"], 0, f"node{node}: {end}")


def test_no_device_on_the_way(t: Guests) -> None:
    """Loopback has no tcp_qp device: stock, and both programs are told why."""
    port = free_port()
    t.run(0, f"({ECHO} {port} >/tmp/echo.out 2>&1 &)")
    t.wait_listening(0, port)
    said = SAID.search(t.run(0, f"{ECHO} 127.0.0.1 {port} 20 3000"))
    t.check(said is not None, "the client said nothing")
    t.equal((said["engine"], said["reason"]), ("stock", "NO_DEVICE"), "engine and reason")
    refused = t.fails(0, f"TCPQP_ENGINE=offload {EXCHANGE} --port {port} --connect 127.0.0.1 & "
                         f"TCPQP_ENGINE=offload {EXCHANGE} --port {port}; status=$?; wait; exit $status")  # fmt: skip
    t.check("[NO_DEVICE]" in refused.stderr, f"forced offload without a device: {refused.stderr}")


def test_peer_without_a_queue_pair(t: Guests) -> None:
    port = free_port()
    listener = t.start(0, f"timeout 20 python3 -c 'import socket; s = socket.create_server((\"\", {port})); c, _ = s.accept(); c.recv(1)'")
    t.wait_listening(0, port)
    refused = t.fails(1, f"TCPQP_ENGINE=software {EXCHANGE} --port {port} --connect $PEER --timeout-ms 1500")
    t.check("[NO_PEER_QP]" in refused.stderr, f"reason: {refused.stderr}")
    listener.wait()


def test_every_byte_on_each_pair_of_engines(t: Guests) -> None:
    for engines in (("offload", "offload"), ("software", "offload"), ("stock", "stock")):
        for node, end in enumerate(exchange(t, engines)):
            what = f"{engines}, node{node}: {end}"
            t.equal((end["engine"], end["sent"], end["received"]), (engines[node], 100, 100), what)
            t.equal(end["placed"] + end["copied"], end["rx_bytes"], what)
            if engines == ("offload", "offload"):
                # a message that comes before its receive was posted again is copied
                t.check(end["placed"] > 0.9 * end["rx_bytes"], what)
                t.check(0 <= end["tx_bytes"] - end["tx_zerocopy"] <= end["sent"] * INLINE_BYTES, what)


def memory(t: Guests, runs: tuple[tuple[str, str], ...]) -> None:
    """Huge pages are registered like any; dma-bufs by the public call, named by address and by offset."""
    t.cluster.run_all(f"sysctl -qw vm.nr_hugepages={HUGE_PAGES}; modprobe -q udmabuf || true", check=True)
    try:
        for engine, kind in runs:
            for node, end in enumerate(exchange(t, (engine, engine), f"--messages 40 --memory {kind}")):
                what = f"{engine}, {kind}, node{node}: {end}"
                t.equal((end["engine"], end["sent"], end["received"]), (engine, 40, 40), what)
                if engine == "offload":
                    t.check(end["placed"] > 0.9 * end["rx_bytes"], what)
    finally:
        t.cluster.run_all("sysctl -qw vm.nr_hugepages=0", check=True)


def test_memory(t: Guests) -> None:
    memory(t, (("offload", "udmabuf"), ("offload", "offsets"), ("stock", "udmabuf")))


@pytest.mark.long
def test_memory_of_each_kind(t: Guests) -> None:
    memory(t, tuple((engine, kind) for engine in ("offload", "software", "stock") for kind in ("huge", "udmabuf", "dma-heap")) + (("software", "offsets"),))
    refused = run_both(t, *(f"{EXCHANGE} --port {PORT} --memory offsets {to}" for to in ("", "--connect $PEER")), ("stock", "stock"), PORT)
    for node, end in enumerate(refused):
        t.check(end.status == 1 and "register a dma-buf: Operation not supported" in end.stderr, f"node{node}, stock, no mapping: {end}")


def pipe(t: Guests, engine: str, sizes: tuple[int, int]) -> list[dict]:
    """A file each way by the stream calls; what each end said of the bytes that it received."""
    port = free_port()
    for node, size in enumerate(sizes):
        t.run(node, f"head -c {size} /dev/urandom >/tmp/pipe.in; rm -f /tmp/pipe.out")
    ends = [f"{PIPE} {to} {port} </tmp/pipe.in >/tmp/pipe.out" for to in ("", "$PEER")]
    results = run_both(t, *ends, (engine, engine), port)
    sums = [[line.split()[0] for line in t.run(node, "sha256sum /tmp/pipe.in /tmp/pipe.out").splitlines()] for node in (0, 1)]
    t.equal(sums[0], sums[1][::-1], f"{engine}: {results}")
    words = [re.search(r"done: (?P<engine>\w+), (?P<received>\d+) bytes received, (?P<copied>\d+) copied", r.stderr) for r in results]
    t.check(all(words) and all(r.ok for r in results), f"{engine}: {results}")
    return [{key: int(value) if value.isdigit() else value for key, value in w.groupdict().items()} for w in words]


def streams(t: Guests, engine: str, sizes: tuple[int, int]) -> None:
    """Into receives that are posted the switch places every byte; of a long stream all but what overtook the reader."""
    for node, end in enumerate(pipe(t, engine, sizes)):
        what = f"{engine}, node{node}: {end}"
        t.equal((end["engine"], end["received"]), (engine, sizes[1 - node]), what)
        if engine == "offload":
            t.check(end["copied"] <= (0 if max(sizes) < 1_000_000 else 0.1 * end["received"]), what)


def test_streams(t: Guests) -> None:
    streams(t, "offload", (900_001, 200_000))
    streams(t, "offload", (4_000_003, 17))


@pytest.mark.long
def test_streams_of_each_engine(t: Guests) -> None:
    for engine in ("offload", "software", "stock"):
        streams(t, engine, (20_000_003, 3_000_000))


def test_peer_that_leaves(t: Guests) -> None:
    """The process is gone in the middle: the other's posted work completes, with a reason."""
    for engine in ("offload", "software", "stock"):
        (end,) = exchange(t, (engine, engine), "--messages 100000", listener="--leave-after 40")
        t.equal(end["status"], -125, f"{engine}: posted work is canceled: {end}")
        t.check(end["reason"] in ("PEER_CLOSED", "PROTOCOL", "RESET", "CLOSED", "TRUNCATED"), f"{engine}: {end}")


def test_who_waits_is_woken_by_another_thread(t: Guests) -> None:
    """By the release of an unsent view, and by the end of a connection that has no work posted."""
    for engine in ("offload", "software"):
        port = free_port()
        results = run_both(t, f"{WAITER} --port {port}", f"{WAITER} --port {port} --connect $PEER", (engine, engine), port)
        for node, result in enumerate(results):
            t.check(result.ok and result.stdout.strip() == engine, f"{engine}, node{node}: {result.stdout}{result.stderr}")


@pytest.mark.long
def test_post_and_wait_in_one_call(t: Guests) -> None:
    """TCPQP_F_MORE: receives and a send wait for tcpqp_wait(), which hands them over; nothing stays behind."""
    for engine in ("offload", "software", "stock"):
        port = free_port()
        server = t.start(0, f"exec {PERF} -p {port} --once -E {engine}")
        t.wait_listening(0, port)
        (row,) = json.loads(t.run(1, f"{PERF} lat -s 64 -n 300 -N 2 --out_json -p {port} -E {engine} $PEER"))
        t.equal((row["engine"], row["messages"]), (engine, 300), "engine and messages of a round")
        t.check(server.wait().ok, f"{engine}: the server")
