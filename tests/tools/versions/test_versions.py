import re
import sys
from pathlib import Path

import pytest

from tests.tools.versions.__main__ import (
    COMBINATIONS,
    QUICK_TESTS,
    ROOT,
    Versions,
    check,
    combinations,
    main,
    run_tests,
)

SOME_TESTS = """
import pytest

def test_that_passes(): pass
def test_that_fails(): assert 1 == 2
@pytest.fixture
def broken(): raise OSError
def test_whose_fixture_fails(broken): pass
@pytest.mark.skip
def test_that_is_skipped(): pass
@pytest.mark.workers
def test_that_is_not_quick(): pass
"""


@pytest.mark.processes
def test_passed_and_failed_parts_are_listed(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    workers\n    processes\n")
    (tmp_path / "test_some.py").write_text(SOME_TESTS)
    passed, failed = run_tests(Path(sys.executable), tmp_path, tmp_path / "tests.xml", QUICK_TESTS)
    assert passed == 1
    assert failed == ["test_some::test_that_fails", "test_some::test_whose_fixture_fails"]


@pytest.mark.processes
def test_a_python_that_is_not_there_is_a_row_that_says_so(tmp_path: Path) -> None:
    row = check(Versions("none", "3.99"), ["quick"], tmp_path / "environment")
    assert (row.versions.strip(), row.passed, row.is_good) == ("Python 3.99", {}, False)
    assert "uv ended with status 2" in row.remarks
    assert "No interpreter found for Python 3.99" in row.remarks


def test_without_options_all_sets_run() -> None:
    assert [*combinations([], [], [])] == [*COMBINATIONS]
    assert [versions.name for versions in combinations(["ray"], [], [])] == ["ray"]
    with pytest.raises(SystemExit):
        main(["rya"])


def test_with_options_all_their_combinations_run() -> None:
    both = [(versions.python, versions.requirements) for versions in combinations([], ["3.12", "3.13"], ["2.11"])]
    assert both == [("3.12", ("torch==2.11.*",)), ("3.13", ("torch==2.11.*",))]
    assert [versions.requirements for versions in combinations([], ["3.12"], [])] == [()]


def test_the_lowest_sets_are_the_bounds_of_pyproject() -> None:
    """The set of a library is its lower bound."""
    requirements = (ROOT / "pyproject.toml").read_text()
    for versions in COMBINATIONS:
        for requirement in versions.requirements:
            name, _, version = requirement.partition("==")
            if versions.name in (name, "trainers"):
                assert re.search(
                    rf"\b{name}(\[.*\])?>={re.escape(version.removesuffix('.*').removesuffix('.0'))}", requirements
                )
