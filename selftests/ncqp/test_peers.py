# SPDX-License-Identifier: BSD-3-Clause
"""--engine tcp puts no byte of its own on the wire: netcats nobody here wrote are peers."""

import shutil
import socket
import subprocess

from case import LIMIT_S, MIB, Case, main, noise


class RawSockets(Case):
    def test_nothing_but_payload_is_sent(self) -> None:
        data = noise(3 * MIB + 1)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            s = self.connect(listener.getsockname()[1], stdin=self.path("in", data).open("rb"))
            peer, _ = listener.accept()
            with peer, peer.makefile("rb") as file:
                got = file.read()
        self.expect(s, 0)
        self.assertTrue(got == data)

    def test_nothing_but_payload_is_received(self) -> None:
        data = noise(3 * MIB + 1)
        r, port = self.listen(stdout=self.path("out").open("wb"))
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            self.assertEqual(peer.recv(1), b"")
        self.expect(r, 0)
        self.assertTrue(self.path("out").read_bytes() == data)

    def test_a_talking_receiver_is_ignored(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            s = self.connect(listener.getsockname()[1], "-n", 100)
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"chatter")
                while peer.recv(1000):
                    pass
        self.expect(s, 0, "ignoring")


class Netcats(Case):
    def tool(self, name: str) -> str:
        found = shutil.which(name)
        if not found:
            self.skipTest(f"{name} is not installed")
        return found

    def netcat_receives(self, argv: list[str], port: int) -> None:
        data = noise(2 * MIB + 3)
        source = self.path("in", data)
        with self.path("out").open("wb") as o:
            peer = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=o)
        self.addCleanup(peer.kill)
        for _ in range(200):  # it does not say when it listens
            s = self.connect(port, stdin=source.open("rb"))
            if s.wait() == 0:
                break
            self.assertIn("refused", s.said)
        self.assertEqual(peer.wait(LIMIT_S), 0)
        self.assertTrue(self.path("out").read_bytes() == data)

    def netcat_sends(self, argv_of) -> None:
        data = noise(2 * MIB + 3)
        r, port = self.listen(stdout=self.path("out").open("wb"))
        with self.path("in", data).open("rb") as i:
            peer = subprocess.run(argv_of(port), stdin=i, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
        self.expect(r, 0)
        self.assertEqual(peer.returncode, 0)
        self.assertTrue(self.path("out").read_bytes() == data)

    def free_port(self) -> int:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return s.getsockname()[1]

    def test_busybox_nc(self) -> None:
        busybox, port = self.tool("busybox"), self.free_port()
        self.netcat_receives([busybox, "nc", "-l", "-p", str(port)], port)
        self.netcat_sends(lambda p: [busybox, "nc", "127.0.0.1", str(p)])

    def test_socat(self) -> None:
        socat, port = self.tool("socat"), self.free_port()
        self.netcat_receives([socat, "-u", f"TCP-LISTEN:{port},reuseaddr", "STDOUT"], port)
        self.netcat_sends(lambda p: [socat, "-u", "STDIN", f"TCP:127.0.0.1:{p}"])

    def test_openbsd_nc(self) -> None:
        nc, port = self.tool("nc.openbsd"), self.free_port()
        self.netcat_receives([nc, "-l", "127.0.0.1", str(port)], port)
        self.netcat_sends(lambda p: [nc, "-N", "127.0.0.1", str(p)])


if __name__ == "__main__":
    main()
