# SPDX-License-Identifier: BSD-3-Clause
"""WRITE, READ and atomics: every byte against a model, and every right that is not granted."""

import random
import signal
import time
from dataclasses import dataclass

import pytest

from harness.guests import Guests
from harness.needs import Needs, on_debug_kernel
from harness.pairs import fabric, outputs, succeeded
from harness.traffic import parameter, route
from vm.exchange import FAULTS, exchange

from nupavm import Job

PROGRAMS = tuple(f"selftests/vm/programs/{name}" for name in ("qp_rdma", "moved_region", "qp_fault", "qp_refused", "qp_litmus", "qp_window"))
NEEDS = Needs(modules=("tcp_qp", "nupa_dev", "tests/moving_buffer"), programs=PROGRAMS, setup="full")
pytestmark = pytest.mark.needs(NEEDS)

PORT = 7300
LIMIT_S = 90
HUGE_PAGES = 24  # of 2 MiB: region and scratch of both programs
NARROW = {"rate_mbps": 60, "queue_bytes": 100000}  # a READ of 3 MiB takes a while
END_LIMIT_S = 20  # for the survivor to hear of it
UNHEARD_END_MS = 1000  # TQP_TERMINATE_MS


def pair(t: Guests, program: str, engines: tuple[str, str], options: str = "", active: str = "", address: str = "10.77.0.1",
         limit_s: float = LIMIT_S) -> list[dict]:  # fmt: skip
    """What both sides print; node 0 is the passive one."""
    command = f"$BUILD/cmake/selftests/vm/programs/{program} --port {PORT} {options}"
    passive = t.start(0, f"{command} --engine {engines[0]}", limit_s)
    asker = t.start(1, f"{command} --engine {engines[1]} --connect {address} {active}", limit_s)
    return outputs([passive, asker])


def model(t: Guests, engines: tuple[str, str], active: str, options: str = "", address: str = "10.77.0.1", limit_s: float = LIMIT_S) -> list[dict]:
    results = pair(t, "qp_rdma", engines, options, active, address, limit_s)
    t.equal(results[0]["immediates"], results[1]["immediates"], "immediates")
    return [r["counters"] for r in results]


def mostly_placed(t: Guests, counters: list[dict], share: float = 0.9) -> None:
    for node, c in enumerate(counters):
        t.check(c["placed"] >= share * c["delivered"], f"node{node} placed too little: {c}")


def test_model_offload(t: Guests) -> None:
    mostly_placed(t, model(t, ("offload", "offload"), "--seed 31"))


# Half of all operations are trains of WRITEs: side by side, with gaps between them, or all to one place.
TRAINS = "--train 8 --operations 300"


def sharing(t: Guests, engines: tuple[str, str], active: str, address: str = "10.77.0.1") -> list[dict]:
    """As model(): WRITEs that are posted at once go to TCP at once."""
    before = int(t.run(1, TRAIN_MESSAGES))
    counters = model(t, engines, active, address=address)
    of_trains = int(t.run(1, TRAIN_MESSAGES)) - before
    t.check(of_trains >= OF_TRAINS, f"only {of_trains} WRITEs were of trains: {counters[1]}")
    return counters


TRAIN_MESSAGES = "cat /sys/class/infiniband/tcpqp0/ports/1/hw_counters/tx_train_messages"
OF_TRAINS = 250  # of 150 trains of five; those to one place go alone


def test_write_trains_offload(t: Guests) -> None:
    mostly_placed(t, sharing(t, ("offload", "offload"), f"{TRAINS} --seed 51"))


def test_write_trains_software(t: Guests) -> None:
    for engines in (("software", "software"), ("offload", "software"), ("software", "offload")):
        sharing(t, engines, f"{TRAINS} --seed 52")


@pytest.mark.long
def test_write_trains_under_faults(t: Guests) -> None:
    with fabric(t, **FAULTS):
        for engines in (("offload", "offload"), ("software", "software")):
            model(t, engines, f"{TRAINS} --seed 53")


# The same of any lengths, to anywhere: often one over the other, where the last one wins.
UNEVEN_TRAINS = f"{TRAINS} --uneven"


@pytest.mark.long
def test_write_trains_of_unequal_messages(t: Guests) -> None:
    mostly_placed(t, sharing(t, ("offload", "offload"), f"{UNEVEN_TRAINS} --seed 54"))
    for seed, engines in enumerate((("software", "software"), ("offload", "software"), ("software", "offload")), 55):
        sharing(t, engines, f"{UNEVEN_TRAINS} --seed {seed}", "fd77::1")


def test_write_trains_of_unequal_messages_under_faults(t: Guests) -> None:
    with fabric(t, **FAULTS):
        for engines in (("offload", "offload"), ("software", "software")):
            model(t, engines, f"{UNEVEN_TRAINS} --seed 58")


def test_model_offload_ver1(t: Guests) -> None:
    mostly_placed(t, model(t, ("offload", "offload"), "--seed 32", "--wire 1", "fd77::1"))


def test_model_software(t: Guests) -> None:
    for c in model(t, ("software", "software"), "--seed 33"):
        t.equal(c["placed"], 0, "bytes placed")


def test_model_mixed(t: Guests) -> None:
    model(t, ("offload", "software"), "--seed 34 --operations 200")
    model(t, ("software", "offload"), "--seed 35 --operations 200")


def test_model_small(t: Guests) -> None:
    model(t, ("offload", "offload"), "--seed 36 --operations 1500 --max-bytes 200")


def kinds(t: Guests, engine: str, operations: int) -> None:
    """SEND, WRITE, READ and atomics in memory of each kind; the switch writes all of it."""
    t.cluster.run_all(f"sysctl -qw vm.nr_hugepages={HUGE_PAGES}; modprobe -q udmabuf || true", check=True)
    try:
        # the heap maps a buffer anew for each region of it, which DMA debugging takes for a fault
        kinds_here = ("huge", "udmabuf") if on_debug_kernel() else ("huge", "udmabuf", "dma-heap")
        for seed, kind in enumerate(kinds_here, 50):
            counters = model(t, (engine, engine), f"--seed {seed}", f"--memory {kind} --operations {operations}")
            counters += exchange(t, engine, engine, f"--messages 40 --memory {kind} --seed {seed}")
            if engine == "offload":
                mostly_placed(t, counters)
    finally:
        t.cluster.run_all("sysctl -qw vm.nr_hugepages=0", check=True)


def test_memory_of_each_kind_offload(t: Guests) -> None:
    kinds(t, "offload", 150)


@pytest.mark.long
def test_memory_of_each_kind_software(t: Guests) -> None:
    kinds(t, "software", 60)


def test_locked_memory_is_limited(t: Guests) -> None:
    """RLIMIT_MEMLOCK counts for who has no CAP_IPC_LOCK: 5 MiB are registered here."""
    nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all"
    command = f"$BUILD/cmake/selftests/vm/programs/qp_rdma --port {PORT}"
    for node in (0, 1):
        t.run(node, "chmod 666 /dev/infiniband/uverbs*")
    refused = [
        t.start(0, f"ulimit -l 1024; {nobody} {command}", LIMIT_S),
        t.start(1, f"ulimit -l 1024; {nobody} {command} --connect 10.77.0.1", LIMIT_S),
    ]
    for job in refused:
        result = job.wait()
        t.check(result.status == 1 and "register memory: Cannot allocate memory" in result.stderr, f"{result.status}: {result.stderr}")
    allowed = [
        t.start(0, f"ulimit -l 65536; {nobody} {command} --operations 20", LIMIT_S),
        t.start(1, f"ulimit -l 65536; {nobody} {command} --operations 20 --connect 10.77.0.1", LIMIT_S),
    ]
    for job in allowed:
        result = job.wait()
        t.check(result.ok, f"{result.status}: {result.stderr}")


def test_model_with_faults(t: Guests) -> None:
    with fabric(t, **FAULTS):
        model(t, ("offload", "offload"), "--seed 37 --operations 300")
        model(t, ("software", "software"), "--seed 38 --operations 100")


def refused(t: Guests, engine: str) -> None:
    """An end that the peer hears of, or answers by its own, is over then, and does not wait the second that an unheard one may take."""
    for said in pair(t, "qp_refused", (engine, engine)):
        t.check(said["median_ms"] < UNHEARD_END_MS * t.cluster.slowness, f"ends were waited for: {said}")


def test_refused_offload(t: Guests) -> None:
    refused(t, "offload")


def test_refused_software(t: Guests) -> None:
    refused(t, "software")


QUESTION_ROUNDS = 4

# One of each way in which a received message is refused.
REFUSED_LATER = ("write-stale", "write-long", "write-imm-guessed", "write-closed", "read-guessed", "atomic-guessed", "send-inv", "send-long",
                 "long-behind-train", "write-behind-train", "end-of-long-write-train", "end-of-long-mixed-write-train")  # fmt: skip


def test_refused_in_a_later_turn(t: Guests) -> None:
    """Softirq has no share, so each message waits for a task; it is not acknowledged before it was looked at."""
    cases = " ".join(f"--case {case}" for case in REFUSED_LATER)
    with parameter(t, "softirq_percent", 0):
        pair(t, "qp_refused", ("software", "software"), cases)
        pair(t, "qp_refused", ("offload", "offload"), cases)


def test_refused_acknowledged_at_once(t: Guests) -> None:
    """TCP delays no ACK: what a packet brought has been looked at when its ACK leaves, or the request would succeed."""
    with route(t, "quickack 1"):
        for engine in ("software", "offload"):
            pair(t, "qp_refused", (engine, engine))


def test_refused_at_both_ends(t: Guests) -> None:
    """Each end's next request was refused before it heard of the other's READ, which it answers all the same."""
    for engine in ("software", "offload"):
        command = f"rm -f /tmp/until; exec $BUILD/cmake/selftests/vm/programs/qp_refused --port {PORT} --engine {engine} --until /tmp/until"
        jobs = [t.start(0, command, LIMIT_S), t.start(1, f"{command} --connect 10.77.0.1", LIMIT_S)]
        for job in jobs:
            t.wait_output(job, "attached")
        with fabric(t, loss=1):
            for node, job in enumerate(jobs):
                t.run(node, "touch /tmp/until")
                t.wait_output(job, "posted")
        succeeded(jobs)


def test_refused_out_of_order(t: Guests) -> None:
    """A hole is filled, and TCP has several messages at once: reading the first ones acknowledges none of the others."""
    cases = " ".join(f"--case {case}" for case in REFUSED_LATER)
    with fabric(t, reorder=0.3):
        for engine in ("software", "offload"):
            pair(t, "qp_refused", (engine, engine), cases)


@pytest.mark.long
def test_refused_behind_a_question(t: Guests) -> None:
    """The answer acknowledges the question, which the switch has completed, and nothing that came behind it."""
    cases = " ".join(f"--case {case}" for case in REFUSED_LATER if "train" not in case)
    for _ in range(QUESTION_ROUNDS):
        for engine in ("offload", "software"):
            pair(t, "qp_refused", (engine, engine), f"{cases} --questions 40")


def test_windows_offload(t: Guests) -> None:
    pair(t, "qp_window", ("offload", "offload"))


def test_windows_software(t: Guests) -> None:
    pair(t, "qp_window", ("software", "software"))


def test_region_of_memory_that_moves(t: Guests) -> None:
    """Its exporter moves it to where it can be pinned, and says so while nobody has it mapped yet."""
    t.run(0, "insmod $KO/tests/moving_buffer/moving_buffer.ko")
    try:
        t.run(0, "until [ -e /dev/moving_buffer ]; do sleep 0.05; done; $BUILD/cmake/selftests/vm/programs/moved_region")
    finally:
        t.run(0, "until rmmod moving_buffer; do sleep 0.1; done")  # what was registered goes a little later


@pytest.mark.parametrize("queue", ("", "--shared"), ids=("own", "shared"))
def test_receive_that_fails_here(t: Guests, queue: str) -> None:
    """It is the application's again when the switch has forgotten the queue pair: a switch that stands still has not."""
    file, command = "/tmp/fault", f"$BUILD/cmake/selftests/vm/programs/qp_fault --port {PORT}"
    t.run(0, f"rm -f {file}.*")
    receiver = t.start(0, f"{command} --file {file} {queue}", LIMIT_S)
    sender = t.start(1, f"{command} --connect 10.77.0.1", LIMIT_S)
    t.run(0, f"until [ -e {file}.waits ]; do sleep 0.05; done")
    switch = t.cluster.switch.process
    switch.send_signal(signal.SIGSTOP)
    try:
        t.run(0, f"touch {file}.go; until [ -e {file}.quiet ] || ! pgrep -x qp_fault >/dev/null; do sleep 0.05; done")
    finally:
        switch.send_signal(signal.SIGCONT)
    succeeded([receiver, sender])


@pytest.mark.parametrize("engine", ("offload", "software"))
def test_window_taken_back_while_read(t: Guests, engine: str) -> None:
    """What its owner writes after that does not reach the peer, which has the old bytes, or an error."""
    with fabric(t, **NARROW):
        pair(t, "qp_window", (engine, engine), "--reads")


def test_resource_details(t: Guests) -> None:
    """What `rdma resource show -dd` says of a QP, its regions and its CQ while they work."""
    command = f"exec $BUILD/cmake/selftests/vm/programs/qp_rdma --port {PORT} --engine offload --operations 100000"
    jobs = [t.start(0, command, LIMIT_S), t.start(1, f"{command} --connect 10.77.0.1", LIMIT_S)]
    placed = "rdma resource show qp -dd | grep -Eq 'drv_engine offload .*drv_rx_placed [1-9][0-9]{5}'"
    t.run(0, f"until {placed}; do sleep 0.1; done", 20)
    words = t.run(0, "rdma resource show qp -dd").split()
    of = {name: int(words[words.index(f"drv_rx_{name}") + 1]) for name in ("delivered", "placed", "copied")}
    t.equal(of["placed"] + of["copied"], of["delivered"], "placed + copied")
    t.check("drv_memory user drv_offloaded 1" in t.run(0, "rdma resource show mr -dd"), "no region that the switch knows")
    t.check("drv_state" in t.run(0, "rdma resource show cq -dd"), "no state of the CQ")
    for job in jobs:
        job.kill()
        job.wait()


# docs/ordering.md, rule by rule.
def test_litmus_offload(t: Guests) -> None:
    pair(t, "qp_litmus", ("offload", "offload"))


def test_litmus_software(t: Guests) -> None:
    pair(t, "qp_litmus", ("software", "software"), "--rounds 20")


@pytest.mark.long
def test_litmus_with_faults(t: Guests) -> None:
    with fabric(t, **FAULTS):
        pair(t, "qp_litmus", ("offload", "offload"), "--rounds 20")


# Whatever was under way: the survivor's requests complete, with an error, and nothing is left behind.
@dataclass
class Pair:
    """One pair of programs, of which one is to be killed."""

    what: str
    port: int
    victim: int
    jobs: list[Job]


def _start_pair(t: Guests, dice: random.Random, port: int, seed: int) -> Pair:
    engine, victim = dice.choice(("offload", "software")), dice.randrange(2)
    command = f"$BUILD/cmake/selftests/vm/programs/qp_rdma --port {port} --engine {engine} --operations 1000000 --seed {seed}"
    jobs = [t.start(0, command, LIMIT_S), t.start(1, f"{command} --connect 10.77.0.1", LIMIT_S)]
    return Pair(f"{engine}, seed {seed}, node{victim} killed", port, victim, jobs)


def _kill(t: Guests, pairs: list[Pair]) -> None:
    for node in (0, 1):
        ports = "|".join(str(p.port) for p in pairs if p.victim == node)
        if ports:
            t.run(node, f"pkill -9 -f '^[^ ]*qp_rdma --port ({ports}) '")


def _survived(t: Guests, pair: Pair, killed: float) -> None:
    survivor = pair.jobs[1 - pair.victim].wait()
    took = time.monotonic() - killed
    pair.jobs[pair.victim].wait()
    t.check(survivor.status == 1, f"{pair.what}: the other ended with {survivor.status}\n{survivor.stderr}")
    t.check(took < END_LIMIT_S * t.cluster.slowness, f"{pair.what}: the other ended {took:.1f} s later")


def kills(t: Guests, rounds: int, together: int, seed: int) -> None:
    dice = random.Random(seed)
    for first in range(0, rounds * together, together):
        pairs = [_start_pair(t, dice, PORT + 1 + i, first + i) for i in range(together)]
        # from here on both know of each other: before, the one that listens would rightly wait on
        begun = f"[ $(ss -Htn state established 'sport >= :{PORT + 1} and sport <= :{PORT + together}' | wc -l) -ge {together} ]"
        t.run(0, f"until {begun}; do sleep 0.05; done", END_LIMIT_S * together)
        time.sleep(dice.uniform(0, 1))
        _kill(t, pairs)
        killed = time.monotonic()
        for p in pairs:
            _survived(t, p, killed)


def test_kill_at_any_moment(t: Guests) -> None:
    kills(t, 5, 1, seed=41)


@pytest.mark.long
def test_kill_a_thousand_times(t: Guests) -> None:
    kills(t, 250, 4, seed=42)
