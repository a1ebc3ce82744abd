#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tcpqp-run as a program, without the module: runs.py TCPQP_RUN.  Exit statuses, who lives how long, and what it is told."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

RUN = str(Path(sys.argv[1]).resolve())
LIMIT_S = 60
PLAIN = {**os.environ, "TCPQP_ENGINE": ""}


def run(*command: str, engine: str = "auto", **more) -> subprocess.CompletedProcess:
    return subprocess.run([RUN, "--engine", engine, "--stats", *command], capture_output=True, text=True, timeout=LIMIT_S, env=PLAIN, **more)


def start(*command: str, engine: str = "stock", env: dict[str, str] = PLAIN, **more) -> subprocess.Popen:
    return subprocess.Popen([RUN, "--engine", engine, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, **more)


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", "import os, signal, socket, sys, time\n" + code


SERVE = """
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
link, _ = listener.accept()
print(os.getpid(), flush=True)
"""


def test_exit_status() -> None:
    for status in (0, 7, 255):
        assert run("sh", "-c", f"exit {status}").returncode == status
    assert run("sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    missing = run("/nonexistent/program")
    assert missing.returncode in (126, 127) and "/nonexistent/program: No such file" in missing.stderr, missing
    assert run("--what").returncode == 64
    assert subprocess.run([RUN], capture_output=True, check=False).returncode == 64


def test_signals_reach_the_program() -> None:
    with start(*python("signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); print('ready', flush=True)\nwhile True: signal.pause()")) as job:
        assert job.stdout.readline() == "ready\n"
        job.terminate()
        assert job.wait(LIMIT_S) == 5


def test_standard_streams_and_directory() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        done = run("sh", "-c", "cat; pwd", input="words\n", cwd=scratch)
        assert done.stdout == f"words\n{os.path.realpath(scratch)}\n", done


def test_no_module_costs_nothing() -> None:
    """The program keeps its TCP sockets, and the count says why."""
    done = run(*python("""
listener = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(listener.getsockname()); two, _ = listener.accept()
print(os.readlink(f"/proc/self/fd/{one.fileno()}") != "", socket.socket(fileno=os.dup(one.fileno())).family.name)
"""))
    assert done.stdout == "True AF_INET\n", done
    if not os.path.exists("/sys/module/tcp_qp"):
        assert done.stderr == "tcpqp-run: plain, NO_MODULE: 2 connections\n", done


def test_own_unix_sockets_are_left_alone() -> None:
    done = run(*python("""
a, b = socket.socketpair()
a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10000)
print(a.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_UNIX, repr(a.getpeername()), a.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
"""), engine="stock")
    assert done.stdout == "True '' 20000\n" and done.stderr == "", done


def test_last_bytes_arrive_after_the_program() -> None:
    """It writes, closes and is gone at once."""
    size = 5_000_000
    with start(*python(SERVE + "total = 0\nwhile part := link.recv(65536): total += len(part)\nprint(total)")) as server:
        port = server.stdout.readline().strip()
        sender = run(*python(f"s = socket.create_connection(('127.0.0.1', {port})); s.sendall(bytes({size})); os._exit(3)"), engine="stock")
        assert sender.returncode == 3
        assert re.search(rf"stock: 1 connections, {size + 32} bytes sent", sender.stderr), sender
        assert server.communicate(timeout=LIMIT_S)[0].split()[-1] == str(size)


def test_a_child_that_stays() -> None:
    """The program ends, tcpqp-run with it; what it left behind goes on with its connection."""
    with start(*python(SERVE + """
if os.fork() == 0:
    os.setsid()
    while part := link.recv(100): link.sendall(part)
    os._exit(0)
""")) as server:
        port = int(server.stdout.readline())
        client = start(*python(f"""
s = socket.create_connection(('127.0.0.1', {port}))
sys.stdin.readline()
s.sendall(b'still there'); print(s.recv(100, socket.MSG_WAITALL * 0)); s.shutdown(socket.SHUT_WR); print(s.recv(1))
"""), stdin=subprocess.PIPE)
        assert server.wait(LIMIT_S) == 0
        assert client.communicate("go\n", timeout=LIMIT_S)[0] == "b'still there'\nb''\n"


def test_odd_path() -> None:
    """LD_PRELOAD is split at spaces and colons: the library has another name then, for as long as the relay lives."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "tcp qp ü,1:x"
        place.mkdir()
        for name in Path(RUN).name, "libtcpqp-preload.so":
            shutil.copy(Path(RUN).parent / name, place)
        program = python("print(os.environ['LD_PRELOAD']); socket.create_server(('127.0.0.1', 0))\nprint('tcpqp' in open('/proc/self/maps').read())")

        def ran(**more: str) -> subprocess.CompletedProcess:
            argv = [place / Path(RUN).name, "--engine", "stock", *program]
            return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, env={**PLAIN, **more}, check=False)

        done = ran(LD_PRELOAD="libm.so.6")
        path, _, others = done.stdout.split("\n")[0].partition(":")
        assert done.returncode == 0 and done.stderr == "" and done.stdout.split("\n")[1] == "True", done
        assert others == "libm.so.6" and " " not in path and not Path(path).exists() and not Path(path).parent.exists(), done
        refused = ran(TMPDIR=str(place))
        assert refused.returncode == 126 and "set TMPDIR to a path without" in refused.stderr, refused
        assert sorted(p.name for p in place.iterdir()) == sorted([Path(RUN).name, "libtcpqp-preload.so"]), "something is left"


def test_no_environment() -> None:
    """As nginx does: its children have none."""
    done = run(*python("""
os.unsetenv("TCPQP_RUN_SOCKET"); os.environ.clear()
if os.fork() == 0:
    listener = socket.create_server(("127.0.0.1", 0))
    one = socket.create_connection(listener.getsockname()); two, _ = listener.accept()
    one.sendall(b"well"); os._exit(two.recv(4) != b"well")
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""), engine="stock")
    assert done.returncode == 0 and "stock: 2 connections, 68 bytes sent" in done.stderr, done


def test_another_user() -> None:
    """A server that gives root up (nginx) is served; a stranger of that user is not."""
    if os.getuid() != 0:
        return
    done = run(*python("""
import encodings.idna
os.setuid(65534)
listener = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(listener.getsockname()); two, _ = listener.accept()
one.sendall(b"well"); print(two.recv(4))
"""), engine="stock")
    assert done.stdout == "b'well'\n" and "stock: 2 connections" in done.stderr, done
    with start(*python("print(os.environ['TCPQP_RUN_SOCKET'], flush=True); sys.stdin.readline()"), stdin=subprocess.PIPE) as job:
        path = job.stdout.readline().strip()
        stranger = subprocess.run([*python(f"""
os.setuid(65534)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect({path!r})
s.send((0x71637202).to_bytes(4, "little") + (5).to_bytes(4, "little") + bytes(136)); print(s.recv(100))
""")], capture_output=True, text=True, timeout=LIMIT_S)  # fmt: skip
        assert "b''" in stranger.stdout or "ConnectionReset" in stranger.stderr or "BrokenPipe" in stranger.stderr, stranger
        job.communicate("\n", timeout=LIMIT_S)


def relay_of(program: int) -> int:
    return int(re.search(r"\nPPid:\s*(\d+)", Path(f"/proc/{program}/status").read_text())[1])


def test_killed_relay() -> None:
    """Both ends hear of it."""
    with start(*python(SERVE + "try: print(link.recv(1))\nexcept ConnectionResetError: print('reset')")) as server:
        port = int(server.stdout.readline())
        client = start(*python(f"s = socket.create_connection(('127.0.0.1', {port}))\ntry: print(s.recv(1))\nexcept ConnectionResetError: print('reset')"))
        os.kill(relay_of(int(server.stdout.readline())), signal.SIGKILL)
        assert client.communicate(timeout=LIMIT_S)[0] == "reset\n"
        assert server.communicate(timeout=LIMIT_S)[0] in ("reset\n", "b''\n")
        assert server.returncode == 126


WITHOUT_RELAY = """
print(os.getpid(), os.environ["TCPQP_RUN_SOCKET"], flush=True)
sys.stdin.readline()
listener = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(listener.getsockname())
print(one.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET)
"""
STRANGER = """
os.setuid(65534)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind(sys.argv[1]); s.listen()
print("listens", flush=True)
print(len(socket.recv_fds(s.accept()[0], 200, 1)[1]))
"""


def test_what_a_killed_relay_leaves() -> None:
    """The next one removes it, and no other's; who listens there then is given no socket, unless it is us."""
    if os.getuid() != 0:
        return
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o777)
        env = {**PLAIN, "TMPDIR": scratch}
        lives = start(*python(WITHOUT_RELAY), env=env, stdin=subprocess.PIPE)
        lives.stdout.readline()
        orphan = start(*python(WITHOUT_RELAY), env=env, stdin=subprocess.PIPE)
        pid, path = orphan.stdout.readline().split()
        os.kill(relay_of(int(pid)), signal.SIGKILL)
        limit = time.monotonic() + LIMIT_S
        while os.path.exists(path):  # it may still be on its way out
            assert time.monotonic() < limit, "nobody removes it"
            subprocess.run([RUN, "true"], check=True, env=env, timeout=LIMIT_S)
        while len(os.listdir(scratch)) != 1:  # that program's own relay may outlive it a little
            assert time.monotonic() < limit, os.listdir(scratch)
            time.sleep(0.01)
        os.mkdir(os.path.dirname(path), 0o777)
        os.chmod(os.path.dirname(path), 0o777)
        with subprocess.Popen(python(STRANGER) + (path,), stdout=subprocess.PIPE, text=True) as stranger:
            assert stranger.stdout.readline() == "listens\n"
            orphan.stdin.write("go\n")
            orphan.stdin.flush()
            assert orphan.stdout.readline() == "True\n"
            assert stranger.stdout.readline() == "0\n", "it was given the program's socket"
        lives.communicate("go\n", timeout=LIMIT_S)
        for end in orphan.stdin, orphan.stdout, orphan.stderr:
            end.close()
        assert orphan.wait(LIMIT_S) == 126


def test_killed_program() -> None:
    with start(*python(SERVE + "signal.pause()")) as server:
        port = int(server.stdout.readline())
        client = start(*python(f"s = socket.create_connection(('127.0.0.1', {port})); print(s.recv(1))"))
        os.kill(int(server.stdout.readline()), signal.SIGKILL)
        assert server.wait(LIMIT_S) == -signal.SIGKILL
        assert client.communicate(timeout=LIMIT_S)[0] == "b''\n"


def test_stock_with_a_plain_peer() -> None:
    """Forced stock needs tcpqp-run at both ends: the connection ends, with a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def greet() -> None:
            link, _ = listener.accept()
            link.sendall(b"220 I am no stock end, and I say so\r\n")
            link.recv(1)
        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        done = run(*python(f"s = socket.create_connection(('127.0.0.1', {listener.getsockname()[1]}))\n"
                           "try: print(s.recv(100))\nexcept ConnectionResetError: print('reset')"), engine="stock")  # fmt: skip
    assert done.stdout == "reset\n" and "the peer speaks no stock frames" in done.stderr, done


HOSTILE = """
path = os.environ["TCPQP_RUN_SOCKET"]
def ask(data, fds=()):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(path)
    if data is not None:
        socket.send_fds(s, [data], list(fds))
    return s
silent = [ask(None) for _ in range(50)]
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
tcp = socket.socket()
right = (0x71637202).to_bytes(4, "little")
for kind in range(9):
    for data in (b"x", bytes(144), right + kind.to_bytes(4, "little") + b"\\xff" * 136, right + kind.to_bytes(4, "little") + bytes(136), b"y" * 4000):
        for fds in ((), (udp.fileno(),), (tcp.fileno(), tcp.fileno()), (tcp.fileno(),)):
            ask(data, fds)
"""


def test_hostile_askers() -> None:
    """Whatever is sent to the relay, it goes on serving; no descriptor stays with it."""
    done = run(*python(HOSTILE + """
listener = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(listener.getsockname()); two, _ = listener.accept()
one.sendall(b"well"); print(two.recv(4))
relay = os.getppid()
left = [os.readlink(f"/proc/{relay}/fd/{n}") for n in os.listdir(f"/proc/{relay}/fd")]
print(len(left) < 90)
"""), engine="stock")
    assert done.stdout == "b'well'\nTrue\n", done


NAMES = """
relay = os.getppid()
def strangers(name):
    u = socket.socket(socket.AF_UNIX); u.bind(b"\\0" + os.urandom(16)); u.listen()
    s = socket.socket(socket.AF_UNIX); s.bind(name); s.connect(u.getsockname())
    return s, u.accept()[0]
"""


def test_names_that_anyone_can_take() -> None:
    """Who calls itself a relay's end is what it is; whoever had the names first does not keep the relay from its work."""
    done = run(*python(NAMES + """
squatters = []
for n in range(1, 50):
    s = socket.socket(socket.AF_UNIX); s.bind(f"\\0tcpqp-run/{relay}/{n}".encode()); squatters.append(s)
listener = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(listener.getsockname()); two, _ = listener.accept()
for n in range(1, 20):
    name = f"\\0tcpqp-run/x/{n}".encode()
    s, accepted = strangers(name)
    if accepted.getpeername() != name or accepted.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) != socket.AF_UNIX:
        print("taken for link", n)
    credentials = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    if int.from_bytes(credentials[4:8], "little") != os.getuid():
        print("its user is another's")
print(one.getpeername() == listener.getsockname(), two.getsockname() == listener.getsockname())
"""), engine="stock")
    assert done.stdout == "True True\n" and "stock: 2 connections" in done.stderr, done


def test_who_shows_no_link_gets_none() -> None:
    """The program's relatives, too, ask for a connection by showing that they have it."""
    done = run(*python(HOSTILE.split("silent")[0] + """
listener = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(listener.getsockname()); two, _ = listener.accept()
a, b = socket.socketpair()
find = (0x71637202).to_bytes(4, "little") + (4).to_bytes(4, "little") + bytes(136)
for fds in (), (a.fileno(),), (listener.fileno(),):
    reply, got, *_ = socket.recv_fds(ask(find, fds), 16, 2)
    print(len(reply), int.from_bytes(reply[8:12], "little"), len(got))
reply, got, *_ = socket.recv_fds(ask(find, (one.fileno(),)), 16, 2)
print(int.from_bytes(reply[8:12], "little"), len(got))
"""), engine="stock")
    assert done.stdout == "16 2 0\n" * 3 + "0 1\n", done


def test_a_static_program() -> None:
    """It never hears of us: plain TCP, untouched."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = start("busybox", "nc", "127.0.0.1", str(listener.getsockname()[1]), engine="stock", stdin=subprocess.PIPE)
        link, _ = listener.accept()
        with link:
            link.sendall(b"words\n")
            link.shutdown(socket.SHUT_WR)
            assert client.communicate("", timeout=LIMIT_S)[0] == "words\n"


for name, test in [(n, t) for n, t in globals().items() if n.startswith("test_")]:
    if not sys.argv[2:] or name[5:] in sys.argv[2:]:
        test()
        print(f"ok {name[5:]}", flush=True)
