# SPDX-License-Identifier: BSD-3-Clause
"""Random sequences of calls by hostile processes of several users, beside honest ones: the kernel has nothing to say, who is killed dies,
no honest byte is wrong, and nothing is left.

NUPA_FUZZ_SECONDS and NUPA_FUZZ_SEED in the environment say how long a test fuzzes, and with which seed alone; NUPA_FUZZ_OPTIONS goes to
user_fuzz as it is (--only ring,uverbs).
"""

import json
import os
import random
from dataclasses import dataclass, field

import pytest

from harness.guests import Failed, Guests
from harness.needs import Needs
from harness.traffic import free_port

from nupavm import Job

PROGRAMS = "selftests/vm/hostile"
NEEDS = Needs(
    modules=("tcp_qp", "nupa_dev"), programs=(f"{PROGRAMS}/user_fuzz", f"{PROGRAMS}/user_fuzz_honest"), cpus=2, mem_mb=1536, setup="full",
    append="preempt=full",
)  # fmt: skip
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside, pytest.mark.emulator_may_crash]  # each first attach and last end patches the kernel's code
SECONDS = 6.0  # of each test
SEEDS = {"software": (1,), "offload": (3,)}
DEATH_S = 60  # that a killed process may take
STALL_S = 20  # that the witnesses may stand still
SLACK_S = 60
STOP = "/tmp/user_fuzz.stop"
# Orphaned sockets, which hold the module, are given up soon; programs that crash need no line in the kernel's log; a kernel that complains
# lives on until the last calls are written.
PREPARE = """
rm -f %s /tmp/user_fuzz.wronged
sysctl -qw net.ipv4.tcp_orphan_retries=2 net.ipv4.tcp_fin_timeout=5 kernel.panic_on_warn=0 kernel.panic_on_oops=0
sysctl -qw debug.exception-trace=0 user.max_user_namespaces=1000 net.core.busy_read=$((NODE * 50))
for m in sch_netem udmabuf tls veth rdma_ucm mptcp; do modprobe -q $m; done
sh $REPO/tools/vm/guest/mkdev; chmod 666 /dev/infiniband/* /dev/udmabuf
true
""" % STOP
OUTCOME_MIN = 20  # distinct operations that must have succeeded: else it is no fuzzing


@dataclass
class Ground:
    """Where a node's fuzzers work, and who waits for them there."""

    node: int
    local: str
    peer: str
    interface: str
    engine: str
    honest: list[Job] = field(default_factory=list)


def _command(program: str, options: str) -> str:
    return f"exec $BUILD/cmake/{PROGRAMS}/{program} {options}"


def _seeds(engine: str) -> list[int]:
    if given := os.environ.get("NUPA_FUZZ_SEED"):
        return [int(given)]
    chance = random.SystemRandom().randrange(1, 1 << 32)
    return [*SEEDS[engine], chance]


def _honest(t: Guests, grounds: list[Ground], port: int, limit_s: float) -> None:
    """On each node one that accepts; between the two grounds (or within one) a witness pair."""
    common = f"--stop {STOP} --stall-ms {int(1000 * STALL_S * t.cluster.slowness)}"
    for g in grounds:
        g.honest.append(t.start(g.node, _command("user_fuzz_honest", f"--port {port} --interface {g.interface} {common}"), limit_s))
        t.wait_listening(g.node, port)
    first, last = grounds[0], grounds[-1]
    witness = f"--witness --port {port + 1} --engine {first.engine} {common}"
    first.honest.append(t.start(first.node, _command("user_fuzz_honest", f"{witness} --interface {first.interface}"), limit_s))
    t.wait_listening(first.node, port + 1)
    far = f"{witness} --interface {last.interface} --connect {first.local}"
    last.honest.append(t.start(last.node, _command("user_fuzz_honest", far), limit_s))


def _fuzz(t: Guests, grounds: list[Ground], seed: int, seconds: float) -> None:
    print(f"# user_fuzz: {grounds[0].engine}: seed {seed}, {seconds:.0f} s", flush=True)
    t.cluster.run_all(PREPARE, check=True)
    port, death = free_port(), int(DEATH_S * t.cluster.slowness)
    free_port()
    limit_s = seconds + DEATH_S + SLACK_S
    _honest(t, grounds, port, limit_s + SLACK_S)
    options = f"--seconds {seconds:.0f} --death-s {death} --report /results --port {port} {os.environ.get('NUPA_FUZZ_OPTIONS', '')}"
    jobs = [
        t.start(g.node, _command("user_fuzz", f"--seed {seed * 10 + g.node} --local {g.local} --peer {g.peer} --interface {g.interface} "
                f"--engine {g.engine} {options}"), limit_s)
        for g in grounds
    ]  # fmt: skip
    results = [job.wait() for job in jobs]
    t.cluster.run_all(f"touch {STOP}", check=True)
    ends = [(g, job.wait()) for g in grounds for job in g.honest]
    problems = [f"node{g.node}: user_fuzz ended with {r.status}\n{r.stderr}" for g, r in zip(grounds, results) if not r.ok]
    problems += [f"node{g.node}: an honest process ended with {r.status}\n{r.stderr}{_calls(t, g)}" for g, r in ends if not r.ok]
    for g, result in zip(grounds, results):
        _report(t, g, result.stdout, [r.stdout for at, r in ends if at is g])
    if problems:
        raise Failed(f"seed {seed} (NUPA_FUZZ_SEED={seed}):\n" + "\n".join(problems))


def _calls(t: Guests, ground: Ground) -> str:
    return f"the last calls: {t.nodes[ground.node].results / 'calls'}\n"


def _report(t: Guests, ground: Ground, outcome: str, honest: list[str]) -> None:
    """Into the results' folder whole; a line on standard output."""
    if not outcome.strip():
        return
    (t.nodes[ground.node].results / "outcomes.json").write_text(outcome)
    told = json.loads(outcome)
    succeeded = sum(1 for ends in told["operations"].values() if ends.get("ok"))
    rate = told["calls"] / max(1, told["seconds"])
    print(
        f"# user_fuzz: node{ground.node}: {told['calls']} calls in {told['seconds']:.0f} s ({rate:.0f}/s), {told['processes']} processes, "
        f"{told['crashed']} crashed, {succeeded} of {len(told['operations'])} operations succeeded, {told['loyal_messages']} loyal messages; "
        f"honest: {' '.join(text.strip() for text in honest)}", flush=True,
    )  # fmt: skip
    if not os.environ.get("NUPA_FUZZ_OPTIONS", "").strip():
        t.check(succeeded >= OUTCOME_MIN, f"node{ground.node}: only {succeeded} operations ever succeeded: {outcome}")


def _all(t: Guests, engine: str, grounds) -> None:
    seeds = _seeds(engine)
    seconds = float(os.environ.get("NUPA_FUZZ_SECONDS", SECONDS)) / len(seeds)
    for seed in seeds:
        _fuzz(t, grounds(), seed, seconds)


@pytest.mark.long
def test_software(t: Guests) -> None:
    """Both ends on one machine, on a device of its own beside that of nupa0."""
    t.run(0, "ip link add v0 type veth peer v1; ip address add 10.78.0.1/24 dev v0; ip link set v0 up; ip link set v1 up")
    t.run(0, "rdma link add tcpqpv0 type tcp_qp netdev v0")
    _all(t, "software", lambda: [Ground(0, "10.78.0.1", "10.78.0.1", "v0", "software")])
    t.run(0, "rdma link delete tcpqpv0; ip link delete v0")


def test_offload(t: Guests) -> None:
    """Two machines on the switch, each with fuzzers and honest ones."""
    _all(t, "offload", lambda: [Ground(n, t.nodes[n].ip4, t.nodes[1 - n].ip4, "nupa0", "offload") for n in (0, 1)])
