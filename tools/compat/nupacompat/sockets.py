# SPDX-License-Identifier: BSD-3-Clause
"""Socket programs under tcpqp-run: at both ends, and at one."""

import hashlib
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from .programs import Program

RUN = "$BUILD/cmake/user/tcpqp_run/tcpqp-run --stats"
ULP = "tcp_qp_stream"
TAKEN = re.compile(rf"tcpqp-run: \S+: {ULP} on [1-9]\d* sockets$", re.MULTILINE)
NGINX = """printf 'daemon off; pid /tmp/n.pid; error_log /tmp/n.log; worker_processes 2; events {}
http { access_log off; sendfile on; server { listen {port}; root /tmp; } }\\n' >/tmp/n.conf; seq 1000000 >/tmp/page; exec nginx -c /tmp/n.conf"""
PAGE = "".join(f"{n}\n" for n in range(1, 1_000_001)).encode()
SUM = hashlib.sha256(PAGE).hexdigest()
COMPARE = f"sha256sum | grep {SUM}"
ASYNCIO = """import asyncio
async def e(r, w):
    while d := await r.read(65536): w.write(d); await w.drain()
    w.close(); await w.wait_closed(); done.set()
async def main():
    global done
    done = asyncio.Event(); await asyncio.start_server(e, None, {port}); await done.wait()
asyncio.run(main())"""
ASYNCIO_CLIENT = """import asyncio, hashlib, sys
async def main():
    r, w = await asyncio.open_connection(sys.argv[1], int(sys.argv[2])); d = open("/tmp/page", "rb").read()
    async def give(): w.write(d); await w.drain(); w.write_eof()
    got, _ = await asyncio.gather(r.read(), give())
    print(len(got), "bytes came back, equal" if got == d else "bytes, WRONG"); w.close(); sys.exit(got != d)
asyncio.run(main())"""


def said(pattern: str) -> Callable[[str], str]:
    """What the pattern's group is of the last match, or all of it."""

    def figure(out: str) -> str:
        found = list(re.finditer(pattern, out))
        return found[-1][1 if found[-1].re.groups else 0].strip() if found else ""

    return figure


def equal(out: str) -> str:
    """grep printed the sum that was wanted."""
    return "equal" if SUM in out else ""


def shell(script: str) -> str:
    return f"sh -c {shlex.quote(script)}"


@dataclass(frozen=True)
class Sockets(Program):
    """Its ends as they are called without tcpqp-run."""

    shown: str = ""
    supervise: bool = False  # static, or Go's, and started by a shell
    at_server: bool = False  # under tcpqp-run
    at_client: bool = False

    def command(self) -> str:
        return f"tcpqp-run {self.shown or self.client.replace('{peer}', 'PEER').replace('{port}', 'PORT')}"

    def run_at(self, server: bool, client: bool) -> "Sockets":
        run = f"{RUN} --supervise" if self.supervise else RUN
        return replace(self, server=f"{run} {self.server}" if server else self.server, client=f"{run} {self.client}" if client else self.client,
                       shown=self.command().removeprefix("tcpqp-run "), at_server=server, at_client=client)  # fmt: skip

    def complaint(self, listeners: str, client_said: str) -> str:
        """Each end under tcpqp-run has the ULP, and no other has."""
        for end, wanted, has in (
            ("server", self.at_server, ULP in listeners), ("client", self.at_client, bool(TAKEN.search(client_said))),
        ):  # fmt: skip
            if wanted != has:
                return f"the {end} {'lacks' if wanted else 'has'} the ULP: {listeners}{client_said}"
        return ""


def iperf() -> Iterator[Sockets]:
    for options in ("-n 40M", "-n 40M -R", "-n 10M -P 4", "-n 10M -P 4 --bidir"):
        yield Sockets("iperf3", "iperf3 -s -1 -p {port}", f"iperf3 -c {{peer}} -p {{port}} {options}", said(r"([\d.]+ [KMG]bits/sec) .*receiver"))


def redis() -> Iterator[Sockets]:
    server = "redis-server --port {port} --protected-mode no --save '' --daemonize no"
    for more in ("-c 10 -n 400 -t set,get,lpush", "-c 20 -n 2000 -P 16 -d 1000 -t set,get"):
        yield Sockets("redis", server, f"redis-benchmark -h {{peer}} -p {{port}} -q {more}", said(r"GET: ([\d.]+ requests per second)"), server_ends=False)
    there = "redis-cli -h {peer} -p {port}"
    script = f"seq 1000000 | {there} -x set big >/dev/null; {there} --raw get big | head -c {len(PAGE)} | {COMPARE}"
    yield Sockets("redis", server, shell(script), equal, server_ends=False, shown="redis-cli: 6.9 MB set, got, SHA-256 compared")


def nginx() -> Iterator[Sockets]:
    server = shell(NGINX)
    script = f"for i in 1 2 3; do curl -sS http://{{peer}}:{{port}}/page | {COMPARE} || exit 1; done"
    yield Sockets("nginx", server, shell(script), equal, server_ends=False, shown="curl: 6.9 MB of nginx three times, SHA-256 compared")
    script = "curl -sS --limit-rate 3M http://{peer}:{port}/page | " + COMPARE
    yield Sockets("nginx", server, shell(script), equal, server_ends=False, shown="curl --limit-rate 3M: of nginx, SHA-256 compared")
    yield Sockets("nginx", server, "wrk -t 2 -c 16 -d 3s http://{peer}:{port}/n.conf", said(r"(Requests/sec:\s+[\d.]+)"), server_ends=False)


def others() -> Iterator[Sockets]:
    yield Sockets("sockperf", "sockperf server --tcp -p {port}", "sockperf ping-pong --tcp -i {peer} -p {port} -t 3",
                  said(r"Latency is ([\d.]+ usec)"), server_ends=False)  # fmt: skip
    yield Sockets("memcached", "memcached -u root -p {port}", "memccapable -h {peer} -p {port} -a -t 20", said(r"All tests passed"), server_ends=False)
    yield Sockets("netcat", shell(f"nc -l {{port}} | {COMPARE}"), shell("seq 1000000 | nc -N {peer} {port} && echo sent"), said("sent"),
                  shown="nc: 6.9 MB, SHA-256 compared")  # fmt: skip
    client = shell(f"seq 1000000 >/tmp/page; exec python3 -c '{ASYNCIO_CLIENT}' {{peer}} {{port}}")
    yield Sockets("asyncio", f"python3 -c '{ASYNCIO}'", client, said("equal"), shown="Python's asyncio: 6.9 MB there and back, compared")


def supervised() -> Iterator[Sockets]:
    """No library reaches busybox, which is static, nor programs of Go's: they are supervised."""
    fetch = f"busybox wget -q -O - http://{{peer}}:{{port}}/page | {COMPARE}"
    page = "seq 1000000 >/tmp/page; exec"
    yield Sockets("static", shell(f"{page} busybox httpd -f -p {{port}} -h /tmp"), shell(fetch), equal, server_ends=False,
                  shown="busybox wget of busybox httpd (static)", supervise=True)  # fmt: skip
    server = shell(f"{page} websocketd --port={{port}} --staticdir=/tmp")
    yield Sockets("go", server, shell(fetch), equal, server_ends=False, shown="busybox wget of websocketd (Go)", supervise=True)
    whole = rf"Size/request:\s+{len(PAGE)} bytes(?s:.*)\[200\]\s+(20 responses)"
    yield Sockets("go", server, "hey -n 20 -c 4 http://{peer}:{port}/page", said(whole), server_ends=False,
                  shown="hey -n 20 -c 4: 6.9 MB of websocketd (both Go)", supervise=True)  # fmt: skip


def sockets() -> list[Sockets]:
    return [*iperf(), *redis(), *nginx(), *others(), *supervised()]
