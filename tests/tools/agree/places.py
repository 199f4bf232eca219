"""The places where a number of a sweep stands, each read as its user reads it, and compared with the truth."""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import optuna
from mlflow.entities import Run
from mlflow.tracking import MlflowClient
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from gaudi_tune.base.files import GROUPS_FOLDER
from gaudi_tune.base.names import test_metric
from gaudi_tune.base.words import format_score, format_value
from gaudi_tune.cli.export import export
from gaudi_tune.cli.sweeps import StoredSweep
from gaudi_tune.define.objective import Objective
from gaudi_tune.group.last_written_checkpoint import SUFFIX
from gaudi_tune.on_ray.tune_files import results_so_far
from gaudi_tune.show.result import in_list
from gaudi_tune.show.trackers.mlflow_names import accepted_name
from gaudi_tune.sweep.record.state_log import logged_trials
from gaudi_tune.sweep.record.trial_state import trial_name
from gaudi_tune.sweep.search.study_trial import number_in_sweep
from tests.helpers.stored_study import stored_trials
from tests.show.pictures.test_pictures import data_in
from tests.tools.agree.groups import STATE
from tests.tools.agree.taken import exported, learned
from tests.tools.agree.truth import Truth


def unlike(name: str, found: Any, wanted: Any) -> Iterator[str]:
    """Yield what is wrong with something that is not as it should be."""
    if found != wanted:
        yield f"{name} has {found}, not {wanted}"


def disagreements(folder: Path, uri: str, printed: str, truth: Truth, *, killed: bool, complete: bool) -> list[str]:
    """Return what the places of a sweep say that is not so."""
    summary = json.loads((folder / "summary.json").read_text())
    wrong = [f"{place}: {text}" for place, text in _all(folder, uri, printed, truth, summary, killed=killed)]
    if complete and not summary["complete"]:
        wrong.append(f"summary.json: the sweep is not complete: {summary['ended_early']}")
    return wrong


def _all(
    folder: Path, uri: str, printed: str, truth: Truth, summary: Mapping[str, Any], *, killed: bool
) -> Iterator[tuple[str, str]]:
    sweep = StoredSweep.find(folder, folder.parent)
    raised = {trial["trial"] for trial in summary["trials"] if "why" in trial and "diverged" not in trial["why"]}
    if truth.clones and killed:  # after a kill, other trials are copied than before it
        raised |= {trial["trial"] for trial in summary["trials"]}
    for trial in summary["trials"]:
        if trial["trial"] in raised and not truth.settle(trial["trial"], trial["value"]):
            yield "summary.json", f"trial {trial['trial']} has raised an error, and has {trial['value']}"
    for place, found in {
        "summary.json": _of_list(summary["trials"]),
        "show --json": _of_list(sweep.trials),
        "state.log": _of_list(
            in_list(trial, sweep.file.space, sweep.file.all_objectives)
            for trial in logged_trials(folder)
            if not trial.confirms
        ),
    }.items():
        yield from ((place, text) for text in _compared(found, truth))
    shown = "\n".join(sweep.lines(["gaudi-tune", "run"]))
    for place, texts in {
        "study": _curves_of_study(folder, truth),
        "best": _best(summary, sweep.brief()["best"], truth),
        "printed": _lines(printed, truth),
        "show": _lines(shown, truth),
        "report.html": _page(folder, truth),
        "result.json": _results(folder, truth, killed=killed),
        "MLflow": _mlflow(folder.name, uri, truth),
        "confirmation": _confirmation(folder.name, uri, truth, summary, {"printed": printed, "show": shown}, sweep),
        "export": exported(sweep, truth),
        "learned": learned(sweep, truth),
        "points": _points(folder, uri, truth, summary, sweep) if len(truth.objectives) > 1 else (),
        "counts": _counts(folder, uri, summary, sweep),
        "devices": _device_time(folder, summary),
        "optuna.log": _journal(folder, truth),
        "ResultGrid": _grid(truth),
        "copies": (f"{copy.name} is left" for copy in (folder / GROUPS_FOLDER).glob(f"*{SUFFIX}*")),
    }.items():
        yield from ((place, text) for text in texts)


def _of_list(trials: Iterable[dict[str, Any]]) -> dict[int, tuple[Any, Any, Mapping[str, Any]]]:
    return {trial["trial"]: (trial["value"], trial["at"], trial["config"]) for trial in trials}


def _compared(found: Mapping[int, tuple[Any, Any, Mapping[str, Any]]], truth: Truth) -> Iterator[str]:
    """Compare best values, where they were reported, and configurations, of all trials."""
    yield from unlike("it", found.keys(), truth.reports.keys())
    for trial in found.keys() & truth.reports.keys():
        value, at, config = found[trial]
        best = truth.best_of(trial)
        if value != best:
            yield f"trial {trial} has {value}, not {best}"
        elif best is not None and at not in truth.epochs_of(trial, best):
            yield f"trial {trial} has {value} at {at}, not at {truth.epochs_of(trial, best)}"
        if truth.clones:
            if best is not None and config["x"] not in truth.x_of(trial, best):
                yield f"trial {trial} has {value} with {config}, not {truth.x_of(trial, best)}"
        else:
            yield from unlike(f"trial {trial}", dict(config), dict(truth.configs[trial]))


def _curves_of_study(folder: Path, truth: Truth) -> Iterator[str]:
    for trial in stored_trials(folder):
        number = number_in_sweep(trial)
        reported = set(truth.finite(number).values()) if number in truth.reports else set()
        if others := {value for value in trial.intermediate_values.values() if math.isfinite(value)} - reported:
            yield f"trial {number} has {others}, which it never reported"


def _best(summary: Mapping[str, Any], listed: float | None, truth: Truth) -> Iterator[str]:
    best = summary["best"]
    if best is None:
        if truth.best is not None:
            yield f"is none, not {truth.best}"
        return
    if not (best["value"] == listed == truth.best):
        yield f"summary.json has {best['value']}, ls has {listed}, and the best report was {truth.best}"
    for name in ("best", "best_saved"):
        if (saved := summary[name]) is None:
            continue
        if saved[truth.unit] not in truth.epochs_of(saved["trial"], saved["value"]):
            yield f"{name}: trial {saved['trial']} did not report {saved['value']} at {truth.unit} {saved[truth.unit]}"
        if saved["checkpoint"] is not None:
            inside = json.loads(Path(saved["checkpoint"], STATE).read_text())["metrics"][truth.metric]
            if inside != saved["value"]:
                yield f"{name}: its checkpoint is that of {inside}, and is said to be that of {saved['value']}"


def _lines(text: str, truth: Truth) -> Iterator[str]:
    """Compare what a terminal shows: the lines of the best, and the last line of each trial with its best value."""
    metric = re.escape(truth.metric)
    results = re.findall(rf"^best        trial (\d+): {metric} (\S+) at {truth.unit} (\d+)", text, re.MULTILINE)
    for trial, value, epoch in results[-1:]:  # of the last end, where trials were added
        if value != format_value(truth.best):
            yield f"the best is {value}, not {format_value(truth.best)}"
        elif int(epoch) not in truth.epochs_of(int(trial), truth.best_of(int(trial)) or 0.0):
            yield f"trial {trial} has its best at epoch {epoch}"
    values = rf"{metric} (\S+) (?: ?error \S+ )?(?:\(best ([^),]+)[^)]*\))?"
    lines = re.findall(rf"\] trial (\d+)  .*  {values}.*(finished|stopped early|paused)", text)
    shown = {trial: (best or last, status) for trial, last, best, status in lines}
    for trial, (value, status) in shown.items():
        if status == "paused":  # perhaps after a kill that has undone what ended it
            continue
        best = truth.best_of(int(trial)) if int(trial) in truth.reports.keys() - truth.settled.keys() else None
        if best is not None and abs(float(value) - best) > 1e-3 * max(1.0, abs(best)):
            yield f"trial {trial} is shown with {value}, not {best}"


def _page(folder: Path, truth: Truth) -> Iterator[str]:
    rows = [row for row in data_in((folder / "report.html").read_text())["trials"] if not row["confirms"]]
    yield from unlike("it", {row["number"] for row in rows}, truth.reports.keys())
    for row in rows:
        if row["number"] in truth.reports:
            yield from unlike(f"trial {row['number']}", row["best"], truth.best_of(row["number"]))


def _results(folder: Path, truth: Truth, *, killed: bool) -> Iterator[str]:
    """Compare Ray's own files; after a kill they may lack reports."""
    for trial, reports in truth.reports.items():
        file = folder / f"trial-{trial:03d}" / "result.json"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
        found = {line["training_iteration"]: line[truth.metric] for line in lines}
        wanted = {number: report[truth.metric] for number, report in reports.items()}
        if truth.clones:
            written = {repr(value) for value in wanted.values()}  # NaN is none of a set of numbers
            if others := {repr(line[truth.metric]) for line in lines} - written:
                yield f"trial {trial} has {others}, which it never reported"
            continue
        for number, value in found.items():
            if number not in wanted or repr(wanted[number]) != repr(value):
                yield f"trial {trial} has {value} as report {number}, not {wanted.get(number)}"
        if not killed and found.keys() != wanted.keys():
            yield f"trial {trial} has the reports {sorted(found)}, not {sorted(wanted)}"


def _runs(name: str, uri: str) -> tuple[Run, dict[int, Run]]:
    """Return the run of a sweep in MLflow, and those of the trials of its search that are its own still."""
    client = MlflowClient(uri)
    ids = [experiment.experiment_id for experiment in client.search_experiments()]
    (parent,) = client.search_runs(ids, f"attributes.run_name = '{name}' and tags.kind = 'sweep'")
    of_parent = f"tags.kind = 'trial' and tags.`mlflow.parentRunId` = '{parent.info.run_id}'"
    runs = [run for run in client.search_runs(ids, of_parent) if run.data.tags.get("status") != "lost"]
    return parent, {int(run.data.tags["trial"]): run for run in runs}


def _mlflow(name: str, uri: str, truth: Truth) -> Iterator[str]:
    client, (parent, current) = MlflowClient(uri), _runs(name, uri)
    metric = accepted_name(truth.metric)
    yield from unlike("the sweep", parent.data.metrics.get(f"best_{metric}"), truth.best)
    yield from unlike("it", current.keys(), truth.reports.keys())
    for trial in current.keys() & truth.reports.keys():
        run = current[trial]
        params = {key: run.data.params.get(key) for key in truth.configs[trial]}
        yield from unlike(f"trial {trial}", params, {key: str(value) for key, value in truth.configs[trial].items()})
        shown = run.data.metrics.get(f"best_{metric}")
        wanted = truth.best_of(trial)
        if shown != wanted and not (wanted is None and (shown is None or math.isnan(shown))):
            yield f"trial {trial} has {shown} as its best, not {wanted}"
        history = {point.value for point in client.get_metric_history(run.info.run_id, metric)}
        if others := {value for value in history if math.isfinite(value)} - {*truth.finite(trial).values()}:
            yield f"trial {trial} has {others}, which it never reported"
        if (lacks := set(truth.finite(trial).values()) - history) and not truth.clones:
            yield f"trial {trial} lacks {lacks}"


def _confirmation(
    name: str, uri: str, truth: Truth, summary: Mapping[str, Any], texts: Mapping[str, str], sweep: StoredSweep
) -> Iterator[str]:
    """Compare the scores of the confirmation, their means, and the halves of the widths of their intervals."""
    result = summary["confirmation"] or {"baseline": None, "rivals": []}
    rows = [row for row in (result["baseline"], *result["rivals"]) if row is not None]
    if {row["trial"] for row in rows} != truth.confirmed.keys():
        yield f"summary.json has the trials {[row['trial'] for row in rows]}, not {sorted(truth.confirmed)}"
        return
    for row in rows:
        yield from _scores(row, truth)
    rivals = [trial for trial in truth.confirmed if trial != truth.baseline]
    rivals.sort(key=lambda trial: -truth.objectives[0].score(truth.mean(trial)))
    yield from unlike("the order", [row["trial"] for row in result["rivals"]], rivals)
    for place, text in texts.items():
        for number in truth.confirmed:
            half = f" ± {format_score(truth.half_width(number))}" if len(truth.confirmed[number]) > 1 else ""
            score = re.escape(f"{format_score(truth.mean(number))}{half} over {len(truth.confirmed[number])} ")
            label = "baseline" if number == truth.baseline else f"trial {number:03d}"
            if not re.search(rf"^(confirmed)? +{label} +{score}", text, re.MULTILINE):
                yield f"{place}: no line of {label} has {score}"
    winner, listed = next(iter(rivals), None), sweep.brief()["confirmed"]
    if winner is not None and not math.isclose(listed["mean"], truth.mean(winner)):
        yield f"ls has {listed['mean']}, not {truth.mean(winner)}"
    run, _ = _runs(name, uri)
    for role, trial in {"baseline": truth.baseline, "winner": winner}.items():
        mean = run.data.metrics.get(f"confirmed/{accepted_name(test_metric(truth.metric))} of {role}")
        wanted = None if trial is None or trial not in truth.confirmed else truth.mean(trial)
        if mean != wanted and not math.isclose(mean or math.nan, wanted or math.nan):
            yield f"MLflow has {mean} of the {role}, not {wanted}"


def _scores(row: Mapping[str, Any], truth: Truth) -> Iterator[str]:
    """Compare a row of the summary's confirmation."""
    trial = row["trial"]
    if sorted(row["scores"]) != sorted(truth.confirmed[trial]):
        yield f"trial {trial} has the scores {row['scores']}, not {truth.confirmed[trial]}"
        return
    if not math.isclose(row["mean"], truth.mean(trial)):
        yield f"trial {trial} has the mean {row['mean']}, not {truth.mean(trial)}"
    if len(row["scores"]) > 1 and not math.isclose(row["interval"][1] - row["mean"], truth.half_width(trial)):
        yield f"trial {trial} has the interval {row['interval']}, not {truth.half_width(trial)} on each side"
    yield from unlike(f"trial {trial} in the search", row["searched"], truth.best_of(trial))
    yield from unlike(f"trial {trial}", row["config"], row["config"] | truth.configs[trial])


def _points(folder: Path, uri: str, truth: Truth, summary: Mapping[str, Any], sweep: StoredSweep) -> Iterator[str]:
    """Compare all objectives of each trial, and the front."""
    names = [objective.name for objective in truth.objectives]
    rows = {row["number"]: row for row in data_in((folder / "report.html").read_text())["trials"]}
    for trial in sweep.trials:
        point = truth.point_of(trial["trial"])
        yield from unlike(f"show: trial {trial['trial']}", trial.get("point", []), point)
        yield from unlike(f"report.html: trial {trial['trial']}", list(rows[trial["trial"]]["others"]), point[1:])
    front = {row["trial"]: [row["values"][name] for name in names] for row in summary["front"]}
    yield from unlike("the front", front, truth.front)
    parent, runs = _runs(folder.name, uri)
    tagged = {trial for trial, run in runs.items() if run.data.tags.get("pareto_front") == "true"}
    yield from unlike("MLflow's front", tagged, truth.front.keys())
    for place, objective in enumerate(truth.objectives[1:], 1):
        wanted = max((point[place] for point in truth.front.values()), key=objective.score, default=None)
        yield from unlike(
            f"MLflow's sweep, of {objective.name},", parent.data.metrics.get(f"best_{objective.name}"), wanted
        )
    yield from unlike("MLflow's front", parent.data.metrics.get("trials_on_front"), len(truth.front) or None)


def _counts(folder: Path, uri: str, summary: Mapping[str, Any], sweep: StoredSweep) -> Iterator[str]:
    """Compare how many trials ended how, and the time of the devices."""
    statuses = Counter(trial.status for trial in logged_trials(folder))
    yield from unlike("summary.json", Counter(summary["counts"]), statuses)
    listed = Counter(trial["status"] for trial in sweep.trials)
    searched = Counter(trial.status for trial in logged_trials(folder) if not trial.confirms)
    yield from unlike("show", listed, searched)
    brief = sweep.brief()
    ended = sum(statuses[status] for status in ("finished", "stopped early", "failed"))
    yield from unlike("ls", (brief["done"], brief["failed"]), (ended, statuses["failed"]))
    parent, _ = _runs(folder.name, uri)
    for status in ("finished", "stopped early", "failed"):
        shown = parent.data.metrics.get(f"trials_{status.replace(' ', '_')}", 0)
        yield from unlike(f"MLflow, of {status},", shown, statuses[status])


def _device_time(folder: Path, summary: Mapping[str, Any]) -> Iterator[str]:
    """Compare the time of the devices, in all, one by one, and trial by trial."""
    time = summary["device_time"]
    for row in data_in((folder / "report.html").read_text())["trials"]:
        seconds = sum(time["trials"].get(str(row["number"]), {}).values())
        if abs(seconds - row["seconds"]) > 0.2:
            yield f"trial {row['number']} had its devices for {row['seconds']} s on the page, {seconds} in the summary"
    total = sum(summary["device_seconds"].values()) * summary["trials_per_device"]
    if abs(total - sum(sum(seconds.values()) for seconds in time["devices"].values())) > 1:
        yield f"all devices together have {total} s, one by one {time['devices']}"
    if abs(total - len(time["devices"]) * summary["wall_s"]) > 1:
        yield f"{len(time['devices'])} devices have {total} s in {summary['wall_s']} s"
    of_trials = sum(sum(seconds.values()) for seconds in time["trials"].values())
    if of_trials > total + 1:
        yield f"the trials had {of_trials} s, and the devices {total}"


def _journal(folder: Path, truth: Truth) -> Iterator[str]:
    """Compare the study that Optuna's dashboard opens."""
    (study,) = optuna.get_all_study_summaries(storage := JournalStorage(JournalFileBackend(str(folder / "optuna.log"))))
    trials = optuna.load_study(study_name=study.study_name, storage=storage).trials
    numbers = [number_in_sweep(trial) for trial in trials]
    ended = {trial.number for trial in logged_trials(folder) if not trial.confirms and trial.has_ended}
    yield from unlike("it", sorted(numbers), sorted(ended))
    for number, trial in zip(numbers, trials, strict=True):
        if number not in truth.reports:
            continue
        values = set(truth.finite(number).values())
        if trial.state.name == "COMPLETE":
            yield from unlike(f"trial {number}", trial.values, truth.point_of(number))
        if trial.state.name == "PRUNED" and trial.values and trial.values[0] not in values:
            yield f"trial {number} has {trial.values}, which it never reported"
        if others := {value for value in trial.intermediate_values.values() if math.isfinite(value)} - values:
            yield f"trial {number} has {others}, which it never reported"
        if not truth.clones:
            x = truth.configs[number]["x"]
            yield from unlike(f"trial {number}", trial.params.get("x", x), x)


def _grid(truth: Truth) -> Iterator[str]:
    """Compare what a script gets from ``fit()``."""
    if truth.results is None:
        return
    if missing := truth.reports.keys() - truth.results.keys():
        yield f"lacks the trials {sorted(missing)}"
    for trial, reports in truth.reports.items():
        if not reports or truth.clones or trial not in truth.results:
            continue
        value, config = truth.results[trial]
        last = [reports[number][truth.metric] for number in (max(reports), [*reports][-1])]
        if repr(value) not in map(repr, last):
            yield f"trial {trial} has {value} as its last, not one of {last}"
        yield from unlike(f"trial {trial}", config["x"], truth.configs[trial]["x"])


def shown_when_killed(
    folder: Path, objective: Objective, logged: Mapping[str, Mapping[int, Any]], *, clones: bool
) -> Iterator[str]:
    """Compare what is said of a sweep that a kill has ended with what the loops have written down so far."""
    sweep = StoredSweep.find(folder, folder.parent)
    brief = sweep.brief()
    values = {trial["trial"]: trial["value"] for trial in sweep.trials if trial["value"] is not None}
    shown = [("show", trial_name(number), value) for number, value in values.items()]
    if not clones:  # Ray gives a clone the last result of the trial that it continues
        last = ((Path(result.path).name, result.metrics or {}) for result in results_so_far(folder))
        shown += [("ResultGrid", name, metrics[objective.name]) for name, metrics in last if objective.name in metrics]
    for place, name, value in shown:
        if repr(value) not in {repr(report[objective.name]) for report in logged.get(name, {}).values()}:
            yield f"{place}: {name} has {value}, which it never reported"
    yield from unlike("ls: the best", brief["best"], max(values.values(), key=objective.score, default=None))
    if brief["baseline"] not in (values.get(1), None):
        yield f"ls: the baseline is {brief['baseline']}, not {values.get(1)}"
    with tempfile.TemporaryDirectory() as taken:
        if len(export(sweep, Path(taken))) > 1 and sweep.state == "killed":  # it may have ended before the kill
            yield "export: a sweep that has not ended has a winner"
