# SPDX-License-Identifier: BSD-3-Clause
"""Bytes arrive, whatever the two ends are made of (engine tcp)."""

import os
import subprocess

from case import MIB, Case, main, noise, pattern

PIPE = subprocess.PIPE


class FileToFile(Case):
    def test_sizes(self) -> None:
        for size in (1, 511, 4096, MIB - 1, MIB, MIB + 1, 16 * MIB, 33 * MIB + 123):
            with self.subTest(size=size):
                data = noise(size, str(size))
                self.assertTrue(self.copy(data) == data)
                for end, path in (("s.json", "sendfile"), ("r.json", "buffers")):
                    self.assertEqual((self.report(end)["bytes"], self.report(end)["data_path"]), (size, path))

    def test_empty(self) -> None:
        self.assertEqual(self.copy(b""), b"")
        self.assertEqual(self.report("r.json")["bytes"], 0)

    def test_receiver_knows_the_size(self) -> None:
        data = noise(3 * MIB + 7)
        self.assertTrue(self.copy(data, receiver=("-n", len(data))) == data)
        self.assertEqual(self.report("r.json")["data_path"], "mapping")

    def test_message_sizes(self) -> None:
        data = noise(5 * MIB + 1)
        for size in ("512", "64K", "3000000", "64M"):
            with self.subTest(msg_size=size):
                args = ("--msg-size", size)
                self.assertTrue(self.copy(data, receiver=args, sender=args) == data)

    def test_copying_sender(self) -> None:
        data = noise(7 * MIB + 5)
        self.assertTrue(self.copy(data, sender=("--tcp-send", "copy")) == data)
        report = self.report("s.json")
        self.assertEqual((report["data_path"], report["copied_bytes"], report["tx_zerocopy_bytes"]), ("mapping", len(data), 0))

    def test_fixed_socket_buffers(self) -> None:
        data = noise(4 * MIB)
        args = ("--sockbuf", "256K")
        self.assertTrue(self.copy(data, receiver=args, sender=args) == data)

    def test_append_keeps_what_was_there(self) -> None:
        target = self.path("log", b"before")
        with self.path("in", b"after").open("rb") as i, target.open("ab") as o:
            r, port = self.listen(stdout=o)
            s = self.connect(port, stdin=i)
        self.expect(s, 0)
        self.expect(r, 0)
        self.assertEqual(target.read_bytes(), b"beforeafter")

    def test_offsets_of_both_files_are_honoured(self) -> None:
        """As in (read header; ncqp; write trailer) with a shared descriptor."""
        source, target = self.path("in", b"x" * 5000 + b"payload"), self.path("out", b"y" * 9000)
        with source.open("rb", buffering=0) as i, target.open("r+b", buffering=0) as o:
            i.seek(5000)
            o.seek(4097)
            r, port = self.listen(stdout=o)
            s = self.connect(port, stdin=i)
            self.expect(s, 0)
            self.expect(r, 0)
            self.assertEqual(i.tell(), 5007)
            self.assertEqual(o.tell(), 4104)
        self.assertEqual(target.read_bytes(), b"y" * 4097 + b"payload" + b"y" * (9000 - 4104))

    def test_output_without_read_permission_is_written(self) -> None:
        user = {"user": 65534, "executable": self.program_for_all()} if os.geteuid() == 0 else {}  # root may read every file
        target = self.path("out", b"")
        target.chmod(0o200)
        with target.open("wb") as o:
            r, port = self.listen(stdout=o, **user)
            s = self.connect(port, "-n", 1000)
            self.expect(s, 0)
            self.expect(r, 0)
        self.assertEqual(target.stat().st_size, 1000)


class Streams(Case):
    def test_pipe_to_pipe(self) -> None:
        data = noise(9 * MIB + 3)
        r, port = self.listen(stdout=PIPE)
        s = self.connect(port, stdin=PIPE)
        feeder = subprocess.Popen(["cat", self.path("in", data)], stdout=s.process.stdin)
        s.process.stdin.close()
        s.process.stdin = None
        got = r.process.stdout.read()
        feeder.wait()
        self.expect(s, 0)
        self.expect(r, 0)
        self.assertTrue(got == data)

    def test_pipe_to_file(self) -> None:
        r, port = self.listen("--json", self.dir / "r.json", stdout=self.path("out").open("wb"))
        s = self.connect(port, stdin=PIPE)
        s.process.stdin.write(b"a line\n")
        s.process.stdin.close()
        self.expect(s, 0)
        self.expect(r, 0)
        self.assertEqual(self.path("out").read_bytes(), b"a line\n")

    def test_interactive(self) -> None:
        """Each line arrives before the next is typed."""
        r, port = self.listen(stdout=PIPE)
        s = self.connect(port, stdin=PIPE)
        for line in (b"one\n", b"two\n", b"three\n"):
            os.write(s.process.stdin.fileno(), line)
            self.assertEqual(os.read(r.process.stdout.fileno(), 100), line)
        s.process.stdin.close()
        self.expect(s, 0)
        self.expect(r, 0)

    def test_listener_may_send(self) -> None:
        data = noise(2 * MIB)
        s, port = self.listen("--send", stdin=self.path("in", data).open("rb"))
        r = self.connect(port, "--receive", stdout=self.path("out").open("wb"))
        self.expect(r, 0)
        self.expect(s, 0)
        self.assertTrue(self.path("out").read_bytes() == data)

    def test_proc_file_is_a_stream(self) -> None:
        r, port = self.listen(stdout=self.path("out").open("wb"))
        s = self.connect(port, stdin=open("/proc/version", "rb"))
        self.expect(s, 0)
        self.expect(r, 0)
        self.assertEqual(self.path("out").read_bytes(), open("/proc/version", "rb").read())


class Patterns(Case):
    def test_generated_traffic_is_the_pattern_of_ncdevmem(self) -> None:
        r, port = self.listen("-v", 7, stdout=self.path("out").open("wb"))
        s = self.connect(port, "-n", 3 * MIB + 11, "-v", 7, "--msg-size", "100000")
        self.expect(s, 0)
        self.expect(r, 0, "pattern verified")
        self.assertTrue(self.path("out").read_bytes() == pattern(7, 3 * MIB + 11))

    def test_pattern_from_a_file_and_to_nowhere(self) -> None:
        for period in (2, 251, 256):
            with self.subTest(period=period), self.path("in", pattern(period, 2 * MIB + 9)).open("rb") as i:
                r, port = self.listen("-v", period, "--json", self.dir / "r.json")
                s = self.connect(port, stdin=i)
                self.expect(s, 0)
                self.expect(r, 0)
                self.assertTrue(self.report("r.json")["validated"])

    def test_one_wrong_byte_fails_both_ends(self) -> None:
        data = bytearray(pattern(13, 2 * MIB))
        data[MIB + 17] ^= 1
        for output in ("/dev/null", self.path("out")):
            with self.subTest(output=output), self.path("in", data).open("rb") as i, open(output, "wb") as o:
                r, port = self.listen("-v", 13, stdout=o)
                s = self.connect(port, stdin=i)
                self.expect(r, 1, "validation failed", f"byte {MIB + 17} ")
                self.expect(s, 1, "the peer")


class Addresses(Case):
    def test_ipv6(self) -> None:
        if not os.path.exists("/proc/net/if_inet6"):
            self.skipTest("no IPv6 here")
        for listener in (("-6",), ("-s", "::1"), ()):
            with self.subTest(listener=listener):
                r = self.end("-l", "-p", 0, *listener, stdout=PIPE)
                s = self.end("-6", "-s", "::1", "-p", r.wait_listening(), "-c", "::1", "-n", 1000)
                self.expect(s, 0)
                self.assertEqual(len(r.process.stdout.read()), 1000)
                self.expect(r, 0)

    def test_one_listener_takes_both_families(self) -> None:
        r = self.end("-l", "-p", 0, "-c", "127.0.0.1")
        s = self.connect(r.wait_listening(), "-n", 10)
        self.expect(s, 0)
        self.expect(r, 0)

    def test_names_and_interface(self) -> None:
        r, port = self.listen("-f", "lo")
        s = self.end("-4", "-s", "localhost", "-p", port, "-f", "lo", "-n", 10)
        self.expect(s, 0)
        self.expect(r, 0)

    def test_only_the_wanted_client(self) -> None:
        r, port = self.listen("-c", "127.0.0.2", stdout=PIPE)
        refused = self.connect(port, "-n", 10)
        self.expect(refused, 1)
        s = self.connect(port, "-c", "127.0.0.2", "-n", 20)
        self.expect(s, 0)
        self.assertEqual(len(r.process.stdout.read()), 20)
        self.expect(r, 0, "refused 127.0.0.1")


if __name__ == "__main__":
    main()
