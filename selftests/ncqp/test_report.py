# SPDX-License-Identifier: BSD-3-Clause
"""The JSON object, and what is said where."""

import os
import pty
import re
import subprocess
from pathlib import Path

from case import MIB, Case, main, noise

FIELDS = {
    "role": str, "engine": str, "requested_engine": str, "reason": str, "bytes": int, "seconds": float, "gbps": float, "cpu_s": float,
    "process_cpu_s": float, "placed_bytes": int, "copied_bytes": int, "delivered_bytes": int, "tx_zerocopy_bytes": int, "segments": int,
    "retrans": int, "mss": int, "wire_version": (int, type(None)), "messages": int, "msg_size": int, "depth": int, "data_path": str,
    "setup_s": float, "setup_cpu_s": float, "validated": bool, "ok": bool, "error": str,
}  # fmt: skip


class Json(Case):
    def check_schema(self, report: dict) -> None:
        self.assertEqual(set(report), set(FIELDS))
        for name, kind in FIELDS.items():
            self.assertIsInstance(report[name], kind, name)

    def test_both_ends_agree(self) -> None:
        size = 8 * MIB + 1
        self.copy(noise(size))
        s, r = self.report("s.json"), self.report("r.json")
        for report in (s, r):
            self.check_schema(report)
            self.assertTrue(report["ok"])
            self.assertEqual((report["error"], report["reason"], report["engine"], report["bytes"]), ("", "NONE", "tcp", size))
            self.assertGreater(report["seconds"], 0)
            self.assertAlmostEqual(report["gbps"], size * 8 / report["seconds"] / 1e9, places=6)
            self.assertGreater(report["segments"], 0)
            self.assertGreater(report["mss"], 500)
            self.assertGreaterEqual(report["cpu_s"], 0)
            self.assertGreater(report["process_cpu_s"], 0)
            self.assertLess(report["process_cpu_s"], 60)
            self.assertIsNone(report["wire_version"])
        self.assertEqual((s["role"], r["role"]), ("sender", "receiver"))
        self.assertEqual(s["messages"], 9)
        self.assertEqual((r["copied_bytes"], r["delivered_bytes"], r["placed_bytes"]), (size, size, 0))

    def test_a_failure_is_a_whole_object_too(self) -> None:
        end = self.end("-l", "-p", 0, "--timeout", "0.1", "--json", self.dir / "f.json")
        self.expect(end, 1)
        report = self.report("f.json")
        self.check_schema(report)
        self.assertFalse(report["ok"])
        self.assertIn("timed out", report["error"])

    def test_text_that_is_no_utf8(self) -> None:
        options = [b"--engine", b"tcp", b"-s", b"\xff\xfe", b"-p", b"1", b"-n", b"1", b"--json", os.fsencode(self.dir / "f.json")]
        argv = [os.environ.get("NCQP", "ncqp").encode(), *options]
        self.assertEqual(subprocess.run(argv, stderr=subprocess.DEVNULL).returncode, 1)
        self.check_schema(self.report("f.json"))


class Documents(Case):
    def test_reasons_are_those_of_the_header(self) -> None:
        repo = Path(__file__).resolve().parents[2]
        reasons = re.findall(r'X\((\w+), "([^"]+)"\)', (repo / "include/tcp_qp/tcp_qp.h").read_text())
        rows = [line for line in (repo / "docs/reasons.md").read_text().splitlines() if re.match(r"\| \d", line)]
        self.assertGreater(len(reasons), 5)
        self.assertEqual([row.split(" | ")[:3] for row in rows], [[f"| {i}", name, text] for i, (name, text) in enumerate(reasons)])

    def test_fields_are_documented(self) -> None:
        text = (Path(__file__).resolve().parents[2] / "docs/ncqp.md").read_text()
        self.assertEqual([name for name in FIELDS if f"`{name}`" not in text], [])


class Talk(Case):
    def test_payload_on_stdout_talk_on_stderr(self) -> None:
        r, port = self.listen(stdout=subprocess.PIPE)
        s = self.connect(port, "-n", 100)
        self.assertEqual(len(r.process.stdout.read()), 100)
        self.expect(s, 0, "sent 100 bytes")
        self.expect(r, 0, "received 100 bytes")

    def test_quiet_says_nothing(self) -> None:
        r = self.end("-q", "-l", "-p", 0, "--timeout", "0.1")
        r.wait()
        self.assertNotIn("listening", r.said)
        r, port = self.listen()
        s = self.connect(port, "-q", "-n", 100)
        self.expect(s, 0)
        self.assertEqual(s.said, "")
        self.expect(r, 0)

    def test_progress_only_on_a_terminal(self) -> None:
        """A pipe fed for longer than the progress interval, once each way."""
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        r, port = self.listen()
        s = subprocess.Popen([os.environ.get("NCQP", "ncqp"), "--engine", "tcp", "-s", "127.0.0.1", "-p", str(port)], stdin=subprocess.PIPE, stderr=slave)
        os.close(slave)
        seen = b""
        while b"MiB/s" not in seen:
            s.stdin.write(b"x" * 65536)
            s.stdin.flush()
            os.set_blocking(master, False)
            try:
                seen += os.read(master, 4096)
            except BlockingIOError:
                pass
        s.stdin.close()
        self.assertEqual(s.wait(20), 0)
        self.expect(r, 0)
        self.assertNotIn("MiB/s", r.said)


if __name__ == "__main__":
    main()
