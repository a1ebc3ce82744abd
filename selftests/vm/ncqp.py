# SPDX-License-Identifier: BSD-3-Clause
"""ncqp's own promises over queue pairs: no processor touches a file's bytes, both exit statuses are the truth."""

import functools

import pytest

from harness.busy import one_shows
from harness.guests import NCQP, Guests
from harness.traffic import free_port, ncqp
from vm.fabric import NEEDS  # the same guests

from nupavm import Result

pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]
ENGINES = ("software", "offload")
LONG, SHORT = 24 * (1 << 20), 123  # whole messages, and the last one
SIZE = LONG + SHORT
CONTROL_BYTES = 128  # of ncqp's own end message, docs/ncqp.md
SOURCE, COPY = "/mnt/t/ncqp.in", "/mnt/t/ncqp.out"


def source(t: Guests, size: int = SIZE) -> None:
    t.run(1, f"head -c {size} /dev/urandom >{SOURCE}")


def same_file(t: Guests, what: str) -> None:
    t.equal(t.run(0, f"sha256sum <{COPY}"), t.run(1, f"sha256sum <{SOURCE}"), f"SHA-256, {what}")


def both(t: Guests, options: str, sender: str, receiver: str) -> tuple[Result, Result]:
    """A transfer that may fail: how sender and receiver ended."""
    port = free_port()
    rx = t.start(0, f"{NCQP} -q -l -p {port} --timeout 20 {options} {receiver}")
    t.wait_listening(0, port)
    tx = t.nodes[1].run(f"{NCQP} -q -s $PEER -p {port} --timeout 20 {options} {sender}", 60)
    return tx, rx.wait()


def both_fail(t: Guests, options: str, sender: str, receiver: str, words: str) -> None:
    tx, rx = both(t, options, sender, receiver)
    t.equal((tx.status, rx.status), (1, 1), f"{options}: statuses; {tx.stderr}{rx.stderr}")
    for name, end in (("sender", tx), ("receiver", rx)):
        t.check(words in end.stderr, f"{options}: the {name} does not say '{words}': {end.stderr}")


def test_file_to_file_without_a_copy(t: Guests) -> None:
    source(t)

    def transfer(engine: str) -> dict:
        tx, rx = ncqp(t, engine, f"<{SOURCE}", f">{COPY}")
        same_file(t, engine)
        for end in (tx, rx):
            t.equal((end["engine"], end["bytes"], end["reason"], end["data_path"]), (engine, SIZE, "NONE", "mapping"), engine)
        # A short message alone is copied where the switch may complete it (TQP_SENDS_COPY_BYTES).
        t.check(tx["tx_zerocopy_bytes"] >= LONG, f"{engine}: a processor copied at the sender: {tx}")
        t.equal(rx["placed_bytes"] + rx["copied_bytes"], rx["delivered_bytes"], f"{engine}: placed + copied")
        t.equal(rx["delivered_bytes"], SIZE + CONTROL_BYTES, f"{engine}: delivered")
        return rx

    for engine in ENGINES[:-1]:
        transfer(engine)
    one_shows(t, functools.partial(transfer, ENGINES[-1]), lambda rx: rx["placed_bytes"] >= SIZE, f"the switch places {SIZE} bytes")


@pytest.mark.long
def test_stream_of_unknown_size(t: Guests) -> None:
    source(t)
    t.run(1, "rm -f /mnt/t/fifo; mkfifo /mnt/t/fifo")
    for engine in ENGINES:
        t.run(1, f"(cat {SOURCE} >/mnt/t/fifo &)")
        tx, rx = ncqp(t, engine, "</mnt/t/fifo", f"| cat >{COPY}")
        t.equal((tx["data_path"], rx["data_path"]), ("buffers", "buffers"), engine)
        same_file(t, engine)


@pytest.mark.long
def test_small_sizes_and_depths(t: Guests) -> None:
    for size, depths in ((0, "1"), (1, "1"), (512, "1"), (513, "3"), (65537, "1 3 1024")):
        source(t, size)
        for options in (f"--depth {depth} --msg-size 512" for depth in depths.split()):
            _, rx = ncqp(t, "offload", f"{options} <{SOURCE}", f"{options} >{COPY}")
            t.equal((rx["bytes"], rx["ok"]), (size, True), options)
            same_file(t, f"{size} bytes, {options}")


@pytest.mark.long
def test_different_settings_at_the_ends(t: Guests) -> None:
    source(t)
    for tx_options, rx_options in (("--depth 64", "--depth 2"), ("--depth 1", "--depth 64"), ("--msg-size 7777", "--msg-size 8M")):
        _, rx = ncqp(t, "offload", f"{tx_options} <{SOURCE}", f"{rx_options} >{COPY}")
        same_file(t, f"{tx_options} to {rx_options}")
        t.equal(rx["placed_bytes"] + rx["copied_bytes"], rx["delivered_bytes"], "placed + copied")


def test_interactive(t: Guests) -> None:
    """Each line arrives before the next is written."""
    t.run(1, "rm -f /mnt/t/fifo; mkfifo /mnt/t/fifo")
    port = free_port()
    rx = t.start(0, f"{NCQP} -q -l -p {port} --engine offload >/mnt/t/lines")
    t.wait_listening(0, port)
    tx = t.start(1, f"{NCQP} -q -s $PEER -p {port} --engine offload </mnt/t/fifo")
    writer = t.start(1, "exec 3>/mnt/t/fifo; for i in 1 2 3; do echo line $i >&3; nupa-ctl get seen.$i >/dev/null; done")
    for i in (1, 2, 3):
        t.run(0, f"until grep -q 'line {i}' /mnt/t/lines; do sleep 0.05; done; nupa-ctl post seen.{i} yes")
    for job in (writer, tx, rx):
        job.wait(check=True)


@pytest.mark.long
def test_receiver_tells_the_sender_why(t: Guests) -> None:
    source(t)
    t.run(0, "mkdir -p /mnt/t/tiny; mountpoint -q /mnt/t/tiny || mount -t tmpfs -o size=1m tmpfs /mnt/t/tiny")
    for engine in ENGINES:
        both_fail(t, f"--engine {engine}", f"<{SOURCE}", ">/mnt/t/tiny/out", "No space left")
        t.equal(t.run(0, "stat -c %s /mnt/t/tiny/out").strip(), "0", "size of the file that did not fit")
        both_fail(t, f"--engine {engine}", f"<{SOURCE}", "-v 7 >/dev/null", "validation failed")
        both_fail(t, f"--engine {engine}", f"<{SOURCE}", "-n 1000 >/dev/null", "-n expects 1000")
        both_fail(t, f"--engine {engine}", f"<{SOURCE}", ">/dev/full", "No space left")
    t.run(0, "umount /mnt/t/tiny")


# A megabyte on any connection: there is no other with so much.
MOVED = "until ss -Hti state established | grep -Eq 'bytes_{}:[0-9]{{7}}'; do sleep 0.05; done"


def test_interrupted_sender(t: Guests) -> None:
    for engine in ENGINES:
        tx, rx = both(t, f"--engine {engine}", f"-n 100G & {MOVED.format('acked')}; kill -INT $!; wait $!", ">/dev/null")
        t.equal((tx.status, rx.status), (1, 1), f"{engine}: statuses; {tx.stderr}{rx.stderr}")
        t.check("interrupted" in tx.stderr, tx.stderr)
        t.check("went away" in rx.stderr, rx.stderr)


def test_interrupted_receiver(t: Guests) -> None:
    for engine in ENGINES:
        tx, rx = both(t, f"--engine {engine}", "-n 100G", f">/dev/null & {MOVED.format('received')}; kill -INT $!; wait $!")
        t.equal((tx.status, rx.status), (1, 1), f"{engine}: statuses; {tx.stderr}{rx.stderr}")
        t.check("interrupted" in rx.stderr, rx.stderr)


@pytest.mark.long
def test_input_truncated_under_the_sender(t: Guests) -> None:
    """A reader that is slow at first; meanwhile the file shrinks: no crash, and nobody takes it for a success."""
    source(t, 64 << 20)
    for engine in ENGINES:
        source(t, 64 << 20)
        cut = f"<{SOURCE} & sleep 1; truncate -s 4096 {SOURCE}; wait $!"
        tx, rx = both(t, f"--engine {engine}", cut, "| (sleep 3; cat >/dev/null; exit 0)")
        t.equal(tx.status, 1, f"{engine}: {tx.stderr}")
        t.check("truncated" in tx.stderr and "truncated" in rx.stderr, f"{engine}: {tx.stderr}{rx.stderr}")


def test_interface_without_device(t: Guests) -> None:
    refused = t.fails(0, f"{NCQP} -l -p 1 -f lo --engine software")
    t.check("rdma link add tcpqp0 type tcp_qp netdev lo" in refused.stderr, refused.stderr)


def test_interface_by_name(t: Guests) -> None:
    source(t)
    ncqp(t, "offload", f"-f nupa0 <{SOURCE}", f"-f nupa0 >{COPY}")
    same_file(t, "-f nupa0")
