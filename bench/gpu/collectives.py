# SPDX-License-Identifier: BSD-3-Clause
"""A rank of torch.distributed by NCCL: collectives whose values are compared on the GPU, timed as nccl-tests does."""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from nupabench.cases import KIB, MIB
from nupabench.gpu import RANKS, Job, row

DEVICE = "cuda:0"
FLOAT_BYTES = 4
WARM = 3
POISON = -1.0


def iterations(size: int) -> int:
    return 200 if size <= 64 * KIB else 50 if size <= MIB else 20 if size <= 16 * MIB else 6


def pattern(count: int, rank: int, turn: int) -> torch.Tensor:
    """Whole numbers, so that sums are exact; others in each turn, so that an old buffer is no right one."""
    return ((torch.arange(count, device=DEVICE) * 7 + turn * 13 + rank * 5) % 4093).float()


class Collective:
    """An operation on messages of @size bytes in all, as nccl-tests counts them.  A rank's share of them: half."""

    def __init__(self, name: str, size: int, rank: int) -> None:
        self.name, self.rank, self.count = name, rank, size // FLOAT_BYTES
        self.share = self.count // RANKS
        self.run = getattr(self, f"run_{name}")
        self.fill(0)

    def fill(self, turn: int) -> None:
        everyone = [pattern(self.count, rank, turn) for rank in range(RANKS)]
        mine = slice(self.rank * self.share, (self.rank + 1) * self.share)
        self.source = everyone[self.rank]
        self.target = torch.full((self.count,), POISON, device=DEVICE)
        if self.name == "all_reduce":
            self.target, self.wanted = self.source, sum(everyone)
        elif self.name == "all_gather":
            self.source = everyone[self.rank][: self.share]
            self.wanted = torch.cat([one[: self.share] for one in everyone])
        elif self.name == "reduce_scatter":
            self.target, self.wanted = self.target[: self.share], sum(everyone)[mine]
        elif self.name == "all_to_all":
            self.wanted = torch.cat([one[mine] for one in everyone])
        else:
            self.wanted = everyone[1 - self.rank]

    def wrong(self) -> int:
        return int((self.target != self.wanted).sum().item())

    def run_all_reduce(self) -> None:
        dist.all_reduce(self.target)

    def run_all_gather(self) -> None:
        dist.all_gather_into_tensor(self.target, self.source)

    def run_reduce_scatter(self) -> None:
        dist.reduce_scatter_tensor(self.target, self.source)

    def run_all_to_all(self) -> None:
        dist.all_to_all_single(self.target, self.source)

    def run_send_receive(self) -> None:
        peer = 1 - self.rank
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, self.source, peer), dist.P2POp(dist.irecv, self.target, peer)]):
            work.wait()


def check(one: Collective, turns: int) -> int:
    wrong = 0
    for turn in range(turns):
        one.fill(turn)
        torch.cuda.synchronize()
        one.run()
        torch.cuda.synchronize()
        wrong += one.wrong()
    return wrong


def others_cpu_s() -> float:
    """Of all threads but this one, which spins until the GPU has ended."""
    return time.process_time() - time.thread_time()


def timed(one: Collective, count: int) -> tuple[float, float]:
    for _ in range(WARM):
        one.run()
    torch.cuda.synchronize()
    busy, began = others_cpu_s(), time.monotonic()
    for _ in range(count):
        one.run()
    torch.cuda.synchronize()
    return (time.monotonic() - began) / count, (others_cpu_s() - busy) / count


def rank(job: Job, number: int, meeting: str, log: str, limit_s: float, send) -> None:
    """In a process of its own, which has not called CUDA yet.  @send: takes each row, on rank 0."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(job.environment())
    os.environ["NCCL_HOSTID"] = f"rank{number}"  # two hosts, so neither shared memory nor the GPU's own copies
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method=f"file://{meeting}", rank=number, world_size=RANKS, timeout=timedelta(seconds=limit_s))
    for operation in job.operations:
        for size in job.sizes:
            one = Collective(operation, size, number)
            wrong = torch.tensor([check(one, job.checks)], device=DEVICE)
            seconds, cpu_s = timed(one, iterations(size))
            dist.all_reduce(wrong)
            if number == 0:
                send(row(job, operation, size, seconds, cpu_s, int(wrong.item())))
            del one
    dist.destroy_process_group()
