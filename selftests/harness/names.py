# SPDX-License-Identifier: BSD-3-Clause
"""Names of tests, and which of them are wanted."""

import fnmatch
import re
from collections.abc import Callable

NODE = re.compile(r"(?P<path>[^:]*?)(?:\.py)?(?:::(?:test_)?(?P<test>[^\[]*)(?:\[(?P<parameter>.*)\])?)?")


def of_node(nodeid: str) -> str:
    """vm/many.py::test_repeated[sse2] is vm/many/repeated_sse2."""
    found = NODE.fullmatch(nodeid)
    test = "_".join(filter(None, (found["test"], found["parameter"])))
    return "/".join(filter(None, (found["path"], test)))


def chooser(patterns: list[str] | None) -> Callable[[str], bool]:
    """Whether a name contains one of the words, or matches it with * and ?; all names if there are none."""

    def wanted(name: str) -> bool:
        return not patterns or any(word in name or fnmatch.fnmatch(name, word) for word in patterns)

    return wanted
