# SPDX-License-Identifier: BSD-3-Clause
"""Long transfers: 1 GiB through loss, reordering and duplicates with each pair of engines, beside plain TCP; and none that waits for nothing."""

import pytest

from harness.guests import Guests
from harness.needs import Needs
from harness.pairs import fabric
from harness.traffic import ncqp

# source and copy lie in memory
NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("tools/ncqp/ncqp",), setup="full", mem_mb=2560)
pytestmark = pytest.mark.needs(NEEDS)
MIB, SEED, LIMIT_S = 1024, 20241122, 900
PAIRS = (("tcp", "tcp"), ("offload", "offload"), ("software", "software"), ("offload", "software"), ("software", "offload"))
FAULTS = {"loss": 0.01, "reorder": 0.05, "reorder_packets": 3, "duplicate": 0.01}
SOURCE, COPY = "/mnt/t/bulk.in", "/mnt/t/bulk.out"
COPIES, COPIED_MIB, PROBES_MAX = 3, 512, 2
COUNTED = ("fault_loss", "fault_reorder", "fault_duplicate")


def _one(t: Guests, pair: tuple[str, str]) -> tuple[dict, dict]:
    # what TCP learnt from the run before must not help or hurt this one
    t.cluster.run_all("ip tcp_metrics flush", check=True)
    before = [t.switch_stats(node) for node in (0, 1)]
    with fabric(t, seed=SEED, **FAULTS):
        tx, rx = ncqp(t, pair[0], f"<{SOURCE}", f"-n {MIB << 20} >{COPY}", engines=pair, limit_s=LIMIT_S)
    after = [t.switch_stats(node) for node in (0, 1)]
    for name in COUNTED:
        t.check(any(a[name] > b[name] for a, b in zip(after, before)), f"{pair}: {name} stayed 0: no test of it")
    return tx, rx


@pytest.mark.long
def test_every_pair(t: Guests) -> None:
    rates = {}
    t.run(1, f"head -c {MIB}M /dev/urandom >{SOURCE}", LIMIT_S)
    digest = t.run(1, f"sha256sum <{SOURCE}", LIMIT_S)
    for pair in PAIRS:
        tx, rx = _one(t, pair)
        t.equal(t.run(0, f"sha256sum <{COPY}; rm {COPY}", LIMIT_S), digest, f"{pair}: SHA-256")
        t.equal((tx["engine"], rx["engine"]), pair, "engines")
        rates[pair] = tx["gbps"]
        print(f"# bulk: {MIB} MiB {pair[0]} -> {pair[1]}: {tx['gbps']:.3f} Gb/s, {tx['seconds']:.2f} s, {tx['retrans']} retransmitted", flush=True)
    t.cluster.run_all(f"rm -f {SOURCE} {COPY}")
    t.equal(set(rates), set(PAIRS), "pairs")
    t.check(rates["offload", "offload"] >= rates["tcp", "tcp"], f"offload is slower than plain TCP under the same faults: {rates}")


def _window_probes(t: Guests) -> int:
    return t.nstat(1, "TcpExtTCPWinProbe")


@pytest.mark.long
def test_window_opens_again(t: Guests) -> None:
    """
    A receiver that copies is locked for long, and what comes meanwhile waits in the backlog and closes the window.  Once it is
    received nobody reads: the window is told all the same, and the sender does not find out by its probes, 0.2 s later and more.
    """
    t.run(1, f"head -c {COPIED_MIB}M /dev/zero >{SOURCE}")
    before = _window_probes(t)
    for _ in range(COPIES):
        ncqp(t, "software", f"--depth 64 <{SOURCE}", f"--depth 64 >{COPY}")
        t.run(0, f"rm {COPY}")
    probes = _window_probes(t) - before
    t.run(1, f"rm {SOURCE}")
    t.check(probes <= PROBES_MAX, f"{probes} probes of a closed window in {COPIES} transfers")
