"""Whether a sweep can go on with what it began with; the file is as it would have left it."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ray import cloudpickle, tune

from gaudi_tune import Recipe, SweepOptions
from gaudi_tune.base.errors import SweepError
from gaudi_tune.plan.check import NEEDED_IN_A_TRIAL, check_libraries, check_unchanged
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.sweep.record.sweep_file import read_sweep_file, write_sweep_file
from gaudi_tune.training.script_loop import run_script
from tests.sweep.record.test_sweep_file import PLAIN, plan_in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep of 8 trials, 2 at a time, that was interrupted."""
    plan = plan_in(tmp_path)
    plan.folder.mkdir()
    write_sweep_file(plan)
    return plan.folder


@pytest.mark.parametrize(
    ("experiment", "changes", "message"),
    [
        (
            replace(PLAIN, space={"x": tune.uniform(-2.0, 1.0), "y": tune.choice([1, 2])}),
            {},
            "the search space has changed for x, y, and a sweep keeps its own",
        ),
        (replace(PLAIN, mode="min"), {}, "objective is max score, and the experiment's is min score; a study has one"),
        (replace(PLAIN, metric="train_loss"), {}, "objective is max score, and the experiment's is min train_loss"),
        (PLAIN, {"groups": 1}, "had 2 trials at a time, and there is room for 1"),
    ],
)
def test_it_goes_on_only_with_what_it_was(folder: Path, experiment: Any, changes: dict[str, Any], message: str) -> None:
    check_unchanged(plan_in(folder.parent, num_samples=9), read_sweep_file(folder))
    with pytest.raises(SweepError, match=message):
        check_unchanged(plan_in(folder.parent, experiment=experiment, **changes), read_sweep_file(folder))


def test_a_space_that_is_written_as_a_function_is_the_same_space(folder: Path) -> None:
    asked = replace(PLAIN, space=lambda trial: {"fail_at": 0 * trial.suggest_float("x", -1.0, 1.0)})
    check_unchanged(plan_in(folder.parent, experiment=asked), read_sweep_file(folder))


def leave(config: Any) -> list[str]:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"check": lambda config: config.none},
            r"^check raised AttributeError: .*test_check\.py, line \d+\)",
        ),
        ({"check": lambda config: next(iter([]))}, r"^check raised StopIteration .*test_check"),
        ({"check": leave}, r"^check raised SystemExit: 3 \(.*test_check\.py, line \d+\)"),
        ({"check": lambda config: int("it has no rows")}, "^invalid literal for int.. with base 10: 'it has no rows'$"),
        ({"check": lambda config: None}, "^check must return a list of texts for the plan, .* but returned None"),
        ({"check": lambda config: "fine"}, "^check must return a list of texts for the plan, .* but returned 'fine'"),
        ({"recipes": {"full": Recipe(settings=lambda: {"a": 1 / 0})}}, r"failed: ZeroDivisionError.*test_check\.py"),
        ({"recipes": {"full": Recipe(settings=lambda: 3)}}, "must be values by name, .* but got 3"),  # type: ignore[arg-type,return-value]
        ({"space": lambda trial: {"x": trial.nothing}}, r"function failed .*AttributeError: .*test_check\.py, line"),
    ],
)
def test_an_error_in_a_function_of_the_users_says_in_which_line(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SweepError, match=message):
        make_plan(replace(PLAIN, **fields), SweepOptions(storage=tmp_path, device="cpu"))


def with_a_trainer(config: dict[str, Any]) -> None:
    from transformers import Trainer, TrainingArguments

    Trainer(args=TrainingArguments())


def with_a_callback(config: dict[str, Any]) -> None:
    from gaudi_tune.integrations.hugging_face import ReportCallback

    ReportCallback()


def with_lightning(config: dict[str, Any]) -> None:
    from gaudi_tune.integrations.lightning import in_worker

    in_worker()


SCRIPT = """import transformers

config = tune_script({})
transformers.Trainer(args=transformers.TrainingArguments("x"))
"""
OTHERS = """# No transformers.TrainingArguments here, and nothing of gaudi_tune.integrations.lightning
from lightning import Trainer
from transformers import AutoModel

class TrainerArguments: ...
"""
HELPER = """def arguments():
    import transformers
    return transformers.Seq2SeqTrainingArguments("x")
"""


@pytest.mark.parametrize(
    ("loop", "library"),
    [
        (with_a_trainer, "accelerate"),
        (with_a_callback, "accelerate"),
        (with_a_callback, "transformers"),
        (with_lightning, "lightning"),
    ],
)
def test_a_trainer_whose_library_is_missing_is_an_error_of_the_plan(
    loop: Any, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    with pytest.raises(SweepError, match=f"needs {library}, which is not installed: pip install {library}$"):
        make_plan(replace(PLAIN, train_loop=loop), SweepOptions(storage=tmp_path, device="cpu"))


def test_a_loop_without_a_trainer_needs_no_library_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        monkeypatch.delitem(sys.modules, name)  # loops of others, this file among them
    for library in NEEDED_IN_A_TRIAL:
        monkeypatch.setitem(sys.modules, library, None)
    script = ModuleType("__main__")
    script.__file__ = str(tmp_path / "script.py")
    monkeypatch.setitem(sys.modules, "__main__", script)
    for source, needs in ((OTHERS, False), (SCRIPT, True)):
        Path(script.__file__).write_text(source)
        with pytest.raises(SweepError, match=r"pip install accelerate$") if needs else nullcontext():
            check_libraries(cloudpickle.dumps(partial(run_script, path="script.py", source=source)))
    Path(script.__file__).write_text("")
    (tmp_path / "helper_of_the_loop.py").write_text(HELPER)
    monkeypatch.syspath_prepend(tmp_path)
    __import__("helper_of_the_loop")
    with pytest.raises(SweepError, match=r"pip install accelerate$"):
        check_libraries(cloudpickle.dumps("a loop of a module that uses the helper"))
    monkeypatch.delitem(sys.modules, "helper_of_the_loop")
