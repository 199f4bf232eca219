"""The sweeps in a folder: how each stands, what it came to, and its trials. Reads their files; no Ray, no torch."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import format_params, format_value, in_columns
from gaudi_tune.define.sweep_plan import STUDY_FILE, SUMMARY_FILE
from gaudi_tune.show.confirmation import in_interval
from gaudi_tune.show.result import START_AGAIN, in_rows, is_useless, result_lines
from gaudi_tune.show.trackers.outbox import tracked_at
from gaudi_tune.show.trackers.store import tracking_uri
from gaudi_tune.sweep.record.lock import is_running
from gaudi_tune.sweep.record.state_log import read_paused
from gaudi_tune.sweep.record.sweep_file import (
    SWEEP_FILE,
    SweepFile,
    find_sweep,
    read_summary,
    read_sweep_file,
    sweeps_in,
)
from gaudi_tune.sweep.record.trial_state import ENDED


@dataclass(frozen=True)
class KeptSweep:
    """A sweep as its folder has it, whether it runs, has ended or was killed."""

    folder: Path
    began_with: SweepFile

    @classmethod
    def at(cls, sweep: str | Path, storage: Path) -> KeptSweep:
        """Return a sweep by its name or folder."""
        folder = find_sweep(str(sweep), storage)
        return cls(folder, read_sweep_file(folder))

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """What the sweep came to when it last ended; empty if it has not."""
        return read_summary(self.folder)

    @cached_property
    def state(self) -> str:
        """How it stands, in words."""
        if is_running(self.folder):
            return "running"
        if self.summary.get("complete"):
            return f"failed: {why}" if (why := self.summary.get("failed")) else "finished"
        if (early := self.summary.get("ended_early")) is not None:
            return f"ended early: {early['why']}"
        return "killed"

    @cached_property
    def trials(self) -> list[dict[str, Any]]:
        """The trials of the search, by number: from the summary, or from the study if that was written later."""
        if "search" in self.summary and self._has_ended_since:
            return list(self.summary["search"])
        from gaudi_tune.sweep.search import study_record  # half a second: the libraries of databases

        found = study_record.in_brief(study_record.stored_trials(self.folder), self.began_with.mode, self._paused)
        running = {"status": "running"} if self.state == "running" else {}
        return [trial | (running if trial["status"] == "interrupted" else {}) for trial in found]

    @property
    def _paused(self) -> set[int]:
        """The trials that waited when the state was kept last; the study knows of none."""
        return read_paused(self.folder)

    @property
    def _has_ended_since(self) -> bool:
        """Whether the summary is of the end of all that was trained, and not of an earlier one."""
        return self._written(SUMMARY_FILE) >= self._written(STUDY_FILE)

    def _written(self, name: str) -> float:
        """Return when a file was written last; 0 if it is gone."""
        file = self.folder / name
        return file.stat().st_mtime if file.is_file() else 0.0

    def brief(self) -> dict[str, Any]:
        """Return what a list of sweeps shows of it."""
        began, summary = self.began_with, self.summary
        if summary and self.state != "running" and (summary.get("complete") or self._has_ended_since):
            counts, best, confirmed = summary["trials"], summary["best"], summary.get("confirmation") or {}
            ended, failed = sum(counts.get(outcome, 0) for outcome in ENDED), counts.get("failed", 0)
            value = None if best is None else best["value"]
            alone = [confirmed.get("baseline")] if began.options.get("baseline_only") else []
            expected = summary.get("expected", int(began.options["num_samples"]))
            test = next(filter(None, [*confirmed.get("rivals", ()), *alone]), None)
        else:  # of the search alone: the study does not have what confirms
            ended = sum(trial["status"] in ENDED for trial in self.trials)
            failed = sum(trial["status"] == "failed" for trial in self.trials)
            value = self._best["value"] if self._best else None
            expected, test = int(began.options["num_samples"]), None
        return {
            "name": self.folder.name,
            "experiment": began.experiment,
            "state": self.state,
            "trials": ended,
            "failed": failed,
            "of": expected,
            "metric": began.metric,
            "mode": began.mode,
            "best": value,
            "baseline": summary.get("baseline"),
            "baseline_note": summary.get("baseline_note", ""),
            "confirmed": None if test is None else {"mean": test["mean"], "interval": test["interval"]},
            "wall_s": summary.get("wall_s"),
            "began": began.began,
            "folder": str(self.folder),
        }

    @property
    def _best(self) -> Mapping[str, Any] | None:
        """The trial with the best value, as the study has it; None if none has one."""
        best_of = min if self.began_with.mode == "min" else max
        found = [trial for trial in self.trials if trial["value"] is not None]
        return best_of(found, key=lambda trial: trial["value"], default=None)

    def result(self) -> list[str]:
        """Return what it came to in words, a line each."""
        where, best = self.summary.get("mlflow"), self._best
        others = [("mlflow", where)] if where else []
        summary = {} if self.state in ("running", "killed") else self.summary  # of before it went on
        if best is None or summary:
            return result_lines(self.folder, summary, others)
        so_far = f"trial {best['trial']:03d}: {self.began_with.metric} {format_value(best['value'])}"
        return [f"best so far {so_far}", *result_lines(self.folder, summary, others)]

    def lines(self, run: Sequence[str]) -> list[str]:
        """Return all of it in words, a line each; ``run`` is the command that runs scripts."""
        brief, began = self.brief(), self.began_with
        options, recipe = began.options, began.options.get("recipe")
        how = f"{options.get('search')} search, {options.get('scheduler')} scheduler"
        how = "the baseline alone" if options.get("baseline_only") else how
        resume = [*run, began.script or "SCRIPT", "--resume", self.folder.name, "--storage", str(self.folder.parent)]
        if (tracked := tracked_at(self.folder)) not in (None, tracking_uri(None)):
            resume += ["--tracking-uri", str(tracked)]
        ended_early = self.state not in ("running", "finished")
        advice = START_AGAIN if self.summary.get("failed") or is_useless(self.summary) else shlex.join(resume)
        rows = [("trial", *(o.partition(" ")[2] for o in began.objectives), "best at", "status", "hyperparameters")]
        for trial in self.trials:
            values = (format_value(value) for value in trial.get("point", [trial["value"]] * len(began.objectives)))
            rest = str(trial["at"] or ""), trial["status"], format_params(trial["config"])
            rows.append((f"{trial['trial']:03d}", *values, *rest))
        return [
            f"sweep       {brief['name']}: {brief['state']}, {brief['trials']} of {brief['of']} trials, {how}",
            f"experiment  {began.experiment}: {', '.join(began.objectives)}, "
            f"{f'recipe {recipe}, ' if began.recipes else ''}{options.get('device')}",
            *self.result(),
            *([f"next        {advice}"] if ended_early else []),
            *in_rows("trials", in_columns(rows)),
            *in_rows(
                "failed", [f"trial {trial['trial']:03d}: {trial['why']}" for trial in self.trials if "why" in trial]
            ),
        ]


def listed(storage: Path) -> list[dict[str, Any]]:
    """Return the sweeps of a folder in brief, the last first; of one that cannot be read, why."""
    found = []
    for folder in sweeps_in(storage):
        try:
            found.append(KeptSweep(folder, read_sweep_file(folder)).brief())
        except SweepError as error:  # noqa: PERF203
            began = (folder / SWEEP_FILE).stat().st_mtime
            found.append({"name": folder.name, "state": f"cannot be read: {error}", "began": began})
    return sorted(found, key=lambda sweep: -sweep["began"])


def in_table(sweeps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return sweeps in brief as the rows of a table."""
    head = ("sweep", "began", "trials", "best", "baseline", "confirmed", "metric", "state")
    return in_columns([head, *(_row(sweep) for sweep in sweeps)])


def _row(sweep: Mapping[str, Any]) -> tuple[str, ...]:
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(sweep["began"]))
    state = sweep["state"].partition(":")[0]  # show says why
    if "metric" not in sweep:
        return (sweep["name"], began, "", "", "", "", "", state)
    return (
        sweep["name"],
        began,
        f"{sweep['trials']} of {sweep['of']}{f', {failed} failed' if (failed := sweep['failed']) else ''}",
        format_value(sweep["best"]),
        f"{format_value(sweep['baseline'])} {sweep['baseline_note']}".strip(),
        in_interval(sweep["confirmed"]) if sweep["confirmed"] else "",
        f"{sweep['mode']} {sweep['metric']}",
        state,
    )


def compared(sweeps: Sequence[KeptSweep]) -> dict[str, Any]:
    """Return sweeps side by side: each in brief, and in what their options and their best configurations differ.

    They go by their names; by their folders, where two have the same name.
    """
    by_folder = {str(sweep.folder): sweep for sweep in sweeps}
    by_name = {sweep.folder.name: sweep for sweep in sweeps}
    shown = by_name if len(by_name) == len(by_folder) else by_folder
    options = {
        name: {
            **began.options,
            **{f"space {key}": range_ for key, range_ in (began.options.get("space") or {}).items()},
        }
        for name, began in ((name, sweep.began_with) for name, sweep in shown.items())
    }
    configs = {
        # None would look like a hyperparameter that is not there.
        name: {key: "None" if value is None else value for key, value in best.get("config", {}).items()}
        for name, best in ((name, sweep.summary.get("best") or {}) for name, sweep in shown.items())
    }
    return {
        "sweeps": [{**sweep.brief(), "name": name} for name, sweep in shown.items()],
        "options": _differences(options, leave_out=("name", "space")),
        "best": _differences(configs, leave_out=("seed",), all_of_them=True),
    }


def _differences(
    values: Mapping[str, Mapping[str, Any]], leave_out: Sequence[str], *, all_of_them: bool = False
) -> dict[str, dict[str, Any]]:
    """Return by key what each sweep has there, if they differ or all are asked for."""
    keys = dict.fromkeys(key for of_sweep in values.values() for key in of_sweep if key not in leave_out)
    by_key = {key: {name: of_sweep.get(key) for name, of_sweep in values.items()} for key in keys}
    return {key: of_key for key, of_key in by_key.items() if all_of_them or len({*map(str, of_key.values())}) > 1}


def compared_lines(found: Mapping[str, Any]) -> list[str]:
    """Return what :func:`compared` found in words, a line each."""
    names = [sweep["name"] for sweep in found["sweeps"]]
    lines = in_table(found["sweeps"])
    for what, title in (("options", "asked for"), ("best", "best configuration")):
        rows = [(title, *names), *((key, *map(format_value, of_key.values())) for key, of_key in found[what].items())]
        if len(rows) > 1:
            lines += ["", *in_columns(rows)]
    return lines
