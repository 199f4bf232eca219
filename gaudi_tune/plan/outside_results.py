"""Results from outside that ``--learn-from`` takes: a CSV file, a study of Optuna's, or an experiment in MLflow."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from gaudi_tune.base.errors import SweepError, first_line
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.ranges import LARGEST
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.show.trackers.mlflow_names import accepted_name
from gaudi_tune.show.trackers.trial_run import PARAM_METRIC_PREFIX

CSV_ENDING, OPTUNA, MLFLOW = ".csv", "optuna:", "mlflow:"
"""How a source from outside is told from a sweep: FILE.csv, optuna:STUDY@ADDRESS, mlflow:EXPERIMENT."""
CONFIG = "config/"
"""What the column of a hyperparameter begins with if another column has its name."""
MAX_RUNS = 1000
"""The most runs that are read of an experiment in MLflow: the best, by their last value."""


class Result(NamedTuple):
    """One trial of a sweep, or from outside."""

    params: Mapping[str, Any]
    """Its values by name, perhaps as texts."""
    value: float | None
    """The best value of the metric; None if the trial failed, or has none."""


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
            results = list(_in_mlflow(source.removeprefix(MLFLOW), objective, tracking_uri))
        else:
            results = list(_in_table(Path(source).expanduser(), objective.name))
    except SweepError as error:
        raise SweepError(f"--learn-from {source}: {error}") from error
    except Exception as error:  # a database or a server of any content: each raises its own
        raise SweepError(f"--learn-from {source}: it cannot be read ({first_line(error)}); leave it out") from error
    if all(result.value is None for result in results):
        raise SweepError(f"--learn-from {source}: no trial in it has a finite {objective.name}; leave it out")
    return results


def _in_table(file: Path, metric: str) -> Iterator[Result]:
    """Yield the rows of a table with a column for the metric."""
    with file.open(newline="", encoding="utf-8-sig") as lines:
        rows = csv.DictReader(lines)
        if (head := [*(rows.fieldnames or ())]).count(metric) != 1:
            number = "more than one" if metric in head else "no"
            raise SweepError(f"it has {number} column {metric}, only {', '.join(head) or 'none'}; rename one")
        for row in rows:
            if None in row:
                raise SweepError(f"line {rows.line_num} has more values than the first; put one with commas in quotes")
            value = None if row.get("status") == "failed" else _number(row.pop(metric))
            yield Result({name.removeprefix(CONFIG): text or "" for name, text in row.items()}, value)


def _in_study(name: str, address: str, objective: Objective) -> Iterator[Result]:
    import optuna

    if not address:
        raise SweepError("give the study's name and the address of its storage, such as optuna:digits@sqlite:///old.db")
    if urlsplit(address).password:
        raise SweepError("the file of the sweep would have this password; give it in the environment (PGPASSWORD)")
    if name not in (studies := optuna.get_all_study_names(address)):
        raise SweepError(f"there is no such study, only {', '.join(studies) or 'none'}; name one of these")
    study = optuna.load_study(study_name=name, storage=address)
    if (study.directions[0].name == "MAXIMIZE") != objective.maximizes:
        raise SweepError(f"it has the direction {study.directions[0].name.lower()}, and the objective is {objective}")
    for trial in study.get_trials(deepcopy=False):
        all_values = (*trial.intermediate_values.values(), *(trial.values or ())[:1])
        values = [value for value in all_values if math.isfinite(value)]
        if values and trial.state.name != "FAIL":
            yield Result(trial.params, objective.best(values))


def _in_mlflow(experiment: str, objective: Objective, tracking_uri: str) -> Iterator[Result]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri)
    if (mlflow_experiment := client.get_experiment_by_name(experiment)) is None:
        raise SweepError(f"there is no such experiment at {tracking_uri}")
    metric = accepted_name(objective.name)
    order = f"metrics.`{metric}` {'DESC' if objective.maximizes else 'ASC'}"
    for run in client.search_runs([mlflow_experiment.experiment_id], max_results=MAX_RUNS, order_by=[order]):
        changed = any(name.startswith(PARAM_METRIC_PREFIX) for name in run.data.metrics)  # by pbt, on the way
        if run.info.status != "FAILED" and run.data.tags.get("kind") != "confirmation" and not changed:
            history = client.get_metric_history(run.info.run_id, metric)
            if values := [entry.value for entry in history if abs(entry.value) < LARGEST]:  # infinity is 1.8e308 there
                yield Result(run.data.params, objective.best(values))


def params_of(space: SearchSpace, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the space's hyperparameters, as the space has them. An empty text is None, as pandas writes
    it, or if the space has neither as a choice, no value."""
    sets = {name: space.values(name) for name in space.ranges} | {name: [value] for name, value in space.fixed.items()}
    empty = {name for name, choices in sets.items() if "" in choices or None in choices}
    given = {name: value for name, value in params.items() if name in (sets if value != "" else empty)}
    return {name: _value_in(sets[name], value) for name, value in given.items()}


def _value_in(choices: Sequence[Any], value: Any) -> Any:
    """Return the choice that is written as a value is, a number of their kind if it is one, or else the value."""
    text = str(value) or ("" if "" in choices else "None")
    for choice in choices:
        if text == str(choice) or (isinstance(choice, bool) and text.lower() == str(choice).lower()):  # Excel has TRUE
            return choice
    if (number := _number(text)) is None:
        return value
    return int(number) if number.is_integer() and int in map(type, choices) else number


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
