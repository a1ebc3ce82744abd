# SPDX-License-Identifier: BSD-3-Clause
"""Two ends on a veth pair: of each a network namespace, its tcpqp-bpf, and a cgroup for its programs, as if it were a host."""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LIMIT_S = 60
SKIPPED = 77  # CTest's SKIP_RETURN_CODE
NO_CAPABILITY = ("--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs")
CONFINED = ("--user", "nobody")  # tcpqp-bpf
HELPER = "user/tcpqp_bpf/tcpqp-bpf"
EXCHANGE = "selftests/vm/programs/lib_exchange"
CLOSED = re.compile(r"closed: written (?P<written>\d+) rewritten (?P<rewritten>\d+) bare (?P<bare>\d+) invalid (?P<invalid>\d+) lost (?P<lost>\d+)")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
ADDRESSES_6 = ("fd77::1", "fd77::2")
LINK_LOCAL = ("fe80::77:1", "fe80::77:2")


def sh(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, text=True, timeout=LIMIT_S)


def cgroup2() -> Path | None:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(where)
    return None


def missing() -> str:
    """Why it can't run here, or nothing."""
    major, minor = (int(n) for n in os.uname().release.split(".")[:2])
    if os.geteuid() != 0:
        return "needs root"
    if (major, minor) < (6, 12):
        return "needs Linux 6.12"
    return "" if cgroup2() else "needs cgroup v2"


def skip_where_impossible() -> None:
    if reason := missing():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)


def wakes(pid: int) -> int:
    """Of all the threads of a process, so far."""
    said = "".join(status.read_text() for status in Path(f"/proc/{pid}/task").glob("*/status"))
    return sum(int(n) for n in re.findall(r"^voluntary_ctxt_switches:\s*(\d+)", said, re.MULTILINE))


def wakes_asleep(pids: list[int]) -> list[int]:
    """The same of each, once all have fallen asleep."""
    until = time.monotonic() + LIMIT_S
    before = None
    while before != (before := [wakes(pid) for pid in pids]):
        assert time.monotonic() < until, "somebody does not fall asleep"
        time.sleep(0.2)
    return before


class Ends:
    """Two network namespaces, and of each a helper and a cgroup for the programs: in one for both each segment would meet both helpers' programs."""

    def __init__(self, build: Path, scratch: Path, cleanup: contextlib.ExitStack, options: tuple[str, ...]) -> None:
        self.build, self.scratch, self.cleanup, self.options = build, scratch, cleanup, options
        self.port = 7000
        self.names = [f"tcpqp{end}.{os.getpid()}" for end in "ab"]
        self.cgroups = [cgroup2() / name for name in self.names]
        for cgroup in self.cgroups:
            cgroup.mkdir()
            cleanup.callback(cgroup.rmdir)
        self.make_link()
        self.helpers = [self.start_helper(end) for end in range(2)]

    def within(self, end: int, *argv) -> list[str]:
        # not `ip netns exec`, which hides /sys/fs/cgroup
        return ["nsenter", f"--net=/run/netns/{self.names[end]}", *map(str, argv)]

    def make_link(self) -> None:
        for name in self.names:
            sh("ip", "netns", "add", name)
            self.cleanup.callback(sh, "ip", "netns", "del", name)
        sh("ip", "link", "add", "v0", "netns", self.names[0], "type", "veth", "peer", "name", "v1", "netns", self.names[1])
        for end, address in enumerate(ADDRESSES):
            sh(*self.within(end, "ip", "addr", "add", f"{address}/24", "dev", f"v{end}"))
            for six in ADDRESSES_6[end], LINK_LOCAL[end]:
                sh(*self.within(end, "ip", "addr", "add", f"{six}/64", "dev", f"v{end}", "nodad"))
            sh(*self.within(end, "ip", "link", "set", f"v{end}", "up"))

    def lose(self) -> None:
        for end in range(2):
            sh(*self.within(end, "ethtool", "-K", f"v{end}", "tso", "off", "gso", "off", "gro", "off"))
            filters = ("tc", "filter", "add", "dev", f"v{end}", "ingress", "pref", "1", "bpf", "da", "obj", self.build / "selftests/stock/bpf/loss.bpf.o")
            subprocess.run(self.within(end, "tc", "qdisc", "add", "dev", f"v{end}", "clsact"), check=False, capture_output=True)  # may be there
            sh(*self.within(end, *filters, "sec", "tc"))

    def socket(self, end: int) -> str:
        return str(self.scratch / f"helper{end}")

    def start_helper(self, end: int) -> subprocess.Popen:
        program = self.scratch / f"tcpqp-bpf{end}"  # where nobody may look, too
        shutil.copy(self.build / HELPER, program)
        argv = self.within(end, program, "--cgroup", self.cgroups[end], "--socket", self.socket(end), "--mode", "0666", *self.options)
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        self.cleanup.callback(self.stop, child)
        assert child.stdout.readline() == "tcpqp-bpf: ready\n", "tcpqp-bpf did not start"
        return child

    @staticmethod
    def stop(child: subprocess.Popen) -> str:
        child.terminate()
        return child.communicate(timeout=LIMIT_S)[0] if child.returncode is None else ""

    def launch(self, end: int, framing: str, *argv, helper: bool = True, **streams) -> subprocess.Popen:
        path = self.socket(end) if helper else "/nonexistent"
        environment = {**os.environ, "TCPQP_ENGINE": "stock", "TCPQP_FRAMING": framing, "TCPQP_BPF_SOCKET": path}
        enter = f'echo $$ > {self.cgroups[end]}/cgroup.procs && exec "$@"'
        command = self.within(end, "sh", "-c", enter, "sh", *argv)
        return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, **streams)

    def start(self, end: int, framing: str, *argv, helper: bool = True, privileged: bool = True) -> subprocess.Popen:
        without = () if privileged else ("setpriv", *NO_CAPABILITY)
        return self.launch(end, framing, *without, self.build / EXCHANGE, "--port", self.port, *argv, helper=helper, stderr=subprocess.PIPE, text=True)

    def listening(self, job: subprocess.Popen | None = None, limit_s: float = 30) -> None:
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            if subprocess.run(self.within(0, "ss", "-Hltn", f"sport = :{self.port}"), capture_output=True, text=True, check=True).stdout:
                return
            assert job is None or job.poll() is None, f"{job.args[-6:]} ended: {job.returncode}: {job.communicate()}"
            time.sleep(0.02)
        raise AssertionError("nothing listens")

    def exchange(self, framings: tuple[str, str], messages: int, size: int, *argv, address: str = ADDRESSES[0], **options) -> list[subprocess.CompletedProcess]:
        self.port += 1
        argv = ("--messages", messages, "--bytes", size, *argv)
        jobs = [self.start(0, framings[0], *argv, **options)]
        self.listening(jobs[0])
        jobs.append(self.start(1, framings[1], *argv, "--connect", address, **options))
        ended = []
        for job in jobs:
            try:
                out, err = job.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                job.kill()
                out, err = job.communicate()
            ended.append(subprocess.CompletedProcess(job.args, job.returncode, out, err))
        return ended

    def works(self, framings: tuple[str, str], framing: int, *argv, messages: int = 200, size: int = 20000, **options) -> list[dict]:
        """What both ends say of it."""
        jobs = self.exchange(framings, messages, size, *argv, **options)
        for end, job in enumerate(jobs):
            assert job.returncode == 0, f"{framings}, end {end}: {job.returncode}: {job.stdout}{job.stderr}"
            said = json.loads(job.stdout)
            got = said["sent"], said["received"], said["framing"]
            assert got == (messages, messages, framing), f"{framings}, end {end}: {said}, {jobs[1].stdout}{jobs[1].stderr}"
        return [json.loads(job.stdout) for job in jobs]

    def fails(self, framings: tuple[str, str], reasons: tuple[str, ...], **options) -> None:
        for job, reason in zip(self.exchange(framings, 1, 1000, **options), reasons):
            assert job.returncode == 1 and f"[{reason}]" in job.stderr, f"{framings}: wanted {reason}: {job.stdout}{job.stderr}"

    def all_ended(self) -> None:
        until = time.monotonic() + LIMIT_S  # what was lost of a close is sent again
        shown = ("ss", "-Htan", "state", "big", "exclude", "listening")
        while any(subprocess.run(self.within(end, *shown), capture_output=True, check=True).stdout for end in range(2)):
            assert time.monotonic() < until, "a connection does not end"
            time.sleep(0.02)

    def counters(self) -> dict[str, int]:
        """What the programs of both ends did; the helpers end."""
        self.all_ended()
        said = "".join(self.stop(child) for child in self.helpers)
        found = [m.groupdict() for m in CLOSED.finditer(said)]
        assert found, f"no connection was seen to end: {said}"
        return {name: sum(int(m[name]) for m in found) for name in found[0]}


@contextlib.contextmanager
def ends(build: Path, confined: bool = False, counted: bool = True) -> Iterator[Ends]:
    """@confined: the helpers give up being root, and keep the capabilities that they say they need.

    @counted: they say what each of not too many connections had, for counters().
    """
    with contextlib.ExitStack() as cleanup:
        scratch = Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
        scratch.chmod(0o755)
        yield Ends(build, scratch, cleanup, (*(CONFINED if confined else ()), *(("--verbose",) if counted else ())))


def main(about: str, *tests: Callable[[Ends], None]) -> int:
    """Runs the tests one after the other between the same ends, whose helpers have nothing to complain of."""
    p = argparse.ArgumentParser(description=about)
    p.add_argument("build", type=Path)
    args = p.parse_args()
    skip_where_impossible()
    with ends(args.build) as t:
        for test in tests:
            test(t)
        counters = t.counters()
        assert counters["bare"] == counters["invalid"] == counters["lost"] == 0, counters
    return 0
