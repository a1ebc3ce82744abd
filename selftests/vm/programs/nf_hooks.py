# SPDX-License-Identifier: BSD-3-Clause
"""Prints as JSON the modules and functions that have netfilter hooks for packets to this host, as `nft list hooks` does."""

import json
import socket
import struct

NETLINK_NETFILTER = 12
HOOK_GET = 12 << 8  # NFNL_SUBSYS_HOOK, NFNL_MSG_HOOK_GET
REQUEST_DUMP = 0x301
ERROR, DONE = 2, 3
LOCAL_IN = 1
HOOKNUM, FUNCTION, MODULE = 1, 4, 5


def attributes(data: bytes):
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind & 0x3FFF, data[4:length]
        data = data[length + 3 & ~3 :]


def hooks(family: int) -> list[str]:
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    body = struct.pack("=BBH", family, 0, 0) + struct.pack("=HH", 8, HOOKNUM) + struct.pack("!I", LOCAL_IN)
    link.send(struct.pack("=IHHII", 16 + len(body), HOOK_GET, REQUEST_DUMP, 1, 0) + body)
    found = []
    while True:
        data = link.recv(65536)
        while data:
            length, kind = struct.unpack_from("=IH", data)
            if kind == DONE:
                return found
            if kind == ERROR:
                error = -struct.unpack_from("=i", data, 16)[0]
                if error == 2:  # ENOENT: no hook at all
                    return found
                raise OSError(error, "NFNL_MSG_HOOK_GET")
            names = {k: v.rstrip(b"\0").decode() for k, v in attributes(data[20:length]) if k in (FUNCTION, MODULE)}
            found.append(f"{names.get(MODULE, '')}:{names.get(FUNCTION, '')}")
            data = data[length + 3 & ~3 :]


print(json.dumps(hooks(socket.AF_INET) + hooks(socket.AF_INET6)))
