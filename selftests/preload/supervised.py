#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A supervised program is what it is alone: supervised.py SUPERVISED [TEST...].  Its signals, its time limits, its children."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

SUPERVISED = str(Path(sys.argv[1]).resolve())
LIMIT_S = 60
FIRST = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")  # in a PID namespace, whose first process the program becomes
NOBODY_ELSE = "supervised: something else already supervises this process's system calls\n"

PROGRAM = """
import ctypes, errno, os, select, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
handled = []
signal.signal(signal.SIGUSR1, lambda *_: handled.append(1))  # Python's handlers end calls: no SA_RESTART
signal.signal(signal.SIGALRM, lambda *_: handled.append(1))

def call(function, *arguments):  # Python itself would call again
    return 0 if function(*arguments) == 0 else ctypes.get_errno()

def address(listener):
    host, port = listener.getsockname()
    return struct.pack("<H", socket.AF_INET) + struct.pack(">H", port) + socket.inet_aton(host) + bytes(8)

def connect(sock, listener):
    return call(libc.connect, sock.fileno(), address(listener), 16)

def bound():
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock

def silent():
    "A listener that takes no more connections, nor refuses them."
    listener = bound()
    listener.listen(0)
    full = [socket.socket() for _ in range(4)]
    for sock in full:
        sock.setblocking(False)
        connect(sock, listener)
    return listener, full
"""


def run(*command: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env={**os.environ, **variables})


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", PROGRAM + code


def says(code: str, *before: str, **variables: str) -> str:
    done = run(*before, SUPERVISED, *python(code), **variables)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def test_signals_while_a_call_is_notified() -> None:
    """Calls that no signal ends alone are ended by none; one that is ended by a signal has begun, and goes on by itself."""
    code = """
sock = bound()
print(call(libc.listen, sock.fileno(), 1), len(handled))
there = socket.socket()
there.setblocking(False)
print(connect(there, sock) == errno.EINPROGRESS, len(handled))
waits = socket.socket()
print(connect(waits, sock) in (0, errno.EINTR), len(handled))
for one in there, waits:
    poll = select.poll(); poll.register(one, select.POLLOUT); poll.poll(5000)
    print(one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), one.getpeername() == sock.getsockname())
"""
    assert says(code, SUPERVISED_SIGNAL="1") == "0 1\nTrue 2\nTrue 3\n0 True\n0 True\n"


def test_connect_that_waits() -> None:
    """An alarm ends it, and so does Ctrl-C."""
    code = """
listener, full = silent()
signal.setitimer(signal.ITIMER_REAL, 0.3)
sock, begin = socket.socket(), time.monotonic()
print(errno.errorcode[connect(sock, listener)], len(handled), time.monotonic() - begin < 20)
"""
    assert says(code) == "EINTR 1 True\n"
    code = "signal.signal(signal.SIGINT, signal.SIG_DFL); listener, full = silent(); print('waits', flush=True); connect(socket.socket(), listener)"
    with subprocess.Popen((SUPERVISED, *python(code)), stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout.readline() == "waits\n"
        job.send_signal(signal.SIGINT)
        assert job.wait(LIMIT_S) == -signal.SIGINT


def needs_root() -> bool:
    """Says so if the test cannot run."""
    if os.getuid() != 0:
        print("# not run: needs root", flush=True)
    return os.getuid() != 0


WAITS_FOR_ALL = """
for child in range(int(sys.argv[1]) if sys.argv[1:] else 0):
    if os.fork() == 0:
        os._exit(child)
statuses = []
try:
    while True:
        statuses.append(os.waitstatus_to_exitcode(os.wait()[1]))
except ChildProcessError:
    sock = bound(); print(os.getpid() == 1, sorted(statuses), call(libc.listen, sock.fileno(), 1))
zombies = [one for one in os.listdir("/proc") if one.isdigit() and " Z " in open(f"/proc/{one}/stat").read()]
print(zombies)
"""


def test_first_process_waits_for_its_children_alone() -> None:
    """Of a PID namespace: whoever ends there is its child, and the supervising process ends after it."""
    if needs_root():
        return
    for count, statuses in ((0, "[]"), (3, "[0, 1, 2]")):
        done = run(*FIRST, SUPERVISED, *python(WAITS_FOR_ALL), str(count))
        assert (done.returncode, done.stdout, done.stderr) == (0, f"True {statuses} 0\n[]\n", ""), done


def test_first_process_that_is_supervised_already() -> None:
    """The supervising process that has nothing to do leaves nothing behind."""
    if needs_root():
        return
    done = run(*FIRST, SUPERVISED, SUPERVISED, *python(WAITS_FOR_ALL))
    assert (done.returncode, done.stdout, done.stderr) == (0, "True [] 0\n[]\n", NOBODY_ELSE), done


def test_who_takes_orphans_waits_for_its_children_alone() -> None:
    takes = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    done = run(sys.executable, "-c", takes, SUPERVISED, *python(WAITS_FOR_ALL.split("zombies")[0]), "2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "False [0, 1] 0\n", ""), done


STATE = """
fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(*(f"{name} {int(fields[name], 16) >> signal.SIGCHLD - 1 & 1}" for name in ("SigIgn", "SigBlk", "SigPnd", "ShdPnd")))
sock = bound(); print(call(libc.listen, sock.fileno(), 1))
"""


def test_what_the_caller_did_to_sigchld() -> None:
    """It is ignored or blocked in the program as it is alone, none waits for it, and it is supervised all the same."""
    for change in ("signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})", "pass"):
        changed = (sys.executable, "-c", f"import os, signal, sys; {change}; os.execvp(sys.argv[1], sys.argv[1:])")
        alone = run(*changed, *python(STATE))
        done = run(*changed, SUPERVISED, *python(STATE))
        assert alone.returncode == 0 and "Pnd 1" not in alone.stdout, alone
        assert (done.returncode, done.stdout, done.stderr) == (0, alone.stdout, ""), (change, done.stdout, done.stderr, alone.stdout)


UNPRIVILEGED = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
PRIVILEGES = "print(*(line.split()[1] for line in open('/proc/self/status') if line.startswith(('NoNewPrivs', 'Seccomp:'))))"


def test_who_is_not_supervised_keeps_its_rights() -> None:
    """An unprivileged process gives up set-user-ID for the filter, and only if there is one."""
    if needs_root():
        return
    for before, said in (((), ""), ((SUPERVISED,), NOBODY_ELSE)):
        done = run(*before, *UNPRIVILEGED, SUPERVISED, *python(PRIVILEGES))
        assert (done.returncode, done.stdout, done.stderr) == (0, "0 2\n" if before else "1 2\n", said), done


CLOSED = """
with open(sys.argv[1], "w") as said:
    open_ones = [n for n in range(3) if os.path.exists(f"/proc/self/fd/{n}") and not os.path.samefile(f"/proc/self/fd/{n}", sys.argv[1])]
    sock = bound(); print(open_ones, call(libc.listen, sock.fileno(), 1), len(handled), file=said)
"""


def test_standard_streams_that_are_closed() -> None:
    """Any of them: it is supervised all the same, and has them closed."""
    for closed in range(8):
        streams = [n for n in range(3) if closed >> n & 1]
        redirections = " ".join(f"{n}>&-" for n in streams)
        with tempfile.NamedTemporaryFile("r") as file:
            done = run("sh", "-c", f'exec "$@" {redirections}', "sh", SUPERVISED, *python(CLOSED), file.name, SUPERVISED_SIGNAL="1")
            said = file.read()
        open_ones = [n for n in range(3) if n not in streams]
        assert (done.returncode, done.stdout, done.stderr, said) == (0, "", "", f"{open_ones} 0 1\n"), (streams, done.returncode, done.stderr, said)


SECCOMP = """
allow = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
program = struct.pack("HxxxxxxQ", 1, ctypes.addressof(allow))

def load(flags):  # SYS_seccomp of x86-64, SECCOMP_SET_MODE_FILTER
    return "loaded" if libc.syscall(317, 1, flags, program) >= 0 else errno.errorcode[ctypes.get_errno()]

print(load(0), load(8), errno.errorcode[call(libc.prctl, 22, 1, 0, 0, 0)])  # SECCOMP_FILTER_FLAG_NEW_LISTENER, PR_SET_SECCOMP
sock = bound(); print(call(libc.listen, sock.fileno(), 1), len(handled))
"""


def test_seccomp_of_its_own() -> None:
    """Filters, but no listener, and no strict mode (docs/sockets.md)."""
    assert says(SECCOMP, SUPERVISED_SIGNAL="1") == "loaded EBUSY EINVAL\n0 1\n"


for name, test in [(n, t) for n, t in globals().items() if n.startswith("test_")]:
    if not sys.argv[2:] or name[5:] in sys.argv[2:]:
        test()
        print(f"ok {name[5:]}", flush=True)
