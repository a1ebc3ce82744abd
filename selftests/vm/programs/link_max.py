#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""link_max.py INTERFACE BYTES: sets gro_ipv4_max_size, which Debian 12's iproute2 does not know."""

import socket
import struct
import sys

RTM_SETLINK, NLM_F_REQUEST, NLM_F_ACK, NLMSG_ERROR = 19, 1, 4, 2
IFLA_GRO_IPV4_MAX_SIZE = 64

interface, size = sys.argv[1], int(sys.argv[2])
body = struct.pack("=BBHiII", socket.AF_UNSPEC, 0, 0, socket.if_nametoindex(interface), 0, 0) + struct.pack("=HHI", 8, IFLA_GRO_IPV4_MAX_SIZE, size)
with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as route:
    route.send(struct.pack("=IHHII", 16 + len(body), RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0) + body)
    kind, error = struct.unpack_from("=4xH10xi", route.recv(4096))
if kind != NLMSG_ERROR or error:
    sys.exit(f"{interface}: gro_ipv4_max_size {size}: error {-error}")
