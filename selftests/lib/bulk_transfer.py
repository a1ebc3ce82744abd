# SPDX-License-Identifier: BSD-3-Clause
"""One large file over a bad path with each pair of engines and, beside them, plain TCP: the same bytes, and how fast."""

from pairs import fabric
from traffic import ncqp
from vmtest import Guests

PAIRS = (("tcp", "tcp"), ("offload", "offload"), ("software", "software"), ("offload", "software"), ("software", "offload"))
FAULTS = {"loss": 0.01, "reorder": 0.05, "reorder_packets": 3, "duplicate": 0.01}
SOURCE, COPY = "/mnt/t/bulk.in", "/mnt/t/bulk.out"
MIB = 1 << 20
COUNTED = ("fault_loss", "fault_reorder", "fault_duplicate")


def make_source(t: Guests, mib: int, limit_s: float) -> str:
    """Random bytes on node 1; their SHA-256."""
    t.run(1, f"head -c {mib}M /dev/urandom >{SOURCE}", limit_s)
    return t.run(1, f"sha256sum <{SOURCE}", limit_s)


def _one(t: Guests, mib: int, pair: tuple[str, str], seed: int, limit_s: float) -> tuple[dict, dict]:
    # what TCP learnt from the run before must not help or hurt this one
    t.cluster.run_all("ip tcp_metrics flush", check=True)
    before = [t.switch_stats(node) for node in (0, 1)]
    with fabric(t, seed=seed, **FAULTS):
        tx, rx = ncqp(t, pair[0], f"<{SOURCE}", f"-n {mib * MIB} >{COPY}", engines=pair, limit_s=limit_s)
    after = [t.switch_stats(node) for node in (0, 1)]
    for name in COUNTED:
        t.check(any(a[name] > b[name] for a, b in zip(after, before)), f"{pair}: {name} stayed 0: no test of it")
    return tx, rx


def transfers(t: Guests, mib: int, seed: int, limit_s: float) -> dict[tuple[str, str], float]:
    """Gb/s at the sender for each pair of (sender, receiver)."""
    rates = {}
    digest = make_source(t, mib, limit_s)
    for pair in PAIRS:
        tx, rx = _one(t, mib, pair, seed, limit_s)
        t.equal(t.run(0, f"sha256sum <{COPY}; rm {COPY}", limit_s), digest, f"{pair}: SHA-256")
        t.equal((tx["engine"], rx["engine"]), pair, "engines")
        rates[pair] = tx["gbps"]
        print(f"# bulk: {mib} MiB {pair[0]} -> {pair[1]}: {tx['gbps']:.3f} Gb/s, {tx['seconds']:.2f} s, {tx['retrans']} retransmitted", flush=True)
    t.cluster.run_all(f"rm -f {SOURCE} {COPY}")
    return rates
