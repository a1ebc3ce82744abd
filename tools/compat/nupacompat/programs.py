# SPDX-License-Identifier: BSD-3-Clause
"""The list: what is run between two guests."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import figures

QPERF_PORT = 19765
PINGPONG_PORT = 47592
ALL_SIZES = "-a -n 5"  # 2 bytes to 8 MiB
ONE_SIZE = "-s 65536 -n 100"
BY_NUMBER = "-d tcpqp0 -x 0"  # perftest without rdma_cm


@dataclass(frozen=True)
class Program:
    """{peer} is the server's address, {port} a port of the run's own."""

    name: str
    server: str
    client: str
    figure: Callable[[str], str]
    port: int = 0  # 0: any; the server listens on it
    server_ends: bool = True  # or it serves until it is killed
    limit_s: float = 90
    short: bool = False  # part of make check

    def complaint(self, listeners: str, client_said: str) -> str:
        """What is wrong though the program is content: of the server's listening sockets as ss shows them, and of the client's standard error."""
        return ""

    def command(self) -> str:
        return self.client.replace("{peer}", "PEER").replace(" -p {port}", "")


def perftest(name: str, options: str, figure: Callable[[str], str], connect: str = "-R", **more) -> Program:
    command = f"{name} {connect} -F --report_gbits {options} -p {{port}}"
    return Program(name, command, f"{command} {{peer}}", figure, **more)


def perftests() -> Iterator[Program]:
    for kind in ("send", "write", "read"):
        yield perftest(f"ib_{kind}_bw", ALL_SIZES, figures.perftest_bw, short=True)
        yield perftest(f"ib_{kind}_lat", ALL_SIZES, figures.perftest_lat)
        yield perftest(f"ib_{kind}_bw", f"-b {ALL_SIZES}", figures.perftest_bw)
        yield perftest(f"ib_{kind}_bw", f"-q 8 {ONE_SIZE}", figures.perftest_bw)
        if kind != "write":  # perftest: "Events feature not available on WRITE verb"
            # -n above -Q (100): with no more than that perftest's iWARP credits hang it (docs/compat.md)
            yield perftest(f"ib_{kind}_bw", "-e -s 65536 -n 200", figures.perftest_bw)
    yield perftest("ib_send_bw", f"--use-srq {ONE_SIZE}", figures.perftest_bw, short=True)
    yield perftest("ib_send_bw", f"--use-srq -q 8 {ONE_SIZE}", figures.perftest_bw)
    yield perftest("ib_send_lat", "-e -s 64 -n 100", figures.perftest_lat)
    yield perftest("ib_read_lat", "-e -s 64 -n 100", figures.perftest_lat)
    for kind in ("FETCH_AND_ADD", "CMP_AND_SWAP"):
        yield perftest("ib_atomic_bw", f"-A {kind} -n 500", figures.perftest_rate, short=True)
        yield perftest("ib_atomic_lat", f"-A {kind} -n 100", figures.perftest_lat)
    yield perftest("ib_atomic_bw", "-b -q 8 -n 100", figures.perftest_rate)


def by_number() -> Iterator[Program]:
    """Without rdma_cm: the programs tell each other {QPN, GID, PSN} over a socket of their own."""
    for kind in ("send", "write", "read", "atomic"):
        sizes, figure = ("-n 500", figures.perftest_rate) if kind == "atomic" else (ALL_SIZES, figures.perftest_bw)
        yield perftest(f"ib_{kind}_bw", sizes, figure, connect=BY_NUMBER, short=kind == "write")
        yield perftest(f"ib_{kind}_lat", "-n 100" if kind == "atomic" else ALL_SIZES, figures.perftest_lat, connect=BY_NUMBER)
        yield perftest(f"ib_{kind}_bw", f"-q 8 {'-n 100' if kind == 'atomic' else ONE_SIZE}", figure, connect=BY_NUMBER)
    yield perftest("ib_write_bw", f"-q 64 {ONE_SIZE}", figures.perftest_bw, connect=BY_NUMBER)
    yield perftest("ib_send_bw", "-e -s 65536 -n 200", figures.perftest_bw, connect=BY_NUMBER)
    yield perftest("ib_send_bw", f"--use-srq -q 8 {ONE_SIZE}", figures.perftest_bw, connect=BY_NUMBER)
    for name, options in (("ibv_rc_pingpong", "-c"), ("ibv_rc_pingpong", "-c -e"), ("ibv_srq_pingpong", "-q 8"), ("ibv_srq_pingpong", "-q 8 -e")):
        command = f"{name} -d tcpqp0 -g 0 {options} -p {{port}}"
        yield Program(name, command, f"{command} {{peer}}", figures.pingpong)


QPERF_TESTS = (
    "rc_bw", "rc_bi_bw", "rc_lat", "rc_rdma_write_bw", "rc_rdma_write_lat", "rc_rdma_write_poll_lat", "rc_rdma_read_bw", "rc_rdma_read_lat",
    "rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap", "ver_rc_fetch_add",
)  # fmt: skip


def qperfs() -> Iterator[Program]:
    for test in QPERF_TESTS:
        figure = figures.verified if test.startswith("ver_") else figures.qperf
        yield Program("qperf", "qperf", f"qperf -cm1 -t 1 {{peer}} {test}", figure, QPERF_PORT, server_ends=False)


def rdma_core() -> Iterator[Program]:
    common = "-p {port} -C 20 -V -v"
    yield Program("rping", f"rping -s {common}", f"rping -c -a {{peer}} {common}", figures.pings, short=True)
    common = "-p {port} -c 4 -C 20 -S 5000"
    yield Program("ucmatose", f"ucmatose {common}", f"ucmatose -s {{peer}} {common}", figures.ended)
    yield Program("rdma_client", "rdma_server -p {port}", "rdma_client -s {peer} -p {port}", figures.ended)
    # not -T a: a client that finds its last data and the end in one poll() takes that for an error (docs/compat.md)
    for options in ("-T b -T v -S 65536 -C 50", "-T n -T v -S 65536 -C 50"):
        yield Program("rstream", f"rstream -p {{port}} {options}", f"rstream -s {{peer}} -p {{port}} {options}", figures.last_row)
    yield Program("riostream", "riostream -p {port} -S 65536 -C 50", "riostream -s {peer} -p {port} -S 65536 -C 50", figures.last_row)
    yield Program("rstream", "rstream -p {port} -S 1000000 -C 20", "rstream -s {peer} -p {port} -S 1000000 -C 20", figures.last_row, short=True)


def libfabric() -> Iterator[Program]:
    for provider, kind in (("verbs", "msg"), ("'verbs;ofi_rxm'", "rdm")):
        command = f"fi_pingpong -p {provider} -e {kind} -c -I 20"
        yield Program("fi_pingpong", command, f"{command} {{peer}}", figures.last_row, PINGPONG_PORT)


def programs() -> list[Program]:
    return [*perftests(), *by_number(), *qperfs(), *rdma_core(), *libfabric()]
