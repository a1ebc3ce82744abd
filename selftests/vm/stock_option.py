# SPDX-License-Identifier: BSD-3-Clause
"""A host process without the module, through the switch's tap port, and a guest process with it: every byte both ways.

The host's side lives in a network namespace and a cgroup of its own: tap, helper and program."""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.guests import Failed, Guests
from harness.needs import Needs
from harness.traffic import free_port

from nupavm.paths import REPO

TAP = "nupavt0"
PROGRAMS = ("selftests/vm/programs/lib_exchange", "selftests/vm/programs/qp_asks", "user/tcpqp_bpf/tcpqp-bpf", "user/libtcpqp/examples/tcpqp_echo")
NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=PROGRAMS, nodes=1,
              setup="full", switch_args=("--tap", f"name=up0,ifname={TAP}"), tap=TAP)  # fmt: skip
pytestmark = pytest.mark.needs(NEEDS)

BUILD = REPO / "build/cmake"
EXCHANGE = "selftests/vm/programs/lib_exchange"
ECHO = "user/libtcpqp/examples/tcpqp_echo"
HOST = "10.77.0.200"
LIMIT_S = 40
OPTION = 2


def sh(*argv, check: bool = True) -> str:
    return subprocess.run([str(a) for a in argv], check=check, capture_output=True, text=True, timeout=LIMIT_S).stdout


def cgroup2() -> Path:
    for line in Path("/proc/mounts").read_text().splitlines():
        if line.split()[2] == "cgroup2":
            return Path(line.split()[1])
    pytest.skip("no cgroup v2 is mounted")


class Host:
    """What runs on this side of the tap."""

    def __init__(self, namespace: str, cgroup: Path, helper: str) -> None:
        self.namespace, self.cgroup, self.helper = namespace, cgroup, helper

    def start(self, *argv, helper: bool = True, program: str = EXCHANGE) -> subprocess.Popen:
        environment = {**os.environ, "TCPQP_ENGINE": "stock", "TCPQP_FRAMING": "", "TCPQP_BPF_SOCKET": self.helper if helper else "/nonexistent"}
        enter = ("sh", "-c", f'echo $$ > {self.cgroup}/cgroup.procs && exec "$@"', "sh")
        command = ["nsenter", f"--net=/run/netns/{self.namespace}", *enter, BUILD / program, *argv]
        return subprocess.Popen([str(a) for a in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def parted(t: Guests) -> None:
    """The guest's connections are over: their last segments, too, may be lost and sent again, and want a peer."""
    t.run(0, f'while ss -Hnt state connected exclude time-wait dst {HOST} | grep -q .; do sleep 0.1; done', LIMIT_S)


@contextlib.contextmanager
def host(t: Guests) -> Iterator[Host]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if tuple(int(n) for n in os.uname().release.split(".")[:2]) < (6, 12):
        pytest.skip("needs Linux 6.12 here")
    name = f"nupavt{os.getpid()}"
    with contextlib.ExitStack() as cleanup:
        cgroup = cgroup2() / name
        cgroup.mkdir()
        cleanup.callback(cgroup.rmdir)
        sh("ip", "netns", "add", name)
        cleanup.callback(sh, "ip", "netns", "del", name)
        sh("ip", "link", "set", TAP, "netns", name)
        within = ("nsenter", f"--net=/run/netns/{name}")
        cleanup.callback(sh, *within, "ip", "link", "set", TAP, "netns", str(os.getpid()))  # for the next test
        sh(*within, "ip", "addr", "add", f"{HOST}/24", "dev", TAP)
        sh(*within, "ip", "link", "set", TAP, "up")
        path = Path(cleanup.enter_context(tempfile.TemporaryDirectory())) / "helper"
        argv = (*within, BUILD / "user/tcpqp_bpf/tcpqp-bpf", "--cgroup", cgroup, "--socket", path)
        helper = subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE, text=True)
        cleanup.callback(helper.wait, LIMIT_S)
        cleanup.callback(helper.terminate)
        if helper.stdout.readline() != "tcpqp-bpf: ready\n":
            raise Failed("tcpqp-bpf did not start")
        yield Host(name, cgroup, str(path))
        parted(t)


def ended(job: subprocess.Popen) -> tuple[int, str, str]:
    try:
        out, err = job.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        job.kill()
        out, err = job.communicate()
    return job.returncode, out, err


def exchange(t: Guests, h: Host, engine: str, *options: str) -> tuple[dict, dict]:
    """The guest listens; both ends' reports."""
    port = free_port()
    guest = t.start(0, f"TCPQP_ENGINE={engine} exec $BUILD/cmake/{EXCHANGE} --port {port} {' '.join(options)}")
    t.wait_listening(0, port)
    status, out, err = ended(h.start("--port", port, "--connect", t.nodes[0].ip4, *options))
    result = guest.wait()
    if status != 0 or not result.ok:
        raise Failed(f"{engine}: host {status}: {out}{err}; guest {result.status}: {result.stdout}{result.stderr}")
    return json.loads(out), json.loads(result.stdout)


def test_every_byte_both_ways(t: Guests) -> None:
    with host(t) as h:
        for engine in ("software", "offload"):
            ours, theirs = exchange(t, h, engine)
            t.equal((ours["engine"], ours["framing"], theirs["engine"]), ("stock", OPTION, engine), f"{engine}: {ours} {theirs}")
            t.equal((ours["rx_bytes"], theirs["rx_bytes"]), (theirs["tx_bytes"], ours["tx_bytes"]), f"{engine}: {ours} {theirs}")
            if engine == "offload":  # the switch places what comes by the tap
                t.check(theirs["placed"] > 0.8 * theirs["rx_bytes"], f"{theirs}")


def test_loss_both_ways(t: Guests) -> None:
    """Data of both ends is under way while both have holes to tell of: SACK must not cost a message."""
    with host(t) as h:
        for port, seed in (("n0", 5), ("up0", 6)):
            t.switch("faults", port=port, set={"seed": seed, "loss": 0.03})
        try:
            for engine in ("software", "offload"):
                exchange(t, h, engine, "--messages", "400", "--bytes", "4000")
        finally:
            for port in ("n0", "up0"):
                t.switch("faults", port=port, clear=True)


def test_only_sends(t: Guests) -> None:
    """What a stock end does not do completes at the requester, with the status that says so."""
    with host(t) as h:
        for engine in ("software", "offload"):
            port = free_port()
            guest = t.start(0, f"exec $BUILD/cmake/selftests/vm/programs/qp_asks --port {port} --engine {engine}")
            t.wait_listening(0, port)
            for _ in range(4):
                ended(h.start("--port", port, "--connect", t.nodes[0].ip4, "--messages", "1"))
            result = guest.wait()
            t.check(result.ok, f"{engine}: {result.stdout}{result.stderr}")
            said = json.loads(result.stdout)
            t.equal((len(said), set(said.values())), (4, {"remote invalid request error"}), f"{engine}: {said}")


def test_automatic_choice(t: Guests) -> None:
    """Level 2, nothing forced at the guest: it takes the better engine though the peer is a stock end."""
    with host(t) as h:
        port = free_port()
        guest = t.start(0, f"exec $BUILD/cmake/{ECHO} {port}")
        t.wait_listening(0, port)
        status, out, err = ended(h.start(t.nodes[0].ip4, port, 40, 20000, program=ECHO))
        result = guest.wait()
        t.check(status == 0 and result.ok, f"host {status}: {out}{err}; guest {result.status}: {result.stdout}{result.stderr}")
        t.check(": stock, 800000 bytes received" in out, out)
        t.check(": offload, 800000 bytes received" in result.stdout, result.stdout)


def test_without_the_helper(t: Guests) -> None:
    with host(t) as h:
        port = free_port()
        guest = t.start(0, f"TCPQP_ENGINE=software exec $BUILD/cmake/{EXCHANGE} --port {port} --timeout-ms 1500")
        t.wait_listening(0, port)
        status, out, err = ended(h.start("--port", port, "--connect", t.nodes[0].ip4, "--timeout-ms", "1000", helper=False))
        result = guest.wait()
        t.check(status == 1 and "[NO_BPF_HELPER]" in err, f"host {status}: {out}{err}")
        t.check(result.status == 1 and "[NO_PEER_QP]" in result.stderr, f"guest {result.status}: {result.stdout}{result.stderr}")


def test_message_too_long(t: Guests) -> None:
    """The end that has no room says so: both know which of them it was.

    Small messages, all of which TCP takes at once: behind half of a message there is no place for TERMINATE, and the end is a reset."""
    with host(t) as h:
        for rooms, reasons in ((("--room 200", ""), ("TOO_LONG", "REMOTE_ERROR")), (("", "--room 200"), ("REMOTE_ERROR", "LOCAL_ERROR"))):
            port = free_port()
            guest = t.start(0, f"TCPQP_ENGINE=software exec $BUILD/cmake/{EXCHANGE} --port {port} --bytes 2000 {rooms[1]}")
            t.wait_listening(0, port)
            status, out, err = ended(h.start("--port", port, "--connect", t.nodes[0].ip4, "--bytes", "2000", *rooms[0].split()))
            result = guest.wait()
            t.check(status == 0 and result.ok, f"{rooms}: host {status}: {out}{err}; guest {result.status}: {result.stdout}{result.stderr}")
            t.equal((json.loads(out)["reason"], json.loads(result.stdout)["reason"]), reasons, f"{rooms}: {out} {result.stdout}")
