# SPDX-License-Identifier: BSD-3-Clause
"""Programs of verbs under tcpqp-run --verbs: what they are without it, and a doorbell for many posts."""

import shutil

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.pairs import Pair, served
from harness.traffic import free_port

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("user/tcpqp_run/libtcpqp-posts.so", "selftests/vm/programs/qp_posts"), setup="full")
pytestmark = pytest.mark.needs(NEEDS)

RUN = "$BUILD/cmake/user/tcpqp_run/tcpqp-run --verbs"
COUNTERS = "/sys/class/infiniband/tcpqp0/ports/1/hw_counters"
POSTS = 4000
ROUNDS, MANY_ROUNDS = 300, 10_000


def counters(t: Guests, node: int, *names: str) -> dict[str, int]:
    return {name: int(t.run(node, f"cat {COUNTERS}/{name}")) for name in names}


def moved(t: Guests, node: int, before: dict[str, int]) -> dict[str, int]:
    after = counters(t, node, *before)
    return {name: after[name] - before[name] for name in before}


def perftest(t: Guests, command: str, run: str = RUN) -> tuple[str, dict[str, int]]:
    """What the client printed, and what its device counted."""
    port = free_port()
    before = counters(t, 1, "doorbells", "tx_messages", "tx_train_messages", "tx_segments")
    out, _ = served(t, f"{run} {command} -F -p {port}", f"{run} {command} -F -p {port} $PEER", port)
    return out, moved(t, 1, before)


@pytest.mark.parametrize("connect", [pytest.param("-R", id="cm"), pytest.param("-d tcpqp0 -x 0", id="number")])
def test_write_bw(t: Guests, connect: str) -> None:
    """The usual shape: posts until the queue is full, then polls.  Most bursts ring once; on a starved machine a watch ends between two posts."""
    out, count = perftest(t, f"ib_write_bw {connect} -s 64 -n {POSTS}")
    t.check(f" {POSTS} " in out, out)
    t.check(count["tx_messages"] >= POSTS and count["doorbells"] < POSTS / 3, f"a doorbell for several posts: {count}")
    t.check(count["tx_train_messages"] > POSTS * 0.8, f"trains: {count}")


def test_rings_as_ever_without_it(t: Guests) -> None:
    _, count = perftest(t, f"ib_write_bw -R -s 64 -n {POSTS}", "env")
    t.check(count["doorbells"] >= POSTS, f"a doorbell for each post: {count}")


@pytest.mark.parametrize("command", ["ib_send_bw -R -s 64 -n 1000", "ib_write_bw -R -s 64 -n 1000 -q 4", "ib_send_lat -R -n 200", "ib_write_lat -R -n 200"],
                         ids=["send_bw", "several", "send_lat", "write_lat"])  # fmt: skip
def test_others(t: Guests, command: str) -> None:
    out, _ = perftest(t, command)
    t.check("#iterations" in out, out)


def test_rping(t: Guests) -> None:
    """It waits for events."""
    port = free_port()
    common = f"-p {port} -C 20 -v -V"
    out, _ = served(t, f"{RUN} rping -s {common}", f"{RUN} rping -c -a $PEER {common}", port)
    t.equal(out.count("ping data: rdma-ping-"), 20, "pings")


@pytest.mark.skipif(not shutil.which("ucx_perftest"), reason="ucx-utils is not installed")
def test_ucx(t: Guests) -> None:
    port = free_port()
    command = f"{RUN} ucx_perftest -f -d tcpqp0:1 -x rc_verbs -t put_bw -D short -s 64 -n {POSTS} -w 20 -p {port}"
    before = counters(t, 1, "doorbells", "tx_messages")
    served(t, command, f"{command} $PEER", port)
    count = moved(t, 1, before)
    t.check(count["tx_messages"] >= POSTS and count["doorbells"] < POSTS / 3, f"a doorbell for several posts: {count}")


def without_polling(t: Guests, rounds: int, engine: str, seed: int) -> None:
    before = [counters(t, node, "doorbells", "tx_watch_looks") for node in (0, 1)]
    pair = Pair(t, "qp_posts", common=f"--rounds {rounds} --seed {seed} --engine {engine}", run=RUN, limit_s=50 + rounds / 20)
    said = pair.done()[1]
    count = moved(t, 1, before[1])
    t.equal(said["rounds"], rounds, "rounds")
    t.check(count["doorbells"] < said["posts"] * 0.8 and count["tx_watch_looks"] > rounds / 20, f"posts were left to the kernel: {said} {count}")


def test_without_polling(t: Guests) -> None:
    """Nobody polls, nobody rings: the poster sleeps on another socket until the peer has seen its last WRITE."""
    without_polling(t, ROUNDS, "auto", 1)


@pytest.mark.long
@pytest.mark.needs(Needs(modules=NEEDS.modules, programs=NEEDS.programs, setup="full", cpus=2))
def test_without_polling_many(t: Guests) -> None:
    """The same, with a processor for the kernel's look beside the one that posts."""
    for seed, engine in enumerate(("offload", "software")):
        without_polling(t, MANY_ROUNDS, engine, seed)


def test_extended(t: Guests) -> None:
    """Extended queue pairs and completion queues; queue pairs destroyed with posts that are owed a doorbell; fork()."""
    script = "/usr/bin/python3 $REPO/selftests/vm/programs/posts_extended.py"
    t.equal(t.run(0, f"{RUN} {script}", 60), "ok\n", "what it says")
    t.equal(t.run(0, f"{script} each", 60), "ok\n", "without the library each post rings")


def test_another_device(t: Guests) -> None:
    """A line, and the program runs as it is.  The module stays: its exit would take our device along."""
    if not t.nodes[0].run("modprobe rdma_rxe").ok:
        pytest.skip("the kernel has no rdma_rxe")
    t.run(0, "rdma link add rxe0 type rxe netdev nupa0 && sh $REPO/tools/vm/guest/mkdev")
    try:
        result = t.nodes[0].run(f"{RUN} ibv_devinfo -d rxe0")
        t.check(result.ok and "PORT_ACTIVE" in result.stdout, f"{result.stdout}{result.stderr}")
        t.equal(result.stderr, "tcpqp-run: ibv_devinfo: rxe0 is no tcp_qp device: used as it is\n", "what is said")
    finally:
        t.run(0, "rdma link delete rxe0")
    t.equal(t.nodes[0].run(f"{RUN} ibv_devinfo -d tcpqp0").stderr, "", "what is said of ours")
    t.equal(t.run(0, f"{RUN} echo no verbs"), "no verbs\n", "another program")
