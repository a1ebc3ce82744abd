# SPDX-License-Identifier: BSD-3-Clause
"""TCP's window closes on a slow reader, and credit ends; the path's MTU changes or is probed; urgent data is refused with its reason."""

import pytest

from harness.guests import NCQP, Guests
from harness.pairs import fabric
from harness.traffic import free_port, sysctl
from vm.exchange import exchange
from vm.fabric import NEEDS  # the same guests

pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]
ENGINES = ("software", "offload")
SMALL_RMEM, LARGE_RMEM = 1 << 20, 64 << 20  # the latter is what guest/setup asks for
LANE = {"rate_mbps": 150, "queue_bytes": 600_000}  # so that a change falls into the transfer


def _zero_windows(t: Guests) -> int:
    return t.nstat(0, "TcpExtTCPToZeroWindowAdv")


@pytest.mark.long
def test_window_closes_on_late_receives(t: Guests) -> None:
    t.run(0, f"sysctl -qw net.ipv4.tcp_rmem='4096 131072 {SMALL_RMEM}'")
    for engine in ENGINES:
        before = _zero_windows(t)
        # a message far larger than the receive window, and nothing posted for a while
        counters = exchange(t, engine, engine, "--messages 6 --max-bytes 8000000 --depth 2 --one-way --late-receives --pause-ms 4000 --seed 31")
        t.check(_zero_windows(t) > before, f"{engine}: the window never closed")
        t.check(sum(c["rx_stalls"] for c in counters) > 0, f"{engine}: nothing waited for a receive")
    t.run(0, f"sysctl -qw net.ipv4.tcp_rmem='4096 131072 {LARGE_RMEM}'")


def test_slow_reader(t: Guests) -> None:
    for engine in ENGINES:
        counters = exchange(t, engine, engine, "--messages 60 --depth 2 --slow-ms 15 --seed 32")
        t.check(sum(c["credit_waits"] for c in counters) > 0, f"{engine}: the sender never waited")


@pytest.mark.long
def test_probes_are_early_again(t: Guests) -> None:
    """A machine that others use may be late once."""
    program, found = "$REPO/selftests/vm/programs/credit_again.py", ""
    for _ in range(3):
        port = free_port()
        jobs = [t.start(0, f"exec {program} --listen {port}", 60)]
        t.wait_listening(0, port)
        jobs.append(t.start(1, f"exec {program} --connect {t.nodes[0].ip4}:{port}", 60))
        results = [job.wait() for job in jobs[::-1]]
        if all(result.ok for result in results):
            return
        found += "".join(result.stderr for result in results)
    t.check(False, found)


def _probed(t: Guests, node: int) -> int:
    return t.nstat(node, "TcpExtTCPMTUPSuccess")


@pytest.mark.long
def test_mtu_is_probed(t: Guests) -> None:
    """TCP's probes are skbs of their own, with the pages of others."""
    with sysctl(t, "net.ipv4.tcp_mtu_probing", 2), sysctl(t, "net.ipv4.tcp_base_mss", 536):
        for engine in ENGINES:
            for size in (5_000, 400_000):  # trains, and messages that fill bursts
                before = [_probed(t, node) for node in (0, 1)]
                exchange(t, engine, engine, f"--messages 200 --max-bytes {size} --depth 32 --train 8 --seed 33")
                t.check(all(_probed(t, node) > was for node, was in enumerate(before)), f"{engine}, {size} bytes: nothing was probed")


# Sends while nothing has changed, and MORE_MIB after that; prints the sum of it all.
SENDER = """rm -f {go} {fifo}; mkfifo {fifo}; head -c 1M /dev/urandom >{chunk}
{{ while [ ! -e {go} ]; do cat {chunk}; done; for i in $(seq {more}); do cat {chunk}; done; }} | tee {fifo} | cksum &
{ncqp} <{fifo}; status=$?; wait; exit $status"""
RECEIVER = "rm -f {fifo}; mkfifo {fifo}; cksum <{fifo} & {ncqp} >{fifo}; status=$?; wait; exit $status"
GO, FIFO, CHUNK, MORE_MIB = "/tmp/changed", "/tmp/bytes", "/mnt/t/chunk", 8


def _during(t: Guests, engine: str, family: str, change: str, back: str) -> None:
    """A transfer to node 0; on node 1 something changes in its middle, and its segments become smaller."""
    with fabric(t, **LANE):
        _change_during(t, engine, family, change, back)


def _change_during(t: Guests, engine: str, family: str, change: str, back: str) -> None:
    port = free_port()
    address = t.nodes[0].ip6 if family else t.nodes[0].ip4
    options = f"-q -p {port} --engine {engine} --timeout 30"
    server = t.start(0, RECEIVER.format(fifo=FIFO, ncqp=f"{NCQP} {options} -l {family}"), 120)
    t.wait_listening(0, port)
    client = t.start(1, SENDER.format(go=GO, fifo=FIFO, chunk=CHUNK, more=MORE_MIB, ncqp=f"{NCQP} {options} -s {address}"), 120)
    seen = f"ss -Hti state established 'dport = :{port}' | grep -Eq"
    t.run(1, f"until {seen} 'bytes_acked:[0-9]{{7}}'; do sleep 0.1; done; {change}; until {seen} ' mss:1?[0-2]?[0-9]{{2}} '; do sleep 0.1; done; touch {GO}")
    sent, got = client.wait(), server.wait()
    t.run(1, back)
    t.check(sent.ok and got.ok, f"{engine} {family}: {sent.stderr}{got.stderr}")
    t.equal(got.stdout, sent.stdout, f"{engine} {family}: checksum and length")


@pytest.mark.parametrize(
    ("engine", "family", "prefix"),
    [
        pytest.param("offload", "", "10.77.0.1/32", id="offload"), pytest.param("software", "", "10.77.0.1/32", id="software", marks=pytest.mark.long),
        pytest.param("offload", "-6", "fd77::1/128", id="ipv6", marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_route_mtu_shrinks(t: Guests, engine: str, family: str, prefix: str) -> None:
    ip = f"ip {family} route"
    _during(t, engine, family, f"{ip} replace {prefix} dev nupa0 mtu 1200", f"{ip} del {prefix} dev nupa0; {ip} flush cache")


@pytest.mark.long
def test_interface_mtu_shrinks(t: Guests) -> None:
    for engine in ENGINES:
        _during(t, engine, "", "ip link set nupa0 mtu 1280", "ip link set nupa0 mtu 1500; ip -6 address replace $IP6/64 dev nupa0 nodad")


@pytest.mark.long
def test_packet_too_big(t: Guests) -> None:
    """A router's word for it: the receiver answers a segment with the ICMP message that quotes it."""
    for engine, family in (("offload", ""), ("software", "-6")):
        liar = t.start(0, f"python3 $REPO/selftests/vm/programs/too_big.py 1280 {family or '-4'}", 60)
        flush = f"ip {family} route flush cache"
        address = t.nodes[0].ip6 if family else t.nodes[0].ip4
        _during(t, engine, family, f"until ip {family} route get {address} | grep -q 'mtu 1280'; do sleep 0.1; done", flush)
        liar.kill()
        liar.wait()


def test_urgent_data_is_refused(t: Guests) -> None:
    """Whether it comes before the queue pair is attached, meanwhile, or when it waits for the peer's."""
    for engine in ENGINES:
        before = _counter(t, "urgent_refused")
        delays = (0, 0.05, 0.2, 1)
        ports = [free_port() for _ in delays]
        servers = [t.start(0, f"{NCQP} -q -l -p {port} --engine {engine} --timeout 10 >/dev/null", 40) for port in ports]
        for port in ports:
            t.wait_listening(0, port)
        sends = [t.start(1, f'python3 -c "{_urgent_byte(t.nodes[0].ip4, port, delay_s)}"', 30) for port, delay_s in zip(ports, delays)]
        for send in sends:
            send.wait(check=True)
        for server, delay_s in zip(servers, delays):
            result = server.wait()
            what = f"{engine}, after {delay_s} s"
            t.check(0 < result.status < 124, f"{what}: a receiver of urgent data ended with {result.status}")
            t.check("urgent" in result.stderr.lower(), f"{what}: the reason is not told: {result.stderr}")
        t.equal(_counter(t, "urgent_refused") - before, len(delays), f"{engine}: counted")


def _urgent_byte(ip: str, port: int, delay_s: float) -> str:
    """Python that connects, sends it, and stays until it is refused."""
    return (f"import select,socket,time; s=socket.create_connection(('{ip}',{port})); time.sleep({delay_s});"
            "s.send(b'!',socket.MSG_OOB); select.select([s],[],[],20)")  # fmt: skip


def _counter(t: Guests, name: str) -> int:
    return int(t.run(0, f"cat /sys/class/infiniband/tcpqp0/ports/1/hw_counters/{name}"))
