"""The places where a number of a sweep stands, each read as its user reads it, and the truth to compare them with."""

from __future__ import annotations

import csv
import json
import math
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from mlflow.entities import Run
from mlflow.tracking import MlflowClient
from scipy import stats

from gaudi_tune.base.words import format_score, format_value
from gaudi_tune.cli.export import export
from gaudi_tune.cli.sweeps import StoredSweep
from gaudi_tune.define.config_file import read_config
from gaudi_tune.plan.earlier import results_of
from gaudi_tune.show.result import in_list
from gaudi_tune.sweep.record.state_log import logged_trials
from gaudi_tune.sweep.search.study_trial import number_in_sweep
from tests.helpers.stored_study import stored_trials
from tests.show.pictures.test_pictures import data_in
from tests.tools.agree.groups import STATE


@dataclass(frozen=True)
class Truth:
    """A sweep as its loops wrote it down. Less is better."""

    reports: Mapping[int, Mapping[int, Mapping[str, Any]]]
    """For each trial of the search its reports that the sweep took, by their number."""
    configs: Mapping[int, Mapping[str, Any]]
    metric: str = "loss"
    confirmed: Mapping[int, Sequence[float]] = field(default_factory=dict)
    """For each trial that was confirmed the test losses at the best reports of those that confirm it."""
    baseline: int = 0
    """The number of the baseline; 0 if there is none."""
    clones: bool = False
    """Whether trials continue from checkpoints of others: then reports are in the order in which they were made."""
    settled: dict[int, float | None] = field(default_factory=dict)

    def finite(self, trial: int) -> dict[int, float]:
        """Return the values that count, by report."""
        values = {number: report[self.metric] for number, report in self.reports[trial].items()}
        return {number: value for number, value in values.items() if math.isfinite(value)}

    def best_of(self, trial: int) -> float | None:
        """Return the best value of a trial."""
        if trial in self.settled:
            return self.settled[trial]
        return min(self.finite(trial).values(), default=None)

    def settle(self, trial: int, value: float | None) -> bool:
        """Take the value of a trial that raised an error, and return whether it may be that.

        It counts with the best report of those that the sweep had saved by then, which only the sweep knows.
        """
        self.settled[trial] = value
        saved = {report[self.metric] for report in self.reports[trial].values() if report["saves"] or self.clones}
        return value is None or value in saved

    @property
    def best(self) -> float | None:
        """The best value of the sweep."""
        return min((value for trial in self.reports if (value := self.best_of(trial)) is not None), default=None)

    def mean(self, trial: int) -> float:
        """Return the mean of the scores of a confirmed trial."""
        return fmean(self.confirmed[trial])

    def half_width(self, trial: int) -> float:
        """Return half the width of the 95 % interval of that mean."""
        scores = self.confirmed[trial]
        return float(stats.t.ppf(0.975, len(scores) - 1)) * stats.sem(scores)

    @property
    def winner(self) -> int | None:
        """The trial with the best mean in the confirmation, or of the best report where nothing was confirmed."""
        if any(trial != self.baseline for trial in self.confirmed):
            return min(self.confirmed, key=self.mean)
        ranked = [(self.best_of(trial), trial) for trial in self.reports if self.best_of(trial) is not None]
        return min(ranked)[1] if ranked else None

    def x_of(self, trial: int, value: float) -> set[float]:
        """Return the x with which a trial reported a value."""
        return {report["x"] for report in self.reports[trial].values() if report[self.metric] == value}

    def epochs_of(self, trial: int, value: float) -> set[int]:
        """Return the epochs, from 1, in which a trial reported a value."""
        found, epoch = set(), 0
        reports = [report for _, report in sorted(self.reports[trial].items())]
        from_0 = bool(reports) and reports[0].get("epoch") == 0
        for report in reports:  # one that does not say its epoch has the last one, or its own number
            epoch = report["epoch"] + from_0 if "epoch" in report else epoch
            if report[self.metric] == value:
                found.add(int(epoch or report["count"]))
        return found


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
    yield from (("study", text) for text in _curves_of_study(folder, truth))
    yield from (("best", text) for text in _best(folder, summary, sweep.brief()["best"], truth))
    yield from (("printed", text) for text in _lines(printed, truth))
    yield from (("show", text) for text in _lines("\n".join(sweep.lines(["gaudi-tune", "run"])), truth))
    yield from (("report.html", text) for text in _page(folder, truth))
    yield from (("result.json", text) for text in _results(folder, truth, killed=killed))
    yield from (("MLflow", text) for text in _mlflow(folder.name, uri, truth, summary))
    yield from (("confirmation", text) for text in _confirmation(folder.name, uri, truth, summary, printed, sweep))
    yield from (("export", text) for text in _exported(sweep, truth))
    yield from (("learned", text) for text in _learned(sweep, truth))


def _of_list(trials: Iterable[dict[str, Any]]) -> dict[int, tuple[Any, Any, Mapping[str, Any]]]:
    return {trial["trial"]: (trial["value"], trial["at"], trial["config"]) for trial in trials}


def _compared(found: Mapping[int, tuple[Any, Any, Mapping[str, Any]]], truth: Truth) -> Iterator[str]:
    """Compare best values, where they were reported, and configurations, of all trials."""
    if found.keys() != truth.reports.keys():
        yield f"has the trials {sorted(found)}, not {sorted(truth.reports)}"
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
        elif dict(config) != dict(truth.configs[trial]):
            yield f"trial {trial} has {config}, not {truth.configs[trial]}"


def _curves_of_study(folder: Path, truth: Truth) -> Iterator[str]:
    for trial in stored_trials(folder):
        number = number_in_sweep(trial)
        reported = set(truth.finite(number).values()) if number in truth.reports else set()
        if others := {value for value in trial.intermediate_values.values() if math.isfinite(value)} - reported:
            yield f"trial {number} has {others}, which it never reported"


def _best(folder: Path, summary: Mapping[str, Any], listed: float | None, truth: Truth) -> Iterator[str]:
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
        if saved["epoch"] not in truth.epochs_of(saved["trial"], saved["value"]):
            yield f"{name}: trial {saved['trial']} did not report {saved['value']} at epoch {saved['epoch']}"
        if saved["checkpoint"] is not None:
            inside = json.loads(Path(saved["checkpoint"], STATE).read_text())["metrics"][truth.metric]
            if inside != saved["value"]:
                yield f"{name}: its checkpoint is that of {inside}, and is said to be that of {saved['value']}"


def _lines(text: str, truth: Truth) -> Iterator[str]:
    """Compare what a terminal shows: the lines of the best, and the last line of each trial with its best value."""
    results = re.findall(r"^best        trial (\d+): \w+ (\S+) at epoch (\d+)", text, re.MULTILINE)
    for trial, value, epoch in results[-1:]:  # of the last end, where trials were added
        if value != format_value(truth.best):
            yield f"the best is {value}, not {format_value(truth.best)}"
        elif int(epoch) not in truth.epochs_of(int(trial), truth.best_of(int(trial)) or 0.0):
            yield f"trial {trial} has its best at epoch {epoch}"
    values = r"loss (\S+) (?: ?error \S+ )?(?:\(best ([^),]+)[^)]*\))?"
    ended = re.findall(rf"\] trial (\d+)  .*  {values}.*(?:finished|stopped early)", text)
    shown = {trial: best or last for trial, last, best in ended}
    for trial, value in shown.items():
        best = truth.best_of(int(trial)) if int(trial) in truth.reports.keys() - truth.settled.keys() else None
        if best is not None and abs(float(value) - best) > 1e-3 * max(1.0, abs(best)):
            yield f"trial {trial} is shown with {value}, not {best}"


def _page(folder: Path, truth: Truth) -> Iterator[str]:
    rows = [row for row in data_in((folder / "report.html").read_text())["trials"] if not row["confirms"]]
    if {row["number"] for row in rows} != truth.reports.keys():
        yield f"has the trials {sorted(row['number'] for row in rows)}"
    for row in rows:
        if row["number"] in truth.reports and row["best"] != truth.best_of(row["number"]):
            yield f"trial {row['number']} has {row['best']}, not {truth.best_of(row['number'])}"


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


def _mlflow(name: str, uri: str, truth: Truth, summary: Mapping[str, Any]) -> Iterator[str]:
    client = MlflowClient(uri)
    ids = [experiment.experiment_id for experiment in client.search_experiments()]
    (parent,) = client.search_runs(ids, f"attributes.run_name = '{name}' and tags.kind = 'sweep'")
    best = parent.data.metrics.get(f"best_{truth.metric}")
    if best != truth.best:
        yield f"the sweep has {best}, not {truth.best}"
    of_parent = f"tags.kind = 'trial' and tags.`mlflow.parentRunId` = '{parent.info.run_id}'"
    runs: list[Run] = client.search_runs(ids, of_parent)
    current = {int(run.data.tags["trial"]): run for run in runs if run.data.tags.get("status") != "lost"}
    if current.keys() != truth.reports.keys():
        yield f"has the trials {sorted(current)}, not {sorted(truth.reports)}"
    for trial in current.keys() & truth.reports.keys():
        run = current[trial]
        params = {key: run.data.params.get(key) for key in truth.configs[trial]}
        if params != {key: str(value) for key, value in truth.configs[trial].items()}:
            yield f"trial {trial} has the parameters {params}, not {truth.configs[trial]}"
        shown = run.data.metrics.get(f"best_{truth.metric}")
        wanted = truth.best_of(trial)
        if shown != wanted and not (wanted is None and (shown is None or math.isnan(shown))):
            yield f"trial {trial} has {shown} as its best, not {wanted}"
        history = {point.value for point in client.get_metric_history(run.info.run_id, truth.metric)}
        if others := {value for value in history if math.isfinite(value)} - {*truth.finite(trial).values()}:
            yield f"trial {trial} has {others}, which it never reported"
        if (lacks := set(truth.finite(trial).values()) - history) and not truth.clones:
            yield f"trial {trial} lacks {lacks}"


def _confirmation(
    name: str, uri: str, truth: Truth, summary: Mapping[str, Any], printed: str, sweep: StoredSweep
) -> Iterator[str]:
    """Compare the scores of the confirmation, their means, and the halves of the widths of their intervals."""
    result = summary["confirmation"] or {"baseline": None, "rivals": []}
    rows = [row for row in (result["baseline"], *result["rivals"]) if row is not None]
    if {row["trial"] for row in rows} != truth.confirmed.keys():
        yield f"summary.json has the trials {[row['trial'] for row in rows]}, not {sorted(truth.confirmed)}"
        return
    for row in rows:
        yield from _scores(row, truth)
    rivals = sorted((trial for trial in truth.confirmed if trial != truth.baseline), key=truth.mean)
    if [row["trial"] for row in result["rivals"]] != rivals:
        yield f"the order is {[row['trial'] for row in result['rivals']]}, not {rivals}"
    for place, text in (("printed", printed), ("show", "\n".join(sweep.lines(["gaudi-tune", "run"])))):
        for number in truth.confirmed:
            half = f" ± {format_score(truth.half_width(number))}" if len(truth.confirmed[number]) > 1 else ""
            score = re.escape(f"{format_score(truth.mean(number))}{half} over {len(truth.confirmed[number])} ")
            label = "baseline" if number == truth.baseline else f"trial {number:03d}"
            if not re.search(rf"^(confirmed)? +{label} +{score}", text, re.MULTILINE):
                yield f"{place}: no line of {label} has {score}"
    winner, listed = next(iter(rivals), None), sweep.brief()["confirmed"]
    if winner is not None and not math.isclose(listed["mean"], truth.mean(winner)):
        yield f"ls has {listed['mean']}, not {truth.mean(winner)}"
    client = MlflowClient(uri)
    ids = [experiment.experiment_id for experiment in client.search_experiments()]
    (run,) = client.search_runs(ids, f"attributes.run_name = '{name}' and tags.kind = 'sweep'")
    for role, trial in {"baseline": truth.baseline, "winner": winner}.items():
        mean = run.data.metrics.get(f"confirmed/test_{truth.metric} of {role}")
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
    if row["searched"] != truth.best_of(trial):
        yield f"trial {trial} had {row['searched']} in the search, not {truth.best_of(trial)}"
    if row["config"] | truth.configs[trial] != row["config"]:
        yield f"trial {trial} has {row['config']}, not {truth.configs[trial]}"


def _exported(sweep: StoredSweep, truth: Truth) -> Iterator[str]:
    """Compare the table and the winner that are taken away."""
    with tempfile.TemporaryDirectory() as folder:
        table, *best = export(sweep, Path(folder))
        rows = list(csv.DictReader(table.read_text().splitlines()))
        winner = read_config(best[0])["settings"] if best else ()
    for row in rows:
        trial = int(row["trial"])
        value = truth.best_of(trial)
        if row[truth.metric] != ("" if value is None else repr(value)):
            yield f"trial {trial} has {row[truth.metric]}, not {value}"
        texts = {name: text for name, text in row.items() if name in sweep.file.space and text}
        if not truth.clones and texts != {name: str(value) for name, value in truth.configs[trial].items()}:
            yield f"trial {trial} has {texts}, not {truth.configs[trial]}"
    if truth.clones:
        return
    wanted = {f"{name}={value}" for name, value in truth.configs[truth.winner].items()} if truth.winner else set()
    if {*winner} != wanted:
        yield f"the winner is {winner}, not {wanted}"


def _learned(sweep: StoredSweep, truth: Truth) -> Iterator[str]:
    """Compare what a later sweep learns from."""
    results = results_of(sweep.folder, sweep.file, sweep.file.objective)
    for trial, result in zip(sorted(truth.reports), results, strict=True):
        value = truth.best_of(trial)
        if result.value not in (value, None):
            yield f"trial {trial} has {result.value}, not {value}"
        if truth.clones and value is not None:
            if result.params["x"] not in truth.x_of(trial, value):
                yield f"trial {trial} has {result.params}, not {truth.x_of(trial, value)}"
        elif not truth.clones and dict(result.params) != dict(truth.configs[trial]):
            yield f"trial {trial} has {result.params}, not {truth.configs[trial]}"
