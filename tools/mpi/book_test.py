#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""From what programs print to the rows and bars of mpi.json; and the launch lines of each stack."""

import unittest

from nupampi import book, pairs, programs
from nupampi.launch import Outcome
from nupampi.stacks import BY_NAME, STACKS, rivals

MIB = programs.MIB


def outcome(placed: int = 0, delivered: int = 0, ok: bool = True) -> Outcome:
    return Outcome(ok, "", "" if ok else "status 1", {"rx_placed_bytes": placed, "rx_delivered_bytes": delivered})


def bars(of: book.Book) -> dict[str, tuple[float, bool]]:
    return {bar.what: (bar.value, bar.ok) for bar in book.evaluate(of)}


class Outputs(unittest.TestCase):
    def test_checked(self) -> None:
        out = "pingpong 8 100: 2.1 us\nnoise\nalltoall 1048576 8: 16781.6 us\n"
        self.assertEqual(programs.read_checked(out), [("pingpong", 8, 2.1), ("alltoall", MIB, 16781.6)])

    def test_netpipe(self) -> None:
        line = " 39: 1048576 bytes     10 times -->    413.78 Mbps in   19333.85 usec\n"
        self.assertEqual(programs.read_netpipe(line), [("pingpong", MIB, 19333.85)])
        self.assertEqual(programs.read_netpipe_checked(" 35:  786433 bytes      3 times -->  Integrity check passed\n"), [("integrity", 786433, 0)])
        self.assertEqual(programs.read_netpipe_checked(" 34:  524289 bytes      3 times -->  Integrity check passed\n"), [])

    def test_hpcc(self) -> None:
        self.assertTrue(programs.read_hpcc("... PASSED\nSuccess=1\n"))
        self.assertEqual(programs.read_hpcc("... PASSED\n... FAILED\nSuccess=1\n"), [])
        self.assertEqual(programs.read_hpcc("... PASSED\nSuccess=0\n"), [])

    def test_ucx(self) -> None:
        out = "                         500   2887.000  3336.208  5294.950        0.00       0.00         300         189\n"
        self.assertEqual(pairs.ucx_reader("tag_lat", 8)(out), [("tag_lat", 8, 5294.95)])
        self.assertEqual(pairs.ucx_reader("tag_lat", 8)("UCX  ERROR"), [])

    def test_fabric(self) -> None:
        head = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
        out = f"{head}256k    20      =20      10m         0.41s     25.39   10325.35       0.00\n"
        self.assertEqual(pairs.read_fabric(out), [("pingpong", 256 << 10, 10325.35)])


class Bars(unittest.TestCase):
    def test_beside_the_fastest_tcp(self) -> None:
        of = book.Book()
        for stack, us in (("openmpi-ucx", 10.0), ("openmpi-tcp", 25.0), ("openmpi-ucx-tcp", 15.0), ("mpich-ucx-tcp", 1.0)):
            of.add("checked", stack, 2, outcome(), [("pingpong", MIB, us)])
        self.assertEqual(bars(of)["openmpi-ucx: ping-pong of 1 MiB, TCP's time / ours"], (1.5, False))

    def test_median_of_turns(self) -> None:
        of = book.Book()
        for us in (9.0, 1.0, 2.0):
            of.add("gloo", "gloo-ibverbs", 4, outcome(), [("gloo_ring", MIB, us)])
            of.add("gloo", "gloo-tcp", 4, outcome(), [("gloo_ring", MIB, 2 * us)])
        self.assertEqual(bars(of)["gloo_ring: all-reduce, 4 guests, of 1 MiB, TCP's time / ours"], (2.0, True))

    def test_failed_runs(self) -> None:
        of = book.Book()
        of.add("checked", "mpich-ucx", 2, outcome(ok=False), [])
        of.add("checked", "mpich-ucx", 2, outcome(), [])  # ended well and said nothing
        of.add("checked", "mpich-ucx", 2, outcome(), [("pingpong", 8, 1.0)])
        self.assertEqual(bars(of)["runs that failed or had a wrong value"], (2, False))
        self.assertEqual(len(book.problems(of)), 2)

    def test_placed(self) -> None:
        of = book.Book()
        of.add("checked", "mpich-ucx", 2, outcome(9 * MIB, 10 * MIB), [("pingpong", 8, 1.0)])
        self.assertEqual(bars(of)["mpich-ucx: bytes placed, checked, 2 guests"], (0.9, False))


class Launch(unittest.TestCase):
    def test_every_stack_has_tcp_beside_it(self) -> None:
        for stack in STACKS:
            self.assertTrue(rivals(stack))
            self.assertNotEqual(stack.placed, stack in rivals(stack))

    def test_commands(self) -> None:
        hosts = ["10.77.0.1", "10.77.0.2"]
        line = BY_NAME["openmpi-ucx"].command(hosts, "/rsh", "program")
        for part in ("--host 10.77.0.1,10.77.0.2 -np 2", "--mca plm_rsh_agent /rsh", "-x UCX_NET_DEVICES='tcpqp0:1'", "--mca pml ucx"):
            self.assertIn(part, line)
        self.assertTrue(line.endswith(" program"))
        self.assertIn("-genv UCX_TLS 'rc_verbs,ud_verbs,self'", BY_NAME["mpich-ucx"].command(hosts, "/rsh", "program"))

    def test_who_may_leave_before_the_end(self) -> None:
        self.assertEqual([stack.name for stack in STACKS if "CHECKED_FINALIZE_S" in stack.command(["10.77.0.1"], "/rsh", "program")], ["mpich-ucx-tcp"])

    def test_hpcc_input_has_its_lines(self) -> None:
        self.assertEqual(programs.hpcc_input(4).splitlines()[10:12], ["1", "4"])  # P, Q
        self.assertEqual(len(programs.hpcc_input(4).splitlines()), 36)


unittest.main()
