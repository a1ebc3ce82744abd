# SPDX-License-Identifier: BSD-3-Clause
"""What is on the wire, as an independent reader sees it: the switch's capture, Wireshark and our dissector."""

import shutil
import subprocess

import pytest

from harness.guests import Failed, Guests
from harness.traffic import ncqp
from vm.fabric import NEEDS  # the same guests

from nupavm.paths import REPO

pytestmark = pytest.mark.needs(NEEDS)
FIELDS = ("tcp.len", "tcp_bth.version", "tcp_bth.opcode", "tcp_bth.offset", "tcp_bth.msn", "tcp_bth.flags.rtr")
TOTAL_BYTES = 1 << 20
MESSAGE_BYTES = 100_000


def _capture(t: Guests, engine: str, options: str) -> list[dict[str, str]]:
    """The TCP segments that node 0 received in one transfer."""
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed")
    path = t.cluster.results / f"{engine}.pcap"
    path.unlink(missing_ok=True)
    t.switch("pcap", port="n0", file=str(path))
    try:
        sized = f"--msg-size {MESSAGE_BYTES} -v 251 -n {TOTAL_BYTES} {options}"
        ncqp(t, engine, sized, sized)
    finally:
        t.switch("pcap", port="n0", file=None)
    argv = ["tshark", "-r", str(path), "-X", f"lua_script:{REPO}/tools/dissector/tcp_bth.lua", "-Y", "tcp && ip.dst == 10.77.0.1", "-T", "fields"]
    for name in FIELDS:
        argv += ["-e", name]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    if done.returncode:
        raise Failed(f"tshark: {done.stderr}")
    return [dict(zip(FIELDS, line.split("\t"))) for line in done.stdout.splitlines()]


def _check(t: Guests, segments: list[dict[str, str]], version: str) -> None:
    payload = [s for s in segments if int(s["tcp.len"] or 0) > 0]
    t.check(len(payload) > TOTAL_BYTES // 9000, f"{len(payload)} segments with payload")
    plain = [s for s in payload if not s["tcp_bth.version"]]
    t.check(not plain, f"{len(plain)} of {len(payload)} segments with payload lack the option")
    carried = [s for s in payload if s["tcp_bth.version"] == version]
    # The first message of a connection may be too small or too early for ver 0.
    t.check(len(carried) >= 0.95 * len(payload), f"{len(carried)} of {len(payload)} segments are ver {version}")
    t.check(any(s["tcp_bth.flags.rtr"] in ("1", "True") for s in segments), "nobody said ready to receive")
    highest = max(int(s["tcp_bth.offset"] or 0) + int(s["tcp.len"]) for s in payload)
    t.equal(highest, MESSAGE_BYTES, "end of the longest message, as the dissector counts")
    messages = {s["tcp_bth.msn"] for s in payload}
    t.check(len(messages) >= TOTAL_BYTES // MESSAGE_BYTES, f"message numbers seen: {sorted(messages)}")


def test_offload_sends_ver_0(t: Guests) -> None:
    _check(t, _capture(t, "offload", ""), "0")


def test_software_sends_ver_1(t: Guests) -> None:
    _check(t, _capture(t, "software", ""), "1")


def test_plain_tcp_has_no_option(t: Guests) -> None:
    segments = _capture(t, "tcp", "")
    t.check(not any(s["tcp_bth.version"] for s in segments), "the option on a connection without a queue pair")
