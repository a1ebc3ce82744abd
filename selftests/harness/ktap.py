# SPDX-License-Identifier: BSD-3-Clause
"""pytest's plugin that says in KTAP what became of each test, as soon as it is known, in place of pytest's own reporter."""

import pytest

from harness import names
from harness.report import RESULTS, Report


class Ktap:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._phases: list[pytest.TestReport] = []

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.unregister(name="terminalreporter")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:  # a broken test file is a failed test, not the end of the run
            self._report.failed(names.of_node(report.nodeid), report.longreprtext)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._phases.append(report)
        if report.when == "teardown":
            self._tell(self._phases)
            self._phases = []

    def _tell(self, phases: list[pytest.TestReport]) -> None:
        name = names.of_node(phases[0].nodeid)
        failed = [phase for phase in phases if phase.failed]
        skipped = [phase for phase in phases if phase.skipped]
        seconds = sum(phase.duration for phase in phases if phase.when != "setup")  # a boot is not the test's
        if failed:
            results = {text for phase in failed for title, text in phase.sections if title == "results"}
            self._report.failed(name, "\n".join([*(phase.longreprtext for phase in failed), *(f"{RESULTS}{path}" for path in results)]), seconds)
        elif skipped:
            self._report.skipped(name, _reason(skipped[0]))
        else:
            self._report.passed(name, seconds)


def _reason(phase: pytest.TestReport) -> str:
    text = phase.longrepr[2] if isinstance(phase.longrepr, tuple) else phase.longreprtext
    return text.removeprefix("Skipped: ")
