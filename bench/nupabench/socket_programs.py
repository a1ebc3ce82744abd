# SPDX-License-Identifier: BSD-3-Clause
"""The programs that `make sockets` runs: other people's, as they are."""

import glob
import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nupavm.paths import BUILD

from .cases import KIB, MIB, Case
from .figures import figures
from .machines import PROGRAM

NEVER_SLOWER = 0.97  # of plain TCP's rate: what turns of these programs can tell
FASTER = 1.2
WHOLE_FASTER = 1.8
WHOLE_PLACED = 0.9
# How a program's sockets get the ULP.  No library reaches static ones and Go's that a shell starts.
LIBRARY, SUPERVISED, CGROUP = "library", "supervised", "cgroup"


@dataclass(frozen=True)
class Program:
    """{peer} is the server's address, {port} the port of the server that is meant."""

    name: str
    server: str
    client: str
    figure: Callable[[str], float]  # more is better; raises ValueError on output that has none
    at_least: float = NEVER_SLOWER
    fixed: bool = False  # it does the same work each time, however long it takes
    reach: str = LIBRARY
    placed: float = 0.0  # the least share of what the server gets that the switch writes where it belongs; 0: none is asked
    needs: str = ""  # a pattern of files that are there where its package is; not ours to install, since that begins a service

    def is_here(self) -> bool:
        return not self.needs or bool(glob.glob(self.needs))


def last(pattern: str) -> Callable[[str], float]:
    """The number that the pattern's group has where it matches last."""

    def figure(out: str) -> float:
        found = re.findall(pattern, out)
        if not found:
            raise ValueError(f"no figure in: {out}")
        return float(found[-1])

    return figure


def inverse(pattern: str) -> Callable[[str], float]:
    return lambda out: 1 / last(pattern)(out)


def received(out: str) -> float:
    """iperf3's bits a second."""
    report = json.loads(out)
    if "error" in report:
        raise ValueError(report["error"])
    return float(report["end"]["sum_received"]["bits_per_second"])


NGINX = ("sh -c 'mkdir -p /tmp/n{port}; head -c 1024 /dev/urandom >/tmp/n{port}/small; head -c 1048576 /dev/urandom >/tmp/n{port}/large; "
         'echo "daemon off; pid /tmp/n{port}/pid; error_log /tmp/n{port}/log; worker_processes 1; events {} '
         "http { access_log off; sendfile on; keepalive_requests 1000000; server { listen {port}; root /tmp/n{port}; } }\" >/tmp/n{port}/conf; "
         "exec nginx -c /tmp/n{port}/conf'")  # fmt: skip
REDIS = "redis-server --port {port} --protected-mode no --save '' --daemonize no"


def iperfs() -> Iterator[Program]:
    for options in ("", " -l 1M"):
        for streams in (1, 8):
            yield Program(f"iperf3{options}, {streams} stream{'s' if streams > 1 else ''}", "iperf3 -s -p {port}",
                          f"iperf3 -J -c {{peer}} -p {{port}} -t 2 -O 1 -P {streams}{options}", received, FASTER)  # fmt: skip


def servers() -> Iterator[Program]:
    for pipeline, size, count in ((1, 1024, 3000), (16, 1024, 20000), (1, 512 * KIB, 100), (16, 512 * KIB, 100)):
        yield Program(f"redis -P {pipeline}, values of {size} bytes", REDIS,
                      f"redis-benchmark -h {{peer}} -p {{port}} -q -c 10 -n {count} -P {pipeline} -d {size} -t set,get",
                      last(r"GET: ([\d.]+) requests per second"), fixed=True)  # fmt: skip
    for page, size in (("small", "1 KiB"), ("large", "1 MiB")):
        for more, word in (("", "keep-alive"), (" -H 'Connection: close'", "not keep-alive")):
            yield Program(f"nginx and wrk, {size}, {word}", NGINX, f"wrk -t 1 -c 8 -d 2s{more} http://{{peer}}:{{port}}/{page}",
                          last(r"Requests/sec:\s+([\d.]+)"))  # fmt: skip
    yield Program("sockperf ping-pong", "sockperf server --tcp -p {port}", "sockperf ping-pong --tcp -i {peer} -p {port} -t 2",
                  inverse(r"Latency is ([\d.]+) usec"))  # fmt: skip


def shell(script: str) -> str:
    return f"sh -c {shlex.quote(script)}"


def took(work: str) -> str:
    """Shell commands that do this work and print how often they could in a second."""
    return f'b=$(date +%s%N); {work}; e=$(date +%s%N); awk "BEGIN {{ print \\"times a second:\\", 1e9 / ($e - $b) }}"'


TIMES = last(r"times a second: ([\d.e+-]+)")
LINES = "seq 1000000"  # 6.9 MB that both guests can make
HEY = r"Requests/sec:\s+([\d.]+)(?s:.*)Size/request:\s+6888896 bytes(?s:.*)\[200\]\s+24 responses"  # all of them, and whole
PAGE = f"mkdir -p /tmp/w{{port}}; {LINES} >/tmp/w{{port}}/page; exec"
ECHO = """import asyncio
async def echo(r, w):
    while d := await r.read(65536): w.write(d); await w.drain()
    w.close()
async def main(): await (await asyncio.start_server(echo, None, {port})).serve_forever()
asyncio.run(main())"""
ECHO_CLIENT = """import asyncio, sys, time
async def main():
    d = bytes(range(256)) * 32768; began = time.monotonic()
    async def once():
        r, w = await asyncio.open_connection(sys.argv[1], int(sys.argv[2]))
        async def give(): w.write(d); await w.drain(); w.write_eof()
        got, _ = await asyncio.gather(r.read(), give()); w.close()
        if got != d: sys.exit("WRONG bytes")
    await asyncio.gather(*(once() for _ in range(4)))
    print("times a second:", 1 / (time.monotonic() - began))
asyncio.run(main())"""


def unreached(reach: str) -> Iterator[Program]:
    """Go's and static ones."""
    yield Program(f"websocketd and hey (both Go), {reach}", shell(f"{PAGE} websocketd --port={{port}} --staticdir=/tmp/w{{port}}"),
                  "hey -n 24 -c 4 http://{peer}:{port}/page", last(HEY), fixed=True, reach=reach)  # fmt: skip
    fetch = "for i in 1 2 3 4 5 6 7 8; do busybox wget -q -O - http://{peer}:{port}/page | cksum; done | sort -u"
    yield Program(f"busybox httpd and wget (static), {reach}, compared", shell(f"{PAGE} busybox httpd -f -p {{port}} -h /tmp/w{{port}}"),
                  shell(f'want=$({LINES} | cksum); {took(f"got=$({fetch})")}; [ "$got" = "$want" ]'), TIMES, fixed=True, reach=reach)  # fmt: skip


SSH_KEY = BUILD / "results/sockets_key"  # both guests see it; made for a run
SSHD = shell("mkdir -p /run/sshd /tmp/s{port}; ssh-keygen -q -t ed25519 -N '' -f /tmp/s{port}/host; exec /usr/sbin/sshd -D -f /dev/null -p {port} "
             f"-h /tmp/s{{port}}/host -o AuthorizedKeysFile=$BUILD/results/{SSH_KEY.name}.pub -o StrictModes=no -o PermitRootLogin=yes -o PidFile=none "
             "-o Subsystem='sftp internal-sftp'")
SSH = f"-i $BUILD/results/{SSH_KEY.name} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
POSTGRES = shell("""b=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1); d=/tmp/p{port}; install -d -o postgres $d
as="setpriv --reuid postgres --regid postgres --clear-groups"; cd $d
$as $b/initdb -D $d/data -A trust -N >/dev/null; echo host all all all trust >>$d/data/pg_hba.conf
exec $as $b/postgres -D $d/data -k $d -p {port} -c listen_addresses=* -c fsync=off -c dynamic_shared_memory_type=mmap""")
PGBENCH = "pgbench -h {peer} -p {port} -U postgres"


def services() -> Iterator[Program]:
    yield Program("memcached and memcslap", "memcached -u root -p {port}",
                  "memcslap --servers={peer}:{port} --test=get --concurrency=4 --execute-number=1000 --initial-load=500",
                  inverse(r"Time to get .*: +([\d.]+) seconds"), fixed=True)  # fmt: skip
    yield Program("Python's asyncio, 4 of 8 MiB there and back, compared", f"python3 -c '{ECHO}'", f"python3 -c '{ECHO_CLIENT}' {{peer}} {{port}}",
                  TIMES, fixed=True)  # fmt: skip
    ssh = f"ssh -p {{port}} {SSH}"
    copies = f'rsync -e "{ssh}" /tmp/there root@{{peer}}:/tmp/there{{port}} && scp -q -P {{port}} {SSH} root@{{peer}}:/tmp/there{{port}} /tmp/back'
    script = f"{LINES} >/tmp/there; {ssh} root@{{peer}} rm -f /tmp/there{{port}}; rm -f /tmp/back; {took(copies)}; cmp /tmp/there /tmp/back"
    yield Program("OpenSSH: rsync there, scp back, compared", SSHD, shell(script), TIMES, fixed=True, needs="/usr/sbin/sshd")
    yield Program("PostgreSQL and pgbench", POSTGRES, shell(f"{PGBENCH} -q -i postgres >/dev/null 2>&1 && {PGBENCH} -n -S -c 4 -t 200 postgres"),
                  last(r"tps = ([\d.]+)"), fixed=True, needs="/usr/lib/postgresql/*/bin/initdb")  # fmt: skip


def gbps(case: Case) -> Callable[[str], float]:
    return lambda out: figures(case, json.loads(out))["gbps"]


def whole() -> Program:
    """Readers that wait for all of 4 MiB, in pages of 2 MiB."""
    case = Case("tcp", bytes=4 * MIB, waitall=True, ms=2000)
    client = f"{PROGRAM} --connect {{peer}} --port {{port}} {case.spec()}"
    return Program("4 MiB by MSG_WAITALL", f"{PROGRAM} --port {{port}}", client, gbps(case), WHOLE_FASTER, placed=WHOLE_PLACED)


def programs() -> list[Program]:
    return [*iperfs(), whole(), *servers(), *unreached(SUPERVISED), *unreached(CGROUP), *services()]
