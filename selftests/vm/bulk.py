# SPDX-License-Identifier: BSD-3-Clause
"""1 GiB through loss, reordering and duplicates with each pair of engines, plain TCP beside them."""

from bulk_transfer import PAIRS, transfers
from vmtest import Guests, Needs, long

# source and copy lie in memory
NEEDS = Needs(modules=("tcp_qp", "nupa_dev"), programs=("tools/ncqp/ncqp",), setup="full", mem_mb=3072)
MIB, SEED, LIMIT_S = 1024, 20241122, 900


@long
def test_every_pair(t: Guests) -> None:
    rates = transfers(t, MIB, SEED, LIMIT_S)
    t.equal(set(rates), set(PAIRS), "pairs")
    t.check(rates["offload", "offload"] >= rates["tcp", "tcp"], f"offload is slower than plain TCP under the same faults: {rates}")
