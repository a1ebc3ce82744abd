# SPDX-License-Identifier: BSD-3-Clause
"""Kernel TLS that another thread sets on a connection whose receive waits with its memory posted."""

import errno
import os
import signal
import socket
import struct
import sys
import time

from stream_connection import BLOCK, TCP_ULP, Connection, Interruptible, Memory, wait_until

SOL_TLS, TLS_TX, TLS_RX = 282, 1, 2
KEY = struct.pack("<HH", 0x0303, 51) + bytes(range(36))  # struct tls12_crypto_info_aes_gcm_128
RECORD = 100  # bytes of its payload
LOOK_S, BUSY_S = 1.0, 0.3
CPU_S_AT = 11  # /proc/PID/task/TID/stat, behind the name: user and system time


def gives(sock: socket.socket, name: bytes) -> bool:
    """False: it has placed bytes that were not read."""
    try:
        sock.setsockopt(socket.SOL_TCP, TCP_ULP, name)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def records(*payloads: bytes) -> list[bytes]:
    """As the kernel encrypts them, one behind the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sender:
        receiver = listener.accept()[0]
        gives(sender, b"tls")
        sender.setsockopt(SOL_TLS, TLS_TX, KEY)
        with receiver:
            made = []
            for payload in payloads:
                sender.sendall(payload)
                head = receiver.recv(5, socket.MSG_WAITALL)
                made.append(head + receiver.recv(struct.unpack("!H", head[3:])[0], socket.MSG_WAITALL))
            return made


def processor_s(thread: int) -> float:
    with open(f"/proc/self/task/{thread}/stat", encoding="ascii") as stat:
        times = stat.read().rpartition(")")[2].split()[CPU_S_AT : CPU_S_AT + 2]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def keyed(connection: Connection, memory: Memory, whole: int) -> int:
    """@whole records come, and half of one more: the receive waits for the rest as kernel TLS does, and a signal ends it."""
    payloads = [os.urandom(RECORD) for _ in range(whole + 1)]
    made = records(*payloads)
    connection.warm(memory)
    placed = connection.placed()
    receive = Interruptible(connection, memory.view())
    wait_until(lambda: gives(connection.sock, b"tls"), "kernel TLS takes the socket")
    connection.sock.setsockopt(SOL_TLS, TLS_RX, KEY)
    half, rest = made[-1][: RECORD // 2], made[-1][RECORD // 2 :]
    connection.ask(0, back=b"".join(made[:-1]) + half)
    wait_until(lambda: connection.waiting() == len(half), "half a record waits")
    before = processor_s(receive.native_id or 0)
    time.sleep(LOOK_S)
    spent = processor_s(receive.native_id or 0) - before
    if spent > BUSY_S:
        sys.exit(f"the receive waited for a record, and took {spent} s of {LOOK_S} s for it")
    signal.pthread_kill(receive.ident or 0, signal.SIGUSR1)
    receive.end()
    if (receive.got, receive.error) != ((whole * RECORD, 0) if whole else (-1, errno.EINTR)):
        sys.exit(f"behind {whole} records a signal ended a receive: {receive.got} bytes, error {receive.error}")
    connection.ask(0, back=rest)
    if memory.bytes(0, whole * RECORD) + connection.sock.recv(RECORD) != b"".join(payloads):
        sys.exit("records are wrong")
    return placed


def keyed_meanwhile(connection: Connection) -> int:
    signal.signal(signal.SIGUSR1, lambda *_: None)
    memory = Memory(BLOCK)
    return sum(keyed(Connection(*connection.sock.getpeername()[:2]), memory, whole) for whole in (0, 1))
