# SPDX-License-Identifier: BSD-3-Clause
"""Sends the file from node 1 to node 0 with one engine and gathers what both ends report."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from nupavm import Cluster, Node

from .payload import Payload, sha256_of

NCQP = os.environ.get("NUPA_NCQP", "$BUILD/cmake/tools/ncqp/ncqp")  # a path in the guest
# Row of the table -> ncqp's engine and options.  Plain TCP twice: the calls that everyone uses, and the best there is for a file.
POOL = "offload-pool"
ENGINES = {
    "tcp": ("tcp", "--tcp-send copy"),
    "tcp-sendfile": ("tcp", "--tcp-send sendfile"),
    "software": ("software", "--depth 64"),
    "offload": ("offload", "--depth 64"),
    POOL: ("offload", "--depth 64 --pool"),  # buffers in leases: in mode cxl
}
FIRST_PORT = 5001
TRANSFER_S = 60
LISTEN_S = 30
LOOK_EVERY_S = 0.05  # ss looks until it sees the transfer under way: at least 10 MB
SOURCE, COPY = "/mnt/t/payload", "/mnt/t/copy"
GIB = 1 << 30


@dataclass
class Outcome:
    engine: str
    tx: dict = field(default_factory=dict)
    rx: dict = field(default_factory=dict)
    sockets: dict[str, str] = field(default_factory=dict)  # ss -tin, by node name
    sha256_ok: bool = False
    problem: str = ""

    def row(self) -> dict:
        """What build/results/demo.json keeps; placed and copied are the receiver's, retransmissions the sender's."""
        return {
            "engine": self.engine, "bytes": self.rx.get("bytes", 0), "seconds": self.rx.get("seconds", 0), "gbps": self.rx.get("gbps", 0),
            "cpu_s_tx": self.tx.get("cpu_s", 0), "cpu_s_rx": self.rx.get("cpu_s", 0),
            "placed_bytes": self.rx.get("placed_bytes", 0), "copied_bytes": self.rx.get("copied_bytes", 0),
            "tx_copied_bytes": self.tx.get("copied_bytes", 0), "segments": self.tx.get("segments", 0),
            "setup_s": self.rx.get("setup_s", 0), "setup_cpu_s": self.rx.get("setup_cpu_s", 0),
            "retrans": self.tx.get("retrans", 0), "mss": self.tx.get("mss", 0),
            "sha256_ok": self.sha256_ok, "problem": self.problem,
        }  # fmt: skip


def load_source(node: Node) -> None:
    """The sender's copy of the file, in memory, so that no disk is part of what is measured."""
    node.run(f"dd if=/dev/vda of={SOURCE} bs=1M iflag=direct status=none", check=True)


def warm_up(cluster: Cluster, payload: Payload, scratch: Path) -> None:
    """Moves the file once, not measured: the first time that the switch, or a guest, touches a page costs this machine more than its bytes."""
    transfer(cluster, "tcp-sendfile", payload, scratch)


def transfer(cluster: Cluster, engine: str, payload: Payload, scratch: Path, look: bool = False) -> Outcome:
    """@look: let ss look at the connection meanwhile, which costs as much as a good part of the transfer: never when measuring."""
    receiver, sender = cluster.node[:2]
    port = FIRST_PORT + list(ENGINES).index(engine)
    out = Outcome(engine)
    name, options = ENGINES[engine]
    common = f"{NCQP} -q --timeout 20 -p {port} -s {receiver.ip4} --engine {name} {options} --json /results/ncqp.{engine}.json"
    watch = _look(port, f"/results/ss.{engine}") if look else "true"
    # A QP's receiver learns the size from the sender and has its pages ready; plain TCP is told it, so that it may have them too.
    size = f"-n {payload.bytes}" if name == "tcp" else ""
    rx = receiver.start(f"rm -f {COPY}; {common} -l {size} >{COPY} & pid=$!; nupa-ctl get sending.{engine}.{look} >/dev/null; {watch}; wait $pid", TRANSFER_S)
    if not receiver.wait_listening(port, LISTEN_S):
        rx.kill()
        out.problem = f"the receiver does not listen: {rx.wait().stderr.strip()[-500:]}"
        return out
    tx = sender.start(f"nupa-ctl post sending.{engine}.{look} yes; {common} <{SOURCE} & pid=$!; {watch}; wait $pid", TRANSFER_S)
    ends = {"sender": (sender, tx.wait()), "receiver": (receiver, rx.wait())}
    for role, (node, result) in ends.items():
        report = node.results / f"ncqp.{engine}.json"
        facts = json.loads(report.read_text()) if report.exists() else {}
        setattr(out, "tx" if role == "sender" else "rx", facts)
        sockets = node.results / f"ss.{engine}"
        out.sockets[f"{node.name} ({role})"] = sockets.read_text() if sockets.exists() else ""
        if not result.ok:
            out.problem += f"{role} ended with {result.status}: {result.stderr.strip()[-500:]} "
        elif facts.get("engine") != name:
            out.problem += f"{role} used engine {facts.get('engine')}, reason {facts.get('reason')} "
    if not out.problem:
        _verify(out, receiver, payload, scratch)
    return out


def _look(port: int, target: str) -> str:
    """Shell commands that leave what ss says of the connection in the middle of its life."""
    ss = f"ss -Htin state established '( sport = :{port} or dport = :{port} )'"
    busy = "grep -Eq 'bytes_(acked|received):[0-9]{8}'"
    return f"while sleep {LOOK_EVERY_S} && kill -0 $pid 2>/dev/null; do {ss} >{target}.try; {busy} {target}.try && mv {target}.try {target} && break; done"


def _verify(out: Outcome, receiver: Node, payload: Payload, scratch: Path) -> None:
    """The receiver's file leaves over a raw disk and is hashed here: a guest without hardware takes ten times as long."""
    with scratch.open("r+b") as file:
        file.truncate(0)  # nothing of the engine before may be taken for this one's
        file.truncate(payload.bytes)
    size = receiver.run(f"stat -c %s {COPY}", check=True).stdout.strip()
    receiver.run(f"dd if={COPY} of=/dev/vda bs=1M oflag=direct conv=fsync status=none; rm {COPY}", check=True)
    out.sha256_ok = sha256_of(scratch) == payload.sha256
    if size != str(payload.bytes):
        out.problem = f"the copy has {size} bytes, the file {payload.bytes}"
    elif not out.sha256_ok:
        out.problem = "SHA-256 differs"
    elif out.engine in ("offload", POOL) and not out.rx.get("placed_bytes"):
        out.problem = "the switch placed nothing"
