# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong is said, with what to do, and the exit status is the truth (engine tcp)."""

import os
import resource
import signal
import socket
import subprocess

from case import MIB, Case, main, noise, pattern

PIPE = subprocess.PIPE


def limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))


class Usage(Case):
    def test_wrong_usage_is_64(self) -> None:
        wrong = (
            ((), "port"), (("-p", "1"), "-s ADDRESS"), (("-l",), "port"), (("-l", "-p", "x"), "no port"), (("-l", "-p", "70000"), "no port"),
            (("-s", "::1", "-p", "0"), "no port"), (("-l", "-p", "1", "--engine", "magic"), "magic"), (("-l", "-p", "1", "-4", "-6"), "exclude"),
            (("-l", "-p", "1", "--msg-size", "5"), "msg-size"), (("-l", "-p", "1", "--msg-size", "1G"), "msg-size"),
            (("-l", "-p", "1", "--depth", "0"), "depth"), (("-l", "-p", "1", "-v", "1"), "validate"), (("-l", "-p", "1", "--wire", "2"), "wire"),
            (("-l", "-p", "1", "--engine", "tcp", "--wire", "0"), "--wire"), (("-s", "::1", "-p", "1", "-v", "7"), "-n BYTES"),
            (("-l", "-p", "1", "--send", "--receive"), "exclude"), (("-l", "-p", "1", "stray"), "stray"), (("-l", "-p", "1", "--timeout", "-1"), "timeout"),
            (("-l", "-p", "1", "-f", "a-name-much-too-long"), "too long"),
        )  # fmt: skip
        for args, word in wrong:
            with self.subTest(args=args):
                self.expect(self.end(*args, tcp=False), 64, word)

    def test_help_is_grouped(self) -> None:
        end = self.end("--help", tcp=False, stdout=PIPE)
        text = end.process.stdout.read().decode()
        self.expect(end, 0)
        for group in ("Addresses:", "Data:", "Engine:", "Report:", "Exit status"):
            self.assertIn(group, text)


class Setup(Case):
    def test_nobody_listens(self) -> None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
            end = self.connect(port, "-n", 1, "--json", self.dir / "s.json")
            self.expect(end, 1, "refused", f"ncqp -l -p {port}")
        self.assertFalse(self.report("s.json")["ok"])
        self.assertIn("refused", self.report("s.json")["error"])

    def test_unknown_interface(self) -> None:
        self.expect(self.end("-l", "-p", 0, "-f", "nosuch0"), 1, "nosuch0", "ip link")

    def test_unknown_address(self) -> None:
        self.expect(self.end("-s", "no.such.host.invalid", "-p", 1, "-n", 1), 1, "no.such.host.invalid")
        self.expect(self.end("-6", "-s", "127.0.0.1", "-p", 1, "-n", 1), 1, "-6 was asked for")
        self.expect(self.end("-l", "-s", "203.0.113.7", "-p", 0), 1, "listen at 203.0.113.7")

    def test_port_in_use(self) -> None:
        r, port = self.listen()
        self.expect(self.end("-l", "-s", "127.0.0.1", "-p", port), 1, "in use")
        self.expect(self.connect(port, "-n", 1), 0)
        self.expect(r, 0)

    def test_nobody_comes(self) -> None:
        self.expect(self.end("-l", "-p", 0, "--timeout", "0.2"), 1, "timed out")

    def test_json_path_is_checked_first(self) -> None:
        self.expect(self.end("-l", "-p", 0, "--json", "/nonexistent/x"), 1, "/nonexistent/x")

    def test_directory_as_input(self) -> None:
        self.expect(self.connect(1, stdin=os.open("/", os.O_RDONLY)), 1, "directory")

    def test_output_not_writable(self) -> None:
        self.expect(self.end("-l", "-p", 0, stdout=open("/dev/null", "rb")), 1, "not open for writing")

    def test_no_queue_pair_without_module(self) -> None:
        if os.path.exists("/sys/module/tcp_qp"):
            self.skipTest("tcp_qp is loaded here")
        for engine in ("auto", "software", "offload"):
            with self.subTest(engine=engine):
                for args in (("-l", "-p", 0), ("-l", "-p", 0, "-f", "lo"), ("-s", "127.0.0.1", "-p", 1, "-n", 1)):
                    end = self.end(*args, "--engine", engine, "--json", self.dir / "q.json", tcp=False)
                    self.expect(end, 1, "modprobe tcp_qp", "rdma link add tcpqp0 type tcp_qp netdev")
                    self.assertNotIn("listening", end.said)
                    self.assertEqual((self.report("q.json")["engine"], self.report("q.json")["requested_engine"]), ("none", engine))


class Midway(Case):
    def raw_peer(self, port: int) -> socket.socket:
        s = socket.create_connection(("127.0.0.1", port), 20)
        self.addCleanup(s.close)
        return s

    def raw_listener(self) -> tuple[socket.socket, int]:
        s = socket.create_server(("127.0.0.1", 0))
        s.settimeout(20)
        self.addCleanup(s.close)
        return s, s.getsockname()[1]

    def test_receiver_without_space(self) -> None:
        r, port = self.listen(stdout=open("/dev/full", "wb"))
        s = self.connect(port, "-n", 4 * MIB)
        self.expect(r, 1, "No space left", "free some space")
        self.expect(s, 1, "the peer")

    def test_full_disk(self) -> None:
        mount = self.path("mnt")
        mount.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mount], stderr=subprocess.DEVNULL).returncode:
            self.skipTest("may not mount a small file system here")
        self.addCleanup(subprocess.run, ["umount", mount], check=True)
        for receiver in ((), ("-n", 4 * MIB)):
            with self.subTest(receiver=receiver), (mount / "out").open("wb") as o:
                r = self.end("-l", "-s", "127.0.0.1", "-p", 0, *receiver, stdout=o)
                if not receiver:
                    s = self.connect(r.wait_listening(), "-n", 4 * MIB)
                    self.expect(s, 1, "the peer")
                self.expect(r, 1, "No space left")
                self.assertLessEqual((mount / "out").stat().st_size, 0 if receiver else MIB)

    def test_file_size_limit(self) -> None:
        r, port = self.listen(stdout=self.path("out").open("wb"), preexec_fn=limit_file_size)
        s = self.connect(port, "-n", 4 * MIB)
        self.expect(r, 1, "ulimit -f")
        self.expect(s, 1, "the peer")

    def test_reader_of_output_goes(self) -> None:
        r, port = self.listen(stdout=PIPE)
        r.process.stdout.close()
        r.process.stdout = None
        s = self.connect(port, "-n", 4 * MIB)
        self.expect(r, 1, "reader has gone")
        self.expect(s, 1, "the peer")

    def test_size_differs_from_n(self) -> None:
        for sent, words in ((999, "expects 1000"), (1001, "more than the 1000")):
            for output in ("/dev/null", self.path("out")):
                with self.subTest(sent=sent, output=output), open(output, "wb") as o:
                    r, port = self.listen("-n", 1000, stdout=o)
                    s = self.connect(port, "-n", sent)
                    self.expect(r, 1, words)
                    self.assertEqual(s.wait(), 1, s.said)

    def test_sender_dies(self) -> None:
        r, port = self.listen(stdout=self.path("out").open("wb"))
        peer = self.raw_peer(port)
        peer.sendall(b"x" * 1000)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
        self.expect(r, 1, "the sender failed")

    def test_receiver_dies(self) -> None:
        listener, port = self.raw_listener()
        s = self.connect(port, "-n", "64M")
        peer, _ = listener.accept()
        peer.recv(1000)
        peer.close()
        self.expect(s, 1, "the peer reset the connection")

    def test_receiver_stops_reading(self) -> None:
        listener, port = self.raw_listener()
        s = self.connect(port, "-n", "64M", "--timeout", "0.3")
        peer, _ = listener.accept()
        self.expect(s, 1, "timed out waiting for the peer")
        peer.close()

    def test_receiver_never_closes(self) -> None:
        listener, port = self.raw_listener()
        s = self.connect(port, "-n", 10, "--timeout", "0.3")
        peer, _ = listener.accept()
        self.expect(s, 1, "did not close")
        peer.close()

    def test_input_truncated_under_us(self) -> None:
        for method in ("copy", "sendfile"):
            with self.subTest(method=method):
                source = self.path("in", noise(32 * MIB))
                listener, port = self.raw_listener()
                s = self.connect(port, "--tcp-send", method, stdin=source.open("rb"))
                peer, _ = listener.accept()
                self.assertTrue(peer.recv(1))
                os.truncate(source, 4096)
                while True:
                    try:
                        if not peer.recv(MIB):
                            self.fail("an orderly end for half a file")
                    except ConnectionResetError:
                        break
                self.expect(s, 1, "truncated from")
                peer.close()

    def test_output_truncated_under_us(self) -> None:
        target = self.path("out")
        r, port = self.listen("-n", "16M", stdout=target.open("wb"))
        peer = self.raw_peer(port)
        peer.sendall(b"x" * MIB)
        while target.stat().st_size == 0 or target.read_bytes()[MIB - 1 : MIB] != b"x":
            self.assertIsNone(r.process.poll())
        os.truncate(target, 0)
        try:
            for _ in range(15):
                peer.sendall(b"y" * MIB)
        except ConnectionError:
            pass
        self.expect(r, 1, "truncated by someone else")

    def test_interrupted_sender(self) -> None:
        r, port = self.listen(stdout=self.path("out").open("wb"))
        s = self.connect(port, stdin=PIPE)
        os.write(s.process.stdin.fileno(), b"half a line")
        while self.path("out").read_bytes()[:4] != b"half":
            self.assertIsNone(s.process.poll())
        s.process.send_signal(signal.SIGINT)
        self.expect(s, 1, "interrupted")
        self.expect(r, 1, "the sender failed")
        self.assertEqual(self.path("out").read_bytes(), b"half a line")

    def test_interrupted_receiver(self) -> None:
        for sign in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=sign):
                r, port = self.listen("--json", self.dir / "r.json")
                s = self.connect(port, stdin=PIPE)
                os.write(s.process.stdin.fileno(), b"hello")
                r.process.send_signal(sign)
                r.process.send_signal(sign)
                self.expect(r, 1, "interrupted")
                self.assertEqual(s.wait(), 1, s.said)
                self.assertFalse(self.report("r.json")["ok"])

    def test_interrupted_while_listening_and_while_output_blocks(self) -> None:
        r, _ = self.listen()
        r.process.send_signal(signal.SIGINT)
        self.expect(r, 1, "interrupted")
        r, port = self.listen(stdout=PIPE)  # nobody reads it
        s = self.connect(port, "-n", 8 * MIB)
        self.assertTrue(os.read(r.process.stdout.fileno(), 1))
        r.process.send_signal(signal.SIGINT)
        self.assertEqual(r.process.wait(20), 1)
        self.expect(s, 1, "the peer")

    def test_failed_pattern_leaves_the_file(self) -> None:
        """What arrived in the mapped file is there to be looked at, cut to what was received."""
        data = bytearray(pattern(7, MIB))
        data[100] = 99
        r, port = self.listen("-v", 7, "-n", MIB, stdout=self.path("out").open("wb"))
        s = self.connect(port, stdin=self.path("in", data).open("rb"))
        self.expect(r, 1, "byte 100 ")
        s.wait()
        got = self.path("out").read_bytes()
        self.assertTrue(0 < len(got) <= MIB and bytes(data[: len(got)]) == got)


if __name__ == "__main__":
    main()
