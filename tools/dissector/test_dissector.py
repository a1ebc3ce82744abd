#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The dissector reads the golden captures as the shared parser does, field by field."""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "golden"
CAPTURES = ("v0", "v1", "acks", "hostile")
LIMIT_S = 60
CHECKSUMS = ("tcp.checksum.status", "ip.checksum.status")
BAD = "0"
FIELDS = (
    "version", "flags", "opcode", "msn", "start_seq", "length", "imm", "ieth", "ext4", "train", "aeth", "mbo", "offset", "segno", "icrc", "tsval", "tsecr",
    "va", "rkey", "dma_length", "error", "mismatch", "last", "payload", "aeth.msn_limit",
    *CHECKSUMS,
)  # fmt: skip


def tshark(*args: str | Path) -> str:
    argv = ["tshark", "-X", f"lua_script:{HERE / 'tcp_bth.lua'}", *map(str, args)]
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True).stdout


def number(text: str) -> int:
    return int(text, 0) if text else 0


class Packet(dict):
    """What tshark says about one packet, by field name."""

    def __init__(self, line: str) -> None:
        super().__init__(zip(FIELDS, line.split("\t")))

    def as_parsed(self, frame: int) -> str:
        """The line that the shared parser gives for it."""
        if self["error"]:
            return f"{frame} {self['error']}"
        if not self["flags"]:
            return f"{frame} NONE"
        n = {name: number(self[name]) for name in FIELDS if name not in ("error", "mismatch", "last", *CHECKSUMS)}
        ext4 = n["imm"] | n["ieth"] | n["ext4"] | n["train"] | n["aeth"]
        dma = n["dma_length"]
        if self["opcode"] in ("0x09", "0x0b"):  # there the last four bytes of RETH are the immediate
            ext4, dma = 0, n["imm"]
        start = n["start_seq"] if self["version"] == "1" or n["payload"] else 0
        mbo = n["mbo"] if self["version"] == "0" else n["offset"]
        return (
            f"{frame} OK ver={n['version']} flags={hex_(n['flags'] & ~3)} op={hex_(n['opcode'])} msn={n['msn']} start={start} len={n['length']} "
            f"ext4={hex_(ext4)} mbo={mbo} segno={n['segno']} icrc={hex_(n['icrc'])} ts={n['tsval']},{n['tsecr']} va={hex_(n['va'])} "
            f"key={hex_(n['rkey'])} dma={hex_(dma)}"
        )


def hex_(value: int) -> str:
    """As printf's %#x."""
    return hex(value) if value else "0"


@functools.cache  # a tshark takes a second to start
def packets(name: str) -> list[Packet]:
    columns = [arg for field in FIELDS for arg in ("-e", field if field in CHECKSUMS else f"tcp_bth.{field}")]
    checked = [arg for protocol in ("tcp", "ip") for arg in ("-o", f"{protocol}.check_checksum:TRUE")]
    return [Packet(line) for line in tshark(*checked, "-r", GOLDEN / f"{name}.pcap", "-T", "fields", *columns).splitlines()]


class Golden(unittest.TestCase):
    def test_captures_are_what_the_shared_header_builds(self) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run([os.environ["TCP_BTH_GOLDEN"], scratch], check=True, timeout=LIMIT_S)
            for name in CAPTURES:
                for suffix in ("pcap", "parse"):
                    with self.subTest(file=f"{name}.{suffix}"):
                        self.assertTrue((Path(scratch) / f"{name}.{suffix}").read_bytes() == (GOLDEN / f"{name}.{suffix}").read_bytes())


class Opcodes(unittest.TestCase):
    def test_tables_are_the_shared_headers(self) -> None:
        """`tcp_bth_golden --opcodes` makes them; this file is one piece, so that it can be copied into Wireshark's folder."""
        made = subprocess.run([os.environ["TCP_BTH_GOLDEN"], "--opcodes"], stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True).stdout
        here = (HERE / "tcp_bth.lua").read_text()
        self.assertEqual(here.split("-- opcodes: begin\n")[1].split("-- opcodes: end\n")[0], made)


class Dissector(unittest.TestCase):
    def test_every_field_as_the_shared_parser(self) -> None:
        for name in CAPTURES:
            expected = (GOLDEN / f"{name}.parse").read_text().splitlines()
            got = [p.as_parsed(i + 1) for i, p in enumerate(packets(name))]
            with self.subTest(capture=name):
                self.assertEqual(got, expected)

    def test_mismatch_is_marked_where_it_is(self) -> None:
        marked = {name: [i + 1 for i, p in enumerate(packets(name)) if p["mismatch"] not in ("", "0")] for name in CAPTURES}
        self.assertEqual(marked, {"v0": [], "v1": [], "acks": [], "hostile": [13, 15]})

    def test_last_segment_of_a_message(self) -> None:
        self.assertEqual([i + 1 for i, p in enumerate(packets("v1")) if p["last"] == "1"], [*range(4, 15), 16, 18, 19, 21, 22, 24])
        self.assertEqual([i + 1 for i, p in enumerate(packets("v0")) if p["last"] == "1"], [3, 6, 9, 10])

    def test_credits(self) -> None:
        self.assertEqual([p["aeth.msn_limit"] for p in packets("acks")], ["16", "16", "16", ""])

    def test_second_pass_says_the_same(self) -> None:
        """Wireshark dissects packets again and again; two passes here."""
        columns = ("-T", "fields", "-e", "frame.number", "-e", "tcp_bth.mismatch", "-e", "tcp_bth.error")
        path = GOLDEN / "hostile.pcap"
        self.assertEqual(tshark("-2", "-r", path, *columns), tshark("-r", path, *columns))

    def test_payload_is_ours(self) -> None:
        shown = tshark("-r", GOLDEN / "v1.pcap", "-Y", "tcp_qp", "-T", "fields", "-e", "frame.number", "-e", "_ws.col.Protocol", "-e", "tcp_bth.data")
        first = shown.splitlines()[0].split("\t")
        self.assertEqual(first[:2], ["1", "TCP-QP"])
        self.assertTrue(first[2].replace(":", "").startswith("6162636465"))

    def test_expert_information(self) -> None:
        frames = tshark("-r", GOLDEN / "hostile.pcap", "-Y", "tcp_bth.expert.refused", "-T", "fields", "-e", "frame.number").split()
        self.assertEqual(frames, ["2", "3", "5", "6", "7", "8", "9", "10", "11", "16", "17", "18", "19", "20", "21", "22"])
        frames = tshark("-r", GOLDEN / "hostile.pcap", "-Y", "tcp_bth.expert.mismatch", "-T", "fields", "-e", "frame.number").split()
        self.assertEqual(frames, ["13", "15"])

    def test_checksums_are_good(self) -> None:
        """The captures are packets that a receiver would take."""
        for name in CAPTURES:
            bad = [i + 1 for i, p in enumerate(packets(name)) if BAD in (p[CHECKSUMS[0]], p[CHECKSUMS[1]])]
            self.assertEqual(bad, [], name)


if __name__ == "__main__":
    if not shutil.which("tshark"):
        print("skip: tshark is not installed")
        sys.exit(77)
    unittest.main(verbosity=2)
