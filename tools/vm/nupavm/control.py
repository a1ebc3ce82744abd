# SPDX-License-Identifier: BSD-3-Clause
"""The host's end of every guest's command port: one thread, lines in both directions.

guest/agent and guest/nupa-ctl document the protocol.
"""

import os
import selectors
import socket
import threading
from pathlib import Path

LINE_MAX_BYTES = 4096


class Hub:
    """Listens for the guests, remembers what they reported, and answers barriers and published words."""

    def __init__(self, sockets: list[Path]) -> None:
        self.changed = threading.Condition()
        self.ready: set[int] = set()
        self.gone: set[int] = set()  # said bye
        self.jobs: dict[tuple[int, str], int] = {}  # finished: exit status
        self._nodes = len(sockets)
        self._words: dict[str, str] = {}
        self._getters: dict[str, list[tuple[int, str]]] = {}
        self._barriers: dict[str, list[tuple[int, str]]] = {}
        self._links: dict[int, socket.socket] = {}
        self._pending: dict[int, bytes] = {}
        self._poll = selectors.DefaultSelector()
        self._wake_r, self._wake_w = os.pipe()
        self._poll.register(self._wake_r, selectors.EVENT_READ, None)
        for node, path in enumerate(sockets):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(path))
            listener.listen(1)
            self._poll.register(listener, selectors.EVENT_READ, (node, True))
        self._thread = threading.Thread(target=self._serve, name="nupavm-hub", daemon=True)
        self._thread.start()

    def send(self, node: int, line: str) -> None:
        with self.changed:
            self._send(node, line)

    def post(self, key: str, word: str) -> None:
        with self.changed:
            self._post(key, word)

    def word(self, key: str) -> str | None:
        with self.changed:
            return self._words.get(key)

    def close(self) -> None:
        os.write(self._wake_w, b"x")
        self._thread.join()
        for key in list(self._poll.get_map().values()):
            if key.fileobj != self._wake_r:
                key.fileobj.close()
        self._poll.close()
        os.close(self._wake_r)
        os.close(self._wake_w)

    def _serve(self) -> None:
        while True:
            for key, _ in self._poll.select():
                if key.data is None:
                    return
                node, listening = key.data
                if listening:
                    self._accept(node, key.fileobj)
                else:
                    self._receive(node, key.fileobj)

    def _accept(self, node: int, listener: socket.socket) -> None:
        link, _ = listener.accept()
        self._poll.unregister(listener)
        listener.close()
        with self.changed:
            self._links[node] = link
            self._pending[node] = b""
        self._poll.register(link, selectors.EVENT_READ, (node, False))

    def _receive(self, node: int, link: socket.socket) -> None:
        try:
            data = link.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._poll.unregister(link)
            link.close()
            return
        *lines, rest = (self._pending[node] + data).split(b"\n")
        self._pending[node] = rest[-LINE_MAX_BYTES:]
        with self.changed:
            for line in lines:
                self._handle(node, line.decode(errors="replace").split())
            self.changed.notify_all()

    def _handle(self, node: int, words: list[str]) -> None:
        match words:
            case ["ready"]:
                self.ready.add(node)
            case ["bye"]:
                self.gone.add(node)
            case ["done", job, status] if status.isdigit():
                self.jobs[node, job] = int(status)
            case ["barrier", name, fifo]:
                self._arrive(name, node, fifo)
            case ["post", key, word]:
                self._post(key, word)
            case ["get", key, fifo] if key in self._words:
                self._send(node, f"release {fifo} {self._words[key]}")
            case ["get", key, fifo]:
                self._getters.setdefault(key, []).append((node, fifo))

    def _arrive(self, name: str, node: int, fifo: str) -> None:
        waiting = self._barriers.setdefault(name, [])
        waiting.append((node, fifo))
        if len({who for who, _ in waiting}) == self._nodes:
            for who, reply in self._barriers.pop(name):
                self._send(who, f"release {reply} ok")

    def _post(self, key: str, word: str) -> None:
        self._words[key] = word
        for node, fifo in self._getters.pop(key, []):
            self._send(node, f"release {fifo} {word}")
        self.changed.notify_all()

    def _send(self, node: int, line: str) -> None:
        try:
            self._links[node].sendall(line.encode() + b"\n")
        except (KeyError, OSError):
            pass  # the node is dead; whoever waits for it learns that from its process
