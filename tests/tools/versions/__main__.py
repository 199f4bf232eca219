"""Runs the project's checks with other versions of Python and of libraries, each set in an environment of its own.

The versions of all other packages are those of constraints.txt, except where a set rules one out. The checks are the
contract tests (tests/private), the quick tests, and a sweep of two workers a trial that is killed and resumed, with
MLflow and the page (sweep.py). Prints a table with one row for each set, and ends with status 1 unless everything
passed in all of them. A set that cannot be installed is a row that says why.

    python -m tests.tools.versions [SET ...] [--checks contract quick sweep] [--keep FOLDER]
    python -m tests.tools.versions --pythons 3.12 3.13 --torches 2.11

Without names it runs all sets (--help lists them). An environment takes up to 7 GB, shared with uv's cache where that
is on the same file system, and is removed before the next is made.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[3]
CURRENT = "current"
"""The torch in constraints.txt."""


@dataclass(frozen=True)
class Versions:
    """A set of versions."""

    name: str
    python: str
    requirements: tuple[str, ...] = ()
    """What differs from constraints.txt."""
    start: Literal["constraints", "lowest-direct", "highest"] = "constraints"
    """Where the others come from: constraints.txt, or the bounds in pyproject.toml alone."""


COMBINATIONS = (
    Versions("lowest", "3.10", start="lowest-direct"),
    Versions("highest", "3.13", start="highest"),
    Versions("ray", "3.11", ("ray==2.53.*",)),
    *(Versions(f"ray-2.{minor}", "3.11", (f"ray==2.{minor}.*",)) for minor in range(54, 60)),
    Versions("optuna", "3.11", ("optuna==4.5.*",)),
    Versions("mlflow", "3.11", ("mlflow==3.5.0", "sqlalchemy<2.1")),  # SQLAlchemy 2.1 has lost a name that it imports
    *(
        Versions(
            f"mlflow-3.{minor}",
            "3.11",
            (
                f"mlflow==3.{minor}.*",
                f"optuna==4.{5 + minor % 5}.*",
                "sqlalchemy<2.1" if minor < 9 else "sqlalchemy",
            ),
        )
        for minor in range(6, 17)
    ),
    Versions("trainers", "3.11", ("transformers==4.55.*", "datasets==3.0.*", "lightning==2.4.*")),
    Versions("gaudi-1.22", "3.10", ("torch==2.7.*",)),
    Versions("gaudi-1.24", "3.12", ("torch==2.11.*",)),
    Versions("constraints", "3.13"),
)
"""The lowest and the highest of all, each library's lowest with the others' highest, each Ray, each MLflow (with each
Optuna in turn), and Intel's images: Gaudi software 1.22 has Python 3.10 and torch 2.7, 1.24 has 3.12 and 2.11."""
CHECKS = ("contract", "quick", "sweep")
UV = (sys.executable, "-m", "uv", "--quiet")
NO_RAY = "not workers and not processes"
CONTRACT_TESTS = ("-m", "not workers", "tests/private")
QUICK_TESTS = ("-m", NO_RAY, "--ignore=tests/private")
NICENESS = 10
MOST_LINES = 12
"""How much a row shows of what a command that failed printed."""


@dataclass
class Row:
    """The outcome of one set."""

    name: str
    versions: str
    passed: dict[str, str] = field(default_factory=dict)
    """By check, what is shown of it."""
    remarks: str = ""
    """The tests that failed, or why there is no result."""
    is_good: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sets one after another, and print the table."""
    options = parse(arguments)
    os.nice(NICENESS)
    with tempfile.TemporaryDirectory(prefix="versions-") as temporary:
        folder = options.keep.resolve() if options.keep else Path(temporary)
        rows = []
        for versions in combinations(options.sets, options.pythons, options.torches):
            print(versions.name, file=sys.stderr)
            environment = folder / versions.name
            rows.append(check(versions, options.checks, environment))
            if not options.keep:
                shutil.rmtree(environment, ignore_errors=True)
    print_table(rows, options.checks)
    return 0 if all(row.is_good for row in rows) else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [versions.name for versions in COMBINATIONS]
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(names)}; none: all")
    parser.add_argument("--checks", nargs="+", choices=CHECKS, default=CHECKS, help="default: all three")
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
    options = parser.parse_args(arguments)
    if unknown := set(options.sets) - set(names):
        parser.error(f"no such sets: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def combinations(sets: Sequence[str], pythons: Sequence[str], torches: Sequence[str]) -> Sequence[Versions]:
    """Return the sets of these names, all combinations of these Pythons and torches, or all sets."""
    if not pythons and not torches:
        return [versions for versions in COMBINATIONS if not sets or versions.name in sets]
    this_python = ".".join(platform.python_version_tuple()[:2])
    return [
        Versions(
            f"python-{Path(python).name}-torch-{torch}",
            python,
            () if torch == CURRENT else (f"torch=={torch}{'.*' if torch.count('.') == 1 else ''}",),
        )
        for python, torch in itertools.product(pythons or [this_python], torches or [CURRENT])
    ]


def check(versions: Versions, checks: Sequence[str], environment: Path) -> Row:
    """Make the environment and run the checks in it."""
    row, start = Row(versions.name, f"Python {versions.python} {' '.join(versions.requirements)}"), time.monotonic()
    try:
        python = install(versions, environment)
        row.versions = installed_versions(python)
        for name, tests in (("contract", CONTRACT_TESTS), ("quick", QUICK_TESTS)):
            if name in checks:
                passed, failed = run_tests(python, ROOT, environment / f"{name}.xml", tests)
                row.passed[name] = f"{passed:,} of {passed + len(failed):,}"
                row.remarks += "".join(f"{test}\n" for test in failed)
        if "sweep" in checks:
            start = time.monotonic()
            call(python, "-m", "tests.tools.versions.sweep", environment)
            row.passed["sweep"] = f"{time.monotonic() - start:.0f} s"
        row.is_good = not row.remarks
    except subprocess.CalledProcessError as error:
        last_lines = error.output.strip().splitlines()[-MOST_LINES:]
        row.remarks += "\n".join((f"{_program(error)} ended with status {error.returncode}:", *last_lines))
    return row


def _program(error: subprocess.CalledProcessError) -> str:
    if error.cmd[: len(UV)] == UV:
        return "uv"
    return "pytest" if "pytest" in error.cmd else "the sweep"


def install(versions: Versions, environment: Path) -> Path:
    """Make an environment with these versions, and return its Python."""
    call(*UV, "venv", "--clear", "--seed", "--python", versions.python, environment)
    python = environment / "bin" / "python"
    constraints = resolved(versions, python, environment)
    call(*UV, "pip", "install", "--python", python, "--constraint", constraints, "--editable", f"{ROOT}[test]")
    return python


def resolved(versions: Versions, python: Path, environment: Path) -> Path:
    """Write the constraints that go with a set.

    uv prefers the versions that it finds in its output file, and so changes only those that the set rules out.
    """
    if versions.start == "constraints" and not versions.requirements:
        return ROOT / "constraints.txt"
    requirements, constraints = environment / "set.in", environment / "constraints.txt"
    requirements.write_text("".join(f"{each}\n" for each in versions.requirements))
    command: list[str | Path] = [*UV, "pip", "compile", "--extra", "test", "--python", python]
    command += ["--output-file", constraints]
    if versions.start == "constraints":
        shutil.copy(ROOT / "constraints.txt", constraints)
    else:
        command += ["--resolution", versions.start]
    call(*command, ROOT / "pyproject.toml", requirements)
    return constraints


SHOWN = ("torch", "ray", "optuna", "mlflow", "transformers", "datasets", "lightning")


def installed_versions(python: Path) -> str:
    """Return the versions of an environment's Python and libraries."""
    script = f"""import platform, importlib.metadata as m
print(platform.python_version(), *(f"{{name}} {{m.version(name)}}" for name in {SHOWN}), sep=", ")"""
    return f"Python {call(python, '-c', script).strip()}"


def run_tests(python: Path, folder: Path, report: Path, tests: Sequence[str]) -> tuple[int, list[str]]:
    """Run tests in ``folder``, and return how many passed and the names of those that failed."""
    try:
        call(python, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *tests, cwd=folder)
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


def print_table(rows: Sequence[Row], checks: Sequence[str]) -> None:
    """Print a row for each set."""
    table = Table("set", "versions", *checks, "remarks", box=None, pad_edge=False)
    for row in rows:
        table.add_row(row.name, row.versions, *(row.passed.get(name, "-") for name in checks), row.remarks)
    Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False).print(table)


if __name__ == "__main__":
    sys.exit(main())
