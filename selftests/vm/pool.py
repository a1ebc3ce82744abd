# SPDX-License-Identifier: BSD-3-Clause
"""Mode cxl: memory of the switch's pool, who has what of it, and every way in which a lease ends."""

import errno
import json

import pytest

from harness.busy import nothing_copied, one_shows
from harness.guests import Guests
from harness.needs import Needs, debug_config, on_debug_kernel
from harness.traffic import free_port, ncqp
from vm.exchange import offload_pair
from vm.rdma import model, mostly_placed

TESTS = "selftests/vm/programs"
PROGRAMS = (
    *(f"{TESTS}/{name}" for name in ("pool_check", "lib_reference", "qp_exchange", "qp_rdma")), "tools/ncqp/ncqp", "tools/tcpqp_perf/tcpqp_perf",
    "user/libtcpqp/examples/tcpqp_pool",
)  # fmt: skip
MIB = 64
NEEDS = Needs(modules=("tcp_qp", "nupa_dev", "nupa_accel"), programs=PROGRAMS, setup="full", pool_mib=MIB, switch_args=("--watch", "always"))
pytestmark = [
    pytest.mark.needs(NEEDS),
    pytest.mark.beside,
    pytest.mark.skipif(on_debug_kernel() and "CONFIG_ZONE_DEVICE=y" not in debug_config(), reason="the debug kernel has no ZONE_DEVICE: build it anew"),
]
CHECK = "$BUILD/cmake/selftests/vm/programs/pool_check"
EXAMPLE, PERF = "$BUILD/cmake/user/libtcpqp/examples/tcpqp_pool", "$BUILD/cmake/tools/tcpqp_perf/tcpqp_perf"
COPIED = "cat /sys/class/infiniband/tcpqp0/ports/1/hw_counters/rx_copied_bytes"
DRIVER = "/sys/bus/pci/drivers/nupa_accel"
END_S = 60


def _leased(t: Guests) -> list[int]:
    """Bytes of each node, as the switch has them."""
    return [port["leased_bytes"] for port in t.switch("pool")["ports"]]


def _all_back(t: Guests) -> None:
    """Leases end in a work item of the driver: soon, not at once."""
    t.wait_until(lambda: t.switch("pool")["free_bytes"] == MIB << 20, "all leases are back")
    for node in (0, 1):
        info = json.loads(t.run(node, f"{CHECK} info"))
        t.equal(info["leases"], 0, f"node{node}: leases")


def test_programs(t: Guests) -> None:
    """What a program may not ask for, what it is given, and what it gives back; then many leases, and many processes that are killed."""
    t.run(0, f"{CHECK} attacks && {CHECK} churn 100 && {CHECK} killed 20 && {CHECK} handed 20", END_S)
    _all_back(t)


def test_pool_to_pool(t: Guests) -> None:
    """Each byte compared, none copied by a processor at either end."""

    def transfer() -> tuple[dict, dict]:
        tx, rx = ncqp(t, "offload", "--pool -v 251 -n 16M", "--pool -v 251")
        t.check(rx["validated"] and rx["ok"], f"not validated: {rx}")
        return tx, rx

    _, rx = nothing_copied(t, transfer)
    t.check(rx["placed_bytes"] >= 16 << 20, f"placed {rx['placed_bytes']}")
    _all_back(t)


def test_a_file_by_way_of_leases(t: Guests) -> None:
    """Read into a lease, placed into another one, and written from there."""
    source, copy = "/mnt/t/pool.in", "/mnt/t/pool.out"
    # As many messages as there are receives: a sender without credit sends one in the end, which a slow receiver has no place for yet.
    digest = t.run(1, f"head -c 12000003 /dev/urandom >{source}; sha256sum <{source}")

    def transfer() -> tuple[dict, dict]:
        tx, rx = ncqp(t, "offload", f"--pool <{source}", f"--pool >{copy}")
        t.equal((tx["data_path"], rx["data_path"]), ("pool", "pool"), "where the data were")
        t.equal(t.run(0, f"sha256sum <{copy}; rm {copy}"), digest, "SHA-256")
        return tx, rx

    nothing_copied(t, transfer)
    t.run(1, f"rm {source}")
    _all_back(t)


def _both(t: Guests, listener: str, connector: str, port: int) -> list[str]:
    jobs = [t.start(0, f"exec {listener}", END_S)]
    t.wait_listening(0, port)
    jobs.append(t.start(1, f"exec {connector}", END_S))
    results = [job.wait() for job in jobs]
    for node, result in enumerate(results):
        t.check(result.ok, f"node{node} ended with {result.status}: {result.stderr}")
    return [result.stdout for result in results]


@pytest.mark.parametrize("engine", ("offload", pytest.param("stock", marks=pytest.mark.long)))
def test_library(t: Guests, engine: str) -> None:
    """libtcpqp's allocator, by its example."""
    port = free_port()
    said, _ = _both(t, f"env TCPQP_ENGINE={engine} {EXAMPLE} {port}", f"env TCPQP_ENGINE={engine} {EXAMPLE} $PEER {port} 'by way of the pool'", port)
    t.check("in a lease of the pool: by way of the pool" in said, f"the server said {said!r}")
    _all_back(t)


def test_perf(t: Guests) -> None:
    def attempt() -> dict:
        port = free_port()
        _, told = _both(t, f"{PERF} --once --pool -p {port}", f"{PERF} rate --pool -n 2000 -N 1 -p {port} --out_json $PEER", port)
        row = json.loads(told)[0]
        t.equal(row["engine"], "offload", "engine")
        return row

    one_shows(t, attempt, lambda row: row["server_copied_bytes"] == 0, "no byte that the server's processor copied")
    _all_back(t)


@pytest.mark.long
def test_stock_perftest(t: Guests) -> None:
    """Its --mmap: buffers in leases of the pool, registered by address, and nothing that a processor copies."""
    common = "ib_write_bw -d tcpqp0 -F -s 65536 -n 500 --mmap=/dev/nupa_pool0"

    def attempt() -> list[int]:
        port = free_port()
        before = [int(t.run(node, COPIED)) for node in (0, 1)]
        regions = [json.loads(t.run(node, f"{CHECK} info"))["kernel_maps"] for node in (0, 1)]
        _both(t, f"{common} -p {port}", f"{common} -p {port} $PEER", port)
        copied = [int(t.run(node, COPIED)) - before[node] for node in (0, 1)]
        for node in (0, 1):
            t.check(json.loads(t.run(node, f"{CHECK} info"))["kernel_maps"] > regions[node], f"node{node}: its buffers were not in the pool")
        return copied

    one_shows(t, attempt, lambda copied: copied == [0, 0], "no byte that a processor copied")
    _all_back(t)


def _references(t: Guests, options: str = "", engine: str = "offload") -> tuple[dict, dict, int, int]:
    """What both ends say, bytes on the lane from node 1, and those that changed hands."""
    port = free_port()
    program = f"env TCPQP_ENGINE={engine} $BUILD/cmake/selftests/vm/programs/lib_reference --port {port} {options}"
    before = t.switch("stats")["stats"]["n1"]["tx_bytes"], t.switch("pool")["handover_bytes"]
    rx, tx = (json.loads(said) for said in _both(t, program, f"{program} --connect $PEER", port))
    after = t.switch("stats")["stats"]["n1"]["tx_bytes"], t.switch("pool")["handover_bytes"]
    return rx, tx, after[0] - before[0], after[1] - before[1]


REFERENCE_BYTES = 15 << 20  # of lib_reference's 20 messages every fourth is short


@pytest.mark.parametrize("engine", ("offload", pytest.param("software", marks=pytest.mark.long), pytest.param("stock", marks=pytest.mark.long)))
def test_messages_by_reference(t: Guests, engine: str) -> None:
    """Long messages change hands with their memory, and no byte of them crosses a lane; as messages they do."""
    rx, tx, lane, handed = _references(t, engine=engine)
    t.equal((tx["tx_reference_bytes"], rx["rx_reference_bytes"], handed), (REFERENCE_BYTES,) * 3, "bytes by reference")
    t.check(lane < REFERENCE_BYTES // 100, f"{lane} bytes on the lane")
    rx, tx, lane, handed = _references(t, "--copy", engine)
    t.equal((tx["tx_reference_bytes"], rx["rx_reference_bytes"], handed), (0, 0, 0), "bytes by reference, without being asked")
    t.check(lane > REFERENCE_BYTES, f"{lane} bytes on the lane")
    _all_back(t)


def test_references_come_back(t: Guests) -> None:
    """What was received is sent on as it lies, and leases are used again."""
    rx, tx, lane, handed = _references(t, "--echo --messages 40")
    t.equal((tx["tx_reference_bytes"], tx["rx_reference_bytes"]), (2 * REFERENCE_BYTES,) * 2, "bytes by reference, there and back")
    t.equal(handed, 4 * REFERENCE_BYTES, "bytes that changed hands")
    t.check(lane < REFERENCE_BYTES // 50, f"{lane} bytes on the lane")
    _all_back(t)


SIGNALS = pytest.mark.parametrize("signals", (pytest.param("--signals", id="ending"), pytest.param("--signals --restarted", id="restarted")))


@SIGNALS
def test_references_under_signals(t: Guests, signals: str) -> None:
    """Neither an open that waits for the peer nor any message is lost to signals, which come all the time."""
    rx, tx, _, handed = _references(t, f"{signals} --late 500 --echo --messages 40")
    t.equal((tx["tx_reference_bytes"], tx["rx_reference_bytes"]), (2 * REFERENCE_BYTES,) * 2, "bytes by reference, there and back")
    t.equal(handed, 4 * REFERENCE_BYTES, "bytes that changed hands")
    _all_back(t)


@SIGNALS
def test_signals_do_not_make_an_open_longer(t: Guests, signals: str) -> None:
    port = free_port()
    program = f"env TCPQP_ENGINE=offload $BUILD/cmake/selftests/vm/programs/lib_reference --port {port} {signals}"
    _, said = _both(t, f"{program} --late 30000", f"{program} --connect $PEER --limit 1000", port)
    done = json.loads(said)
    t.equal(done["error"], -errno.ETIMEDOUT, "the open's error")
    t.check(900 <= done["took_ms"] < 10000, f"it took {done['took_ms']} ms")


def test_references_and_the_end_of_either(t: Guests) -> None:
    """A receiver that leaves, and senders that are killed: the other end hears of it, and no page is lost."""
    program = "exec env TCPQP_ENGINE=offload $BUILD/cmake/selftests/vm/programs/lib_reference"
    for killed in (0, 1, 1):
        port = free_port()
        jobs = [t.start(0, f"{program} --port {port} --messages {5 if killed == 0 else 100000} --leave-after {3 if killed == 0 else 0}", END_S)]
        t.wait_listening(0, port)
        before = t.switch("pool")["handovers"]
        jobs.append(t.start(1, f"{program} --port {port} --connect $PEER --stay", END_S))
        t.wait_until(lambda before=before: t.switch("pool")["handovers"] > before + 2, "messages by reference")
        if killed == 1:
            jobs[1].kill()
        for job in jobs:
            job.wait()
        _all_back(t)


def test_who_has_what(t: Guests) -> None:
    """nupactl's answer while a process has a lease with a region in it; both are back when it is killed."""
    job = t.start(1, f"exec {CHECK} hold 8", END_S)
    t.wait_until(lambda: _leased(t) == [0, 8 << 20], "the lease")
    t.wait_until(lambda: t.switch("pool")["ports"][1]["leases"][0]["regions"] == 1, "its region")
    t.fails(1, "rmmod nupa_accel")
    job.kill()
    _all_back(t)


def test_one_host_may_have_its_share_and_no_more(t: Guests) -> None:
    share = MIB // 2
    t.equal([port["share_bytes"] for port in t.switch("pool")["ports"]], [share << 20] * 2, "equal parts")
    refused = t.fails(0, f"{CHECK} hold {share + 1}")
    t.check("quota" in refused.stderr, f"not for its share: {refused.stderr}")
    job = t.start(0, f"exec {CHECK} hold {share}", END_S)
    t.wait_until(lambda: _leased(t)[0] == share << 20, "the lease")
    t.fails(0, f"{CHECK} hold 1")
    t.run(1, f"{CHECK} churn 1")  # the other's part is there
    job.kill()
    _all_back(t)


def _trips(t: Guests, trips: int) -> tuple[int, int]:
    """Of as many round trips of ends that sleep: doorbells of node 0, and what was found without one."""
    port = free_port()
    before = t.switch("stats")["stats"]["n0"]
    _both(t, f"{PERF} --once -p {port}", f"{PERF} lat -n {trips} -N 1 -p {port} $PEER", port)
    after = t.switch("stats")["stats"]["n0"]
    return after["tx_doorbells"] - before["tx_doorbells"], after["tx_seen"] - before["tx_seen"]


def test_rings_without_doorbells(t: Guests) -> None:
    """The driver lets its rings be watched, and takes that back; how few doorbells are left is `make cxl`'s to say."""
    trips = 200
    t.check("tx-watch: on" in " ".join(t.run(0, "ethtool --show-priv-flags nupa0").split()), "the driver's default")

    def watched_and_not() -> tuple[int, int]:
        watched, seen = _trips(t, trips)
        t.check(seen > 0, f"nothing was found without a doorbell; {watched} rang")
        t.run(0, "ethtool --set-priv-flags nupa0 tx-watch off")
        rung, seen = _trips(t, trips)
        t.run(0, "ethtool --set-priv-flags nupa0 tx-watch on")
        t.equal(seen, 0, "found without a doorbell")
        t.check(rung >= trips, f"{rung} doorbells of {trips} messages")
        return watched, rung

    # where others want its processor, a switch does not watch for long
    one_shows(t, watched_and_not, lambda saw: saw[0] < saw[1], "fewer doorbells with watches than without")


@pytest.mark.long
def test_messages(t: Guests) -> None:
    """Both ways, all sizes, every byte of every buffer; WRITE, READ and atomics against the model."""
    offload_pair(t, "--memory pool --messages 200 --seed 81")
    mostly_placed(t, model(t, ("offload", "offload"), "--seed 82", "--memory pool"))
    _all_back(t)


@pytest.mark.long
def test_pool_and_host_memory(t: Guests) -> None:
    for sender, receiver in (("--pool", ""), ("", "--pool"), ("--pool", "-d udmabuf")):
        _, rx = ncqp(t, "offload", f"{sender} -v 251 -n 3000001", f"{receiver} -v 251")
        t.check(rx["validated"] and rx["ok"], f"{sender} to {receiver}: {rx}")
    _all_back(t)


@pytest.mark.long
def test_killed_500_times(t: Guests) -> None:
    """No page is lost: processes are killed while they take leases, hold them and give them back."""
    t.run(0, f"{CHECK} killed 500", 4 * END_S)
    _all_back(t)


def test_the_window_goes_and_comes_back(t: Guests) -> None:
    """The PCI function is removed under a lease with a region: both end, the port goes on, and the pool is whole."""
    job = t.start(0, f"{CHECK} hold 8", END_S)
    t.wait_until(lambda: _leased(t)[0] == 8 << 20, "the lease")
    t.wait_until(lambda: t.switch("pool")["ports"][0]["leases"][0]["regions"] == 1, "its region")
    t.run(0, f"for d in {DRIVER}/0*; do echo 1 >$d/remove; done; [ ! -e /dev/nupa_pool0 ]", END_S)
    t.equal(_leased(t), [0, 0], "leased bytes after the window's reset")
    job.kill()
    t.run(0, "echo 1 >/sys/bus/pci/rescan; until [ -e /dev/nupa_pool0 ]; do sleep 0.1; done", END_S)
    t.equal(t.run(0, "cat /sys/class/net/nupa0/operstate").strip(), "up", "state of nupa0")
    t.run(0, f"{CHECK} churn 10", END_S)
    _all_back(t)
