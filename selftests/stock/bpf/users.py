#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What one user of tcpqp-bpf can do to another: nothing; and what is counted of its own.

users.py BUILD [TEST...]: ends on a veth pair, as in `option.py`; its users are user.py's.
"""

import argparse
import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

from ends import ADDRESSES, EXCHANGE, LIMIT_S, Ends, ends, skip_where_impossible
from jobs import Job, until
from user import SND_NXT, STOP, TX_BARE, TX_WRITTEN

USER = Path(__file__).parent / "user.py"
ATTACKER, VICTIM = 61001, 61002
IMMEDIATE = 0x5EC2E711
SOON_S = 10  # a busy machine's word for at once
LINGER_S = 3600
NUMBER_PORT = 791  # TCP_QP_NUMBER_PORT
SILENT = DESK = 40  # more than one user's that are served at a time


class Person:
    """A user's process at an end; @cgroup: whose helper's connections it makes."""

    def __init__(self, t: Ends, end: int, uid: int, helper: int | None = None) -> None:
        argv = (sys.executable, USER, uid, t.socket(end if helper is None else helper), t.build / "selftests/stock/bpf/unconnect")
        self.job = Job(t, end, "", *argv)
        assert json.loads(self.job.hear())["ok"] == uid

    def tell(self, do: str, **what) -> None:
        self.job.tell(json.dumps({"do": do, **what}))

    def answer(self):
        said = json.loads(self.job.hear())
        if "errno" in said:
            raise OSError(said["errno"], os.strerror(said["errno"]))
        return said["ok"]

    def __getattr__(self, do: str):
        def ask(**what):
            self.tell(do, **what)
            return self.answer()

        return ask

    def fails(self, code: int, do: str, **what) -> None:
        try:
            said = getattr(self, do)(**what)
        except OSError as e:
            assert e.errno == code, f"{do} {what}: {e}"
        else:
            raise AssertionError(f"{do} {what} succeeded: {said}")


def server(t: Ends) -> tuple[Person, int]:
    peer = Person(t, 0, 0)
    return peer, peer.listen(name="all")


def test_a_socket_that_had_the_slot_before(t: Ends) -> None:
    """It is used again, without connect()'s end having been its own."""
    peer, port = server(t)
    attacker, victim = Person(t, 1, ATTACKER), Person(t, 1, VICTIM)
    attacker.connect(name="c", address=ADDRESSES[0], port=port)
    attacker.ask(name="c")
    attacker.disconnect(name="c")
    victim.connect(name="v", address=ADDRESSES[0], port=port)
    victim.ask(name="v")
    victim.describe_all(name="v", imm=IMMEDIATE)
    before = victim.word(name="v", at=SND_NXT)
    source = attacker.connect(name="c", address=ADDRESSES[0], port=port)
    peer.watch()
    for option in 1, STOP, 1:
        attacker.fails(errno.ENOPROTOOPT, "start", name="c", option=option)
    attacker.send(name="c", text="words" * 100)
    until("segments of the attacker's", lambda: peer.seen(port=source, needle="") != [0, 0])
    attacker.send(name="c", text="words" * 100)
    segments = [0, 0]
    until("more of them", lambda: segments.__setitem__(slice(None), peer.seen(port=source, needle=f"{IMMEDIATE:x}")) or segments[0])
    assert segments[1] == 0, "the victim's immediate left in the attacker's segment"
    assert victim.word(name="v", at=SND_NXT) == before, "the victim's sequence numbers are the attacker's"
    assert victim.word(name="v", at=TX_WRITTEN) == 0, "the attacker's segments had the victim's options"
    attacker.disconnect(name="c")
    victim.start(name="v")  # it has not ended for that
    victim.send(name="v", text="well")
    until("the victim's own", lambda: victim.word(name="v", at=TX_WRITTEN) == 1)
    attacker.connect(name="c", address=ADDRESSES[0], port=port)
    attacker.ask(name="c")  # as any other


def test_a_refused_socket_is_forgotten(t: Ends) -> None:
    """Of another cgroup: the program would not hear of its end."""
    _, port = server(t)
    stranger = Person(t, 1, ATTACKER)
    stranger.connect(name="inside", address=ADDRESSES[0], port=port)
    (t.cgroups[1].parent / "cgroup.procs").write_text(str(stranger.job.process.pid))
    stranger.connect(name="outside", address=ADDRESSES[0], port=port)
    for _ in range(3):
        stranger.fails(errno.EOPNOTSUPP, "ask", name="outside")
    stranger.ask(name="inside")


def test_another_namespace(t: Ends) -> None:
    """Its interfaces are not those that the helper knows by name and number."""
    peer = Person(t, 1, 0)
    stranger = Person(t, 0, ATTACKER, helper=1)
    (t.cgroups[1] / "cgroup.procs").write_text(str(stranger.job.process.pid))
    stranger.connect(name="c", address=ADDRESSES[1], port=peer.listen(name="all"))
    stranger.fails(errno.EXDEV, "ask", name="c")


def test_the_port_of_connections_by_number(t: Ends) -> None:
    """There modules believe what is said: no program speaks tcp_bth to or from it."""
    peer, port = server(t)
    peer.listen(name="number", port=NUMBER_PORT)
    attacker, privileged = Person(t, 1, ATTACKER), Person(t, 1, 0)
    attacker.connect(name="to", address=ADDRESSES[0], port=NUMBER_PORT)
    attacker.fails(errno.ENOTCONN, "ask", name="to")
    privileged.connect(name="from", address=ADDRESSES[0], port=port, source=NUMBER_PORT)
    privileged.fails(errno.ENOTCONN, "ask", name="from")
    attacker.connect(name="c", address=ADDRESSES[0], port=port)
    attacker.ask(name="c")


def test_what_has_no_room_for_the_option_is_counted(t: Ends) -> None:
    """Another helper's has taken it, and there is no SACK that could make way."""
    t.names.append(t.names[1])
    t.cgroups.append(t.cgroups[1])
    other = t.start_helper(2)
    _, port = server(t)
    sender = Person(t, 1, ATTACKER)
    sender.connect(name="c", address=ADDRESSES[0], port=port)
    sender.ask(name="c")
    sender.ask(name="c", helper=t.socket(2), slot="other")
    for slot in "c", "other":
        sender.describe_all(name=slot, imm=IMMEDIATE)
    sender.send(name="c", text="bare")
    written, bare = ([sender.word(name=slot, at=at) for slot in ("c", "other")] for at in (TX_WRITTEN, TX_BARE))
    assert sorted(written) == [0, sum(written)] and sum(written) > 0, f"options written, of two that do not fit: {written}"
    assert sorted(bare) == [0, sum(written)], f"segments without their option: {bare} of {sum(written)}"
    t.stop(other)
    del t.names[2:], t.cgroups[2:]


def test_silence_holds_nobody_up(t: Ends) -> None:
    _, port = server(t)
    silent, victim = Person(t, 1, ATTACKER), Person(t, 1, VICTIM)
    victim.connect(name="v", address=ADDRESSES[0], port=port)
    silent.say_nothing(count=SILENT)
    took = victim.time_to_ask(name="v")
    assert took < SOON_S, f"{SILENT} silent clients hold another user up for {took:.1f} s"


def test_a_socket_that_holds_the_helper_up(t: Ends) -> None:
    """The helper has the last descriptor, and close() lingers; it still serves others, whoever comes how often, and ends when it is told to."""
    _, port = server(t)
    attacker, victim = Person(t, 1, ATTACKER), Person(t, 1, VICTIM)
    helper = t.helpers[1]
    for n, count in enumerate((1, DESK)):  # and with a few more no desk takes them
        for m in range(count):
            attacker.connect(name=f"c{m}", address=ADDRESSES[0], port=port)
            attacker.fill(name=f"c{m}")
        helper.send_signal(signal.SIGSTOP)
        for m in range(count):
            attacker.leave_lingering(name=f"c{m}", seconds=LINGER_S)
        victim.connect(name=f"v{n}", address=ADDRESSES[0], port=port)
        helper.send_signal(signal.SIGCONT)
        took = victim.time_to_ask(name=f"v{n}")
        assert took < SOON_S, f"a lingering socket holds another user up for {took:.1f} s"
    helper.terminate()
    assert helper.wait(LIMIT_S) == 0
    helper.stdout.close()
    t.helpers[1] = t.start_helper(1)


def test_fair_shares(t: Ends) -> None:
    """Five users that take all they get: each has something, and a sixth, too; what they give back is there."""
    peer, port = server(t)
    greedy = [Person(t, 1, ATTACKER + 10 + n) for n in range(5)]
    peer.tell("accept_and_close", name="all")
    had = []
    for person in greedy:
        person.tell("ask_for_many", address=ADDRESSES[0], port=port, most=1024)
        had.append(person.answer())
    print(f"shares of greedy users, one after the other: {had}")
    late = Person(t, 1, VICTIM)
    late.connect(name="v", address=ADDRESSES[0], port=port)
    late.ask(name="v")
    assert had[0] == 256 and min(had) >= 50, had
    for person in greedy:
        person.drop_many()
    again = Person(t, 1, ATTACKER + 9)

    def has_a_whole_share() -> bool:
        """Its own last ones, too, have to come back before."""
        n = again.ask_for_many(address=ADDRESSES[0], port=port, most=257)
        again.drop_many()
        return n == 255  # one is the late one's

    until("slots come back", has_a_whole_share)
    peer.job.kill()


def test_memory_that_is_kept_counts(t: Ends) -> None:
    """Each connection's is the helper's own charge, so who keeps it has no further."""
    peer, port = server(t)
    peer.tell("accept_and_close", name="all")
    hoarder = Person(t, 1, ATTACKER + 20)
    kept = hoarder.hoard(address=ADDRESSES[0], port=port, most=400)
    assert 100 < kept <= 256, f"{kept} connections' memory is kept"  # of the test before some may be on their way out
    hoarder.drop_hoard()
    more = hoarder.hoard(address=ADDRESSES[0], port=port, most=20)
    assert more == 20, f"what was given back still counts: {kept}, then {more}"
    peer.job.kill()


def fake_helper(scratch: Path) -> tuple[socket.socket, str]:
    path = str(scratch / "fake")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    os.chmod(path, 0o777)
    return listener, path


def test_the_library_trusts_root_and_its_user(t: Ends) -> None:
    """Who else listens at the helper's path is given no connection."""
    listener, path = fake_helper(t.scratch)
    if (child := os.fork()) == 0:
        os.setresuid(ATTACKER, ATTACKER, ATTACKER)
        listener.listen()  # whose word it is
        listener.settimeout(LIMIT_S)
        while True:
            client, _ = listener.accept()
            client.settimeout(LIMIT_S)
            if socket.recv_fds(client, 100, 4)[1]:
                os._exit(1)
    try:
        t.true_socket, t.socket = t.socket, lambda end: path
        t.fails(("option", "option"), ("NO_BPF_HELPER", "NO_BPF_HELPER"))
    finally:
        t.socket = t.true_socket
        os.kill(child, 9)
        status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == -9, "a stranger was given a connection"


def test_a_privileged_program_ignores_its_callers_words(t: Ends) -> None:
    """AT_SECURE: the environment is another's."""
    listener, path = fake_helper(t.scratch)
    listener.listen()
    program = t.scratch / "exchange"
    shutil.copy(t.build / EXCHANGE, program)
    os.chown(program, 0, 0)
    program.chmod(0o4755)
    environment = {**os.environ, "TCPQP_ENGINE": "nonsense", "TCPQP_FRAMING": "nonsense", "TCPQP_BPF_SOCKET": path}
    t.port += 1
    argv = ("setpriv", "--reuid", ATTACKER, "--regid", ATTACKER, "--clear-groups", program, "--port", t.port, "--messages", 10, "--bytes", 1000)
    ended = []
    with contextlib.ExitStack() as jobs:
        for end, more in enumerate(((), ("--connect", ADDRESSES[0]))):
            job = subprocess.Popen(t.within(end, *argv, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
            jobs.callback(job.kill)
            ended.append(job)
            if end == 0:
                t.listening()
        said = [job.communicate(timeout=LIMIT_S) for job in ended]
    assert [job.returncode for job in ended] == [0, 0], said
    listener.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        listener.accept()
        raise AssertionError("a path of the caller's was asked")
    listener.close()


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("build", type=Path)
    p.add_argument("tests", nargs="*")
    args = p.parse_args()
    skip_where_impossible()
    with ends(args.build, counted=False) as t:
        for name, test in list(globals().items()):
            if name.startswith("test_") and (not args.tests or name[5:] in args.tests):
                test(t)
                print(f"ok {name[5:]}", flush=True)
    return 0


sys.exit(main())
