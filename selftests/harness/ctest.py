# SPDX-License-Identifier: BSD-3-Clause
"""The programs that CTest knows: unit tests, simulation, fuzzers' corpora."""

import json
import re
import subprocess
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

from harness.report import Report

TEST_LIMIT_S = 120
JOBS = 3  # some mostly wait
PASSED_LINE = re.compile(r"\s*\d+/\d+ Test +#\d+: (?P<name>.*?) \.+ +Passed +(?P<seconds>[\d.]+) sec")
SKIPPED = ("notrun", "skipped", "disabled")


def run(report: Report, build: Path, wanted) -> None:
    names = [name for name in _names(build) if wanted(f"ctest/{name}")]
    if not names:
        return
    report.note(f"ctest: {len(names)} tests")
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "junit.xml"
        argv = ["ctest", "--test-dir", build, "-j", JOBS, "--timeout", TEST_LIMIT_S, "--output-junit", log]
        argv += ["--tests-from-file", _write_names(Path(scratch), names)] if _can_select_by_file() else ["-R", _any_of(names)]
        passed, output = _follow(report, argv)
        if not log.exists():
            report.failed("ctest", output)
            return
        cases = xml.parse(log).getroot().iter("testcase")
        for case in cases:
            if case.get("name") not in passed:
                _record(report, case)


def _follow(report: Report, argv: list) -> tuple[set[str], str]:
    """Reports what passes as it passes; the rest needs the log that CTest writes at its end."""
    passed, output = set(), []
    with subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        for line in child.stdout:
            output.append(line)
            if found := PASSED_LINE.match(line):
                passed.add(found["name"])
                report.passed(f"ctest/{found['name']}", float(found["seconds"]))
    return passed, "".join(output)


def _record(report: Report, case: xml.Element) -> None:
    name = f"ctest/{case.get('name')}"
    output = case.findtext("system-out") or ""
    match case.get("status"):
        case "run":
            report.passed(name, float(case.get("time", 0)))
        case "fail":
            report.failed(name, output, float(case.get("time", 0)))
        case status if status in SKIPPED and case.find("skipped") is not None:
            reason = case.find("skipped").get("message", "") or "not run"
            if reason in ("Unable to find executable", "Required Files Missing"):
                report.failed(name, reason)
            else:
                report.skipped(name, _skip_reason(output) or reason)
        case status:
            report.failed(name, f"status {status}\n{output}")


def _skip_reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    told = [line for line in lines if "skip" in line.lower() and not line.startswith("[")]
    return (told or [""])[0]


def _names(build: Path) -> list[str]:
    listing = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], stdout=subprocess.PIPE, check=True)
    return [test["name"] for test in json.loads(listing.stdout).get("tests", [])]


def _any_of(names: list[str]) -> str:
    return f"^({'|'.join(re.escape(name) for name in names)})$"


def _can_select_by_file() -> bool:
    text = subprocess.run(["ctest", "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return "--tests-from-file" in text


def _write_names(scratch: Path, names: list[str]) -> Path:
    path = scratch / "names"
    path.write_text("".join(f"{name}\n" for name in names))
    return path
