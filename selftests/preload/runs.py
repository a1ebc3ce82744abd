#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tcpqp-run and its library, without the module: runs.py TCPQP_RUN LIBRARY LAST_WORDS [TEST...].  The program is what it is alone; what is said of it."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

RUN, LIBRARY, LAST_WORDS = (str(Path(path).resolve()) for path in sys.argv[1:4])
LIMIT_S = 60
NO_MODULE = " runs on plain TCP: the tcp_qp module is not loaded, or has no tcp_qp_stream\n"


def run(*command: str, **more) -> subprocess.CompletedProcess:
    return subprocess.run([RUN, *command], capture_output=True, text=True, timeout=LIMIT_S, check=False, **more)


def preloaded_into(into: int, *command: str, **more) -> subprocess.CompletedProcess:
    """The library as where the module is, its lines to that file."""
    place = os.fstat(into)
    env = {**os.environ, "LD_PRELOAD": LIBRARY, "TCPQP_RUN_STATS": f"{place.st_dev}:{place.st_ino}"}
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=into, text=True, timeout=LIMIT_S, env=env, check=False, **more)


def preloaded(*command: str, **more) -> subprocess.CompletedProcess:
    """The same, to our pipe."""
    out, into = os.pipe()
    with os.fdopen(out) as said:
        done = preloaded_into(into, *command, **more)
        os.close(into)
        done.stderr = said.read()
    return done


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", "import os, signal, socket, sys, time\n" + code


def has_module() -> bool:
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, 31, b"tcp_qp_stream")
        except FileNotFoundError:
            return False
    return True


def test_exit_status() -> None:
    for status in (0, 7, 255):
        assert run("sh", "-c", f"exit {status}").returncode == status
    assert run("sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    missing = run("/nonexistent/program")
    assert missing.returncode == 127 and missing.stderr.endswith("tcpqp-run: /nonexistent/program: No such file or directory\n"), missing
    assert run("/").returncode == 126
    assert run("--what").returncode == 64
    assert run("--stats").returncode == 64
    assert run("--verbs", "--stats", "true").returncode == 64
    assert run().returncode == 64
    assert run("--help").returncode == 0
    assert run("--", "sh", "-c", "exit 3").returncode == 3


def test_becomes_the_program() -> None:
    """No process beside it: the same number, the same parent, no child, no further descriptor, its standard streams and directory."""
    with tempfile.TemporaryDirectory() as scratch:
        code = "print(os.getpid(), os.getppid(), sorted(os.listdir('/proc/self/fd')), open('/proc/self/task/%d/children' % os.getpid()).read(), os.getcwd())"
        alone = subprocess.run(python(code + "; print(sys.stdin.read())"), input="words", capture_output=True, text=True, cwd=scratch, check=True)
        with subprocess.Popen([RUN, *python(code + "; print(sys.stdin.read())")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, cwd=scratch) as job:  # fmt: skip
            said = job.communicate("words", timeout=LIMIT_S)[0]
        assert said.split()[:2] == [str(job.pid), str(os.getpid())], said
        assert said.split(maxsplit=1)[1] == alone.stdout.split(maxsplit=1)[1], (said, alone.stdout)


def test_without_the_module() -> None:
    """One line, and the environment as it was."""
    if has_module():
        return
    code = "import json; print(json.dumps(dict(os.environ)))"
    for options in ((), ("--stats",)):
        done = run(*options, *python(code))
        assert done.stderr == f"tcpqp-run: {sys.executable}{NO_MODULE}", done
        assert done.stdout == subprocess.run(python(code), stdout=subprocess.PIPE, text=True, check=True).stdout, done


CONNECTS = """
listener = socket.create_server(("127.0.0.1", 0))
for n in range(5):
    one = socket.create_connection(listener.getsockname()); two, _ = listener.accept()
    one.sendall(b"well"); assert two.recv(4, socket.MSG_WAITALL) == b"well"
"""


def test_says_what_it_did() -> None:
    """A missing module is asked for once; what is no TCP socket is not spoken of."""
    done = preloaded(*python(CONNECTS))
    assert done.returncode == 0, done
    if not has_module():
        assert re.fullmatch(r"tcpqp-run: python3[.\d]*\(\d+\): tcp_qp_stream on 0 sockets, refused 1 times: tcp_qp is not loaded\n", done.stderr), done
    unix = preloaded(*python("""
s = socket.socket(socket.AF_UNIX); s.bind(b"\\0" + os.urandom(8)); s.listen()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(("127.0.0.1", 9))
"""))
    assert (unix.returncode, unix.stderr) == (0, ""), unix


def test_each_process_says_its_own() -> None:
    done = preloaded(*python(CONNECTS + "if os.fork() == 0: sys.exit(0)\nos.wait()"))
    assert done.returncode == 0 and done.stderr.count("tcpqp-run: ") == 1, done


def test_writes_to_nobody_elses_file() -> None:
    """A daemon's standard error may be a file of its own by then."""
    with tempfile.NamedTemporaryFile() as file:
        done = preloaded(*python(CONNECTS + f"os.dup2(os.open({file.name!r}, os.O_RDWR), 2)"))
        assert (done.returncode, done.stderr, file.read()) == (0, "", b""), done
    for place in ("", "0:0", "1", "x:y", "18446744073709551616:1"):
        env = {**os.environ, "LD_PRELOAD": LIBRARY, "TCPQP_RUN_STATS": place}
        done = subprocess.run(python(CONNECTS), capture_output=True, text=True, timeout=LIMIT_S, env=env, check=False)
        assert (done.returncode, done.stderr) == (0, ""), (place, done)


def fill(into: int) -> None:
    os.set_blocking(into, False)
    try:
        while True:
            os.write(into, bytes(1 << 16))
    except BlockingIOError:
        os.set_blocking(into, True)


def test_nobody_reads_what_it_says() -> None:
    """The reader has gone, or does not read: the program ends as it does alone, with what it wrote last."""
    for has_gone in True, False:
        out, into = os.pipe()
        if has_gone:
            os.close(out)
        else:
            fill(into)
        done = preloaded_into(into, LAST_WORDS)
        assert (done.returncode, done.stdout) == (0, "words"), (has_gone, done)
        os.close(into)


def test_asks_little_of_the_program() -> None:
    """No library of C++, no name that a program could meet."""
    needed = subprocess.run(["objdump", "-p", LIBRARY], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert re.findall(r"NEEDED\s+(\S+)", needed) == ["libc.so.6"], needed
    shown = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert [line.split()[2] for line in shown.splitlines()] == ["connect", "listen", "sendmmsg", "sendmsg", "sendto"], shown


def test_another_user() -> None:
    """A program that is more privileged than its caller hears nothing of us, and nothing is said."""
    if os.getuid() != 0:
        return
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        program = Path(scratch) / "id"
        shutil.copy("/usr/bin/id", program)
        program.chmod(0o4755)
        done = preloaded("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, "-u")
        assert (done.stdout, done.stderr) == ("0\n", ""), done


def test_a_static_program() -> None:
    """It never hears of us: plain TCP, untouched."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with subprocess.Popen(["busybox", "nc", "127.0.0.1", str(listener.getsockname()[1])], env={**os.environ, "LD_PRELOAD": LIBRARY},
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:  # fmt: skip
            link, _ = listener.accept()
            with link:
                link.sendall(b"words\n")
                link.shutdown(socket.SHUT_WR)
                assert client.communicate("", timeout=LIMIT_S) == ("words\n", "")


def test_verbs() -> None:
    """Another library, for all programs below it; one that has no verbs is what it is alone."""
    env = {"PATH": os.environ["PATH"], "LD_PRELOAD": "libm.so.6"}
    library = str(Path(LIBRARY).with_name("libtcpqp-posts.so"))
    done = run("--verbs", "sh", "-c", "echo $LD_PRELOAD; sh -c 'exit 3'", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{library}:libm.so.6\n", ""), done
    code = "a, b = os.pipe(); os.write(b, b'words'); assert os.read(a, 9) == b'words'\ntry: os.write(99, b'')\nexcept OSError as e: print(e.errno)"
    done = run("--verbs", *python(code))
    assert (done.stdout, done.stderr) == ("9\n", ""), done


for name, test in [(n, t) for n, t in globals().items() if n.startswith("test_")]:
    if not sys.argv[4:] or name[5:] in sys.argv[4:]:
        test()
        print(f"ok {name[5:]}", flush=True)
