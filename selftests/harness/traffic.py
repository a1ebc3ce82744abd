# SPDX-License-Identifier: BSD-3-Clause
"""Traffic between two guests that checks itself."""

import itertools
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from harness.guests import NCQP, Failed, Guests

_ports = itertools.count(20000)
NUPA_BENCH = "$BUILD/cmake/bench/guest/nupa_bench"
PARAMETERS = "/sys/module/tcp_qp/parameters"
FORKS = 20
WORK = f"head -1 /proc/stat; for i in $(seq {FORKS}); do /bin/true; done; head -1 /proc/stat"
SOFTIRQ = 6  # of /proc/stat, behind "cpu"
# Of iperf3 and ncqp: traffic that is there until the test ends it, however late a busy machine is to look.
ENDLESS_S, ENDLESS = 3600, "1T"
FLOOR_BPS = 5e6  # far below what the slowest machine does; catches a stall


@contextmanager
def _says(t: Guests, file: str, value: object, nodes: tuple[int, ...]) -> Iterator[None]:
    """The kernel's file has this value until the end of the block."""
    before = [t.run(node, f"cat {file}").strip() for node in nodes]
    try:
        for node in nodes:
            t.run(node, f"echo {value} >{file}")
        yield
    finally:
        for node, was in zip(nodes, before, strict=True):
            t.run(node, f"echo {was} >{file}")


def parameter(t: Guests, name: str, value: object, nodes: tuple[int, ...] = (0, 1)) -> AbstractContextManager[None]:
    """tcp_qp's parameter has this value until the end of the block."""
    return _says(t, f"{PARAMETERS}/{name}", value, nodes)


def sysctl(t: Guests, name: str, value: object, nodes: tuple[int, ...] = (0, 1)) -> AbstractContextManager[None]:
    """The same of a sysctl."""
    return _says(t, f"/proc/sys/{name.replace('.', '/')}", value, nodes)


@contextmanager
def done_and_undone(t: Guests, nodes: tuple[int, ...], do: str, undo: str) -> Iterator[None]:
    """What these commands do on the nodes holds until the end of the block."""
    for node in nodes:
        t.run(node, do)
    try:
        yield
    finally:
        for node in nodes:
            t.run(node, undo)


def route(t: Guests, options: str) -> AbstractContextManager[None]:
    """Each node's route to its peer has these options (ip-route(8))."""
    return done_and_undone(t, (0, 1), f"ip route replace $PEER/32 dev nupa0 {options}", "ip route del $PEER/32; ip route flush cache")


def nupa_bench(t: Guests, spec: str, limit_s: float = 60) -> dict:
    """What the client says of a case of the benchmark, from node 1 to node 0."""
    port = free_port()
    server = t.start(0, f"exec {NUPA_BENCH} --port {port}", limit_s)
    t.check(t.nodes[0].wait_listening(port, 20), "nupa_bench does not listen")
    said = json.loads(t.run(1, f"exec {NUPA_BENCH} --connect {t.nodes[0].ip4} --port {port} {spec}", limit_s))
    t.check(said["ok"], str(said))
    server.kill()
    return said


def softirq_share(t: Guests, node: int = 0, limit_s: float = 60) -> float:
    """What softirq has of the node's processor while processes begin and end."""
    shown = [[int(n) for n in line.split()[1:8]] for line in t.run(node, WORK, limit_s).splitlines()]
    spent = [b - a for a, b in zip(*shown)]
    return spent[SOFTIRQ] / sum(spent)


def free_port() -> int:
    """A port no other transfer of this run used: no wait for TIME_WAIT."""
    return next(_ports)


def wait_moving(t: Guests, node: int, port: int, what: str = "acked", limit_s: float = 30) -> None:
    """Returns when a megabyte has been acked or received on the node's connection that has this port at either end."""
    at_port = f"'( sport = :{port} or dport = :{port} )'"
    moved = f"ss -Hti state established {at_port} | grep -Eq 'bytes_{what}:[0-9]{{7}}'"
    if not t.nodes[node].run(f"until {moved}; do sleep 0.1; done", limit_s).ok:
        found = t.run(node, f"ss -Htaine {at_port}").strip() or "nothing"
        raise Failed(f"node{node}: no megabyte was {what} on port {port} in {limit_s:g} s; there is: {found}")


def iperf(t: Guests, options: str = "", server: int = 0, seconds: int = 1) -> dict:
    """iperf3 from the other node to this one; its report.  Fails when hardly anything passed."""
    port = free_port()
    client = 1 - server
    family = "6" if "-6" in options.split() else ""
    job = t.start(server, f"iperf3 -s -1 -p {port} >/dev/null")
    t.wait_listening(server, port)
    address = t.nodes[server].ip6 if family else t.nodes[server].ip4
    result = t.nodes[client].run(f"iperf3 -J -t {seconds} -p {port} -c {address} {options}", limit_s=20 + seconds)
    report = json.loads(result.stdout or "{}")
    if not result.ok or "error" in report:
        job.kill()
        raise Failed(f"iperf3 {options} to node{server} ended with {result.status}: {report.get('error', result.stderr)}")
    job.wait(check=True)
    end = report["end"].get("sum_received") or report["end"]["sum"]
    if end["bits_per_second"] < FLOOR_BPS:
        raise Failed(f"iperf3 {options}: {end['bits_per_second']:.0f} bit/s only")
    return report


def copy_file(t: Guests, source: str, family: str = "", mib: int = 4, sender: int = 1) -> None:
    """Sends random bytes over plain TCP and compares SHA-256: what a checksum or segmentation fault would break."""
    port = free_port()
    receiver = 1 - sender
    server = t.start(receiver, f"{NCQP} -q --engine tcp -l {family} -p {port} >/mnt/t/in")
    t.wait_listening(receiver, port)
    address = t.nodes[receiver].ip6 if family == "-6" else t.nodes[receiver].ip4
    t.run(sender, f"[ -f {source} ] || head -c {mib}M /dev/urandom >{source}; {NCQP} -q --engine tcp -s {address} -p {port} <{source}")
    server.wait(check=True)
    sums = [t.run(sender, f"cksum <{source}"), t.run(receiver, "cksum </mnt/t/in; rm /mnt/t/in")]
    t.equal(sums[1], sums[0], "checksum of the received file")


def ncqp(t: Guests, engine: str, sender_options: str, receiver_options: str = "", engines: tuple[str, str] | None = None,
         sender: int = 1, family: str = "", limit_s: float = 60) -> tuple[dict, dict]:  # fmt: skip
    """One ncqp transfer that must succeed; the reports of sender and receiver."""
    port = free_port()
    receiver = 1 - sender
    if ">" not in receiver_options:
        receiver_options += " >/dev/null"
    tx_engine, rx_engine = engines or (engine, engine)
    address = t.nodes[receiver].ip6 if family == "-6" else t.nodes[receiver].ip4
    server = t.start(receiver, f"{NCQP} -q -l {family} -p {port} --engine {rx_engine} --json /results/rx.json {receiver_options}", limit_s)
    t.wait_listening(receiver, port)
    client = t.start(sender, f"{NCQP} -q -s {address} -p {port} --engine {tx_engine} --json /results/tx.json {sender_options}", limit_s)
    results = {"sender": client.wait(), "receiver": server.wait()}
    for role, result in results.items():
        if not result.ok:
            everything = "\n".join(f"{r}: status {x.status}: {x.stderr.strip()}" for r, x in results.items())
            raise Failed(f"ncqp --engine {engine}: the {role} failed\n{everything}")
    return tuple(json.loads((t.nodes[n].results / f"{kind}.json").read_text()) for n, kind in ((sender, "tx"), (receiver, "rx")))
