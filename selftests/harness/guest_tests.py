# SPDX-License-Identifier: BSD-3-Clause
"""pytest's plugin for tests in guests: fixtures, markers, and an order in which guests are booted as seldom as can be."""

from collections import Counter
from collections.abc import Iterator

import pytest
from _pytest.runner import runtestprotocol

from harness import names
from harness.beside import BESIDE, OTHERS
from harness.boots import MACHINE_TROUBLE, Boots, LeftBehind
from harness.guests import Failed, Guests
from harness.needs import KASAN, Needs, debug_flavour

from nupavm import EmulatorCrashed, MadeUpByEmulator

PLAIN = (Failed, LeftBehind, *MACHINE_TROUBLE)  # tell enough without a traceback
PARTS = (BESIDE, OTHERS)
PROBLEM = pytest.StashKey[BaseException]()
FOLLOWING = pytest.StashKey[tuple | None]()
BOOTS = pytest.StashKey[Boots]()
WAITING = pytest.StashKey[Counter]()  # tests not begun, by what they need


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("guests")
    group.addoption("--only", metavar="PATTERN", action="append", help="tests whose name contains this (or matches it, with * and ?)")
    group.addoption("--long", action="store_true", help="the tests marked long, and nothing else")
    group.addoption("--part", choices=PARTS, help="the tests marked beside, or all others (default: both)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(Needs(...)): what the guests must have; the nearest one counts")
    config.addinivalue_line("markers", "long: costs more time than `make check` has; `make soak` runs it")
    config.addinivalue_line("markers", "beside: `make check` runs it beside all else, in guests of its own; both halves take about as long")
    config.addinivalue_line("markers", "debug_kernel: for the debug kernel only")
    config.addinivalue_line("markers", "emulator_may_crash: QEMU is known to (docs/known-faults.md); the test is run once more then, which is said")
    config.stash[BOOTS], config.stash[WAITING] = Boots(), Counter()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted, long = names.chooser(config.getoption("only")), config.getoption("long")
    part = config.getoption("part")
    chosen = [
        item
        for item in items
        if wanted(names.of_node(item.nodeid))
        and bool(item.get_closest_marker("long")) == long
        and part in (None, PARTS[not item.get_closest_marker("beside")])
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    order: dict[tuple | None, int] = {}
    for item in chosen:
        order.setdefault(_boot(item), len(order))
    items[:] = sorted(chosen, key=lambda item: order[_boot(item)])
    config.stash[WAITING].update(_boot(item) for item in items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    item.stash[FOLLOWING] = _boot(nextitem) if nextitem else None
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    known = EmulatorCrashed if item.get_closest_marker("emulator_may_crash") else MadeUpByEmulator
    if isinstance(item.stash.get(PROBLEM, None), known):
        print(f"# {names.of_node(item.nodeid)}: QEMU crashed, as it is known to, or made up flags; once more", flush=True)
        del item.stash[PROBLEM]
        item._initrequest()  # as pytest-rerunfailures does
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    report = (yield).get_result()
    if call.excinfo and not report.skipped:
        if isinstance(call.excinfo.value, EmulatorCrashed):  # whatever the test itself first saw of it
            item.stash[PROBLEM] = call.excinfo.value
        item.stash.setdefault(PROBLEM, call.excinfo.value)
        if isinstance(call.excinfo.value, PLAIN):
            report.longrepr = _where(item, call.excinfo) + str(call.excinfo.value)
        report.sections.append(("results", str(item.config.stash[BOOTS].results)))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Guests that are still there belong to a test that was interrupted: fixtures would look at them before they end."""
    session.config.stash[BOOTS].destroy()


@pytest.fixture(scope="session")
def boots(pytestconfig: pytest.Config) -> Boots:
    """The guests of the run."""
    return pytestconfig.stash[BOOTS]


@pytest.fixture
def t(request: pytest.FixtureRequest, boots: Boots) -> Iterator[Guests]:
    """Guests that have what the marker `needs` says; nothing of the test may be left in them."""
    needs, waiting = _needs(request.node), request.config.stash[WAITING]
    if needs is None:
        raise pytest.UsageError(f"{request.node.nodeid} has no marker `needs`")
    tests, waiting[needs.boot()] = waiting[needs.boot()], waiting[needs.boot()] - 1
    if request.node.get_closest_marker("debug_kernel") and debug_flavour() != KASAN:
        pytest.skip("needs the debug kernel: make check-debug")
    if reason := needs.missing():
        pytest.skip(reason)
    yield Guests(boots.cluster(needs, tests))
    boots.after_test(request.node.stash.get(PROBLEM, None), request.node.stash[FOLLOWING])


def _needs(item: pytest.Item) -> Needs | None:
    marker = item.get_closest_marker("needs")
    return marker.args[0] if marker else None


def _boot(item: pytest.Item) -> tuple | None:
    needs = _needs(item)
    return needs.boot() if needs else None


def _where(item: pytest.Item, excinfo: pytest.ExceptionInfo) -> str:
    """The last line of the test's own file that was being run."""
    lines = [entry.lineno + 1 for entry in excinfo.traceback if str(entry.path) == str(item.path)]
    return f"{item.path.name}:{lines[-1]}: " if lines else ""
