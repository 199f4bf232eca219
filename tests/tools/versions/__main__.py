"""Run the quick tests with several versions of Python and torch, each in an environment of its own.

The versions of all other packages are those of constraints.txt, except where an older torch rules one out. Prints a
table with one row for each combination, and ends with status 1 unless every test passed in all of them. A combination
that cannot be installed is a row that says why.

    python -m tests.tools.versions [--pythons VERSION ...] [--torches VERSION ...] [--keep FOLDER]

Without options it runs the combinations that the project claims to support. An environment takes up to 7 GB, shared
with uv's cache where that is on the same file system, and is removed before the next is made. One combination takes two
to five minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[3]
CURRENT = "current"
"""The torch in constraints.txt."""
COMBINATIONS = (("3.10", CURRENT), ("3.11", CURRENT), ("3.12", "2.11"), ("3.13", "2.10"), ("3.13", CURRENT))
"""The oldest and the newest of each, and what Gaudi software 1.24 brings: Python 3.12 and torch 2.11."""
UV = (sys.executable, "-m", "uv", "--quiet")
QUICK_TESTS = ("-m", "not workers and not processes")
NICENESS = 10
MOST_LINES = 12
"""How much a row shows of what a command that failed printed."""


@dataclass
class Row:
    """The outcome of one combination."""

    python: str
    torch: str
    passed: int | None = None
    failed: int | None = None
    seconds: float | None = None
    remarks: str = ""
    """The tests that failed, or why there is no result."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the combinations one after another, and print the table."""
    options = parse(arguments)
    os.nice(NICENESS)
    with tempfile.TemporaryDirectory(prefix="versions-") as temporary:
        folder = options.keep.resolve() if options.keep else Path(temporary)
        rows = []
        for python, torch in combinations(options.pythons, options.torches):
            print(f"Python {python}, torch {torch}", file=sys.stderr)
            environment = folder / f"python-{Path(python).name}-torch-{torch}"
            rows.append(check(python, torch, environment))
            if not options.keep:
                shutil.rmtree(environment, ignore_errors=True)
    print_table(rows)
    return 0 if all(row.failed == 0 for row in rows) else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pythons",
        nargs="+",
        default=[],
        metavar="VERSION",
        help="run all combinations of these Pythons with --torches; versions or paths, as uv takes them. "
        "Under pyenv, PYENV_VERSION=3.12.1:3.13.0 lets uv find both. Default: this Python's version",
    )
    parser.add_argument(
        "--torches",
        nargs="+",
        default=[],
        metavar="VERSION",
        help=f"run all combinations of these versions of torch with --pythons: 2.11, 2.10.0, or {CURRENT} for the one "
        f"in constraints.txt. Default: {CURRENT}",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="make the environments here and keep them, each with its tests.xml"
    )
    return parser.parse_args(arguments)


def combinations(pythons: Sequence[str], torches: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Return pairs of a Python and a torch: all of those given, or the claimed ones if none is given."""
    if not pythons and not torches:
        return COMBINATIONS
    this_python = ".".join(platform.python_version_tuple()[:2])
    return list(itertools.product(pythons or [this_python], torches or [CURRENT]))


def check(python: str, torch: str, environment: Path) -> Row:
    """Make the environment and run the quick tests in it."""
    row = Row(python, torch)
    try:
        executable = install(python, torch, environment)
        row.python, row.torch = installed_versions(executable)
        start = time.monotonic()
        row.passed, failed = run_tests(executable, ROOT, environment / "tests.xml")
        row.seconds = time.monotonic() - start
        row.failed, row.remarks = len(failed), "\n".join(failed)
    except subprocess.CalledProcessError as error:
        program = "uv" if error.cmd[: len(UV)] == UV else "pytest"
        last_lines = error.output.strip().splitlines()[-MOST_LINES:]
        row.remarks = "\n".join((f"{program} ended with status {error.returncode}:", *last_lines))
    return row


def install(python: str, torch: str, environment: Path) -> Path:
    """Make an environment with this torch, and return its Python."""
    call(*UV, "venv", "--clear", "--seed", "--python", python, environment)
    executable = environment / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    if torch != CURRENT:
        constraints = resolve_with(torch, executable, environment)
    call(*UV, "pip", "install", "--python", executable, "--constraint", constraints, "--editable", f"{ROOT}[test]")
    return executable


def resolve_with(torch: str, executable: Path, environment: Path) -> Path:
    """Write the constraints that go with another torch than that of constraints.txt.

    uv prefers the versions that it finds in its output file, and so changes only those that this torch rules out.
    """
    requirement = environment / "torch.in"
    requirement.write_text(f"torch=={torch}{'.*' if torch.count('.') == 1 else ''}\n")
    constraints = environment / "constraints.txt"
    shutil.copy(ROOT / "constraints.txt", constraints)
    command = (*UV, "pip", "compile", "--extra", "test", "--python", executable, "--output-file", constraints)
    call(*command, ROOT / "pyproject.toml", requirement)
    return constraints


def installed_versions(executable: Path) -> tuple[str, str]:
    """Return the versions of an environment's Python and torch."""
    script = "import platform, importlib.metadata as m; print(platform.python_version(), m.version('torch'))"
    python, torch = call(executable, "-c", script).split()
    return python, torch


def run_tests(executable: Path, folder: Path, report: Path) -> tuple[int, list[str]]:
    """Run the quick tests in ``folder``, and return how many passed and the names of those that failed."""
    try:
        call(executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *QUICK_TESTS, cwd=folder)
    except subprocess.CalledProcessError as error:
        if error.returncode != 1:  # 1: some tests failed; anything else: not all were run
            raise
    passed, failed = 0, []
    for case in ElementTree.parse(report).iter("testcase"):
        outcomes = {outcome.tag for outcome in case}
        if outcomes & {"failure", "error"}:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif "skipped" not in outcomes:
            passed += 1
    return passed, failed


def call(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command and return what it prints; if it fails, raise an error that holds that."""
    return subprocess.run(
        command, cwd=cwd, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ).stdout


def print_table(rows: Sequence[Row]) -> None:
    """Print a row for each combination."""
    table = Table("Python", "torch", "passed", "failed", "seconds", "remarks", box=None, pad_edge=False)
    for row in rows:
        seconds = None if row.seconds is None else round(row.seconds)
        numbers = ("-" if number is None else f"{number:,}" for number in (row.passed, row.failed, seconds))
        table.add_row(row.python, row.torch, *numbers, row.remarks)
    Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False).print(table)


if __name__ == "__main__":
    sys.exit(main())
