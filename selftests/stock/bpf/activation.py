#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tcpqp-bpf with the listener that systemd makes: as nobody, for whom the listener's mode and group say, and no other listener.

activation.py BUILD: ends on a veth pair, as in `option.py`, whose helpers are started as the units start them.
"""

import contextlib
import grp
import os
import pwd
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from ends import HELPER, LIMIT_S, Ends, missing, sh

SKIPPED = 77
OPTION = 2  # enum tcpqp_framing
FIRST = 3  # SD_LISTEN_FDS_START
MODE = 0o660
NOBODY, OUTSIDER = pwd.getpwnam("nobody").pw_uid, 61003
GROUP = grp.getgrnam("nogroup").gr_gid
CAPABILITIES = "+bpf,+net_admin,+perfmon"
# what the service says: User, AmbientCapabilities, CapabilityBoundingSet, NoNewPrivileges
AS_THE_SERVICE = ("setpriv", f"--reuid={NOBODY}", f"--regid={GROUP}", "--clear-groups", f"--inh-caps=-all,{CAPABILITIES}",
                  f"--ambient-caps=-all,{CAPABILITIES}", f"--bounding-set=-all,{CAPABILITIES}", "--no-new-privs")  # fmt: skip


def listener(path: str, kind: int = socket.SOCK_SEQPACKET, listens: bool = True) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, kind)
    made.bind(path)
    os.chown(path, 0, GROUP)
    os.chmod(path, MODE)
    if listens:
        made.listen()
    return made


def start(argv: list, passed: int, count: int = 1) -> subprocess.Popen:
    """As systemd does: from descriptor 3 on, and LISTEN_PID is the program's own."""
    pass_on = f'exec {FIRST}<&{passed}; export LISTEN_FDS={count} LISTEN_PID=$$; exec "$@"'
    return subprocess.Popen(
        ["sh", "-c", pass_on, "sh", *map(str, argv)], pass_fds=[passed], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip


class ActivatedEnds(Ends):
    def start_helper(self, end: int) -> subprocess.Popen:
        program = self.scratch / f"tcpqp-bpf{end}"
        shutil.copy(self.build / HELPER, program)
        with listener(self.socket(end)) as made:
            child = start(self.within(end, *AS_THE_SERVICE, program, "--cgroup", self.cgroups[end]), made.fileno())
        self.cleanup.callback(self.stop, child)
        first = child.stdout.readline()
        assert first == "tcpqp-bpf: ready\n", f"{first}{child.communicate(timeout=LIMIT_S)}"
        return child


def serves(t: ActivatedEnds) -> None:
    for child in t.helpers:
        status = Path(f"/proc/{child.pid}/status").read_text()
        assert f"\nUid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}\n" in status and "\nCapEff:\t000000c000001000\n" in status, status
    t.works(("option", "option"), OPTION)


def asks_as(uid: int, groups: list[int], path: str) -> int:
    """0, or the exit status of who could not connect."""
    script = f"import socket; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect({path!r})"
    change = ["setpriv", f"--reuid={uid}", f"--regid={uid}", f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"]
    return subprocess.run([*change, "/usr/bin/python3", "-c", script], capture_output=True, timeout=LIMIT_S, check=False).returncode


def the_group_only(t: ActivatedEnds) -> None:
    assert asks_as(OUTSIDER, [GROUP], t.socket(0)) == 0, "the group may ask"
    assert asks_as(OUTSIDER, [], t.socket(0)) != 0, "nobody else may"


def the_path_stays(t: ActivatedEnds) -> None:
    """It is systemd's; the next helper is passed the same listener."""
    for end, child in enumerate(t.helpers):
        t.stop(child)
        assert Path(t.socket(end)).is_socket(), "the socket's path is gone"


def listens_at(path: str) -> int:
    """The process that called listen() there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asks:
        asks.connect(path)
        return struct.unpack("3i", asks.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[0]


def own_path(t: ActivatedEnds) -> None:
    """Without systemd the path is the helper's: a start that fails takes it from nobody, and it goes with who made it."""
    path = t.scratch / "own"

    def started() -> subprocess.Popen:
        argv = t.within(0, t.build / HELPER, "--cgroup", t.cgroups[0], "--socket", path)
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        t.cleanup.callback(t.stop, child)
        assert child.stdout.readline() == "tcpqp-bpf: ready\n", f"no helper: {child.communicate(timeout=LIMIT_S)}"
        return child

    def fails(words: str, *options) -> None:
        done = subprocess.run(t.within(0, t.build / HELPER, *options), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 1 and words in done.stderr, f"{options}: {done}"

    fails("No such file", "--cgroup", t.scratch / "none", "--socket", path)
    assert not path.exists(), "a start that failed left its socket"
    first = started()
    fails("another program listens there", "--cgroup", t.cgroups[0], "--socket", path)
    fails("Address already in use", "--cgroup", t.scratch / "none", "--socket", path)
    assert listens_at(str(path)) == first.pid, "the first helper's socket is gone"
    first.kill()
    first.wait()
    second = started()
    assert listens_at(str(path)) == second.pid, "what a killed helper left was not replaced"
    path.unlink()
    with listener(str(path)):
        t.stop(second)
        assert path.is_socket(), "a helper that ended took another's socket"
    path.unlink()
    t.stop(started())
    assert not path.exists(), "a helper that ended left its socket"


def refuses(build: Path, scratch: Path) -> None:
    def ended(what: str, words: str, *options, count: int = 1, fd: int) -> None:
        child = start([build / HELPER, *options], fd, count)
        try:
            _, said = child.communicate(timeout=LIMIT_S)
        finally:
            child.kill()
        assert child.returncode == 1 and words in said, f"{what}: {child.returncode}: {said}"

    with listener(str(scratch / "stream"), socket.SOCK_STREAM) as stream:
        ended("a stream", "no AF_UNIX SOCK_SEQPACKET", fd=stream.fileno())
    with listener(str(scratch / "silent"), listens=False) as silent:
        ended("a socket that does not listen", "no AF_UNIX SOCK_SEQPACKET", fd=silent.fileno())
    with open("/dev/null", "rb") as file:
        ended("a file", "Socket operation on non-socket", fd=file.fileno())
    with listener(str(scratch / "own")) as own:
        ended("two", "one listener", count=2, fd=own.fileno())
        ended("a mode beside it", "the .socket unit's to say", "--mode", "0666", fd=own.fileno())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as foreign:
        foreign.bind(str(scratch / "foreign"))
        os.seteuid(NOBODY)  # who calls listen() is whom libraries see
        try:
            foreign.listen()
        finally:
            os.seteuid(0)
        ended("another user's", f"user {NOBODY}'s", fd=foreign.fileno())


def units_are_right(build: Path) -> None:
    """systemd itself reads them."""
    verify = shutil.which("systemd-analyze")
    if verify is None:
        return
    with tempfile.TemporaryDirectory() as root:
        sh("sh", "-c", 'DESTDIR="$1" cmake --install "$0/packaging" --prefix /usr/local', str(build), root)
        units = Path(root) / "usr/local/lib/systemd/system"
        service = units / "tcpqp-bpf.service"
        service.write_text(service.read_text().replace("/usr/local/sbin/tcpqp-bpf", str(build / HELPER)).replace("man:tcpqp-bpf(8)", "man:cat(1)"))
        (units / "tcpqp-bpf.socket").write_text((units / "tcpqp-bpf.socket").read_text().replace("man:tcpqp-bpf(8)", "man:cat(1)"))
        said = subprocess.run([verify, "verify", "--man=no", service, units / "tcpqp-bpf.socket"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert said.returncode == 0 and "tcpqp-bpf" not in said.stderr, said.stderr


def main() -> int:
    build = Path(sys.argv[1]).resolve()
    reason = missing()
    if reason:
        print(f"skipped: {reason}")
        return SKIPPED
    units_are_right(build)
    with contextlib.ExitStack() as cleanup:
        scratch = Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
        scratch.chmod(0o755)
        refuses(build, scratch)
        t = ActivatedEnds(build, scratch, cleanup, ())
        serves(t)
        the_group_only(t)
        own_path(t)
        the_path_stays(t)
    return 0


sys.exit(main())
