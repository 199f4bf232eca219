"""Results from outside that ``--learn-from`` takes: a CSV file, a study of Optuna's, or an experiment in MLflow."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from gaudi_tune.base.errors import SweepError, first_line
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.ranges import holds
from gaudi_tune.define.search_space import SearchSpace

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

CSV_ENDING, OPTUNA, MLFLOW = ".csv", "optuna:", "mlflow:"
"""How a source from outside is told from a sweep: FILE.csv, optuna:STUDY@ADDRESS, mlflow:EXPERIMENT."""
MAX_RUNS = 1000
"""The most runs that are read of an experiment in MLflow: the latest."""


class Result(NamedTuple):
    """One trial from outside."""

    params: Mapping[str, Any]
    """Its values by name, perhaps as texts."""
    curve: Mapping[int, float]
    """Finite values of the metric by step; 0 for a value without a step."""


def is_outside(source: str) -> bool:
    """Whether a source of ``--learn-from`` is none of our sweeps.

    >>> [is_outside(source) for source in ("first", "old.csv", "optuna:digits@sqlite:///old.db", "mlflow:digits")]
    [False, True, True, True]
    """
    return source.endswith(CSV_ENDING) or source.startswith((OPTUNA, MLFLOW))


def read_outside(source: str, objective: Objective, tracking_uri: str) -> list[Result]:
    """Return the trials of a source that have a value of the objective.

    Raises:
        SweepError: It cannot be read, or has no such value.
    """
    try:
        if source.startswith(OPTUNA):
            results = list(_in_study(*source.removeprefix(OPTUNA).partition("@")[::2], objective))
        elif source.startswith(MLFLOW):
            results = list(_in_mlflow(source.removeprefix(MLFLOW), objective.name, tracking_uri))
        else:
            results = list(_in_table(Path(source).expanduser(), objective.name))
    except SweepError as error:
        raise SweepError(f"--learn-from {source}: {error}") from error
    except Exception as error:  # a database or a server of any content: each raises its own
        raise SweepError(f"--learn-from {source}: it cannot be read ({first_line(error)}); leave it out") from error
    if not results:
        raise SweepError(f"--learn-from {source}: no trial in it has a finite {objective.name}; leave it out")
    return results


def _in_table(file: Path, metric: str) -> Iterator[Result]:
    """Yield the rows of a table with a column for the metric; a column ``at`` has the step."""
    with file.open(newline="", encoding="utf-8-sig") as lines:
        rows = csv.DictReader(lines)
        if metric not in (rows.fieldnames or ()):
            raise SweepError(f"it has no column {metric}, only {', '.join(rows.fieldnames or ('none',))}; rename one")
        for row in rows:
            value = _number(row[metric])
            if value is not None and row.get("status") != "failed":
                yield Result({k: v for k, v in row.items() if k and v}, {int(_number(row.get("at")) or 0): value})


def _in_study(name: str, address: str, objective: Objective) -> Iterator[Result]:
    import optuna

    if not address:
        raise SweepError("give the study's name and the address of its storage, such as optuna:digits@sqlite:///old.db")
    if urlsplit(address).password:
        raise SweepError("the file of the sweep would have this password; give it in the environment (PGPASSWORD)")
    study = optuna.load_study(study_name=name, storage=address)
    if (study.directions[0].name == "MAXIMIZE") != objective.maximizes:
        raise SweepError(f"it has the direction {study.directions[0].name.lower()}, and the objective is {objective}")
    for trial in study.get_trials(deepcopy=False):
        ends = [(trial.last_step or 0, trial.values[0])] if trial.values else []
        curve = {step: v for step, v in (*trial.intermediate_values.items(), *ends) if math.isfinite(v)}
        if curve and trial.state.name != "FAIL":
            yield Result(trial.params, curve)


def _in_mlflow(experiment: str, metric: str, tracking_uri: str) -> Iterator[Result]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri)
    mlflow_experiment = client.get_experiment_by_name(experiment)
    if mlflow_experiment is None:
        raise SweepError(f"there is no such experiment at {tracking_uri}")
    for run in client.search_runs([mlflow_experiment.experiment_id], max_results=MAX_RUNS):
        if metric in run.data.metrics and run.info.status != "FAILED":
            history = client.get_metric_history(run.info.run_id, metric)
            if curve := {entry.step: entry.value for entry in history if math.isfinite(entry.value)}:
                yield Result(run.data.params, curve)


def as_trials(results: Sequence[Result], space: SearchSpace) -> list[FrozenTrial]:
    """Return results as trials of a study of the space: its hyperparameters, under the study's names, and the curve.

    Other columns are left out. A text is the choice that is written so, or a number.
    """
    from optuna.trial import FrozenTrial, TrialState

    trials = []
    for number, result in enumerate(results):
        params = {name: _value(space, name, value) for name, value in result.params.items() if name in space.ranges}
        try:
            study_names = space.draw_with(params).study_names
        except SweepError:  # it lacks a value, or has one outside
            study_names = {}
        trials.append(
            FrozenTrial(
                number=number, trial_id=number, state=TrialState.COMPLETE, value=0.0, datetime_start=None,
                datetime_complete=None, params={study_names.get(name, name): value for name, value in params.items()},
                distributions={}, user_attrs={}, system_attrs={}, intermediate_values=dict(result.curve),
            )
        )  # fmt: skip
    return trials


def _value(space: SearchSpace, name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    written_choice = next((choice for choice in space.values(name) if str(choice) == value), None)
    number = _number(value)
    if written_choice is not None or number is None:
        return value if written_choice is None else written_choice
    return int(number) if number.is_integer() and any(holds(r, int(number)) for r in space.ranges[name]) else number


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
