# SPDX-License-Identifier: BSD-3-Clause
"""devmem TCP: receive queues bound to a dma-buf and memory to send from, what the kernel refuses meanwhile, and every byte compared."""

import json
from dataclasses import replace

import pytest

from harness.busy import nothing_copied
from harness.guests import NCQP, Guests
from harness.needs import Needs
from harness.pairs import fabric
from harness.traffic import copy_file, free_port, iperf, ncqp
from vm import unplug

from nupavm import Job
from nupavm.paths import BUILD

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("tools/devmem/devmem_tcp", "tools/ncqp/ncqp"), setup="full")
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]

PROGRAM = "$BUILD/cmake/tools/devmem/devmem_tcp"
RANDOM = "/mnt/t/random"
GO = "/mnt/t/go"
QUEUE = 1
COPY_S = 60
SPLIT_NETDEV = "ethtool -g nupa0 | awk '/^TCP data split:/ { print $4 }'"


def _release(t: Guests) -> str:
    """6.12, or a later one that differs."""
    return ".".join(t.run(0, "uname -r").split(".")[:2])


def _sends(t: Guests) -> None:
    if _release(t) == "6.12":
        pytest.skip("Linux 6.12 does not send from device memory")


def _ready(t: Guests, node: int = 0) -> None:
    """Two queue pairs, of which the second gets no flow by its hash, and headers split from payload."""
    t.run(node, f"ethtool -L nupa0 combined 2; ethtool -X nupa0 equal {QUEUE}; {PROGRAM} split nupa0 on")


def _bind(t: Guests, queues: str = str(QUEUE), pages: int = 1024) -> Job:
    """A process that holds the queues until it is killed."""
    job = t.start(0, f"sleep {COPY_S} | {PROGRAM} bind nupa0 --queue {queues} --pages {pages}", COPY_S)
    t.wait_output(job, "bound")
    return job


def _let_go(t: Guests, job: Job) -> None:
    job.kill()
    job.wait()
    t.run(0, "until ! pgrep -f '[d]evmem_tcp bind' >/dev/null; do sleep 0.05; done")


def _device_bytes(t: Guests) -> int:
    return t.stat(0, "rx_device_bytes")


def _receive(t: Guests, mib: int, family: int = 4, steered: bool = True) -> dict:
    """A file from node 1 by plain TCP, to device memory on node 0; what the receiver says.  Nothing is sent before the connection has its rule."""
    port = free_port()
    receiver = t.start(0, f"{PROGRAM} receive nupa0 --queue {QUEUE} --port {port} {'' if steered else '--no-steering'} >/mnt/t/in", COPY_S)
    t.wait_listening(0, port)
    sender = _send_when_told(t, port, mib, family)
    if steered:
        t.run(0, "until ethtool -n nupa0 | grep -q 'Total 1 rules'; do sleep 0.05; done")
    t.run(1, f"touch {GO}")
    sender.wait(check=True)
    said = receiver.wait(check=True).stderr
    t.equal(t.run(0, "cksum </mnt/t/in; rm /mnt/t/in"), t.run(1, f"cksum <{RANDOM}; rm {RANDOM} {GO}"), "checksum of the received file")
    return json.loads(said)


def _send_when_told(t: Guests, port: int, mib: int, family: int) -> Job:
    address = t.nodes[0].ip4 if family == 4 else t.nodes[0].ip6
    t.run(1, f"rm -f {GO}; head -c {mib}M /dev/urandom >{RANDOM}")
    return t.start(1, f"sh -c 'until [ -e {GO} ]; do sleep 0.05; done; cat {RANDOM}' | {NCQP} -q --engine tcp -s {address} -p {port}", COPY_S)


def test_every_byte_comes_to_device_memory(t: Guests) -> None:
    _ready(t)
    for family in (4, 6):
        got = _receive(t, 8, family)
        t.equal((got["bytes"], got["host_bytes"]), (8 << 20, 0), f"bytes received, and bytes in host memory: {got}")


def test_bytes_that_come_before_the_rule(t: Guests) -> None:
    """What reached another queue is in host memory, and has no control message."""
    _ready(t)
    got = _receive(t, 2, steered=False)
    t.equal((got["bytes"], got["host_bytes"]), (2 << 20, 2 << 20), f"bytes received, and bytes in host memory: {got}")


@pytest.mark.long
def test_through_loss_and_reorder(t: Guests) -> None:
    _ready(t)
    with fabric(t, loss=0.01, reorder=0.01, duplicate=0.01):
        got = _receive(t, 2)
    t.equal((got["bytes"], got["host_bytes"]), (2 << 20, 0), f"bytes received, and bytes in host memory: {got}")


def test_what_the_core_refuses(t: Guests) -> None:
    """While a queue is bound: another binding of it, fewer channels than it needs, headers that are not split."""
    t.run(0, f"ethtool -L nupa0 combined 2; {PROGRAM} split nupa0 off")
    bind = f"{PROGRAM} bind nupa0 --pages 64 --queue"
    why, bound = ("No data available", "bound") if _release(t) == "6.12" else ("tcp-data-split is disabled", "memory provider")
    t.check(why in t.fails(0, f"{bind} {QUEUE} </dev/null").stderr, "bound without header split")
    _ready(t)
    t.fails(0, f"{bind} 7 </dev/null")
    job = _bind(t)
    t.fails(0, f"{bind} {QUEUE} </dev/null")
    t.fails(0, "ethtool -L nupa0 combined 1")
    t.check(bound in t.fails(0, f"{PROGRAM} split nupa0 off").stderr, "the refusal does not say why")
    t.run(0, "ip link set nupa0 down")
    t.fails(0, f"{bind} 0 </dev/null")
    t.run(0, "ip link set nupa0 up; ip -6 address replace $IP6/64 dev nupa0 nodad")
    _let_go(t, job)
    t.run(0, f"{bind} 0,{QUEUE} </dev/null; {PROGRAM} split nupa0 off")


@pytest.mark.long
def test_interface_changes_keep_the_binding(t: Guests) -> None:
    """Down and up, other rings, more channels, a port that is reset: what is bound is there again."""
    _ready(t)
    port = free_port()
    receiver = t.start(0, f"{PROGRAM} receive nupa0 --queue {QUEUE} --port {port} >/mnt/t/in", COPY_S)
    t.wait_listening(0, port)
    for change in ("ip link set nupa0 down; ip link set nupa0 up", "ethtool -G nupa0 rx 512", "ethtool -L nupa0 combined 4", "ethtool -G nupa0 rx 2048"):
        t.run(0, change)
    t.run(0, f"ethtool -X nupa0 equal {QUEUE}; ip -6 address replace $IP6/64 dev nupa0 nodad")
    sender = _send_when_told(t, port, 2, 4)
    t.run(0, "until ethtool -n nupa0 | grep -q 'Total 1 rules'; do sleep 0.05; done")
    t.run(1, f"touch {GO}")
    sender.wait(check=True)
    got = json.loads(receiver.wait(check=True).stderr)
    t.equal(t.run(0, "cksum </mnt/t/in; rm /mnt/t/in"), t.run(1, f"cksum <{RANDOM}; rm {RANDOM} {GO}"), "checksum of the received file")
    t.equal((got["bytes"], got["host_bytes"]), (2 << 20, 0), f"bytes received, and bytes in host memory: {got}")
    t.run(0, "ethtool -L nupa0 combined 2")


@pytest.mark.long
def test_bound_and_let_go_under_traffic(t: Guests) -> None:
    """The other queue's connection sees nothing of it, and the port no failure."""
    _ready(t)
    loop = f"for i in $(seq 8); do {PROGRAM} bind nupa0 --pages 256 --queue {QUEUE} </dev/null >/dev/null || exit 1; done"
    job = t.start(0, loop, COPY_S)
    copy_file(t, RANDOM, mib=8)
    job.wait(check=True)
    t.equal(t.stat(0, "recoveries"), 0, "recoveries of the port")
    iperf(t, "")


def test_killed_receiver_leaves_nothing_bound(t: Guests) -> None:
    """kill -9 in mid-transfer: the queue is the host's again.  Rules are the administrator's, and stay."""
    _ready(t)
    before = _device_bytes(t)
    port = free_port()
    receiver = t.start(0, f"exec {PROGRAM} receive nupa0 --queue {QUEUE} --port {port} --keep >/dev/null", COPY_S)
    t.wait_listening(0, port)
    sender = t.start(1, f"{NCQP} -q --engine tcp -s $PEER -p {port} </dev/zero", COPY_S)
    t.wait_until(lambda: _device_bytes(t) > before + 1_000_000, "payload comes to device memory")
    t.run(0, "pkill -9 -f '[d]evmem_tcp receive'")
    receiver.wait()
    t.check(not sender.wait().ok, "the sender noticed nothing")
    t.check("Total 1 rules" in t.run(0, "ethtool -n nupa0"), "the rule is gone")
    t.run(0, "ethtool -K nupa0 ntuple off; ethtool -K nupa0 ntuple on")
    t.run(0, f"{PROGRAM} bind nupa0 --pages 64 --queue {QUEUE} </dev/null; {PROGRAM} split nupa0 off; ethtool -L nupa0 combined 1; ethtool -L nupa0 combined 2")
    copy_file(t, RANDOM, mib=2)


def _send(t: Guests, receiver: str, source: str, options: str = "", family: int = 4) -> tuple[Job, Job]:
    """From memory of node 1's device to node 0; both jobs."""
    port = free_port()
    job = t.start(0, receiver.format(port=port), COPY_S)
    t.wait_listening(0, port)
    address = t.nodes[0].ip4 if family == 4 else t.nodes[0].ip6
    return job, t.start(1, f"{source} {PROGRAM} send nupa0 --to {address} --port {port} {options}", COPY_S)


@pytest.mark.parametrize("family", [4, 6])
def test_sent_from_device_memory(t: Guests, family: int) -> None:
    """To an ordinary receiver, from a buffer that is filled again as soon as the kernel says so, in pieces of no round size."""
    _sends(t)
    t.run(1, f"head -c 3000001 /dev/urandom >{RANDOM}")
    before = t.stat(1, "tx_map_errors")
    receiver, sender = _send(t, f"exec {NCQP} -q --engine tcp -l -p {{port}} >/mnt/t/in", f"cat {RANDOM} |", "--pages 60", family)
    said = json.loads(sender.wait(check=True).stderr)
    receiver.wait(check=True)
    t.equal(said["bytes"], 3000001, "bytes sent")
    t.equal(t.run(0, "cksum </mnt/t/in; rm /mnt/t/in"), t.run(1, f"cksum <{RANDOM}; rm {RANDOM}"), "checksum of the received file")
    t.equal(t.stat(1, "tx_map_errors"), before, "packets that were dropped")


@pytest.mark.long
def test_from_device_memory_to_device_memory(t: Guests) -> None:
    """Through loss and reorder, which has TCP send the same memory again."""
    _sends(t)
    _ready(t)
    t.run(1, f"head -c 2M /dev/urandom >{RANDOM}")
    with fabric(t, loss=0.01, reorder=0.01, duplicate=0.01):
        receive = f"exec {PROGRAM} receive nupa0 --queue {QUEUE} --port {{port}} >/mnt/t/in"
        receiver, sender = _send(t, receive, f"(until [ -e {GO} ]; do sleep 0.05; done; cat {RANDOM}) |")
        t.run(0, "until ethtool -n nupa0 | grep -q 'Total 1 rules'; do sleep 0.05; done")
        t.run(1, f"touch {GO}")
        sender.wait(check=True)
        got = json.loads(receiver.wait(check=True).stderr)
    t.equal((got["bytes"], got["host_bytes"]), (2 << 20, 0), f"bytes received, and bytes in host memory: {got}")
    t.equal(t.run(0, "cksum </mnt/t/in; rm /mnt/t/in"), t.run(1, f"cksum <{RANDOM}; rm {RANDOM} {GO}"), "checksum of the received file")


@pytest.mark.long
def test_senders_that_end_in_the_middle(t: Guests) -> None:
    """kill -9, a peer that goes, an interface that goes down: the memory is let go of, and the port works."""
    _sends(t)
    for end in ("pkill -9 -f '[d]evmem_tcp send'", "", "ip link set nupa0 down; ip link set nupa0 up; ip -6 address replace $IP6/64 dev nupa0 nodad"):
        receiver, sender = _send(t, f"exec {NCQP} -q --engine tcp -l -p {{port}} >/dev/null", "cat /dev/zero |", "--pages 256")
        at = t.stat(1, "tx_bytes")
        t.wait_until(lambda at=at: t.stat(1, "tx_bytes") > at + 1_000_000, "payload leaves")
        if end:
            t.run(1, end)
        receiver.kill()
        receiver.wait()
        t.check(not sender.wait().ok, f"{end or 'peer gone'}: the sender noticed nothing")
    t.equal(t.stat(1, "recoveries"), 0, "recoveries of the port")
    copy_file(t, RANDOM, mib=2)


URGENT = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
time.sleep(0.5)
for i in range(50):
    s.send(b"a" * 3000)
    s.send(b"u", socket.MSG_OOB)
    s.send(b"b" * 3000)
s.close()
"""


def test_urgent_data_is_in_line(t: Guests) -> None:
    """Linux 6.12 would stop with a BUG() at the urgent byte in device memory."""
    _ready(t)
    port = free_port()
    before = t.stat(0, "rx_urgent_cleared")
    receiver = t.start(0, f"{PROGRAM} receive nupa0 --queue {QUEUE} --port {port} | tr -d 'a\\n' | wc -c", COPY_S)
    t.wait_listening(0, port)
    t.run(1, f"/usr/bin/python3 -c '{URGENT}' $PEER {port}", COPY_S)
    t.equal(receiver.wait(check=True).stdout.strip(), str(50 * 3001), "bytes other than a: u and b")
    t.check(t.stat(0, "rx_urgent_cleared") > before, "no urgent segment was seen")


@pytest.mark.long
def test_packet_sockets_see_headers(t: Guests) -> None:
    """A tap clones each packet; it is given what can be read, and the payload arrives all the same."""
    _ready(t)
    tap = t.start(0, "exec timeout 20 tcpdump -p -i nupa0 -n -w /mnt/t/seen tcp", 30)
    t.wait_until(lambda: "listening" in tap._read("err"), "tcpdump listens")
    got = _receive(t, 2)
    t.equal(got["host_bytes"], 0, "bytes in host memory")
    tap.kill()
    tap.wait()
    t.check(int(t.run(0, "stat -c %s /mnt/t/seen; rm /mnt/t/seen")) > 1000, "tcpdump saw nothing")


@pytest.mark.long
def test_only_tcp_reaches_device_memory(t: Guests) -> None:
    """All else on a bound queue is dropped and counted if it needs a buffer; what fits a header slot is not."""
    _ready(t)
    job = _bind(t, "0")  # where what is neither TCP nor UDP goes
    t.run(0, "ethtool -X nupa0 weight 0 1")
    before = t.stat(0, "rx_device_drops")
    t.run(1, "ping -q -c 3 -i 0.05 -s 56 $PEER; ping -q -c 3 -i 0.05 $PEER6")
    t.fails(1, "ping -q -c 3 -i 0.05 -W 1 -s 1400 $PEER")
    t.check(t.stat(0, "rx_device_drops") - before >= 3, "the drops are not counted")
    t.run(0, f"ethtool -X nupa0 equal {QUEUE}")
    _let_go(t, job)
    t.run(1, "ping -q -c 3 -i 0.05 -s 1400 $PEER")


@pytest.mark.long
def test_queue_pairs_on_a_bound_queue(t: Guests) -> None:
    """What the switch places is right; what a CPU would have to copy is refused with the reason."""
    _ready(t)
    job = _bind(t)
    t.run(0, "ethtool -X nupa0 weight 0 1")
    port = free_port()
    server = t.start(0, f"{NCQP} -q --engine software -l -p {port} >/dev/null", COPY_S)
    t.wait_listening(0, port)
    t.run(1, f"head -c 4M /dev/urandom | {NCQP} -q --engine software -s $PEER -p {port} || true", COPY_S)
    result = server.wait()
    t.check(not result.ok and "receive queue of device memory" in result.stderr, f"software engine: {result.status} {result.stderr}")
    t.run(0, f"ethtool -X nupa0 equal {QUEUE}")
    _let_go(t, job)


def test_placed_payload_on_a_bound_queue(t: Guests) -> None:
    """A queue pair whose messages the switch places needs nothing of the queue's memory."""
    _ready(t)
    job = _bind(t)
    t.run(0, "ethtool -X nupa0 weight 0 1")
    _, rx = nothing_copied(t, lambda: ncqp(t, "offload", "-v 251 -n 8M", "-v 251"))
    t.check(rx["validated"] and rx["placed_bytes"] >= 8 << 20, f"placed and right: {rx}")
    t.run(0, f"ethtool -X nupa0 equal {QUEUE}")
    _let_go(t, job)


def _ncdevmem(t: Guests) -> str:
    """The folder where the program of the guest's kernel was built."""
    release = _release(t)
    if not (BUILD / "devmem" / release / "ncdevmem").exists():
        pytest.skip(f"ncdevmem of {release} is not built: tools/devmem/build_ncdevmem {release}")
    return f"$BUILD/devmem/{release}"


# What -v 251 expects is two lines of 10 and 241 bytes; the client waits for each to be acknowledged.
LINES, LINE_COUNT = 251, 200
LINES_SENT = f"import sys; sys.stdout.buffer.write((bytes(range(1, 251)) + bytes([10])) * {LINE_COUNT})"
PATTERN = "yes $(printf '\\001\\002\\003\\004\\005\\006')"


def _ncdevmem_serves(t: Guests, period: int, family: int) -> tuple[Job, str, str, int]:
    """A server that validates; its address, the peer's, and the port of both."""
    program = f"PATH=$REPO/tools/devmem/guest:$PATH {_ncdevmem(t)}/ncdevmem"
    t.run(0, "ethtool -L nupa0 combined 4")
    port = free_port()
    address, peer = (t.nodes[0].ip4, t.nodes[1].ip4) if family == 4 else (t.nodes[0].ip6, t.nodes[1].ip6)
    server = t.start(0, f"{program} -s {address} -c {peer} -f nupa0 -l -p {port} -t 2 -q 2 -v {period}", COPY_S)
    t.wait_listening(0, port)
    return server, address, peer, port


def _ncdevmem_validated(t: Guests, server: Job, total: int) -> None:
    result = server.wait()
    t.check(result.ok and f"total_received={total}" in result.stderr, f"{result.status} {result.stderr[-2000:]}")
    t.check("Validated buffer" in result.stdout and "Failed validation" not in result.stderr, result.stderr[-2000:])


@pytest.mark.long
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("faults", [{}, {"loss": 0.01, "reorder": 0.01}], ids=["clean", "faults"])
def test_ncdevmem(t: Guests, family: int, faults: dict) -> None:
    """The kernel's own program, unmodified: validated reception."""
    server, address, _, port = _ncdevmem_serves(t, 7, family)
    with fabric(t, **faults):
        zero = "| tr '\\n' '\\0'" if _release(t) == "6.12" else ""  # what ends each line of it
        t.run(1, f"{PATTERN} {zero} | head -c 1M | nc -N -p {port} {address} {port}", COPY_S)
        _ncdevmem_validated(t, server, 1 << 20)


@pytest.mark.long
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("faults", [{}, {"loss": 0.01, "reorder": 0.01}], ids=["clean", "faults"])
def test_ncdevmem_client(t: Guests, family: int, faults: dict) -> None:
    """The kernel's own program at both ends: from device memory to device memory, validated."""
    _sends(t)
    server, address, peer, port = _ncdevmem_serves(t, LINES, family)
    with fabric(t, **faults):
        client = f"{_ncdevmem(t)}/ncdevmem -s {address} -c {peer} -p {port} -f nupa0 -t 0 -q 1"
        said = t.start(1, f"/usr/bin/python3 -c '{LINES_SENT}' | {client}", COPY_S).wait(check=True)
        t.check("tx ok" in said.stderr, said.stderr[-2000:])
        _ncdevmem_validated(t, server, LINES * LINE_COUNT)


@pytest.mark.long
def test_ncdevmem_checks(t: Guests) -> None:
    """What the program finds refused; that of 6.12 ends with 1 in any case."""
    _sends(t)
    t.run(0, "ethtool -L nupa0 combined 4")
    t.run(0, f"{_ncdevmem(t)}/ncdevmem -f nupa0", COPY_S)


@pytest.mark.long
@pytest.mark.parametrize("name", ["queues", "stats"])
def test_kernel_driver_selftests(t: Guests, name: str) -> None:
    """The kernel's own tests of drivers that need no second machine; docs/devmem.md says why not the others."""
    tests = f"{_ncdevmem(t)}/linux-source-{_release(t)}/tools/testing/selftests/drivers/net"
    t.run(0, "ethtool -K nupa0 ntuple off; ethtool -K nupa0 ntuple on; ethtool -X nupa0 default; ethtool -L nupa0 combined 2")
    text = t.run(0, f"cd {tests} && NETIF=nupa0 /usr/bin/python3 {name}.py", COPY_S)
    t.check("not ok" not in text and "ok 1" in text, text)


@pytest.mark.long
@pytest.mark.needs(replace(NEEDS, topology="slot"))
def test_device_gone_while_bound(t: Guests) -> None:
    """The function is removed with a queue bound; the binding ends later, and a new device works."""
    _ready(t)
    job = _bind(t)
    t.run(0, unplug.NUPA)
    t.run(0, f"until {unplug.GONE}; do sleep 0.05; done")
    _let_go(t, job)
    t.run(0, f"echo 1 >/sys/bus/pci/rescan; {unplug.SETUP}", COPY_S)
    _ready(t)
    t.run(0, f"{PROGRAM} bind nupa0 --pages 64 --queue {QUEUE} </dev/null")
