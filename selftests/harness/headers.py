# SPDX-License-Identifier: BSD-3-Clause
"""Every shared header compiles alone, in every language that includes it."""

import subprocess
from pathlib import Path

from harness.report import Report

FLAGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I", "include"]
LANGUAGES = {"c11": ["gcc", "-std=c11", "-x", "c"], "c++20": ["g++", "-std=c++20", "-x", "c++"]}


def run(report: Report, repo: Path, wanted) -> None:
    for header in sorted(repo.glob("include/tcp_qp/*.h")):
        for language, compiler in LANGUAGES.items():
            name = f"headers/{header.name} as {language}"
            if wanted(name):
                _compile(report, repo, header, name, compiler)


def _compile(report: Report, repo: Path, header: Path, name: str, compiler: list[str]) -> None:
    # Included twice: the guard is part of the contract.
    source = f'#include "{header.relative_to(repo)}"\n' * 2
    argv = [*compiler, *FLAGS, "-I", ".", "-"]
    done = subprocess.run(argv, input=source, cwd=repo, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode == 0:
        report.passed(name)
    else:
        report.failed(name, done.stdout)
