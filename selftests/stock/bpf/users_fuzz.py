#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tcpqp-bpf with several users who do what they like, and a bystander whose every byte must be right.

users_fuzz.py BUILD [--seconds N --seed N]: users of the same helper connect, ask (with sockets in every state, others' sockets, and what is no socket),
write into their memory, connect(AF_UNSPEC), begin again, end, linger, and are killed.  Each user's choices follow from the seed.

What must hold: segments have the immediates of their own user only; new memory is empty; memory of quiet connections does not change; transfers in option
framing are right; in the end every slot, descriptor and thread of the helper is free again.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path

from ends import ADDRESSES, Ends, ends, skip_where_impossible
from jobs import Job, until

ROLES = Path(__file__).parent / "users_fuzz_roles.py"
USERS = 5
FOREIGN = USERS  # a user whose sockets are of another namespace
OPTION = 2
PEER_PORT = 9100
KILLED_EACH_S = 3
ALL_SLOTS, SHARE = 1024, 4


class Play:
    def __init__(self, t: Ends, seed: int) -> None:
        self.t, self.dice = t, random.Random(seed)
        self.helper = t.helpers[1]
        self.threads, self.files = self.threads_of_helper(), self.files_of_helper()
        self.watcher = self.role(0, "watcher")
        self.peers = [self.role(end, "peer", PEER_PORT, seed) for end in range(2)]
        self.witnesses = [self.role(1, "witness", t.socket(1), ADDRESSES[0], PEER_PORT + 1) for _ in range(3)]
        self.users = {user: self.hostile(user) for user in range(USERS + 1)}
        self.killed = self.admitted = self.transfers = 0

    def threads_of_helper(self) -> int:
        return len(list(Path(f"/proc/{self.helper.pid}/task").iterdir()))

    def files_of_helper(self) -> int:
        return len(list(Path(f"/proc/{self.helper.pid}/fd").iterdir()))

    def role(self, end: int, *words) -> Job:
        job = Job(self.t, end, "", sys.executable, ROLES, *words)
        job.expect("ready")
        return job

    def hostile(self, user: int) -> Job:
        end, peer = (0, 1) if user == FOREIGN else (1, 0)
        unconnect = self.t.build / "selftests/stock/bpf/unconnect"
        words = ("hostile", user, self.dice.getrandbits(32), self.t.socket(1), unconnect, ADDRESSES[peer], PEER_PORT, self.t.scratch)
        job = self.role(end, *words)
        if user == FOREIGN:
            (self.t.cgroups[1] / "cgroup.procs").write_text(str(job.process.pid))
        return job

    def someone_dies(self) -> None:
        user = self.dice.randrange(USERS + 1)
        self.users[user].kill()
        self.users[user] = self.hostile(user)
        self.killed += 1

    def everybody_is_well(self) -> None:
        for job in (self.watcher, *self.peers, *self.witnesses, *self.users.values()):
            assert job.process.poll() is None, f"{job.process.args[-8:]} ended: {job.process.returncode}"
        assert self.helper.poll() is None, f"the helper ended: {self.helper.returncode}"

    def go(self, seconds: float) -> None:
        end, death = time.monotonic() + seconds, time.monotonic() + KILLED_EACH_S
        while time.monotonic() < end:
            self.t.works(("option", "option"), OPTION, messages=self.dice.randint(10, 1000), size=self.dice.randint(200, 30000))
            self.transfers += 1
            if time.monotonic() > death:
                self.someone_dies()
                death += KILLED_EACH_S
            self.everybody_is_well()

    def last_words(self, job: Job) -> dict:
        job.tell("")
        said = json.loads(job.hear())
        job.end()
        return said

    def over(self) -> None:
        self.everybody_is_well()
        admitted = sum(self.last_words(job)["admitted"] for job in self.users.values())
        looks = min(self.last_words(job)["looks"] for job in self.witnesses)
        wire = self.last_words(self.watcher)
        print(
            f"{self.transfers} transfers, {admitted} admissions by the users that lived on, {self.killed} killed, {looks} looks at quiet memory, "
            f"{wire['marked']} of {wire['seen']} segments with an immediate", flush=True,
        )  # fmt: skip
        assert admitted > 0 and wire["marked"] > 0, "nothing was shown"
        for job in self.peers:
            job.tell("")
            job.end()
        self.t.all_ended()

    def nothing_is_left(self) -> None:
        until("the helper's threads", lambda: self.threads_of_helper() == self.threads)
        until("the helper's descriptors", lambda: self.files_of_helper() <= self.files)
        user = Job(self.t, 1, "", sys.executable, ROLES.parent / "user.py", 61000 + USERS + 1, self.t.socket(1), "")
        peer = Job(self.t, 0, "", sys.executable, ROLES.parent / "user.py", 0, self.t.socket(0), "")
        user.hear(), peer.hear()
        port = self.ok(peer, {"do": "listen", "name": "all"})
        peer.tell(json.dumps({"do": "accept_and_close", "name": "all"}))
        free = self.ok(user, {"do": "ask_for_many", "address": ADDRESSES[0], "port": port, "most": ALL_SLOTS})
        assert free == ALL_SLOTS // SHARE, f"slots are lost: a user's share is {free}"

    @staticmethod
    def ok(job: Job, order: dict):
        return job.ask(json.dumps(order))["ok"]


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("build", type=Path)
    p.add_argument("--seconds", type=float, default=12)
    p.add_argument("--seed", type=int, default=int(time.time()))
    args = p.parse_args()
    skip_where_impossible()
    print(f"seed {args.seed}", flush=True)
    with ends(args.build, counted=False) as t:
        t.scratch.chmod(0o777)
        for end in range(2):  # what is left at the end is to be ours: TCP keeps what the killed have not sent for minutes
            subprocess.run(t.within(end, "sysctl", "-qw", "net.ipv4.tcp_orphan_retries=2", "net.ipv4.tcp_fin_timeout=5"), check=True)
        play = Play(t, args.seed)
        play.go(args.seconds)
        play.over()
        play.nothing_is_left()
    return 0


sys.exit(main())
