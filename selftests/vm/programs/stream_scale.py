#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Many sockets with ULP tcp_qp_stream beside as many plain ones: stream_scale.py SOCKETS SECONDS SYNS.  Prints what each costs; exit 0 only if
the ULP costs next to nothing, children of SYN cookies have it, and no reference to the module is left."""

import json
import re
import resource
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from statistics import median

from stream_cases import LIMIT_S, NAME, free_kib, ulp_of, with_ulp

NOISE_BYTES = 4 << 20  # in what the whole machine has free
KEPT_BYTES = 64  # of a connection that has ended: less than the least object that it has
COST_MAX = 1.5  # times a plain connection's processor time
BATCH = 25  # connections of one kind, then as many of the other
BATCHES_MIN = 15  # of each kind: on a busy machine a few of them cost much more, whichever kind they are
IDLE_S = 0.2
BACKLOG = 1024
ALWAYS = 2  # net.ipv4.tcp_syncookies
SPOOFED = "198.18"  # RFC 2544: no route leads there
NOW = struct.pack("ii", 1, 0)


def listener(ulp: bool) -> socket.socket:
    sock = socket.socket()
    if ulp:
        with_ulp(sock)
    sock.bind(("127.0.0.1", 0))
    sock.listen(BACKLOG)
    return sock


def connected(to: socket.socket, ulp: bool) -> tuple[socket.socket, socket.socket]:
    ours = socket.socket()
    if ulp:
        with_ulp(ours)
    ours.connect(to.getsockname())
    return ours, to.accept()[0]


def settled_free_kib() -> int:
    """When the kernel has given back what it does later."""
    before = -1
    while before != (now := free_kib()):
        before = now
        time.sleep(IDLE_S)
    return now


def idle_bytes(sockets: int, ulp: bool) -> float:
    """Of each open socket."""
    with closing(listener(ulp)) as to:
        before = settled_free_kib()
        ends = [connected(to, ulp) for _ in range(sockets // 2)]
        taken = before - settled_free_kib()
        for pair in ends:
            for end in pair:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOW)
                end.close()
    return taken * 1024 / sockets


def connect_and_close(to: socket.socket, ulp: bool) -> None:
    for end in connected(to, ulp):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOW)
        end.close()


def rates(seconds: float) -> tuple[list[float], float, int, int]:
    """Of each kind, connections made, accepted and closed in a second; what one with the ULP costs of processor time, in plain ones;
    how many there were, and bytes that are not free any more."""
    took, costs, before = [0.0, 0.0], [], settled_free_kib()
    with closing(listener(False)) as plain, closing(listener(True)) as ours:
        while sum(took) < 2 * seconds or len(costs) < BATCHES_MIN:
            cpu = [0.0, 0.0]
            for ulp, to in enumerate((plain, ours)):
                begun, used = time.monotonic(), time.process_time()
                for _ in range(BATCH):
                    connect_and_close(to, bool(ulp))
                took[ulp] += time.monotonic() - begun
                cpu[ulp] = time.process_time() - used
            costs.append(cpu[1] / cpu[0])
    return [len(costs) * BATCH / t for t in took], median(costs), 2 * len(costs) * BATCH, (before - settled_free_kib()) * 1024


def cookies_taken() -> int:
    names, values = (line.split() for line in open("/proc/net/netstat") if line.startswith("TcpExt:"))
    return int(values[names.index("SyncookiesRecv")])


def syn(source: bytes, port: int, to: tuple[str, int]) -> bytes:
    """IP and TCP; the kernel fills in IP's checksum and length."""
    head = struct.pack("!HHIIBBHHH", port, to[1], port << 8, 0, 5 << 4, 2, 64000, 0, 0)
    pseudo = source + socket.inet_aton(to[0]) + struct.pack("!BBH", 0, socket.IPPROTO_TCP, len(head))
    total = sum(struct.unpack(f"!{len(pseudo + head) // 2}H", pseudo + head))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    tcp = head[:16] + struct.pack("!H", ~total & 0xFFFF) + head[18:]
    return struct.pack("!BBHHHBBH4s4s", 0x45, 0, 0, 0, 0, 64, socket.IPPROTO_TCP, 0, source, socket.inet_aton(to[0])) + tcp


@contextmanager
def sysctl(name: str, value: object) -> Iterator[None]:
    path = f"/proc/sys/net/ipv4/{name}"
    before = open(path).read()
    with open(path, "w") as file:
        file.write(str(value))
    try:
        yield
    finally:
        with open(path, "w") as file:
            file.write(before)


def flood(syns: int) -> int:
    """SYNs of nobody, and between them those of some, who get in by cookies and have children with the ULP."""
    before, met = cookies_taken(), 0
    with closing(listener(True)) as to, closing(socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)) as raw:
        at = to.getsockname()
        for i in range(syns):
            raw.sendto(syn(socket.inet_aton(f"{SPOOFED}.{i >> 8 & 255}.{i & 255}"), 1024 + i % 60000, at), (at[0], 0))
            if i % 200 == 0:
                ours, theirs = connected(to, True)
                assert ulp_of(theirs) == NAME
                ours.sendall(b"x" * 100)
                assert theirs.recv(200) == b"x" * 100
                ours.close()
                theirs.close()
                met += 1
    assert cookies_taken() - before >= met, "no cookies were asked for"
    return met


def references() -> int:
    return int(re.match(r"\d+", open("/sys/module/tcp_qp/refcnt").read())[0])


def main() -> int:
    sockets, seconds, syns = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_NOFILE, (sockets + 1000,) * 2)
    held = references()
    idle_bytes(sockets, False)  # what caches keep from then on
    plain, ours = idle_bytes(sockets, False), idle_bytes(sockets, True)
    (quick, ours_quick), cost, ended, kept = rates(seconds)
    with sysctl("tcp_syncookies", ALWAYS), sysctl("tcp_max_syn_backlog", BACKLOG):
        met = flood(syns)
    told = {"sockets": sockets, "idle_bytes": {"plain": round(plain), "ulp": round(ours)},
            "connections_per_s": {"plain": round(quick), "ulp": round(ours_quick)}, "cpu_of_plain": round(cost, 2),
            "connections": ended, "kept_bytes": kept, "syns": syns, "connected_by_cookie": met}  # fmt: skip
    print(json.dumps(told), flush=True)
    assert ours - plain < NOISE_BYTES / sockets, "an idle socket with the ULP costs more than a plain one"
    assert cost < COST_MAX, "connections with the ULP take longer"
    assert kept < NOISE_BYTES + KEPT_BYTES * ended, "connections that have ended keep memory"
    for _ in range(int(LIMIT_S / IDLE_S)):
        if references() == held:
            return 0
        time.sleep(IDLE_S)
    raise AssertionError(f"{references()} references to the module, {held} before")


if __name__ == "__main__":
    sys.exit(main())
