# SPDX-License-Identifier: BSD-3-Clause
"""A checkout works wherever it lies: guests boot from it, kbuild builds in it, and one that cannot work says so first.

The copies have this checkout's programs, so that nothing but what a test is about is built again.
"""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.report import Report

from nupavm.paths import REPO

ODD = "tcp qp ü,1:x"
PLACES = ("/run", "/dev/shm", "/mnt")  # where a guest mounts something of its own, or where it is not what it was; /tmp is in every case
PRODUCTS = (
    "cmake/tools/nupa_switch/daemon/nupa_switch", "cmake/tools/nupa_switch/nupactl/nupactl", "cmake/tools/ncqp/ncqp",
    "kernel/tcp_qp/tcp_qp.ko", "kernel/nupa_dev/nupa_dev.ko", "kernel/nupa_accel/nupa_accel.ko",
)  # fmt: skip
BOOT_CACHE = ("initramfs-*", "vmlinux-*", "modules-*", "kvm.json")
# What README.md and the manual name; the rest of what is installed may change.
INSTALLED = (
    "include/tcp_qp/tcp_qp.h", "include/tcpqp.h", "lib/libtcpqp.so.0", "tcpqp/libtcpqp-preload.so", "tcpqp/libtcpqp-posts.so",
    "tcpqp/tcpqp-cgroup", "bin/ncqp", "bin/tcpqp_perf", "bin/tcpqp-run", "bin/tcpqp-stat",
    "bin/nupa_switch", "bin/nupactl", "bin/nupa_accel", "man1/ncqp.1", "man1/tcpqp_perf.1", "man1/tcpqp-run.1", "man1/tcpqp-stat.1", "man1/nupactl.1",
    "man1/nupa_switch.1", "man1/nupa_accel.1",
    "man7/tcpqp.7", "man3/tcpqp_open.3", "pkgconfig/tcpqp.pc", "completions/ncqp", "system/tcpqp-bpf.socket", "sysusers.d/tcpqp.conf",
    "updates/tcp_qp/tcp_qp.ko", "updates/tcp_qp/nupa_dev.ko", "updates/tcp_qp/nupa_accel.ko",
)  # fmt: skip
HELP_VARIABLE = re.compile(r'\b([A-Z][A-Z_]*)=("[^"]*"|[^\s:,)]+)')
LIMIT_S = 540
NOBODY = 65534
IN_GUESTS = 'test -f $REPO/Makefile && cd "$HOST_REPO" && test -f Makefile && $BUILD/cmake/tools/ncqp/ncqp --help >/dev/null && ping -c 1 $PEER >/dev/null'
OTHER_FILE_SYSTEM = 'mount -t tmpfs other "$1" && shift && exec "$@"'
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
SHELLS_END = b"\x1dq"  # Ctrl-] q
STREAMS = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


class Trouble(Exception):
    """A check did not hold."""


def run(report: Report, wanted: Callable[[str], bool], long: bool = False) -> None:
    tests = [
        odd_path_below_tmp, no_headers, read_only, unreadable, foreign_build, odd_names_refused, variables, help_is_true, no_sudo, full_disk,
        two_builds, failed_download, not_built_for_install, installed_and_removed,
    ]  # fmt: skip
    if long:
        tests = [*(_boot_below(place) for place in PLACES), other_file_system, built_in_odd_path, module_in_odd_path, killed_build, two_clones_at_once, shells]
    for test in tests:
        name = f"places/{test.__name__}"
        if not wanted(name):
            continue
        try:
            reason = test()
        except (Trouble, OSError, subprocess.TimeoutExpired) as trouble:
            report.failed(name, str(trouble))
        else:
            report.skipped(name, reason) if reason else report.passed(name)


# Where it works


def odd_path_below_tmp() -> str:
    return _boots_in("/tmp", ODD)


def _boot_below(place: str) -> Callable[[], str]:
    def test() -> str:
        return _boots_in(place, "tcp_qp")

    test.__name__ = f"below_{place[1:].replace('/', '_')}"
    return test


def other_file_system() -> str:
    """A mount of its own, as /home often is."""
    if os.geteuid() != 0:
        return "mounting needs root"
    with _scratch("/home") as top:
        script = f"{OTHER_FILE_SYSTEM}"
        copy = top / ODD
        inner = f'mkdir -p "$1" && cp -a "$2/." "$1" && exec "$1/tools/vm/nupa-vm" -- \'{IN_GUESTS}\''
        with _checkout("/var/tmp", "tcp_qp") as source:
            _run(["unshare", "-m", "sh", "-ec", script, "-", top, "sh", "-ec", inner, "-", copy, source])
    return ""


def _boots_in(place: str, name: str) -> str:
    if not os.access(place, os.W_OK):
        return f"{place} is not ours to write to"
    with _checkout(place, name) as copy:
        _run([copy / "tools/vm/nupa-vm", "--", IN_GUESTS])
    return ""


def module_in_odd_path() -> str:
    """kbuild itself takes no spaces and no colons."""
    return _builds(["make", "-C", "kernel", "nupa_dev"], ("kernel/nupa_dev/nupa_dev.ko",))


def built_in_odd_path() -> str:
    return _builds(["make", "user", "kernel", "DEPS=no"], (*PRODUCTS, "cmake/user/libtcpqp/libtcpqp.so.0", "cmake/user/tcpqp_run/tcpqp-run"))


def _builds(argv: list[str], products: tuple[str, ...]) -> str:
    with _checkout("/tmp", ODD, products=()) as copy:
        output = _run(argv, cwd=copy)
        missing = [name for name in products if not (copy / "build" / name).is_file()]
        subprocess.run(["make", "-C", "kernel", "clean"], cwd=copy, stdout=subprocess.DEVNULL, check=False)
        if missing:
            raise Trouble(f"{' '.join(argv)} made no {', '.join(missing)}\n{output}")
    return ""


# Where it cannot, and says so before anything is built


def no_headers() -> str:
    with _checkout("/tmp", "tcp_qp", products=()) as copy:
        _refuses(["make", "-C", "kernel", "KDIR=/nonexistent"], copy, "apt-get install linux-headers-6.12-amd64")
    return ""


def read_only() -> str:
    with _checkout("/tmp", "tcp_qp", products=()) as copy:
        if os.geteuid() == 0:
            _refuses(["unshare", "-m", "sh", "-ec", READ_ONLY, "-", copy, "tools/front/checkout"], copy, "the file system is read-only")
            return ""
        copy.chmod(0o555)
        try:
            _refuses(["make", "kernel"], copy, "cannot be written to")
        finally:
            copy.chmod(0o755)
    return ""


def unreadable() -> str:
    with _checkout("/tmp", "tcp_qp", products=()) as copy:
        (copy / "kernel/Makefile").chmod(0)
        for path in (copy.parent, copy):
            path.chmod(0o755)
        _refuses([*_as_nobody(), "tools/front/checkout"], copy, "kernel/Makefile cannot be read by")
    return ""


def foreign_build() -> str:
    if os.geteuid() != 0:
        return "only root makes files of another user"
    with _checkout("/tmp", "tcp_qp", products=()) as copy:
        copy.parent.chmod(0o755)
        (copy / "build/results").mkdir(parents=True)
        (copy / "build").chmod(0o777)
        _refuses([*_as_nobody(), "make", "kernel"], copy, "build/results belongs to root")
    return ""


def odd_names_refused() -> str:
    for name in ("semi;colon", "dollar$name", "quo'te"):
        with _checkout("/tmp", name, products=()) as copy:
            _refuses(["make", "kernel"], copy, "clone it to a path without them")
    return ""


def variables() -> str:
    """Misspelt names and values."""
    with _checkout("/tmp", "tcp_qp", products=()) as copy:
        for argument, words in (
            ("JOBS=many", "JOBS is a number"), ("PREFIX=here", "PREFIX is a directory's whole path"), ("MODE=nonsense", "MODE: make has no such variable"),
            ("DEPS=perhaps", "DEPS is yes or no"), ("V=3", "V is 0 or 1"), ("QUICK=very", "QUICK is 0 or 1"), ("KCSAN=yes", "KCSAN is 0 or 1"),
            ("CXL=on", "CXL is 0 or 1"),
            ("KERNELS=sid", "KERNELS names suites of Debian"), ("USERLAND=debian14", "USERLAND is debian13"), ("SEED=first", "SEED is a number"),
        ):  # fmt: skip
            _refuses(["make", "demo", argument], copy, words)
        _refuses(["selftests/run", "--only", "no/such/test"], copy, "no test matches no/such/test")
    return ""


def help_is_true() -> str:
    """What `make help` says of a variable may be said."""
    said = sorted({(name, value.strip('"')) for name, value in HELP_VARIABLE.findall(_run(["make", "help"], cwd=REPO))})
    if not said:
        raise Trouble("make help names no variable")
    for name, value in said:
        _run(["make", "help", f"{name}={value}"], cwd=REPO)
    for name in ("V", "QUICK", "KCSAN", "CXL"):
        as_read = _run(["make", f"--eval=said: ; @echo '$({name})'", "said", f"{name}=0"], cwd=REPO).strip()
        if as_read:
            raise Trouble(f"{name}=0 is off, and make reads {as_read!r}")
    return ""


LACKING = "tcp-qp-no-such-package"
SUDO_REFUSES = "#!/bin/sh\necho not in the sudoers file >&2\nexit 1\n"


def no_sudo() -> str:
    """Packages are missing, and sudo is, or refuses, or was not to be asked."""
    with _checkout("/tmp", "tcp_qp", products=()) as copy:
        (copy / "tools/deps/kernel").write_text(f"{LACKING}\n")
        (copy / "build").mkdir()
        for path in (copy.parent, copy, copy / "build"):
            path.chmod(0o777)
        without = copy / "without"
        without.mkdir(mode=0o755)
        for directory in ("/usr/bin", "/bin"):
            for program in Path(directory).iterdir():
                if program.name != "sudo" and not (without / program.name).exists():
                    (without / program.name).symlink_to(program)
        install = f"install them as root, then run make again: apt-get install -q -y --no-install-recommends {LACKING}"
        as_nobody = [*_as_nobody(), "env"]
        _refuses([*as_nobody, f"PATH={without}", "make", "kernel"], copy, install)
        (without / "sudo").write_text(SUDO_REFUSES)
        (without / "sudo").chmod(0o755)
        _refuses([*as_nobody, f"PATH={without}", "make", "kernel"], copy, install)
        _refuses(["make", "kernel", "DEPS=no"], copy, LACKING)
    return ""


SMALL_BUILD = 'mkdir build && mount -t tmpfs -o size=12m none build && exec "$@"'
FILLS = "make kernel; touch build/.roomy; exec tools/front/stage packages sh -c 'yes >build/file'"


def full_disk() -> str:
    if os.geteuid() != 0:
        return "mounting needs root"
    with _checkout("/tmp", "tcp_qp", products=()) as copy:
        said = _refuses(["unshare", "-m", "sh", "-ec", SMALL_BUILD, "-", "sh", "-c", FILLS], copy, "there is no room left below")
        if "MiB are free below" not in said:
            raise Trouble(f"make began with 12 MiB:\n{said}")
    return ""


def two_builds() -> str:
    """In one checkout: the second waits for the first, also for what is left of one that was killed."""
    with _checkout("/tmp", "tcp_qp", products=()) as copy:
        (copy / "build").mkdir()
        works = f"while ! [ -e {copy.name}.go ]; do sleep 0.05; done; echo over >>order"
        with subprocess.Popen(["tools/front/stage", "modules", "sh", "-c", works], cwd=copy, stdout=subprocess.DEVNULL) as first:
            _until(lambda: (copy / "build/log/modules.log").exists(), "the first build")
            with subprocess.Popen(["tools/front/stage", "programs", "sh", "-c", "echo next >>order"], cwd=copy, stdout=subprocess.PIPE, text=True) as second:
                said = second.stdout.readline()
                first.kill()
                first.wait()
                (copy / f"{copy.name}.go").touch()
                said += second.communicate(timeout=LIMIT_S)[0]
        order = (copy / "order").read_text()
        if "waits for another build" not in said or order != "over\nnext\n":
            raise Trouble(f"the second said {said!r}; in order: {order!r}")
    return ""


def killed_build() -> str:
    """make, and all that it started, killed in the middle; then it is made whole."""
    with _checkout("/tmp", "tcp_qp", products=()) as copy:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        first = subprocess.Popen(["make", "-C", "kernel", "nupa_dev"], cwd=copy, env=_environment(), start_new_session=True, **quiet)
        try:
            _until(lambda: len(list((copy / "build/kernel/nupa_dev").glob("*.o"))) >= 3, "three objects")
        finally:
            os.killpg(first.pid, signal.SIGKILL)
            first.wait()
        if (copy / "build/kernel/nupa_dev/nupa_dev.ko").exists():
            raise Trouble("it was over already: nothing was shown")
        _run(["make", "-C", "kernel", "nupa_dev"], cwd=copy)
        shutil.copytree(copy / "build/kernel/nupa_dev", copy / "again")
        _run(["make", "-C", "kernel", "clean"], cwd=copy)
        _run(["make", "-C", "kernel", "nupa_dev"], cwd=copy)
        whole = {path.name: path.read_bytes() for path in (copy / "build/kernel/nupa_dev").glob("*.o")}
        other = [name for name, text in whole.items() if (copy / "again" / name).read_bytes() != text]  # the .ko's BTF differs each time
        if other or not whole or not (copy / "again/nupa_dev.ko").exists():
            raise Trouble(f"made after the kill, and not as without: {other or 'nothing'}")
    return ""


def two_clones_at_once() -> str:
    """Two demos: four guests, two switches, two files, and a table of each."""
    with _checkout("/tmp", "one") as one, _checkout("/tmp", "two") as two:
        both = [
            subprocess.Popen([copy / "tools/vm/demo", "--engine", "tcp", "--engine", "offload"], env=_environment(), **STREAMS)
            for copy in (one, two)
        ]  # fmt: skip
        for process, copy in zip(both, (one, two)):
            said = process.communicate(timeout=LIMIT_S)[0]
            if process.returncode != 0:
                raise Trouble(said)
            rows = json.loads((copy / "build/results/demo.json").read_text())["results"]
            if [row["engine"] for row in rows] != ["tcp", "offload"]:
                raise Trouble(f"a demo without its table: {rows}\n{said}")
    return ""


def shells() -> str:
    """What `make vm` says of the switch works as it stands."""
    keyboard, terminal = pty.openpty()
    argv = [REPO / "tools/vm/nupa-vm", "--setup", "none", "--interactive"]
    try:
        with subprocess.Popen(argv, stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, text=True) as child:
            said = []
            while not said or said[-1] and "Ctrl-] q: end" not in said[-1]:
                said.append(child.stderr.readline())
            line = next((line for line in said if "--control $CONTROL top" in line), "false\n")
            done = _output(["sh", "-c", line.replace(" top ", " ports ")], None)

            def ended() -> bool:  # what is typed before the terminal is raw is lost
                os.write(keyboard, SHELLS_END)
                return child.poll() is not None

            _until(ended, "the end of the shells")
    finally:
        os.close(keyboard)
        os.close(terminal)
    if done.returncode != 0 or "n1" not in done.stdout:
        raise Trouble(f"{''.join(said)}\n{line}ends with {done.returncode}: {done.stdout}")
    return ""


NO_MIRROR = "#!/bin/sh\necho no such package >&2\nexit 1\n"


def failed_download() -> str:
    """A Debian 13 that lacks a package that could not be fetched is none."""
    with _checkout("/tmp", "tcp_qp", products=()) as copy:
        base = copy / "build/kernels/debian13/usr/share/base-passwd"
        base.mkdir(parents=True)
        for name in ("passwd.master", "group.master"):
            (base / name).touch()
        for name in ("usr/bin", "etc", "boot"):
            (copy / "build/kernels/debian13" / name).mkdir()
        (copy / "tools/kernels/archive").write_text(NO_MIRROR)
        (copy / "unshare").write_text("#!/bin/sh\n")
        (copy / "unshare").chmod(0o755)
        _refuses(["env", f"PATH={copy}:{os.environ['PATH']}", "tools/kernels/machine", "make", "linux-image-amd64"], copy, "no such package")
    return ""


MODULES = tuple(name for name in PRODUCTS if name.startswith("kernel/"))
OLD_PROGRAM = "rule link\n command = false\nbuild program: link Makefile\nbuild product: phony program\n"


def not_built_for_install() -> str:
    """Root installs what its owner built: not a part of it, nothing older than its sources, no modules of another kernel."""
    missing = [name for name in MODULES if not (REPO / "build" / name).exists()]
    if missing:
        return "the modules are not built: make kernel"
    with _checkout("/tmp", "tcp_qp", products=MODULES) as copy:
        root = copy / "root"
        install = ["packaging/install", "--prefix", "/usr/local", "--destdir", root]
        (copy / "build/cmake").mkdir()
        (copy / "build/cmake/cmake_install.cmake").touch()
        for parts, words in (("demo", "only those of `make demo`"), ("all", "older than their sources")):
            (copy / "build/cmake/CMakeCache.txt").write_text(f"TCP_QP_PARTS:STRING={parts}\n")
            (copy / "build/cmake/build.ninja").write_text(OLD_PROGRAM)
            said = _refuses(install, copy, words)
            if "make user kernel" not in said:
                raise Trouble(f"who is to do what?\n{said}")
        headers = copy / "headers"
        (headers / "include/config").mkdir(parents=True)
        (headers / "include/config/kernel.release").write_text("6.12.0-other\n")
        said = _refuses(["make", "-C", "kernel", "modules_install", f"KDIR={headers}", f"INSTALL_MOD_PATH={root}"], copy, "to be installed for 6.12.0-other")
        if root.exists():
            raise Trouble(f"refused, and all the same installed {_files(root)}:\n{said}")
    return ""


def installed_and_removed() -> str:
    """make install has what the documents name, also over an earlier one; make uninstall leaves what was there before, and that only."""
    if not (REPO / "build/cmake/packaging/cmake_install.cmake").exists():
        return "the programs are not built whole: make user"
    with _scratch("/tmp") as root:
        mine = root / "usr/local/bin/mine"
        mine.parent.mkdir(parents=True)
        mine.touch()
        place = [REPO / "packaging/install", "--prefix", "/usr/local", "--destdir", root]
        _run(["sh", "-c", 'umask 077 && exec "$@"', "-", *place])
        hidden = [str(path) for path in root.rglob("*") if path not in (mine, *mine.parents) and not _for_everybody(path)]
        if hidden:
            raise Trouble(f"root's umask hides {hidden}")
        for path in _files(root / "lib/modules"):  # of another kernel's build: the next one knows it no more
            stale = path.with_name("stale.ko")
            path.rename(stale)
            note = root / "usr/local/share/tcp_qp/installed"
            note.write_text(note.read_text().replace(path.name, stale.name))
            break
        _run(place)
        have = {str(path.relative_to(root)) for path in _files(root)}
        missing = [name for name in INSTALLED if not any(Path(path).match(name) for path in have)]
        if missing or any("stale.ko" in path for path in have):
            raise Trouble(f"missing: {missing}; there: {sorted(have)}")
        for page in (path for path in _files(root) if "man" in path.parts):
            if complaints := _output(["groff", "-man", "-Tutf8", "-ww", "-z", page], None).stdout:
                raise Trouble(complaints)
        _run([*place, "--undo"])
        left = [str(path) for path in root.rglob("*")]
        if left != [str(root / "usr"), str(root / "usr/local"), str(root / "usr/local/bin"), str(mine)]:
            raise Trouble(f"left behind: {left}")
        _refuses([*place, "--undo"], root, "nothing is installed")
    return ""


def _for_everybody(path: Path) -> bool:
    wanted = 0o055 if path.is_dir() else 0o044
    return path.stat().st_mode & wanted == wanted


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() or path.is_symlink())


def _as_nobody() -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []


def _until(true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() > until:
            raise Trouble(f"waited for {what}")
        time.sleep(0.05)


def _refuses(argv: list, copy: Path, words: str) -> str:
    done = _output(argv, copy)
    if done.returncode == 0 or words not in done.stdout:
        raise Trouble(f"{' '.join(map(str, argv))} should have failed with {words!r}, ended with {done.returncode}:\n{done.stdout}")
    built = [str(path) for path in (copy / "build").rglob("*.o")]
    if built:
        raise Trouble(f"built before it refused: {built}")
    return done.stdout


# Copies


@contextmanager
def _scratch(place: str) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="nupa-place.", dir=place))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def _checkout(place: str, name: str, products: tuple[str, ...] = PRODUCTS) -> Iterator[Path]:
    with _scratch(place) as top:
        copy = top / name
        for path in _sources():
            target = copy / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPO / path, target, follow_symlinks=False)
        for path in products:
            target = copy / "build" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPO / "build" / path, target)
        for pattern in BOOT_CACHE if products else ():
            for path in (REPO / "build/vm").glob(pattern):
                target = copy / "build/vm" / path.name
                shutil.copytree(path, target) if path.is_dir() else (target.parent.mkdir(parents=True, exist_ok=True), shutil.copy2(path, target))
        yield copy


def _sources() -> list[str]:
    """What a clone has, and what is not committed yet; a checkout without git has all but what was built."""
    listing = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-coz", "--exclude-standard"], cwd=REPO, stdout=subprocess.PIPE, check=False)
    names = listing.stdout.decode().split("\0") if listing.returncode == 0 else [str(p.relative_to(REPO)) for p in REPO.rglob("*") if p.is_file()]
    return sorted(name for name in set(names) if name and not name.startswith(("build/", ".git/")) and ((REPO / name).is_file() or (REPO / name).is_symlink()))


def _run(argv: list, cwd: Path | None = None) -> str:
    done = _output(argv, cwd)
    if done.returncode != 0:
        raise Trouble(f"{' '.join(map(str, argv))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Without what an outer make tells an inner one."""
    return {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "KDIR", "V", "DEPS")}


def _output(argv: list, cwd: Path | None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(a) for a in argv], cwd=cwd, env=_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", timeout=LIMIT_S, check=False,
    )  # fmt: skip
