# SPDX-License-Identifier: BSD-3-Clause
"""Sockets with ULP tcp_qp_stream are TCP sockets in all that a program can see; their large sends leave from large pages."""

import contextlib
import json
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator

import pytest

from harness.guests import Guests
from harness.leak_check import give_up, given_up
from harness.needs import Needs
from harness.traffic import free_port, sysctl
from vm import unplug

from nupavm import Job

NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("tools/tcpqp_stat/tcpqp-stat", "user/tcpqp_run/tcpqp-run"), cpus=2, setup="full")
pytestmark = [pytest.mark.needs(NEEDS), pytest.mark.beside]

PROGRAMS = "$REPO/selftests/vm/programs"
LIMIT_S = 240
LONG_S = 3000


def cases(t: Guests, *names: str) -> None:
    out = t.run(0, f"/usr/bin/python3 {PROGRAMS}/stream_cases.py {' '.join(names)}", LIMIT_S)
    t.equal(out.count("ok "), len(names), out)


def test_calls(t: Guests) -> None:
    cases(t, "inherited", "disconnect_and_listen", "time_limit", "signal", "reset_in_mid_send", "not_blocking", "other_ways_to_send", "ipv6_becomes_ipv4")


def test_bytes(t: Guests) -> None:
    cases(t, "bytes")


def calls(t: Guests, seeds: str, loss: str, length: int = 60) -> None:
    """By programs/socket_calls.py, which says of a difference what led there, and plays a seed again."""
    lossy = "" if loss == "0%" else "--lossy"
    t.run(0, f"modprobe sch_netem; tc qdisc add dev lo root netem loss {loss}")
    try:
        print(t.run(0, f"/usr/bin/python3 {PROGRAMS}/socket_calls.py {seeds} --workers 6 --calls {length} {lossy}", LONG_S), flush=True)
    finally:
        t.run(0, "tc qdisc del dev lo root")


def test_says_what_a_plain_one_says(t: Guests) -> None:
    calls(t, "0-8", "2%")


@pytest.mark.long
@pytest.mark.parametrize("loss", ("0%", "2%"), ids=("clean", "lossy"))
def test_says_what_a_plain_one_says_for_long(t: Guests, loss: str) -> None:
    calls(t, "8-600", loss, 400)


def test_other_ulps(t: Guests) -> None:
    cases(t, "yields")


@pytest.mark.long
def test_hostile_threads(t: Guests) -> None:
    cases(t, "threads", "listener_and_disturbers", "listeners_get_it")


def test_bounded(t: Guests) -> None:
    cases(t, "bounded")


def test_idle_pages(t: Guests) -> None:
    cases(t, "idle_pages")


def attacks(t: Guests, *names: str) -> None:
    nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups --"
    out = t.run(0, f"{nobody} /usr/bin/python3 {PROGRAMS}/stream_attacks.py {' '.join(names)}", LIMIT_S)
    t.equal(out.count("ok "), len(names), out)


def test_attacked_by_who_has_no_privilege(t: Guests) -> None:
    attacks(t, "listens_while_it_yields", "never_zero", "pages_that_others_hold")


def scale(t: Guests, sockets: int, seconds: float, syns: int) -> None:
    print(t.run(0, f"/usr/bin/python3 {PROGRAMS}/stream_scale.py {sockets} {seconds} {syns}", LONG_S), flush=True)


@pytest.mark.long
def test_many(t: Guests) -> None:
    scale(t, 1000, 0.5, 2000)


@pytest.mark.long
def test_many_for_long(t: Guests) -> None:
    scale(t, 10000, 60, 20000)


def place(t: Guests, seed: int, mib: int, calls: str, pauses: float = 0.0, during: Callable[[], None] = lambda: None, peer: str = "$PEER") -> dict:
    """Node 1 sends to node 0, whose program compares each byte; what it printed."""
    port = 7600 + seed % 1000
    program, here = f"/usr/bin/python3 {PROGRAMS}/stream_place.py", "::" if "6" in peer else ""
    receiver = t.start(0, f"TCPQP_STAT=$BUILD/cmake/tools/tcpqp_stat/tcpqp-stat {program} receive {port} {seed} {mib} {calls} {here}", LIMIT_S)
    t.wait_listening(0, port)
    sender = t.start(1, f"{program} send {peer} {port} {seed} {mib} {pauses}", LIMIT_S)
    during()
    for job in (receiver, sender):
        result = job.wait()
        t.check(result.ok, f"{job.command}: {result.status}\n{result.stdout}{result.stderr}")
    report = json.loads(receiver.output().strip().splitlines()[-1])
    print(report, flush=True)
    return report


def pinned(t: Guests) -> int:
    """Pages that are pinned in node 0, without those that an earlier test made the driver give up for good."""
    held = {name: int(count) for name, count in (line.split() for line in t.run(0, "cat /proc/vmstat").splitlines())}
    return held["nr_foll_pin_acquired"] - held["nr_foll_pin_released"] - given_up(t, 0, "pages")


def nothing_pinned(t: Guests) -> None:
    t.wait_until(lambda: pinned(t) == 0, "pages are still pinned")


@pytest.mark.parametrize("peer", [pytest.param("$PEER", id="ipv4"), pytest.param("$PEER6", id="ipv6", marks=pytest.mark.long)])
def test_placed(t: Guests, peer: str) -> None:
    report = place(t, 1, 32, "all", 0.1, peer=peer)
    t.check(report["rx_placed_bytes"] > report["bytes"] // 4, f"little was placed: {report}")
    nothing_pinned(t)


def with_faults(t: Guests, seed: int, mib: int, **faults: float) -> None:
    for port in ("n0", "n1"):
        t.switch("faults", port=port, clear=True, set={"seed": seed, **faults})
    try:
        place(t, seed, mib, "any", 0.05)
    finally:
        for port in ("n0", "n1"):
            t.switch("faults", port=port, clear=True)


FAULTS: dict[str, dict[str, float]] = {
    "clean": {}, "loss": {"loss": 0.002}, "reorder": {"reorder": 0.01, "reorder_packets": 8}, "duplicate": {"duplicate": 0.02}, "corrupt": {"corrupt": 0.002},
    "all": {"loss": 0.001, "reorder": 0.005, "reorder_packets": 8, "duplicate": 0.005, "corrupt": 0.0005},
}  # fmt: skip


@pytest.mark.parametrize("faults", ("clean", "all"))
def test_placed_by_chance(t: Guests, faults: str) -> None:
    with_faults(t, 10 + len(faults), 16, **FAULTS[faults])
    nothing_pinned(t)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
@pytest.mark.parametrize("faults", FAULTS)
def test_placed_by_chance_for_long(t: Guests, faults: str, seed: int) -> None:
    with_faults(t, seed, 96, **FAULTS[faults])
    nothing_pinned(t)


@pytest.mark.long
def test_placed_by_a_switch_that_stops(t: Guests) -> None:
    """Wherever it is, also in a post; and goes on before anybody takes it for dead."""

    def stops() -> None:
        for _ in range(8):
            os.kill(t.cluster.switch.process.pid, signal.SIGSTOP)
            time.sleep(0.8)
            os.kill(t.cluster.switch.process.pid, signal.SIGCONT)
            time.sleep(0.2)

    place(t, 50, 256, "any", 0.02, stops)
    nothing_pinned(t)


MUCH_MIB = 65536


def waiting_reader(t: Guests, port: int, sent_mib: int = 6) -> tuple[Job, Job]:
    """A receiver that waits with its memory posted, for more than its sender has."""
    nothing_pinned(t)
    receiver = t.start(0, f"exec /usr/bin/python3 {PROGRAMS}/stream_place.py receive {port} 5 {MUCH_MIB} all", LIMIT_S)
    t.wait_listening(0, port)
    sender = t.start(1, f"exec /usr/bin/python3 {PROGRAMS}/stream_place.py send $PEER {port} 5 {sent_mib}", LIMIT_S)
    t.wait_until(lambda: pinned(t) > 100, "the receiver never waited with its memory posted")
    return receiver, sender


POST_PAGES_MAX = 1025  # TQP_PLACE_PAGES_MAX


@unplug.kills_the_switch
@pytest.mark.long
def test_placed_by_a_switch_that_hangs(t: Guests) -> None:
    """For good, so to the driver, whatever it was doing: the reader can go, and what the switch does later is done to nobody's memory."""
    receiver, sender = waiting_reader(t, 7996, MUCH_MIB)
    switch = t.cluster.switch.process.pid
    unplug.stop_at_work(switch)
    try:
        t.run(0, "until dmesg | grep -q 'port is dead'; do sleep 0.2; done", 60)
        t.run(0, "pkill -9 -f 'stream_place.py receive'")
        receiver.wait()
        t.run(0, unplug.HELD.format(unplug.HELD_MIB))  # what was the reader's is others' now
    finally:
        os.kill(switch, signal.SIGCONT)
    sender.kill()
    sender.wait()
    t.cluster.run_all("rmmod nupa_dev && sh $REPO/tools/vm/guest/setup full", 60, check=True)
    lost = pinned(t)  # the driver has gone: nothing else is
    print(f"{lost} pages were given up", flush=True)
    t.check(lost <= POST_PAGES_MAX, f"{lost} pages were given up: more than one reader had posted")
    give_up(t, 0, "pages", lost)
    t.run(0, unplug.HELD_IS_RIGHT.format(unplug.HELD_MIB), 60)
    t.check(place(t, 3, 16, "all", 0.05)["rx_posts"] > 0, "nothing was posted after the driver came back")


@pytest.mark.long
@pytest.mark.parametrize("who", ("send", "receive"))
def test_placed_with_the_lock_held(t: Guests, who: str) -> None:
    """By a user who lets a page fault wait for as long as he likes: no NIC waits for him that goes, and one that comes places for his reader again."""
    nothing_pinned(t)
    port = free_port()
    program = f"exec /usr/bin/python3 {PROGRAMS}"
    receiver = t.start(0, f"TCPQP_STAT=$BUILD/cmake/tools/tcpqp_stat/tcpqp-stat {program}/stream_held.py {who} {port} 9 128", LIMIT_S)
    t.wait_listening(0, port)
    sender = t.start(1, f"{program}/stream_place.py send $PEER {port} 9 128 0.2", LIMIT_S)
    t.wait_output(receiver, "held", 60)
    t.run(0, "rmmod nupa_dev", 20)
    t.run(0, "sh $REPO/tools/vm/guest/setup full")
    t.run(0, "pkill -USR1 -f '[s]tream_held.py'")
    for job in (receiver, sender):
        result = job.wait()
        t.check(result.ok, f"{job.command}: {result.status}\n{result.stdout}{result.stderr}")
    report = json.loads(receiver.output().strip().splitlines()[-1])
    print(report, flush=True)
    t.check(report["posts"] > report["first_posts"] > 0, f"a NIC that came places nothing: {report}")
    nothing_pinned(t)


def announced(t: Guests, kind: str) -> list[int]:
    """Of 64 MiB how many bytes were placed by when something announced an urgent byte, and in all."""
    port = free_port()
    receiver = t.start(0, f"TCPQP_STAT=$BUILD/cmake/tools/tcpqp_stat/tcpqp-stat exec /usr/bin/python3 {PROGRAMS}/stream_urgent.py receive {port} 64", LIMIT_S)
    t.wait_listening(0, port)
    t.run(1, f"exec /usr/bin/python3 {PROGRAMS}/stream_urgent.py send $PEER {port} 64 {kind}", LIMIT_S)
    report = json.loads(receiver.wait().stdout)
    print(report, flush=True)
    t.equal(report["bytes"], 64 << 20, "bytes that came")
    t.check(report["placed"][0], "nothing was placed: nothing was shown")
    return report["placed"]


@pytest.mark.long
def test_placed_by_a_peer_that_announces_an_urgent_byte(t: Guests) -> None:
    """In a segment of its own, far ahead: TCP would look for it in a placed packet, which has no bytes. The peer's TCP means nothing of it."""
    announced(t, "right")


def test_placed_in_spite_of_who_knows_the_ports(t: Guests) -> None:
    """And announces urgent bytes in packets that TCP does not take."""
    then, at_last = announced(t, "wrong")
    t.check(at_last > then, f"nothing is placed any more: {then} bytes were")


def test_placed_and_killed(t: Guests) -> None:
    receiver, sender = waiting_reader(t, 7999)
    t.run(0, "pkill -9 -f 'stream_place.py receive'")
    receiver.wait()
    sender.wait()
    nothing_pinned(t)


@pytest.mark.long
@pytest.mark.parametrize("calls", ("peeked", "shared"))
def test_placed_beside_others(t: Guests, calls: str) -> None:
    """The post is taken from a reader, and what was placed is copied for whoever comes first."""
    place(t, 30 + len(calls), 48, calls, 0.02)
    nothing_pinned(t)


@pytest.mark.long
def test_placed_for_who_only_reads(t: Guests) -> None:
    """The peer may send little beyond each post; whoever reads next finds that it goes on."""
    report = place(t, 70, 400, "prompt")
    t.check(report["rx_placed_bytes"] > report["bytes"] // 8, f"little was placed: {report}")
    nothing_pinned(t)


LARGE_RMEM = f"{4 << 10} {64 << 20} {64 << 20}"


@pytest.mark.long
def test_placed_with_a_small_window(t: Guests) -> None:
    """What comes between two receives cannot fill all that TCP would hold, which then would be copied for ever."""
    with sysctl(t, "net.ipv4.tcp_rmem", LARGE_RMEM, (0,)):
        report = place(t, 60, 192, "windowed")
    t.check(report["rx_placed_bytes"], f"nothing was placed: {report}")
    nothing_pinned(t)


POSTS_PORT = 7997


@contextlib.contextmanager
def posts_server(t: Guests) -> Iterator[None]:
    """On node 1: what programs/stream_posts.py receives from."""
    server = t.start(1, f"exec /usr/bin/python3 {PROGRAMS}/stream_posts.py serve {POSTS_PORT}", LIMIT_S)
    try:
        t.wait_listening(1, POSTS_PORT)
        yield
    finally:
        server.kill()
        server.wait()


def posts_command(*names: str) -> str:
    """Without the right to lock more than its limit."""
    return ("TCPQP_STAT=$BUILD/cmake/tools/tcpqp_stat/tcpqp-stat exec setpriv --bounding-set=-ipc_lock -- "
            f"/usr/bin/python3 {PROGRAMS}/stream_posts.py receive $PEER {POSTS_PORT} {' '.join(names)}")  # fmt: skip


def posts_cases(t: Guests, *names: str) -> None:
    with posts_server(t):
        print(t.run(0, posts_command(*names), LIMIT_S), flush=True)
    nothing_pinned(t)


@pytest.mark.long
def test_memory_that_changes_between(t: Guests) -> None:
    posts_cases(t, "unmapped", "advised", "moved", "protected", "forked")


@pytest.mark.long
def test_memory_that_changes_meanwhile(t: Guests) -> None:
    posts_cases(t, "moved_meanwhile", "advised_meanwhile", "protected_meanwhile", "forked_meanwhile")


@pytest.mark.long
def test_memory_of_two_readers(t: Guests) -> None:
    posts_cases(t, "overlapping")


@pytest.mark.long
def test_placed_until_something_happens(t: Guests) -> None:
    t.run(0, "modprobe -q tls || grep -qw tls /proc/sys/net/ipv4/tcp_available_ulp")
    posts_cases(t, "urgent", "disconnected", "reconnected", "other_ulp")


def test_placed_beside_urgent_bytes(t: Guests) -> None:
    """A receive ends where a plain socket's does, also by the signal that tells of one."""
    posts_cases(t, "urgent_and_signal", "urgent_between_parts")


@pytest.mark.long
def test_memory_locked_by_key(t: Guests) -> None:
    posts_cases(t, "locked_by_key")


@pytest.mark.long
def test_placed_until_tls_has_keys(t: Guests) -> None:
    """Which another thread sets: the receive waits for the rest of a record, and a signal ends it."""
    t.run(0, "modprobe -q tls || grep -qw tls /proc/sys/net/ipv4/tcp_available_ulp")
    posts_cases(t, "keyed_meanwhile")


@pytest.mark.long
def test_placed_beside_splice(t: Guests) -> None:
    """TCP's own splice() stops before what was placed, and would say that the stream has ended."""
    posts_cases(t, "spliced")


@pytest.mark.long
def test_placed_beside_zerocopy(t: Guests) -> None:
    """TCP's own TCP_ZEROCOPY_RECEIVE would say of what was placed that nothing waits, and who asks again and again would spin."""
    posts_cases(t, "zerocopied", "zerocopied_and_copied")


@pytest.mark.long
def test_placed_beside_peeks(t: Guests) -> None:
    """TCP's own PEEK would stop before what was placed: who wants to see some bytes more would ask for ever."""
    posts_cases(t, "peeked")


def test_placed_is_found(t: Guests) -> None:
    """By who reads until he gets less than he asked for, or waits for SO_RCVLOWAT, or splices without a wait."""
    posts_cases(t, "short", "spliced_at_once")


@pytest.mark.parametrize("case", (pytest.param("timed", marks=pytest.mark.long), pytest.param("timed_beside", marks=pytest.mark.long), "ancillary"))
def test_as_plain(t: Guests, case: str) -> None:
    """A receive's time limit, and what is told beside its bytes, are those of a plain socket."""
    posts_cases(t, case)


@pytest.mark.long
@pytest.mark.parametrize(("case", "mib"), [("offered", 64), ("remeasured", 16), ("narrow", 64)], ids=("offered", "remeasured", "narrow"))
def test_window(t: Guests, case: str, mib: int) -> None:
    """What TCP has room for is what it would have without posts, if that is less, and once nobody posts."""
    with sysctl(t, "net.ipv4.tcp_rmem", f"{4 << 10} {mib << 20} {mib << 20}", (0,)):
        posts_cases(t, case)


LATE_STREAMS, LATE_S, LATE_MAX_BYTES, MIB = 8, 4, 13 << 20, 1 << 20
LATE_LOOKS, LATE_LEAST = 4, 3  # in a row, and of readers that are late


def test_late_readers(t: Guests) -> None:
    """Who reads more slowly than its peer sends, and does not post: what waits for it is bounded, and nothing is sent twice for want of memory."""
    port, run = free_port(), "$BUILD/cmake/user/tcpqp_run/tcpqp-run iperf3"
    longest = f"ss -tnH sport = :{port} | awk '$2 > most {{ most = $2 }} END {{ print most + 0 }}'"
    server = t.start(0, f"exec {run} -s -1 -p {port} >/dev/null", LIMIT_S)
    t.wait_listening(0, port)
    client = t.start(1, f"exec {run} -c $PEER -p {port} -t {LATE_S} -P {LATE_STREAMS} -l 1M >/dev/null", LIMIT_S)
    waited = []
    while not client.done:
        waited += map(int, t.run(0, f"for i in $(seq {LATE_LOOKS}); do {longest}; done").split())
    t.check(client.wait().ok and server.wait().ok, "iperf3 failed")
    print("# late readers: bytes that waited, MiB:", *(w // MIB for w in waited), flush=True)
    # a reader that was held up for a while has more for a moment, and one that is not late has nothing
    late = [w for w in waited if w > MIB]
    usual = statistics.median(late) if len(late) >= LATE_LEAST else 0
    t.check(usual < LATE_MAX_BYTES, f"bytes that waited: {waited}")


@pytest.mark.long
def test_memory_that_stays_pinned(t: Guests) -> None:
    posts_cases(t, "many", "little")


@pytest.mark.long
def test_memory_that_is_idle(t: Guests) -> None:
    posts_cases(t, "idle")


TIMEOUTS = "TcpExtTCPTimeouts"


@pytest.mark.long
def test_placed_and_dropped_behind_the_device(t: Guests) -> None:
    """By who can do nothing with packets that have no bytes: each costs a timeout of the sender's, so soon nothing is posted."""
    t.run(0, "modprobe -a ifb sch_ingress cls_matchall act_mirred; ip link show ifb0 2>/dev/null || ip link add ifb0 type ifb"
             "; ip link set ifb0 up && tc qdisc add dev nupa0 ingress"
             " && tc filter add dev nupa0 parent ffff: matchall action mirred egress redirect dev ifb0")  # fmt: skip
    before = t.nstat(1, TIMEOUTS)
    try:
        report = place(t, 60, 128, "all")
    finally:
        t.run(0, "tc qdisc del dev nupa0 ingress; ip link del ifb0")
    timeouts = t.nstat(1, TIMEOUTS) - before
    print(f"{timeouts} timeouts", flush=True)
    t.check(report["rx_posts"] > 0, "nothing was posted: nothing was shown")
    t.check(report["rx_posts"] <= 8 and timeouts <= 4 * report["rx_posts"], f"{timeouts} timeouts in {report['s']} s, of {report['rx_posts']} posts")


@pytest.mark.long
def test_placed_and_the_driver_goes(t: Guests) -> None:
    receiver, sender = waiting_reader(t, 7998)
    t.run(0, "rmmod nupa_dev")
    t.run(0, "pkill -9 -f 'stream_place.py receive'")
    receiver.wait()
    sender.kill()
    sender.wait()
    nothing_pinned(t)
    t.run(0, "sh $REPO/tools/vm/guest/setup full")
    t.check(place(t, 2, 16, "all", 0.05)["rx_posts"] > 0, "nothing was posted after the driver came back")
