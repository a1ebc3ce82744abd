# SPDX-License-Identifier: BSD-3-Clause
"""The kernel's own selftests of TCP sockets in one guest, as they are and under tcpqp-run: both must say the same."""

import re
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from nupavm import Cluster, Node
from nupavm.paths import BUILD

from .pair import Outcome
from .sockets import RUN, TAKEN

PLACE = BUILD / "kselftests"  # tools/compat/build_kselftests
THERE = "/tmp/k"  # in the guest; some write beside themselves
VERDICT = re.compile(r"^(not ok|ok) \d+ (?:- )?(.*)$", re.MULTILINE)
SKIPPED = re.compile(r"# SKIP", re.IGNORECASE)
KSFT_SKIP = 4
KERNELS_OWN = "net.core.rmem_max=212992 net.core.wmem_max=212992 net.ipv4.tcp_rmem='4096 131072 6291456' net.ipv4.tcp_wmem='4096 16384 4194304'"
HARNESS = ("epoll_busy_poll", "bind_timewait", "bind_wildcard", "so_incoming_cpu", "ip_local_port_range", "so_netns_cookie")
SINGLE = (
    *HARNESS, "reuseaddr_conflict", "reuseport_addr_any", "reuseport_bpf", "reuseport_bpf_cpu", "reuseport_dualstack",
    "sk_bind_sendto_listen", "sk_connect_zero_addr", "sk_so_peek_off",
)  # fmt: skip
PACKETDRILL = shutil.which("packetdrill")  # Debian 12 has no package of it
PACKETS = {
    "ipv4": "--ip_version=ipv4 --local_ip=192.168.0.1 --gateway_ip=192.168.0.1 --netmask_ip=255.255.0.0 --remote_ip=192.0.2.1 "
            "-D CMSG_LEVEL_IP=SOL_IP -D CMSG_TYPE_RECVERR=IP_RECVERR",
    "ipv6": "--ip_version=ipv6 --mtu=1520 --local_ip=fd3d:0a0b:17d6::1 --gateway_ip=fd3d:0a0b:17d6:8888::1 --remote_ip=fd3d:fa7b:d17d::1 "
            "-D CMSG_LEVEL_IP=SOL_IPV6 -D CMSG_TYPE_RECVERR=IPV6_RECVERR",
}  # fmt: skip
TOLERANCE = "--tolerance_usecs=200000"  # a guest under TCG


@dataclass(frozen=True)
class Kselftest:
    name: str
    command: str  # in a directory of the guest's that has them
    limit_s: float = 120
    says: bool = True  # its processes end by exit(): tcpqp-run can say on how many sockets the ULP was


def alone() -> Iterator[Kselftest]:
    # of the ciphers the one that every kernel has; where others fail, as for want of crypto modules, each takes its 30 s
    for options in ("-v 12_aes_gcm", "-f tls_basic"):
        yield Kselftest(f"tls {options}", f"./tls {options}", says=False)
    for family, address in (("4", "127.0.0.1"), ("6", "::1")):
        yield Kselftest(f"tcp_inq -{family}", f"./tcp_inq -{family}")
        ends = f"./tcp_mmap -{family} -z -i -p 90{family}0"
        yield Kselftest(f"tcp_mmap -{family} -z -i", f"{ends} -s & sleep 1; {ends} -H {address}; status=$?; kill $!; exit $status")
    for name in SINGLE:
        yield Kselftest(name, f"./{name}", says=name not in HARNESS)


def scripts() -> Iterator[Kselftest]:
    for family in "46":
        for more in ("", " -z"):
            yield Kselftest(f"msg_zerocopy.sh {family} tcp{more}", f"./msg_zerocopy.sh {family} tcp{more}")
        yield Kselftest(f"io_uring_zerocopy_tx.sh {family} tcp", f"./io_uring_zerocopy_tx.sh {family} tcp -m 1")
    yield Kselftest("tcp_fastopen_backup_key.sh", "./tcp_fastopen_backup_key.sh")
    yield Kselftest("stress_reuseport_listen.sh", "./stress_reuseport_listen.sh")


def packets() -> Iterator[Kselftest]:
    for script in sorted((PLACE / "packetdrill").glob("*.pkt")):
        for family, options in PACKETS.items():
            command = f"cd packetdrill && unshare -n {PACKETDRILL} {options} {TOLERANCE} {script.name}"
            yield Kselftest(f"packetdrill {script.name} {family}", command, 60)


def kselftests() -> list[Kselftest]:
    return [*alone(), *scripts(), *(packets() if PACKETDRILL else [])]


def verdicts(status: int, out: str) -> Counter:
    """What a run said of each of its tests; of one that says nothing of them, how it ended."""
    found = [("skipped" if SKIPPED.search(name) else verdict, SKIPPED.split(name)[0].strip()) for verdict, name in VERDICT.findall(out)]
    return Counter(found or [({0: "ok", KSFT_SKIP: "skipped"}.get(status, "not ok"), "all")])


def shown(said: Counter) -> str:
    totals = Counter(verdict for verdict, _ in said.elements())
    return ", ".join(f"{totals[verdict]} {verdict}" for verdict in ("ok", "not ok", "skipped") if totals[verdict])


def differences(plain: Counter, ulp: Counter) -> str:
    return "; ".join(f"{way}: {', '.join(f'{verdict} {name}' for verdict, name in (a - b).elements())}"
                     for way, a, b in (("as it is", plain, ulp), ("under tcpqp-run", ulp, plain)) if a - b)  # fmt: skip


def once(node: Node, test: Kselftest, run: str) -> tuple[Counter, str, float]:
    """What it said of its tests, its standard error, and how long it took."""
    began = time.monotonic()
    done = node.run(f"cd {THERE} && {run} bash -c {shlex.quote(test.command)}", test.limit_s)
    return verdicts(done.status, done.stdout), done.stderr, round(time.monotonic() - began, 1)


def compare(cluster: Cluster, only: str) -> Iterator[Outcome]:
    """An outcome for each way; under tcpqp-run it is all right if it is as without.  Of what passes nothing as it is, there is one."""
    node = cluster.node[0]
    node.run(f"modprobe -a tls tun; mkdir -p /dev/net {THERE}; [ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200; cp -r {PLACE}/* {THERE};"
             f"sysctl -qw vm.nr_hugepages=64 {KERNELS_OWN}", 60, check=True)  # fmt: skip
    for test in (t for t in kselftests() if only in t.name):
        plain, _, seconds = once(node, test, "")
        shows = any(verdict == "ok" for verdict, _ in plain)
        yield Outcome("kselftest", test.name, "plain", True, shown(plain) + ("" if shows else ": shows nothing"), "", seconds)
        if not shows:
            continue
        ulp, error, seconds = once(node, test, RUN)
        problem = differences(plain, ulp)
        if not problem and test.says and not TAKEN.search(error):
            problem = "no socket has the ULP"
        yield Outcome("kselftest", test.name, "tcpqp-run", not problem, shown(ulp), f"{problem} {error[-400:]}" if problem else "", seconds)
