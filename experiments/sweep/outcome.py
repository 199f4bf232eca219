"""What became of a trial, in the words that the terminal, MLflow, summary.json and Optuna share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ray.tune.experiment import Trial
from ray.tune.result import TRAINING_ITERATION

from experiments.sweep.budget import Budget
from trainables.runtime import names

Outcome: TypeAlias = Literal["finished", "stopped early", "failed"]


def end_of(last_result: Mapping[str, Any], metric: str, budget: Budget) -> Outcome:
    """Return what became of a trial that ended without an error; one that diverged has failed."""
    if why_diverged(last_result, metric):
        return "failed"
    return "finished" if budget.spent(last_result) else "stopped early"


def why_diverged(result: Mapping[str, Any], metric: str) -> str | None:
    """Return which reported number is not finite, if the objective or a loss is not."""
    for name, value in result.items():
        watched = name == metric or name.endswith("loss")
        if watched and isinstance(value, Real) and not math.isfinite(value):
            return f"diverged: {name} is {value} after epoch {result.get(names.EPOCH, result.get(TRAINING_ITERATION))}"
    return None


def constraints_of(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the soft constraints that a trial reports, by name; above 0 means violated."""
    return {
        name.removeprefix(names.CONSTRAINT_PREFIX): float(value)
        for name, value in result.items()
        if name.startswith(names.CONSTRAINT_PREFIX) and math.isfinite(value)
    }


def error_of(trial: Trial) -> str | None:
    """Return the text of the errors that ``trial`` has had, None if there were none; it may have survived them."""
    # Not trial.get_error(), which reads the copy in the sweep's folder, and that is made some time later.
    return None if trial.error_file is None else Path(trial.error_file).read_text().strip()


def number_of(trial: Trial) -> int:
    """Return the number of ``trial`` in its sweep, from 1, the baseline."""
    return number_in(trial.experiment_tag)


def number_in(tag: str | None) -> int:
    """Return the number of the trial that Tune has given this tag, "<number>_<varied parameters>"."""
    return int(str(tag).split("_", maxsplit=1)[0])


def trial_name(number: int) -> str:
    """Return the name of a trial, and of its folder."""
    return f"trial-{number:03d}"


def short(value: object) -> str:
    """Return a value as people read it: numbers in four digits, nothing for None."""
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
