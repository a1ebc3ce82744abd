#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The arithmetic between nupa_bench's output and bench.json's bars."""

import argparse
import contextlib
import importlib.util
import io
import json
import os
import subprocess
import tempfile
import unittest
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from pathlib import Path

from nupabench import bars, bystander, cases, cxl, devmem, direct, engine, gpu, report, socket_programs, sockets
from nupabench import latency as latencies
from nupabench.cases import MIB, Case
from nupabench.figures import Book, figures

REPO = Path(__file__).resolve().parents[1]


def end(messages: int, busy: int, **more) -> dict:
    counters = {"busy_ns": busy, "interrupts": 2 * messages, "doorbells": messages, "rx_completions": 3 * messages, "calls": 5 * messages}
    return {"messages": messages, "payload": messages * MIB, "phase_ns": 1_000_000, "passive": False, "copied": 0, "counters": counters, **more}


def result(messages: int, tx: int, rx: int, **more) -> dict:
    return {"ok": True, "tx": end(messages, tx, **more), "rx": end(messages, rx)}


def book_of(*entries: tuple[Case, dict]) -> Book:
    book = Book()
    for case, one in entries:
        book.add(case, one)
    return book


class Figures(unittest.TestCase):
    def test_counted(self) -> None:
        got = figures(Case("tcp").counted(4), result(4, 8 * MIB, 2 * MIB))
        self.assertAlmostEqual(got["tx_instructions_per_byte"], 2)
        self.assertAlmostEqual(got["rx_instructions_per_byte"], 0.5)
        self.assertAlmostEqual(got["rx_interrupts_per_mib"], 2)
        self.assertAlmostEqual(got["rx_packets_per_mib"], 3)
        self.assertNotIn("gbps", got)

    def test_timed(self) -> None:
        got = figures(Case("tcp"), result(4, 1, 1))
        self.assertAlmostEqual(got["gbps"], 4 * MIB * 8 / 1e-3 / 1e9)
        self.assertNotIn("tx_instructions_per_byte", got)

    def test_passive_receiver_has_the_senders_time(self) -> None:
        one = result(4, 1, 1)
        one["rx"] |= {"passive": True, "phase_ns": 1}
        self.assertAlmostEqual(figures(Case("rxe_write"), one)["gbps"], 4 * MIB * 8 / 1e-3 / 1e9)

    def test_round_trip_carries_bytes_both_ways(self) -> None:
        got = figures(replace(Case("tcp", mode="pingpong"), clock="icount"), result(4, 8 * MIB, 8 * MIB))
        self.assertAlmostEqual(got["tx_instructions_per_byte"], 1)

    def test_calls_never_mix_with_instructions(self) -> None:
        (case,) = cases.call_counts([Case("tcp").counted(4)])
        self.assertEqual(figures(case, result(4, 1, 1)), {"tx_calls_per_mib": 5, "rx_calls_per_mib": 5})


class Bars(unittest.TestCase):
    def value(self, book: Book, start: str) -> bars.Bar:
        return next(bar for bar in bars.evaluate(book) if bar.what.startswith(start))

    def test_ratio_of_medians(self) -> None:
        tcp, ours = Case("tcp").counted(1), Case("offload").counted(1)
        book = book_of(*((tcp, result(1, MIB, busy)) for busy in (100, 400, 200)), *((ours, result(1, MIB, busy)) for busy in (9, 10, 500)))
        bar = self.value(book, "1 MiB: receive instructions per byte, offload / TCP, BIG")
        self.assertAlmostEqual(bar.value, 10 / 200)
        self.assertTrue(bar.ok)
        self.assertFalse(self.value(book_of((tcp, result(1, 1, 100)), (ours, result(1, 1, 6))), "1 MiB: receive").ok)

    def test_burst_rows_are_not_mixed(self) -> None:
        book = book_of((Case("tcp", big=False).counted(1), result(1, 1, 100)), (Case("offload").counted(1), result(1, 1, 1)))
        self.assertIsNone(self.value(book, "1 MiB: receive instructions per byte, offload / TCP, 64 KB").value)
        self.assertIsNone(self.value(book, "1 MiB: receive instructions per byte, offload / TCP, BIG").value)

    def test_long_buffers_stand_beside_short_ones(self) -> None:
        long, short = Case("tcp").counted(1), Case("tcp", short=True).counted(1)
        bar = self.value(book_of((short, result(1, 1, 100)), (long, result(1, 1, 50))), "1 MiB: receive instructions per byte, TCP")
        self.assertAlmostEqual(bar.value, 0.5)
        self.assertIsNone(self.value(book_of((short, result(1, 1, 100))), "1 MiB: receive instructions per byte, offload / TCP, BIG").value)

    def test_middle_sizes_stand_beside_the_best_of_tcp(self) -> None:
        slow, fast, ours = (Case(name, bytes=4096) for name in ("tcp", "zerocopy", "offload"))
        book = book_of((slow, result(1, 1, 1)), (fast, result(4, 1, 1)), (ours, result(6, 1, 1)))
        bar = self.value(book, "4 KiB: throughput")
        self.assertAlmostEqual(bar.value, 1.5)
        self.assertFalse(bar.ok)
        counted = Case("offload", bytes=4096, scattered=True).counted(2)
        bar = self.value(book_of((counted, result(2, 3600, 2))), "4 KiB, scattered: instructions, send")
        self.assertTrue(bar.ok)
        self.assertAlmostEqual(bar.value, 1800)

    def test_a_round_trip_costs_both_ends(self) -> None:
        tcp, ours = (Case(name, bytes=64, mode="pingpong") for name in ("tcp", "offload"))
        book = book_of((tcp.counted(1), result(1, 60, 40)), (ours.counted(1), result(1, 50, 46)), (ours, result(1, 1, 1)))
        bar = self.value(book, "64 B: round trip, instructions")
        self.assertAlmostEqual(bar.value, 0.96)
        self.assertFalse(bar.ok)

    def test_lossy_rows_stand_beside_the_best_of_tcp(self) -> None:
        def sent_again(count: int) -> dict:
            segments = {"tcp_segments": 1000, "tcp_segments_again": count}
            return {"ok": True, "tx": {"phase_ns": 1, "counters": segments}, "rx": {"phase_ns": 1, "passive": True, "messages": 1, "payload": 1}}

        slow, fast, ours = (Case(name, loss=max(cases.LOSSES)) for name in ("tcp", "zerocopy", "offload"))
        book = book_of((slow, sent_again(10)), (fast, sent_again(10)), (ours, sent_again(9)), (ours, sent_again(12)), (ours, sent_again(15)))
        found = {bar.what: bar.value for bar in bars.lossy(book) if bar.value is not None}
        self.assertEqual([round(value, 6) for value in found.values()], [1, 1.2], found)
        self.assertEqual(book.find("tx_sent_again_percent", transport="offload", loss=max(cases.LOSSES)), 1.2)

    def test_unmeasured_never_holds(self) -> None:
        for bar in bars.evaluate(Book()):
            self.assertFalse(bar.ok, bar)

    def test_failed_turns_do_not_count(self) -> None:
        book = book_of((Case("tcp"), {"ok": False, "problem": "x"}))
        self.assertIsNone(book.find("gbps", transport="tcp"))
        self.assertEqual(book.json()[0]["problems"], ["x"])

    def test_a_failed_case_is_a_bar_that_does_not_hold(self) -> None:
        tcp, ours = Case("tcp").counted(1), Case("offload").counted(1)
        failed = {"ok": False, "problem": "x"}
        judged = bars.judged(book_of((tcp, result(1, 1, 100)), (ours, failed)))
        self.assertIn("1 MiB: receive instructions per byte, offload / TCP, BIG TCP", [bar.what for bar in judged])
        self.assertTrue(all(bar.value is None and not bar.ok for bar in judged), judged)
        self.assertEqual(bars.judged(book_of((tcp, result(1, 1, 100)))), [])  # what was not run is no bar
        one_turn = bars.judged(book_of((tcp, result(1, 1, 100)), (ours, failed), (ours, result(1, 1, 1))))
        self.assertTrue(all(bar.value is not None for bar in one_turn), one_turn)

    def test_engine(self) -> None:
        book = Book()
        for name, ns in {"copies/memcpy/16384": 90, "place/contiguous/16384": 100, "copies/memcpy/65536": 95, "place/contiguous/65536": 100,
                         "place/contiguous/64": 121, "flow_find/10": 10, "flow_find/100000": 15}.items():  # fmt: skip
            book.more.append({"engine": name, "ns": ns})
        self.assertEqual([bar.ok for bar in bars.native(book)], [True, False, True])

    def test_idle_is_the_worst(self) -> None:
        book = Book()
        book.more += [{"idle": "guest", "wakeups_per_s": 0.2, "kernel_alone_per_s": 0}, {"idle": "switch", "wakeups_per_s": 3, "kernel_alone_per_s": 1}]
        self.assertEqual([(bar.value, bar.ok) for bar in bars.idle(book)], [(2, False)])

    def test_bystander_is_with_over_without(self) -> None:
        book = Book()
        book.more.append(bystander.row("x", without=[100, 110, 90], loaded=[101.5, 300, 100]))
        (bar,) = bars.bystander(book)
        self.assertAlmostEqual(bar.value, 1.015)
        self.assertFalse(bar.ok)
        self.assertEqual(book.more[0]["spread_without"], 0.2)
        self.assertEqual(bars.bystander(Book()), [])

    def test_ten_thousand_means_ten_thousand(self) -> None:
        book = Book()
        book.more += [{"qps": n, "messages_per_s": 100, "kernel_kib_per_qp": 1} for n in (10, 1000)]
        self.assertEqual([bar.value for bar in bars.many(book)], [None, None])


class Run(unittest.TestCase):
    def status(self, one: dict) -> tuple[int, str]:
        """Of `bench/run --only wall` with this measurement, and what it printed to stderr."""
        loader = SourceFileLoader("bench_run", str(REPO / "bench/run"))
        run = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(run)
        run.stages = lambda _args, book, _about: {"wall": lambda: book.add(Case("tcp"), one)}
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            run.REPO, run.TARGET = Path(scratch), Path(scratch) / "bench.json"
            return run.run(argparse.Namespace(only=["wall"], quick=True)), said.getvalue()

    def test_a_failed_measurement_fails_the_run(self) -> None:
        self.assertEqual(self.status(result(1, 1, 1)), (0, ""))
        status, said = self.status({"ok": False, "problem": "no answer: status 1"})
        self.assertEqual(status, 1)
        self.assertIn("no answer: status 1", said)


class Report(unittest.TestCase):
    def test_exact_shape(self) -> None:
        book = book_of((Case("tcp"), result(1, 1, 1)), (Case("tcp", mode="pingpong", bytes=64), result(1, 1, 1, rtt_ns={"p50": 1, "p99": 2, "p999": 3})))
        book.more.append({"engine": "x", "ns": 1})
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "bench.json"
            report.write(path, REPO, "k", "tcg", "make bench", book.json(), bars.evaluate(book))
            got = json.loads(path.read_text())
        self.assertEqual(list(got), ["commit", "kernel", "command", "machine", "rows", "bars"])
        self.assertTrue(got["bars"])
        for bar in got["bars"]:
            self.assertEqual(list(bar), ["name", "value", "bound", "ok"])
        self.assertEqual(len(got["rows"]), 3)
        for table in (report.stream_table, report.latency_table, report.other_table):
            self.assertTrue(table(book))

    def test_engine_rows(self) -> None:
        runs = [{"run_type": "iteration", "run_name": "a", "cpu_time": t, "bytes_per_second": 1e9} for t in (3, 1, 2)]
        (row,) = engine.rows({"benchmarks": [*runs, {"run_type": "aggregate", "run_name": "a", "cpu_time": 9}]})
        self.assertEqual((row["engine"], row["n"], row["ns"], row["ns_min"], row["ns_max"]), ("a", 3, 2, 1, 3))

    def test_engine_that_failed_has_no_figure(self) -> None:
        with self.assertRaises(RuntimeError):
            engine.rows({"benchmarks": [{"run_type": "iteration", "run_name": "a", "name": "a", "cpu_time": 0, "error_occurred": True}]})


class Sockets(unittest.TestCase):
    def test_counts_are_ratios_of_medians(self) -> None:
        one = sockets.Count(sockets.counted_cases()[0])
        for tx in (8, 9, 100):
            one.add(sockets.PLAIN, result(4, tx * MIB, MIB))
        for tx in (1, 3, 4):
            one.add(sockets.ULP, result(4, tx * MIB, 2 * MIB))
        send, receive = one.bars()
        self.assertAlmostEqual(send.value, 3 / 9)
        self.assertTrue(send.ok)
        self.assertAlmostEqual(receive.value, 2)
        self.assertFalse(receive.ok)

    def test_round_trip_is_of_a_whole_guest(self) -> None:
        one = sockets.Count(sockets.counted_cases()[-1])
        one.add(sockets.PLAIN, result(4, 300, 100))
        one.add(sockets.ULP, result(4, 304.5, 300))
        (bar,) = one.bars()
        self.assertAlmostEqual(bar.value, 1.015)
        self.assertFalse(bar.ok)

    def test_programs(self) -> None:
        by_name = {program.name: program for program in socket_programs.programs()}
        row = sockets.Row(by_name["sockperf ping-pong"])
        for way, latency in ((sockets.PLAIN, "100.0"), (sockets.ULP, "80.0")):
            row.turns[way].append(row.program.figure(f"[SUMMARY] Latency is {latency} usec"))
        self.assertAlmostEqual(row.bars()[0].value, 1.25)
        redis = by_name["redis -P 1, values of 1024 bytes"]
        self.assertEqual(redis.figure("SET: 5.0 requests per second\rGET: 3.0 requests per second, p50\nGET: 7.25 requests per second\n"), 7.25)
        with self.assertRaises(ValueError):
            redis.figure("nothing")
        with self.assertRaises(ValueError):
            by_name["iperf3, 1 stream"].figure('{"error": "refused"}')

    def test_a_bar_is_decided(self) -> None:
        self.assertEqual(sockets.median_range([3, 1, 2]), (1, 3))
        low, high = sockets.median_range([float(value) for value in range(100)])
        self.assertTrue(35 <= low <= 38 and 61 <= high <= 64, (low, high))
        row = sockets.Row(next(program for program in socket_programs.programs() if program.at_least == socket_programs.NEVER_SLOWER))
        for ulp in (1.2, 0.9, 1.1):
            row.turns[sockets.PLAIN].append(1.0)
            row.turns[sockets.ULP].append(ulp)
        self.assertFalse(row.decided())
        self.assertEqual(row.ratio(), 1.1)
        row.turns[sockets.ULP][1] = 1.0
        self.assertTrue(row.decided())
        row.turns[sockets.ULP][:] = [0.9, 0.8, 0.96]
        self.assertTrue(row.decided())

    def test_placed(self) -> None:
        counters = "     switch_placed_bytes: {}\n     switch_qp_delivered_bytes: {}\n"
        row = sockets.Row(next(program for program in socket_programs.programs() if program.placed))
        self.assertEqual(len(row.bars()), 1)
        row.placed.append(sockets.placed_share(counters.format(100, 1000), counters.format(900, 1200)))
        self.assertEqual((row.bars()[1].value, row.bars()[1].ok), (0.8, False))
        self.assertEqual(sockets.placed_share(counters.format(1, 2), counters.format(1, 2)), 0)

    def test_times(self) -> None:
        """What took() has a shell print is what TIMES reads."""
        said = subprocess.run(["sh", "-c", socket_programs.took("sleep 0.1")], capture_output=True, text=True, check=True).stdout
        self.assertTrue(1 < socket_programs.TIMES(said) <= 10, said)

    def test_what_is_not_installed_is_left_out(self) -> None:
        one = socket_programs.programs()[0]
        self.assertTrue(one.is_here())
        self.assertTrue(replace(one, needs="/bin/s*").is_here())
        self.assertFalse(replace(one, needs="/nowhere/*").is_here())

    def test_instructions_of_the_work_done(self) -> None:
        by_name = {program.name: program for program in socket_programs.programs()}
        rate = sockets.Work(by_name["nginx and wrk, 1 KiB, keep-alive"])
        rate.add(sockets.PLAIN, 1000, "Requests/sec:    100.0")
        rate.add(sockets.ULP, 1000, "Requests/sec:    50.0")
        self.assertEqual((rate.bars()[0].value, rate.bars()[0].ok), (2, False))
        fixed = sockets.Work(by_name["redis -P 1, values of 1024 bytes"])
        fixed.add(sockets.PLAIN, 1000, "GET: 5.0 requests per second")
        fixed.add(sockets.ULP, 1010, "GET: 1.0 requests per second")
        self.assertEqual((fixed.bars()[0].value, fixed.bars()[0].ok), (1.01, True))

    def test_busy(self) -> None:
        timer_list = "Timer List Version: v0.10\nnow at 1000 nsecs\n  .idle_sleeptime : 600 nsecs\n  .iowait_sleeptime: 100 nsecs\n"
        self.assertEqual(sockets.busy_ns(timer_list), 300)

    def test_no_figure_is_no_bar(self) -> None:
        book = sockets.Book()
        book.rows.append(sockets.Row(socket_programs.programs()[0]))
        self.assertEqual(book.bars(), [])


def said(**more) -> dict:
    """Of devmem_bench: nothing in host memory, no command, no control message."""
    counters = {"busy_ns": MIB // 4, "calls": 6}
    zero = {"host_bytes": 0, "cpu_mapped_bytes": 0, "commands": 0, "accelerator_bytes": 0, "cmsgs": 0}
    return {"payload": 2 * MIB, "phase_ns": 1_000_000, "counters": counters} | zero | more


class Devmem(unittest.TestCase):
    def book(self, **qp) -> devmem.Book:
        book = devmem.Book()
        slow = {"phase_ns": 2_000_000, "counters": {"busy_ns": 2 * MIB, "calls": 600}, "accelerator_bytes": 2 * MIB, "commands": 9, "cmsgs": 512}
        for kind in (devmem.TIMED, devmem.COUNTED, devmem.CALLS):
            book.add(devmem.DEVMEM, kind, said(**slow))
            book.add(devmem.QP, kind, said(**qp))
        return book

    def test_figures(self) -> None:
        book = self.book()
        self.assertEqual(book.median(devmem.DEVMEM, "calls_per_mib"), 300)
        self.assertEqual(book.median(devmem.DEVMEM, "rx_instructions_per_byte"), 1)
        self.assertEqual(book.median(devmem.DEVMEM, "accelerator_copies_per_byte"), 1)
        self.assertIn("256", book.table())

    def test_bars(self) -> None:
        self.assertTrue(all(bar.ok for bar in self.book().bars()))
        self.assertFalse(any(bar.ok for bar in devmem.Book().bars()))
        costly = {"busy_ns": MIB, "calls": 6}
        for wrong in ({"host_bytes": 1}, {"cpu_mapped_bytes": 4096}, {"commands": 1}, {"cmsgs": 1}, {"phase_ns": 1_500_000}, {"counters": costly}):
            self.assertEqual(sum(not bar.ok for bar in self.book(**wrong).bars()), 1, wrong)


class Direct(unittest.TestCase):
    """What a run costs before and after its rounds is in the short one, too."""

    def signals(self, **more) -> direct.Signals:
        def said(way: str, rounds: int) -> dict:
            zero = {"rounds": rounds, "wall_ns": 5000 + 2000 * rounds, "busy_ns": 7000 + 100 * rounds, "processes_ns": 0, "caller_ns": 3000}
            slow = {"busy_ns": 9000 + 400 * rounds, "caller_ns": 3000 + 250 * rounds}
            return zero | (slow if way == direct.PROCESSES else more)

        signals = direct.Signals()
        for way in direct.WAYS:
            for timed in (False, True):
                signals.add(way, timed, *(said(way, rounds) for rounds in direct.ROUNDS))
        return signals

    def test_figures(self) -> None:
        signals = self.signals()
        self.assertEqual(signals.median(direct.DIRECT, "us_per_round_trip"), 2)
        self.assertEqual(signals.median(direct.DIRECT, "process_instructions"), 0)
        self.assertEqual(signals.median(direct.DIRECT, "kernel_instructions"), 100)
        self.assertEqual(signals.median(direct.PROCESSES, "process_instructions"), 250)
        self.assertEqual(signals.median(direct.PROCESSES, "kernel_instructions"), 150)
        self.assertIn("250", signals.table())

    def test_bars(self) -> None:
        self.assertTrue(all(bar.ok for bar in self.signals().bars()))
        self.assertFalse(any(bar.ok for bar in direct.Signals().bars()))
        self.assertEqual([bar.ok for bar in self.signals(processes_ns=1).bars()], [False, True])


class Latency(unittest.TestCase):
    COUNTS = latencies.Counts(1.0, 3.0, 1.5, 1.0, 64.0, 0.0, 30000.0, 21200.0)

    def test_each_budget_is_the_sum_of_its_steps(self) -> None:
        for row in latencies.report({"a": self.COUNTS})["rows"]:
            self.assertAlmostEqual(row["low_ns"], sum(s["low"] for s in row["steps"]))
            self.assertLessEqual(row["low_ns"], row["high_ns"])

    def test_the_processor_is_priced_by_instructions(self) -> None:
        tcp, more = latencies.software(self.COUNTS)
        self.assertEqual((tcp.low, tcp.high), (2650, 5300))
        self.assertEqual((more.count, more.low, more.high), (8800, 1100, 2200))

    def test_fewer_instructions_than_plain_tcp_are_no_gain(self) -> None:
        tcp, more = latencies.software(latencies.Counts(1, 3, 1, 1, 64, 0, 20000, 21200))
        self.assertEqual((tcp.count, more.count), (20000, 0))

    def test_descriptors_share_cache_lines(self) -> None:
        for doorbells, descriptors, fetches in ((1, 3, 1), (1, 4, 1), (1, 5, 2), (0.05, 3, 1)):
            self.assertEqual(latencies.fetches(latencies.Counts(doorbells, descriptors, 1, 1, 64, 0, 1, 1)), fetches)

    def test_without_a_kernel_it_is_the_study_s_sum(self) -> None:
        """400 to 600 ns, with its crossing of 105."""
        self.assertEqual(latencies.total(latencies.hardware_cached_queues()), (405, 605))

    def test_what_is_seen_needs_no_doorbell(self) -> None:
        for doorbells, rung in ((2.0, 1), (1.0, 1), (0.25, 0.25), (0.0, 0)):
            steps = latencies.hardware_as_built(replace(self.COUNTS, doorbells=doorbells))
            self.assertEqual([s.count for s in steps[:2]], [rung, 1 - rung])

    def test_markdown_has_all(self) -> None:
        text = latencies.markdown({"a": self.COUNTS})
        for word in (*latencies.PRICES, "no kernel in the path", "| doorbells | 1.00 |"):
            self.assertIn(word, text)


class Cxl(unittest.TestCase):
    """Of `make cxl`."""

    @staticmethod
    def modes(doorbells: int, trip_ns: int) -> cxl.Modes:
        modes = cxl.Modes()
        for way, rung, ns in ((cxl.PCIE, 200, 400_000), (cxl.CXL, doorbells, trip_ns)):
            counted = {"tx_doorbells": rung, "tx_seen": 200 - rung, "tx_watch_ends": 0, "placed_bytes": 12800}
            for _ in range(3):
                modes.add(way, cxl.figures(200, counted, {"tx": {"copied": 0, "rtt_ns": {"p50": ns}}, "rx": {"copied": 0}}))
        return modes

    def test_bars_hold_and_fail(self) -> None:
        self.assertEqual([bar.ok for bar in self.modes(20, 420_000).bars()], [True, True])
        self.assertEqual([bar.ok for bar in self.modes(21, 421_000).bars()], [False, False])

    def test_nothing_measured_holds_nothing(self) -> None:
        self.assertFalse(any(bar.ok for bar in cxl.Modes().bars()))

    def test_rows_name_the_mode(self) -> None:
        rows = self.modes(0, 400_000).json("always")
        self.assertEqual([row["mode"] for row in rows], [cxl.PCIE, cxl.CXL])
        self.assertEqual(rows[1]["figures"]["doorbells_per_message"]["median"], 0)
        self.assertIn("rings watched", self.modes(0, 1).table())

    def test_the_pattern_is_compared_and_nothing_is_lost(self) -> None:
        good = cxl.Pattern(bytes=100, placed_bytes=100, copied_bytes=0, tries=1, wrong_found=True)
        self.assertTrue(all(bar.ok for bar in good.bars()))
        for bad in (replace(good, placed_bytes=99), replace(good, copied_bytes=1), replace(good, wrong_found=False)):
            self.assertEqual(sum(not bar.ok for bar in bad.bars()), 1)
        owned = cxl.Ownership(refusals_tested=20, kills=1000, handover_kills=1000, lost_bytes=0, idle_wakeups_per_s=0.6)
        self.assertTrue(all(bar.ok for bar in owned.bars(1000)))
        for change in ({"kills": 999}, {"handover_kills": 999}, {"lost_bytes": 4096}, {"idle_wakeups_per_s": 1.2}, {"refusals_tested": 0}):
            self.assertEqual(sum(not bar.ok for bar in replace(owned, **change).bars(1000)), 1)

    def test_references_cross_no_lane(self) -> None:
        good = cxl.References(bytes=1000, handed_bytes=1000, lane_bytes=10, copied_lane_bytes=2000)
        self.assertTrue(all(bar.ok for bar in good.bars()))
        for change in ({"handed_bytes": 999}, {"lane_bytes": 11}, {"copied_lane_bytes": 1999}):
            self.assertEqual(sum(not bar.ok for bar in replace(good, **change).bars()), 1)


class Gpu(unittest.TestCase):
    def rows(self, way: gpu.Way, seconds: float) -> list[dict]:
        chosen = [gpu.row(gpu.Job(way), "all_reduce", size, seconds, 0, 0) for size in gpu.SIZES for _ in range(3)]
        return chosen + [gpu.row(job, "all_reduce", size, seconds, 0, 0) for job in gpu.forced(way) for size in job.sizes]

    def test_bars(self) -> None:
        rows = self.rows(gpu.OURS, 1e-3) + self.rows(gpu.SOCKET_WIDE, 1e-3) + self.rows(gpu.SOCKET, 2e-3)
        got = gpu.bars(rows)
        self.assertTrue(all(bar.ok for bar in got), got)
        self.assertEqual([bar.value for bar in got if "Socket 4x4" in bar.what], [1, 1])
        rows[-1]["wrong"] = 1  # sockets', which is no fault of ours
        self.assertTrue(all(bar.ok for bar in gpu.bars(rows)))
        next(row for row in rows if row["protocol"] == "LL128")["wrong"] = 1
        self.assertEqual([bar.value for bar in gpu.bars(rows) if not bar.ok], [1, 5])

    def test_nothing_measured_is_no_bar_met(self) -> None:
        self.assertFalse(any(bar.ok for bar in gpu.bars([])))

    def test_bus_bandwidth(self) -> None:
        for operation, share in (("all_reduce", 1), ("all_gather", 0.5), ("all_to_all", 0.5), ("send_receive", 1)):
            self.assertEqual(gpu.row(gpu.Job(gpu.OURS), operation, 10**9, 1, 0, 0)["busbw_gbs"], share)

    def test_table(self) -> None:
        text = gpu.table(self.rows(gpu.OURS, 1e-3))
        self.assertIn("TCPQP LL128 Tree", text)
        self.assertEqual(text.count("all_reduce"), len(gpu.SIZES))


class CommandLines(unittest.TestCase):
    def said(self, program: str, *argv: str) -> tuple[int, str]:
        """Should it boot guests all the same, it has no kernel to boot."""
        done = subprocess.run([REPO / "bench" / program, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "NUPA_KERNEL": "/nonexistent"}, check=False)  # fmt: skip
        return done.returncode, done.stdout

    def test_help(self) -> None:
        for program in ("latency", "charts"):
            status, said = self.said(program, "--help")
            self.assertEqual((status, said[:6]), (0, "usage:"), said)
            self.assertEqual(self.said(program, "--no-such")[0], 2)

    def test_failure_is_one_line(self) -> None:
        status, said = self.said("charts", "/nonexistent/bench.json")
        self.assertEqual((status, said.count("\n")), (1, 1), said)


unittest.main()
