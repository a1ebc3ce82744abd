# SPDX-License-Identifier: BSD-3-Clause
"""24 MiB through loss, reordering and duplicates with each pair of engines, plain TCP beside them."""

from bulk_transfer import PAIRS, transfers
from fabric import NEEDS  # noqa: F401  (the same guests)
from vmtest import Guests

MIB, SEED, LIMIT_S = 24, 20241122, 150


def test_every_pair(t: Guests) -> None:
    rates = transfers(t, MIB, SEED, LIMIT_S)
    t.equal(set(rates), set(PAIRS), "pairs")
