#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One end of a connection some of whose messages leave without TCP (selftests/vm/modules/catch_up).

catch_up.py serve PORT REPLY      checks every byte; answers each REPLY bytes by 64, or none with 0
catch_up.py send ADDRESS PORT HOW BYTES MESSAGES REPLY
    HOW: plain, or process, softirq, ack (where TCP is told), with "+repair" by TCP_REPAIR alone, with "+held" while another
    thread keeps the socket's lock, with "+mixed" every third message by send()
Both print JSON.
"""

import fcntl
import json
import socket
import struct
import sys
import threading
import time
from statistics import median

ATTACH, SEND, HOLD, COUNTS = 0x40087501, 0x40087502, 0x40047503, 0x80587504
WHERE = {"process": 0, "softirq": 1, "ack": 2}
COUNTERS = ("messages", "refused", "told_in_process", "told_in_softirq", "told_in_backlog", "told_in_release", "insisted", "acks_ahead", "failed",
            "rewritten", "dropped")  # fmt: skip
ANSWER_BYTES = 64
FULL_S, TRIES = 0.0002, 20  # no room in TCP's window
TURN_MESSAGES = 16  # between two looks at what TCP measures


def pattern(offset: int, length: int) -> bytes:
    return bytes(((at * 2654435761) & 0xFFFFFFFF) >> 24 for at in range(offset, offset + length))


def take(sock: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = sock.recv(length - len(data))
        if not part:
            break
        data += part
    return data


def serve(port: int, reply: int) -> dict:
    with socket.create_server(("", port)) as listener:
        sock, _ = listener.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received = wrong = 0
    while data := take(sock, reply) if reply else sock.recv(1 << 16):
        wrong += data != pattern(received, len(data))
        received += len(data)
        if reply:
            sock.sendall(bytes(ANSWER_BYTES))
    sock.close()
    return {"received": received, "wrong": wrong}


def tcp_info(sock: socket.socket) -> dict:
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
    words = struct.unpack_from("24I", info, 8)
    return {"rto": words[0], "rtt": words[15], "cwnd": words[18], "retrans": words[23], "lost": words[6]}


class Hardware:
    """What sends a message without TCP, until the connection is TCP's alone again."""

    def __init__(self, sock: socket.socket, how: list[str]) -> None:
        self.file, self.where = open("/dev/catch_up", "rb", buffering=0), WHERE[how[0]]
        fcntl.ioctl(self.file, ATTACH, struct.pack("iI", sock.fileno(), "repair" in how))
        self.ends = False
        self.holder = threading.Thread(target=self.hold) if "held" in how else None
        if self.holder:
            self.holder.start()

    def hold(self) -> None:
        while not self.ends:
            fcntl.ioctl(self.file, HOLD, struct.pack("I", 700))
            time.sleep(0.0005)

    def send(self, length: int) -> bool:
        """False: TCP's windows do not allow it in some time, perhaps never."""
        for _ in range(TRIES):
            try:
                fcntl.ioctl(self.file, SEND, struct.pack("II", length, self.where))
                return True
            except BlockingIOError:
                time.sleep(FULL_S)
        return False

    def close(self) -> dict:
        self.ends = True
        if self.holder:
            self.holder.join()
        counts = fcntl.ioctl(self.file, COUNTS, bytes(88))
        self.file.close()
        return dict(zip(COUNTERS, struct.unpack("11Q", counts)))


def send(address: str, port: int, how: str, length: int, messages: int, reply: bool) -> dict:
    words, offset, rtts = how.split("+"), 0, []
    sock = socket.create_connection((address, port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    hardware = Hardware(sock, words) if words[0] != "plain" else None
    begin = time.monotonic()
    for n in range(messages):
        ours = hardware and not ("mixed" in words and n % 3 == 0)
        if not (ours and hardware.send(length)):
            sock.sendall(pattern(offset, length))
        offset += length
        if reply and len(take(sock, ANSWER_BYTES)) != ANSWER_BYTES:
            raise SystemExit("the peer has ended")
        if n % TURN_MESSAGES == 0:
            rtts.append(tcp_info(sock)["rtt"])
    counts = hardware.close() if hardware else {}
    sock.shutdown(socket.SHUT_WR)
    while sock.recv(1 << 16):
        pass
    info = tcp_info(sock)
    return {"seconds": round(time.monotonic() - begin, 3), "rtt_us": median(rtts), **info, "sent": offset, "counts": counts}


def main() -> None:
    if sys.argv[1] == "serve":
        shown = serve(int(sys.argv[2]), int(sys.argv[3]))
    else:
        shown = send(sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), int(sys.argv[6]), bool(int(sys.argv[7])))
    print(json.dumps(shown))


main()
