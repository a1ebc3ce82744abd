#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Datagrams of all sizes between two hosts, each compared: ud_exchange.py receive|send PORT [--peer ADDRESS] [--gid PREFIX] [--count N] [--seed N] [--size N]

A TCP connection to PORT tells numbers and addresses, and when a batch is over.  The receiver prints how many came, of how many.
"""

import argparse
import json
import random
import socket
import time

import pyverbs.enums as e

from ud_verbs import GRH_BYTES, SLOTS, Host, Side, pattern

BATCH = SLOTS // 2


class Channel:
    def __init__(self, link: socket.socket) -> None:
        self.lines = link.makefile("rw")

    def say(self, **what) -> None:
        self.lines.write(json.dumps(what) + "\n")
        self.lines.flush()

    def hear(self) -> dict:
        return json.loads(self.lines.readline())


def open_channel(args: argparse.Namespace) -> Channel:
    if args.role == "send":
        return Channel(socket.create_connection((args.peer, args.port)))
    with socket.create_server(("", args.port)) as listener:
        return Channel(listener.accept()[0])


def take(side: Side, slots: list[int], seen: dict[int, int]) -> int:
    """What has come by now; their slots are free again."""
    got, wcs = side.cq.poll(BATCH)
    for wc in wcs or []:
        length, seq = wc.byte_len - GRH_BYTES, wc.imm_data
        if wc.status != e.IBV_WC_SUCCESS or not wc.wc_flags & e.IBV_WC_WITH_IMM:
            raise SystemExit(f"status {wc.status}, flags {wc.wc_flags}")
        if side.host.read(wc.wr_id, length, GRH_BYTES) != pattern(seq, length).encode():
            raise SystemExit(f"datagram {seq} of {length} bytes is not what was sent")
        seen[seq] = length
        slots.append(wc.wr_id)
    return got


def receive(channel: Channel, side: Side, index: int, late_s: float) -> None:
    slots, seen, sent = list(range(SLOTS)), {}, {}
    channel.say(qpn=side.qpn, gid=side.host.gid(index))
    while True:
        while slots:
            side.post_recv(slots.pop())
        channel.say(ready=True)
        batch = channel.hear()["sent"]
        if not batch:
            break
        sent.update({int(seq): length for seq, length in batch.items()})
        until = time.monotonic() + late_s
        while time.monotonic() < until and not batch.keys() <= {str(seq) for seq in seen}:
            take(side, slots, seen)
        take(side, slots, seen)
    for seq, length in seen.items():
        if sent.get(seq) != length:
            raise SystemExit(f"datagram {seq} came with {length} bytes, not {sent.get(seq)}")
    print(f"{len(seen)} of {len(sent)}")


def send(channel: Channel, side: Side, index: int, args: argparse.Namespace) -> None:
    dice, peer = random.Random(args.seed), channel.hear()
    ah = side.host.ah(peer["gid"], index)
    for first in range(0, args.count, BATCH):
        channel.hear()
        batch = {seq: dice.randint(0, args.size) for seq in range(first, min(first + BATCH, args.count))}
        for slot, (seq, length) in enumerate(batch.items()):
            side.host.write(slot, pattern(seq, length))
            side.post_send(ah, peer["qpn"], [side.host.sge(slot, length)], imm=seq)
        for _ in batch:
            if side.completion().status != e.IBV_WC_SUCCESS:
                raise SystemExit("a send failed")
        channel.say(sent=batch)
    channel.hear()
    channel.say(sent={})


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("role", choices=("receive", "send"))
    p.add_argument("port", type=int)
    p.add_argument("--peer")
    p.add_argument("--gid", default="", help="the first address that begins so, as pyverbs writes it")
    p.add_argument("--count", type=int, default=640)
    p.add_argument("--size", type=int, default=1024)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--late", type=float, default=5, metavar="S", help="a batch's last datagrams, behind the word that it was sent; then they are lost")
    args = p.parse_args()
    side = Side(Host())
    index = side.host.gid_of(args.gid)
    channel = open_channel(args)
    if args.role == "receive":
        receive(channel, side, index, args.late)
    else:
        send(channel, side, index, args)


main()
