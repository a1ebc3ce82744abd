# SPDX-License-Identifier: BSD-3-Clause
"""Unmodified programs under tcpqp-run, on the module: what a TCP socket does, and that it has the ULP; every byte compared."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.guests import NCQP, Guests
from harness.needs import Needs
from harness.pairs import fabric, succeeded
from harness.traffic import free_port

NEEDS = Needs(
    modules=("tcp_qp", "nupa_dev"), programs=("user/tcpqp_run/tcpqp-run", "tools/tcpqp_stat/tcpqp-stat"), setup="full"
)  # fmt: skip
pytestmark = pytest.mark.needs(NEEDS)

PLACE = "$BUILD/cmake/user/tcpqp_run"
RUN = f"{PLACE}/tcpqp-run --stats"
STAT = "$BUILD/cmake/tools/tcpqp_stat/tcpqp-stat --json"
SEMANTICS = "python3 $REPO/selftests/preload/semantics.py"
ULP = "tcp_qp_stream"
LINE = re.compile(r"tcpqp-run: [^\n]*\(\d+\): tcp_qp_stream on (\d+) sockets(, refused .*)?\n")
BYTES = 4_000_000


def served(stderr: str) -> int:
    """Sockets that got the ULP, of all processes that spoke."""
    return sum(int(m[1]) for m in LINE.finditer(stderr))


def both(t: Guests, listener: str, connector: str, limit_s: float = 120) -> list:
    """A server on node 0 and its client on node 1; both must succeed."""
    port = free_port()
    jobs = [t.start(0, listener.format(port=port), limit_s)]
    t.wait_listening(0, port)
    jobs.append(t.start(1, connector.format(port=port), limit_s))
    return succeeded(jobs)


def semantics(t: Guests, family: int, only: str = "") -> None:
    here, peer = ("::", "$PEER6") if family == 6 else ("0.0.0.0", "$PEER")
    run = f"SEMANTICS_ULP={ULP} {RUN} {SEMANTICS}"
    for node, result in enumerate(both(t, f"{run} --listen {here} {{port}}", f"{run} --connect {peer} {{port}} {only}")):
        t.check(served(result.stderr) >= 1 and "refused" not in result.stderr, f"node{node}: {result.stderr}")


def test_semantics(t: Guests) -> None:
    semantics(t, 4)


@pytest.mark.long
def test_semantics_of_ipv6(t: Guests) -> None:
    semantics(t, 6, "bulk_both_ways names_and_options nonblocking_connect fast_open connect_to_nothing_and_listen large_sends")


@pytest.mark.long
def test_semantics_in_a_bad_fabric(t: Guests) -> None:
    with fabric(t, loss=0.01, reorder=0.02):
        semantics(t, 4)


SERVER = f"""python3 -c 'import socket, hashlib
s = socket.create_server(("", {{port}}))
for i in range(3):
    c, _ = s.accept(); h = hashlib.sha256(); n = 0
    while n < {BYTES} and (d := c.recv(65536)): h.update(d); n += len(d)
    c.sendall(h.digest()); c.shutdown(socket.SHUT_WR); c.recv(1); c.close()'"""
CLIENT = f"""python3 -c 'import socket, hashlib, os
for i in range(3):
    d = os.urandom({BYTES}); c = socket.create_connection(("'$PEER'", {{port}})); c.sendall(d)
    assert c.recv(32, socket.MSG_WAITALL) == hashlib.sha256(d).digest() and c.recv(1) == b""; c.close()'"""


def test_one_end_only(t: Guests) -> None:
    """The peer needs nothing, and knows nothing."""
    for node in (0, 1):
        ends = [f"{RUN} {SERVER}", CLIENT] if node == 0 else [SERVER, f"{RUN} {CLIENT}"]
        result = both(t, *ends)[node]
        t.equal(served(result.stderr), 1 if node == 0 else 3, f"node{node}: {result.stderr}")


WORKERS = """
import os, socket, struct, sys
def ulp(s): return s.getsockopt(socket.IPPROTO_TCP, 31, 16).rstrip(b"\\0").decode()
"""
AS_NGINX = WORKERS + """
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    os.setuid(65534); os.environ.clear()
    link, _ = listener.accept()
    out = socket.create_connection(listener.getsockname())
    link.sendall((ulp(link) + " " + ulp(out)).encode()); os._exit(0)
link = socket.create_connection(listener.getsockname())
print(link.recv(100).decode(), os.waitstatus_to_exitcode(os.wait()[1]))
"""
PASSED = WORKERS + "s = socket.socket(fileno=3); print(ulp(s))"
ACTIVATES = """
import os, socket, sys
s = socket.create_server(("127.0.0.1", 0)); os.dup2(s.fileno(), 3); os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1"); os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_workers_and_passed_sockets(t: Guests) -> None:
    """A worker that is another user, with no environment; a listener that was there before the program; a static program."""
    scripts = {"nginx.py": AS_NGINX, "passed.py": PASSED, "activates.py": ACTIVATES}
    for name, text in scripts.items():
        t.run(0, f"cat >/tmp/{name} <<'END'\n{text}\nEND")
    t.equal(t.run(0, f"{RUN} python3 /tmp/nginx.py"), f"{ULP} {ULP} 0\n", "what a worker's sockets have")
    t.equal(t.run(0, f"python3 /tmp/activates.py {RUN} python3 /tmp/passed.py"), f"{ULP}\n", "what a passed listener has")
    t.equal(t.run(0, f"{RUN} busybox echo static"), "static\n", "a static program's words")


AS_NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups"
NOBODY_LEFT = "! pgrep -x tcpqp-run"


def test_static_programs(t: Guests) -> None:
    """No library reaches them, so a process beside them sets the option; also for who is not privileged, and for children."""
    port = free_port()
    t.run(0, "head -c 3M /dev/urandom >/tmp/static")
    server = t.start(0, f"exec {RUN} busybox httpd -f -p {port} -h /tmp")
    t.wait_listening(0, port)
    t.check(f"tcp-ulp-{ULP}" in t.run(0, f"ss -Htli 'sport = :{port}'"), "a static program's listener")
    get = f"busybox wget -q -O - http://$PEER:{port}/static"
    expected = t.run(0, "cksum </tmp/static")
    for client, count in ((f"{RUN} {get}", 1), (f"{AS_NOBODY} {RUN} {get}", 1), (f"{RUN} --supervise sh -c '{get} >/dev/null; {get} >/dev/null; {get}'", 3)):
        done = t.cluster.node[1].run(f"bash -o pipefail -c '{client.replace(chr(39), chr(34))} | cksum'")
        t.check(done.ok, f"{client}: {done.stdout}{done.stderr}")
        t.equal(done.stdout, expected, f"what came, {client}")
        t.equal(served(done.stderr), count, f"{client}: {done.stderr}")
    t.run(0, "pkill -9 -x busybox")
    server.wait()
    for node in (0, 1):
        t.run(node, f"until {NOBODY_LEFT}; do sleep 0.1; done", 10)


def test_static_program_is_what_it_is(t: Guests) -> None:
    """The same process, its own children only, no descriptor more, its end and its signals; nobody is left."""
    shell = "echo $$; wc -w </proc/$$/task/$$/children; ls /proc/$$/fd; exit 7"
    t.run(0, f"cat >/tmp/is.sh <<'END'\n{shell}\nEND")
    said = t.run(0, f"bash -c 'echo $$; exec {PLACE}/tcpqp-run busybox sh /tmp/is.sh'; echo $?").split()
    alone = t.run(0, "bash -c 'echo $$; exec busybox sh /tmp/is.sh'; echo $?").split()
    t.equal(said[0], said[1], "the process")
    t.equal(said[2:], alone[2:], "children, descriptors, status")
    t.run(0, f"until {NOBODY_LEFT}; do sleep 0.1; done", 10)


CGROUP = "/sys/fs/cgroup/tcpqp-test"
INSIDE = f"echo $$ >{CGROUP}/cgroup.procs; exec"
SHOW = """python3 -c 'import socket
tcp, udp = socket.SOCK_STREAM, socket.SOCK_DGRAM
for family, kind in ((socket.AF_INET, tcp), (socket.AF_INET6, tcp), (socket.AF_INET, udp), (socket.AF_UNIX, tcp)):
    s = socket.socket(family, kind)
    try: print(s.getsockopt(socket.IPPROTO_TCP, 31, 16).rstrip(b"\\0").decode() or "-", end=" ")
    except OSError: print("none", end=" ")'"""


SOCK_CREATE = f"/usr/bin/python3 $REPO/selftests/vm/programs/sock_create.py {CGROUP}"


@contextmanager
def cgroup(t: Guests) -> Iterator[None]:
    """With nobody in it afterwards."""
    t.run(0, f"mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup; mkdir {CGROUP}")
    try:
        yield
    finally:
        t.run(0, f"for pid in $(cat {CGROUP}/cgroup.procs); do kill -9 $pid; done; until rmdir {CGROUP}; do sleep 0.1; done", 10)


def references(t: Guests) -> int:
    return int(t.run(0, "cat /sys/module/tcp_qp/refcnt"))


def test_cgroup(t: Guests) -> None:
    """Static programs with nobody beside them; only those inside, only TCP; only root; until --off, and the module is free again."""
    port, held = free_port(), references(t)
    run = f"{PLACE}/tcpqp-run --cgroup {CGROUP}"
    t.run(0, "head -c 3M /dev/urandom >/tmp/static")
    with cgroup(t):
        for option in ("", " --off"):
            said = t.fails(0, f"{AS_NOBODY} {run}{option}").stderr
            t.equal(said, f"tcpqp-run: {CGROUP}: needs root (CAP_SYS_ADMIN, CAP_BPF and CAP_NET_ADMIN)\n", "to who is not root")
        t.equal(t.fails(0, f"{run} --off").stderr, f"tcpqp-run: {CGROUP}: was not served\n", "--off before")
        for _ in range(2):
            t.run(0, run)
        t.equal(t.run(0, f"sh -c '{INSIDE} \"$@\"' sh {SHOW}").split(), [ULP, ULP, "none", "none"], "sockets inside")
        t.equal(t.run(0, SHOW).split(), ["-", "-", "none", "none"], "sockets outside")
        server = t.start(0, f"{INSIDE} busybox httpd -f -p {port} -h /tmp")
        t.wait_listening(0, port)
        t.check(f"tcp-ulp-{ULP}" in t.run(0, f"ss -Htli 'sport = :{port}'"), "a static program's listener")
        get = f"sh -c '{INSIDE} busybox wget -q -O - http://127.0.0.1:{port}/static' | cksum"
        t.equal(t.run(0, get), t.run(0, "cksum </tmp/static"), "what came")
        t.run(0, f"{run} --off")
        t.equal(t.run(0, f"sh -c '{INSIDE} \"$@\"' sh {SHOW}").split(), ["-", "-", "none", "none"], "after --off")
        t.check(f"tcp-ulp-{ULP}" in t.run(0, f"ss -Htli 'sport = :{port}'"), "who has it keeps it")
        t.run(0, f"for pid in $(cat {CGROUP}/cgroup.procs); do kill -9 $pid; done")
        server.wait()
        t.wait_until(lambda: references(t) == held, "the module is let go")


def test_cgroup_by_many_at_once(t: Guests) -> None:
    """One program is attached, and none after one --off."""
    run = f"{PLACE}/tcpqp-run --cgroup {CGROUP}"
    with cgroup(t):
        t.run(0, f"for n in 1 2 3 4 5 6; do {run} & pids=\"$pids $!\"; done; for pid in $pids; do wait $pid || exit 1; done", 60)
        t.equal(t.run(0, f"{SOCK_CREATE} count"), "1\n", "programs of the cgroup")
        t.run(0, f"{run} --off")
        t.equal(t.run(0, f"{SOCK_CREATE} count"), "0\n", "programs after --off")


def test_cgroup_of_another_program(t: Guests) -> None:
    """One that lets nobody beside it: no right is missing."""
    with cgroup(t):
        t.run(0, f"{SOCK_CREATE} 1")
        said = t.fails(0, f"{PLACE}/tcpqp-run --cgroup {CGROUP}").stderr
        t.equal(said, f"tcpqp-run: {CGROUP}: a BPF program there, or above, allows no other beside it\n", "to root")


def test_sockmap(t: Guests) -> None:
    """A BPF sockmap takes no socket that has a ULP (docs/sockets.md)."""
    program = "/usr/bin/python3 $REPO/selftests/vm/programs/sockmap.py"
    for run, said in (("", "put put\n"), (RUN, "EINVAL EINVAL\n")):
        t.equal(t.run(0, f"{run} {program}"), said, f"what the kernel says, '{run}'")


def test_cgroup_function_is_for_sockets(t: Guests) -> None:
    """Who may load BPF programs can't pass the module's function anything but the socket that is being made."""
    t.equal(t.run(0, "/usr/bin/python3 $REPO/selftests/vm/programs/stream_kfunc.py").count("ok "), 3, "what the verifier says")


ODD = "/tmp/tcp qp ü,1:x$y"


def test_odd_path(t: Guests) -> None:
    """LD_PRELOAD is split at spaces and colons: the library has a name of its own then, in a directory that is its user's alone."""
    t.run(0, f"mkdir -p '{ODD}' && cp {PLACE}/tcpqp-run {PLACE}/libtcpqp-preload.so '{ODD}' && printf '%s' '{WORKERS}' >/tmp/odd.py")
    t.run(0, "echo 's = socket.create_server((\"127.0.0.1\", 0)); print(ulp(s), os.environ[\"LD_PRELOAD\"])' >>/tmp/odd.py")
    run = f"'{ODD}/tcpqp-run' python3 /tmp/odd.py"
    said = [t.run(0, run) for _ in range(2)]
    t.check(said[0] == said[1] and said[0].startswith(f"{ULP} /tmp/tcpqp-run.0/preload-"), f"twice the same link: {said}")
    others = t.run(0, f"LD_PRELOAD=libm.so.6 {run}")
    t.equal(others, said[0].replace("\n", ":libm.so.6\n"), "others that were to be preloaded")
    t.check(f"{ULP} /tmp/tcpqp-run.65534/preload-" in t.run(0, f"{AS_NOBODY} {run}"), "another user's own link")
    squatted = t.run(0, f"mkdir /tmp/squat; chmod 1777 /tmp/squat; {AS_NOBODY} mkdir /tmp/squat/tcpqp-run.0; "
                        f"TMPDIR=/tmp/squat '{ODD}/tcpqp-run' sh -c 'echo $LD_PRELOAD' 2>&1")  # fmt: skip
    t.equal(squatted, "tcpqp-run: sh runs on plain TCP: /tmp/squat/tcpqp-run.0 is not ours alone\n\n", "a directory that is another's")
    spaces = t.run(0, f"TMPDIR='{ODD}' '{ODD}/tcpqp-run' true 2>&1")
    t.check("set TMPDIR to a path without" in spaces, f"no name at all: {spaces}")
    t.run(0, f"rm -r '{ODD}' /tmp/tcpqp-run.0 /tmp/tcpqp-run.65534 /tmp/squat")


# What waits to be acknowledged has room in the pages that a socket may have (TQP_STREAM_BYTES_MAX), however slow the reader is.
ENDLESS = """python3 -c 'import socket
c = socket.create_connection(("'$PEER'", {port})); d = bytes(1 << 20)
c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
try:
    while True: c.sendall(d)
except ConnectionError: pass'"""
SINK = """python3 -c 'import socket
c, _ = socket.create_server(("", {port})).accept()
for n in range(1 << 30): c.recv(1 << 20)'"""


def test_shown(t: Guests) -> None:
    """tcpqp-stat and ss: the ULP, what large sends did, whose socket it is."""
    port = free_port()
    jobs = [t.start(0, f"exec {SINK.format(port=port)}")]
    t.wait_listening(0, port)
    jobs.append(t.start(1, f"exec {RUN} {ENDLESS.format(port=port)}"))

    def line() -> dict | None:
        found = [one for one in json.loads(t.run(1, STAT)) if one.get("peer", "").endswith(f":{port}")]
        return found[0] if len(found) == 1 and found[0].get("tx_large_bytes", 0) > 4_000_000 else None

    shown = t.wait_until(line, "a stream with large bytes")
    t.equal((shown["engine"], shown["process"], "qpn" in shown), ("stream", "python3", False), f"{shown}")
    t.check(shown["tx_large_bytes"] > 2 * shown["tx_other_bytes"] and shown["pool_bytes"] > 0 and shown["tx_bytes"] > 0, f"{shown}")
    t.check(f"tcp-ulp-{ULP}" in t.run(1, f"ss -Hti 'dport = :{port}'"), "ss shows the ULP")
    t.equal([one for one in json.loads(t.run(0, STAT)) if one.get("local", "").endswith(f":{port}")], [], "the peer is plain")
    for job in reversed(jobs):
        job.kill()
        job.wait()
    t.equal([one for one in json.loads(t.run(1, STAT)) if one["engine"] == "stream" and one["process"] == "python3"], [], "streams that are over")


def test_queue_pairs_of_a_program(t: Guests) -> None:
    """A program of libtcpqp's gets its queue pairs: the ULP steps aside for attach."""
    port = free_port()
    command = f"{RUN} {NCQP} -q --engine offload --timeout 20 -p {port} -v 251 -n 4M"
    jobs = [t.start(0, f"{command} -l --json /results/rx.json >/dev/null")]
    t.wait_listening(0, port)
    jobs.append(t.start(1, f"{command} -s $PEER --json /results/tx.json"))
    for node, result in enumerate(succeeded(jobs)):
        t.check(served(result.stderr) == 1, f"node{node}: {result.stderr}")
    placed = json.loads((t.nodes[0].results / "rx.json").read_text())["placed_bytes"]
    t.check(placed > 3 << 20, f"placed {placed}")


def iperf(t: Guests, options: str) -> None:
    port = free_port()
    job = t.start(0, f"{RUN} iperf3 -s -1 -p {port} >/dev/null")
    t.wait_listening(0, port)
    said = json.loads(t.run(1, f"{RUN} iperf3 -J -c $PEER -p {port} {options}", 90))
    t.check("error" not in said and said["end"]["sum_received"]["bytes"] > 0, f"iperf3 {options}: {said.get('error')}")
    job.wait(check=True)


def test_iperf3(t: Guests) -> None:
    """Several streams, both ways, and by sendfile()."""
    for options in ("-n 20M", "-n 8M -P 4 -R", "-n 20M -l 1M -Z"):
        iperf(t, options)
