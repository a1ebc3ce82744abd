#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Registers a region when a file is there that says so, and ends.

late_region.py FILE

Prints "ready", then "registers", and at last what came of it.
"""

import sys
import time
from pathlib import Path

import pyverbs.enums as e
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError

BYTES = 1 << 20


def main() -> None:
    print("ready", flush=True)
    while not Path(sys.argv[1]).exists():
        time.sleep(0.01)
    ctx = Context(name="tcpqp0")
    pd = PD(ctx)
    print("registers", flush=True)
    try:
        mr = MR(pd, BYTES, e.IBV_ACCESS_LOCAL_WRITE)
        print("registered", flush=True)
        mr.close()
    except PyverbsError as error:  # also where the device has gone meanwhile
        print(error, flush=True)


main()
