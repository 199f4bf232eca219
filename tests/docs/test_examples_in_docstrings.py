"""The examples in the docstrings of public names are run: definitions as doctests, scripts as dry runs."""

from __future__ import annotations

import doctest
import inspect
import sys
import textwrap
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

import pytest

import gaudi_tune
from gaudi_tune.show.trackers import tracker
from gaudi_tune.sweep.policies.schedulers import scheduler

SCRIPTS = ("main", "tune_script")
"""Functions whose example is a script."""
DOORS = (
    "Budget", "Experiment", "Recipe", "TrialConfig", "WithPrior", "build_tuner", "get_checkpoint", "report",
    "save_if_asked",
)  # fmt: skip
"""What a user defines, what plans it, and what a train loop calls: each has an example."""
TO_EXTEND = {"Scheduler": scheduler.Scheduler, "Tracker": tracker.Tracker}
"""What a developer of this project extends."""
INTEGRATIONS = ("gaudi_tune.integrations.hugging_face:ReportCallback", "gaudi_tune.integrations.lightning:in_worker")
"""What reports from other libraries' trainers, which take seconds to import."""


def docstring_of(name: str) -> str:
    return inspect.getdoc(TO_EXTEND.get(name) or getattr(gaudi_tune, name)) or ""


def test_definitions_have_an_example() -> None:
    assert [name for name in (*DOORS, *TO_EXTEND) if ">>>" not in docstring_of(name)] == []


@pytest.mark.parametrize("name", [name for name in (*gaudi_tune.__all__, *TO_EXTEND) if ">>>" in docstring_of(name)])
def test_an_example_does_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = {} if name in gaudi_tune.__all__ else vars(inspect.getmodule(TO_EXTEND[name]))
    check(docstring_of(name), {**module, "__name__": name})


@pytest.mark.parametrize("place", INTEGRATIONS)
def test_an_example_of_an_integration_does_what_it_says(place: str) -> None:
    part = resolve_name(place)
    check(inspect.getdoc(part) or "", {**vars(sys.modules[part.__module__])})


def check(docstring: str, names: dict[str, Any]) -> None:
    """Run the example of a docstring, which finds these names."""
    example = doctest.DocTestParser().get_doctest(docstring, names, "example", None, None)
    printed: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=printed.append)
    assert result.attempted and not result.failed, "".join(printed)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_can_be_planned(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    block: list[str] = []
    for line in docstring_of(name).partition("::\n")[2].splitlines():
        if line and not line.startswith(" "):
            break
        block.append(line)
    script = tmp_path / "my.py"
    script.write_text(textwrap.dedent("\n".join(block)))
    module: Any = ModuleType("__main__")
    module.__file__ = str(script)
    monkeypatch.setitem(sys.modules, "__main__", module)
    options = ["--dry-run", "--device", "cpu", "--storage", str(tmp_path / "results")]
    monkeypatch.setattr(sys, "argv", [str(script), *options])
    with pytest.raises(SystemExit) as ended:
        exec(compile(script.read_text(), str(script), "exec"), vars(module))
    printed = capsys.readouterr()
    assert ended.value.code == 0, printed.err
    assert printed.out.startswith("sweep   my-")
    assert "dry run: all checks passed" in printed.out
