# SPDX-License-Identifier: BSD-3-Clause
"""Shells in the guests on the caller's terminal, one at a time."""

import os
import select
import shlex
import socket
import sys
import termios
import time
import tty
from pathlib import Path
from typing import TYPE_CHECKING

from .paths import BUILD, SetupError

if TYPE_CHECKING:
    from .cluster import Cluster

ESCAPE = 0x1D  # Ctrl-]
# The host's own profile may take minutes under TCG.
TOOLS = "NCQP=$BUILD/cmake/tools/ncqp/ncqp STAT=$BUILD/cmake/tools/tcpqp_stat/tcpqp-stat"
SHELL = rf"{TOOLS} PS1='\h:\w\$ ' setsid -c bash --noprofile --norc -i </dev/hvc0 >/dev/hvc0 2>&1"
FOREVER_S = 7 * 24 * 3600
# The second shell starts what the first has to wait for; each line works as it stands.
GREETING = """
Two machines on a NUPA switch, 10.77.0.1 (node0) and 10.77.0.2 (node1).  Three things to try, as root of both:

  ping -c 3 $PEER                                             # the network that the switch makes
  node0# $NCQP -l -p 5000 >/mnt/t/copy                        # then Ctrl-] 1, and there
  node1# $NCQP -s $PEER -p 5000 </bin/bash                    # a file through a queue pair; it says by which engine
  node0# $NCQP -q -l -p 5001 >/dev/null &                     # bytes without an end, and who places them:
  node1# $NCQP -q -s $PEER -p 5001 </dev/zero & sleep 1; $STAT; rdma statistic show link tcpqp0/1
"""
# For another terminal of the host: no guest reaches that socket.
SWITCH_GREETING = """
The switch, from another terminal of this machine:

  CONTROL={control}; {nupactl} --control $CONTROL top    # or ports, stats, faults n0 --loss 1%
"""
KEYS = """
Ctrl-] and a digit: that node's shell; Ctrl-] q: end.
"""


def switch_greeting(control: Path) -> str:
    return SWITCH_GREETING.format(control=control, nupactl=shlex.quote(str(BUILD / "cmake/tools/nupa_switch/nupactl/nupactl")))


def attach(sockets: list[Path], cluster: "Cluster") -> None:
    """Runs until the user asks for the end (Ctrl-] q) or a guest dies."""
    if not sys.stdin.isatty():
        raise SetupError("--interactive needs a terminal")
    links = []
    for path in sockets:
        link = socket.socket(socket.AF_UNIX)
        link.connect(str(path))
        links.append(link)
    rows, columns = os.get_terminal_size().lines, os.get_terminal_size().columns
    for node in cluster.node:
        node.start(f"stty -F /dev/hvc0 rows {rows} cols {columns}; while :; do {SHELL}; done", FOREVER_S, "shell")
    print(GREETING + (switch_greeting(cluster.switch.control) if cluster.switch else "") + KEYS, file=sys.stderr, flush=True)
    cluster.deadline = time.monotonic() + FOREVER_S
    saved = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        _pump(links, cluster)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)
        for link in links:
            link.close()


def _pump(links: list[socket.socket], cluster: "Cluster") -> None:
    current, escaped = 0, False
    links[0].sendall(b"\n")
    while all(node.process.poll() is None for node in cluster.node):
        readable, _, _ = select.select([sys.stdin, *links], [], [], 0.5)
        for link in links:
            if link in readable:
                data = link.recv(65536)
                if link is links[current]:
                    os.write(1, data)
        if sys.stdin not in readable:
            continue
        for byte in os.read(0, 4096):
            if escaped:
                escaped = False
                if byte == ord("q"):
                    return
                if 0 <= byte - ord("0") < len(links):
                    current = byte - ord("0")
                    os.write(1, f"\r\n[node{current}]\r\n".encode())
                    links[current].sendall(b"\n")
            elif byte == ESCAPE:
                escaped = True
            else:
                links[current].sendall(bytes([byte]))
