#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""early_address.py NETDEV ADDRESS DEVICE: the address is there as soon as the RDMA device can be seen, whose registration is not over then.

Prints "ready" when it looks.
"""

import fcntl
import os
import socket
import struct
import sys

SIOCSIFADDR = 0x8916

netdev, address, device = sys.argv[1:]
request = struct.pack("16sHH4s8x", f"{netdev}:1".encode(), socket.AF_INET, 0, socket.inet_aton(address))
seen = f"/sys/class/infiniband/{device}"
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anywhere:
    print("ready", flush=True)
    while not os.path.exists(seen):
        pass
    fcntl.ioctl(anywhere, SIOCSIFADDR, request)
