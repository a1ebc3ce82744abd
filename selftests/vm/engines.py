# SPDX-License-Identifier: BSD-3-Clause
"""ncqp moves bytes with every engine, any engine to any other, and says no in an orderly way."""

from contextlib import ExitStack
from itertools import permutations

import pytest

from harness.busy import one_shows
from harness.guests import NCQP, Guests
from harness.traffic import ENDLESS, done_and_undone, free_port, ncqp, wait_moving
from vm.fabric import NEEDS  # the same guests

pytestmark = pytest.mark.needs(NEEDS)
CHECKED = "-v 251 -n"
QP_ENGINES = ("software", "offload")


def test_tcp(t: Guests) -> None:
    ncqp(t, "tcp", f"{CHECKED} 8M", f"{CHECKED} 8M")


def test_software(t: Guests) -> None:
    _, rx = ncqp(t, "software", f"{CHECKED} 16M", f"{CHECKED} 16M")
    t.equal((rx["engine"], rx["placed_bytes"]), ("software", 0), "engine and bytes placed")


def test_offload(t: Guests) -> None:
    def receiver() -> dict:
        _, rx = ncqp(t, "offload", f"{CHECKED} 16M", f"{CHECKED} 16M")
        t.equal(rx["engine"], "offload", "engine")
        return rx

    # The first bytes may pass before the switch has synchronised.
    one_shows(t, receiver, lambda rx: rx["placed_bytes"] >= 16 << 20 and rx["copied_bytes"] < 4096, "all but the first bytes are placed")


def test_mixed_engines(t: Guests) -> None:
    for pair in (("software", "offload"), ("offload", "software")):
        ncqp(t, "->".join(pair), f"{CHECKED} 8M", f"{CHECKED} 8M", engines=pair)


def test_ipv6(t: Guests) -> None:
    for engine in QP_ENGINES:
        ncqp(t, engine, f"{CHECKED} 8M", f"{CHECKED} 8M", family="-6")


def test_other_direction(t: Guests) -> None:
    ncqp(t, "offload", f"{CHECKED} 8M", f"{CHECKED} 8M", sender=0)


def test_listener_sends(t: Guests) -> None:
    ncqp(t, "offload", f"--receive {CHECKED} 4M >/dev/null", f"--send {CHECKED} 4M")


def test_message_sizes(t: Guests) -> None:
    for size, total in ((512, 100000), (1407, 300000), (1408, 300000), (1409, 300000), (65537, "3M"), ("8M", "17M")):
        ncqp(t, "offload", f"--msg-size {size} {CHECKED} {total}", f"--msg-size {size} {CHECKED} {total}")


def test_deep_queue(t: Guests) -> None:
    ncqp(t, "offload", f"--depth 256 --msg-size 4K {CHECKED} 8M", f"--depth 256 --msg-size 4K {CHECKED} 8M")


def test_wire_versions(t: Guests) -> None:
    for version in (0, 1):
        tx, _ = ncqp(t, "offload", f"--wire {version} {CHECKED} 4M", f"--wire {version} {CHECKED} 4M")
        t.equal(tx["wire_version"], version, "version on the wire")


def test_real_file(t: Guests) -> None:
    t.run(1, "head -c 5000001 /dev/urandom >/mnt/t/odd")
    ncqp(t, "offload", "</mnt/t/odd", ">/mnt/t/copy")
    t.equal(t.run(0, "cksum </mnt/t/copy"), t.run(1, "cksum </mnt/t/odd"), "checksum of a file of odd size")


def test_empty_input(t: Guests) -> None:
    for engine in ("tcp", *QP_ENGINES):
        ncqp(t, engine, "</dev/null", ">/mnt/t/empty")
        t.equal(t.run(0, "stat -c %s /mnt/t/empty").strip(), "0", f"bytes received with engine {engine}")


def test_nobody_listens(t: Guests) -> None:
    for engine in ("tcp", *QP_ENGINES):
        t.fails(1, f"{NCQP} -q --timeout 3 --engine {engine} -s $PEER -p 9 </dev/null")


def test_peer_without_qp(t: Guests) -> None:
    port = free_port()
    server = t.start(0, f"{NCQP} -q --engine tcp -l --timeout 6 -p {port} >/dev/null")
    t.wait_listening(0, port)
    t.fails(1, f"echo x | {NCQP} -q --timeout 4 --engine software -s $PEER -p {port}")
    server.kill()
    server.wait()


def test_pages_are_sent_as_they_are(t: Guests) -> None:
    """No queue pair where they can't be, as by IPsec over a device without scatter-gather; and the reason says so."""
    port, ends = free_port(), [node.ip4 for node in t.nodes]
    no_cipher = "enc 'ecb(cipher_null)' '' auth digest_null ''"
    with ExitStack() as undone:
        undone.enter_context(done_and_undone(t, (1,), "ethtool -K nupa0 sg off", "ethtool -K nupa0 sg on tso on"))
        for spi, (src, dst) in enumerate(permutations(ends), 256):
            way = f"src {src} dst {dst}"
            state = f"ip xfrm state add {way} proto esp spi {spi} mode transport {no_cipher}"
            undone.enter_context(done_and_undone(t, (0, 1), state, f"ip xfrm state del {way} proto esp spi {spi}"))
            policy = f"ip xfrm policy add dir out {way} tmpl {way} proto esp mode transport"
            undone.enter_context(done_and_undone(t, (ends.index(src),), policy, f"ip xfrm policy del dir out {way}"))
        server = t.start(0, f"{NCQP} -q -l --timeout 6 -p {port} >/dev/null")
        t.wait_listening(0, port)
        said = t.fails(1, f"echo x | {NCQP} -q --timeout 4 -s $PEER -p {port}").stderr
        t.check("the device cannot send scattered pages" in said, said)
        server.kill()
        server.wait()


def test_offload_needs_the_device(t: Guests) -> None:
    port = free_port()
    t.start(0, f"timeout 8 {NCQP} -q --engine offload -l -s 127.0.0.1 --timeout 4 -p {port} >/dev/null").wait()
    t.fails(0, f"echo x | {NCQP} -q --timeout 3 --engine offload -s 127.0.0.1 -p {port}")


def test_bad_arguments(t: Guests) -> None:
    for words in ("", "-s 10.77.0.1", "-p 1", "-s x -p 70000", "-s x -p 1 --engine warp", "-s x -p 1 --depth 0", "-s x -p 1 --msg-size 1", "-l -p 1 -4 -6"):
        t.equal(t.nodes[0].run(f"{NCQP} {words} </dev/null").status, 64, f"status of ncqp {words}")


def test_sender_is_killed(t: Guests) -> None:
    for engine in QP_ENGINES:
        port = free_port()
        server = t.start(0, f"{NCQP} -q --engine {engine} -l -p {port} --timeout 10 -v 251 -n {ENDLESS} >/dev/null", 60)
        t.wait_listening(0, port)
        client = t.start(1, f"exec {NCQP} -q --engine {engine} -s $PEER -p {port} -v 251 -n {ENDLESS}", 60)
        wait_moving(t, 1, port)
        t.run(1, "pkill -9 -x ncqp")
        t.check(client.wait().status != 0, "a killed sender has no success")
        result = server.wait()
        t.check(0 < result.status < 124, f"{engine}: the receiver ended with {result.status}: {result.stderr}")
    for node in (0, 1):
        t.equal(t.run(node, "rdma resource show qp link tcpqp0/1 | grep -c ncqp || true").strip(), "0", "QPs left behind")
    t.equal(t.switch("qps")["qps"], [], "QP contexts left in the switch")


def test_receiver_is_killed(t: Guests) -> None:
    port = free_port()
    server = t.start(0, f"exec {NCQP} -q --engine offload -l -p {port} -v 251 -n {ENDLESS} >/dev/null", 60)
    t.wait_listening(0, port)
    client = t.start(1, f"{NCQP} -q --engine offload -s $PEER -p {port} --timeout 10 -v 251 -n {ENDLESS}", 60)
    wait_moving(t, 0, port, "received")
    t.run(0, "pkill -9 -x ncqp")
    t.check(server.wait().status != 0, "a killed receiver has no success")
    result = client.wait()
    t.check(0 < result.status < 124, f"the sender ended with {result.status}: {result.stderr}")
    t.equal(t.switch("qps")["qps"], [], "QP contexts left in the switch")
