"""The sweeps in a folder: the state, the result and the trials of each, read from their files without Ray or torch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gaudi_tune.base.errors import SweepError, damage_is_an_error
from gaudi_tune.base.files import SWEEP_FILE
from gaudi_tune.base.words import format_params, format_value, in_columns
from gaudi_tune.define.objective import scores_of
from gaudi_tune.define.options import resume_command
from gaudi_tune.show.confirmation import confirming, in_interval
from gaudi_tune.show.result import START_AGAIN, in_list, in_rows, is_useless, result_lines
from gaudi_tune.show.trackers.outbox import tracked_at
from gaudi_tune.show.trackers.store import how_to_open, tracking_uri
from gaudi_tune.storage.fetch import shown_place
from gaudi_tune.sweep.record.lock import is_running
from gaudi_tune.sweep.record.state_log import logged_trials
from gaudi_tune.sweep.record.sweep_file import SweepFile, find_sweep, read_summary, read_sweep_file, sweeps_in
from gaudi_tune.sweep.record.trial_state import ENDED


@dataclass(frozen=True)
class StoredSweep:
    """A sweep as the files in its folder describe it, whether it runs, has ended or was killed."""

    folder: Path
    file: SweepFile
    """What it began with."""

    @classmethod
    def find(cls, sweep: str | Path, storage: Path) -> StoredSweep:
        """Return a sweep by its name or folder."""
        folder = find_sweep(str(sweep), storage)
        return cls(folder, read_sweep_file(folder))

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """The summary that the sweep wrote when it last ended; empty if it has not ended."""
        return read_summary(self.folder)

    @cached_property
    def state(self) -> str:
        """Whether it runs or how it ended, in words."""
        if is_running(self.folder):
            return "running"
        if self.summary.get("complete"):
            reason = self.summary.get("failed")
            return f"failed: {reason}" if reason else "finished"
        ended_early = self.summary.get("ended_early")
        return "killed" if ended_early is None else f"ended early: {ended_early['why']}"

    @cached_property
    def missing(self) -> list[str]:
        """What the files of a sweep that has ended lack, a sentence each."""
        return list(self._last_summary.get("missing", ()))

    @cached_property
    def trials(self) -> list[dict[str, Any]]:
        """The trials of the search, by number: from the summary, or from the log of a sweep that has not ended."""
        if "trials" in self.summary:
            return list(self.summary["trials"])
        searched = [trial for trial in logged_trials(self.folder) if not trial.confirms]
        trials = [in_list(trial, self.file.space, self.file.all_objectives) for trial in searched]
        if self.state == "running":
            for trial in trials:
                if trial["status"] == "interrupted":
                    trial["status"] = "running"
        return trials

    @property
    def _last_summary(self) -> Mapping[str, Any]:
        """The summary of the sweep's last end; empty if it runs, or was killed after that end."""
        return {} if self.state in ("running", "killed") else self.summary

    def brief(self) -> dict[str, Any]:
        """Return what a list of sweeps shows of the sweep."""
        file, summary = self.file, self.summary
        if "trials" in summary and self.state != "running":
            counts, best, confirmation = summary["counts"], summary["best"], summary.get("confirmation") or {}
            ended, failed = sum(counts.get(outcome, 0) for outcome in ENDED), counts.get("failed", 0)
            value = None if best is None else best["value"]
            baseline = [confirmation.get("baseline")] if file.options.get("baseline_only") else []
            expected = summary.get("expected", int(file.options["num_samples"]))
            confirmations = summary.get("confirmations", 0)
            test = next(filter(None, [*confirmation.get("rivals", ()), *baseline]), None)
        else:  # without the trials of the confirmation
            ended = sum(trial["status"] in ENDED for trial in self.trials)
            failed = sum(trial["status"] == "failed" for trial in self.trials)
            value = self._best["value"] if self._best else None
            expected, confirmations, test = int(file.options["num_samples"]), 0, None
        return {
            "name": self.folder.name,
            "experiment": file.experiment,
            "state": self.state,
            "missing": self.missing,
            "done": ended,
            "failed": failed,
            "of": expected,
            "confirmations": confirmations,
            "metric": file.metric,
            "mode": file.mode,
            "best": value,
            "baseline": summary.get("baseline"),
            "baseline_note": summary.get("baseline_note", ""),
            "confirmed": None if test is None else {"mean": test["mean"], "interval": test["interval"]},
            "wall_s": summary.get("wall_s"),
            "began": file.began,
            "folder": shown_place(self.folder),
        }

    @property
    def _best(self) -> Mapping[str, Any] | None:
        """The trial of the search with the best value, of equal ones in the next objective; None if none has one."""
        objectives = self.file.all_objectives
        trials = [trial for trial in self.trials if trial["value"] is not None]
        return max(trials, key=lambda t: scores_of(objectives, t.get("point", [t["value"]])), default=None)

    def result(self) -> list[str]:
        """Return the result of the sweep, or its best so far, as lines for people."""
        address, best, store = self.summary.get("mlflow"), self._best, tracked_at(self.folder)
        places = [("mlflow", address)] if address else []
        if address and store is not None and (command := how_to_open(store)):
            places.append(("", f"open its store with: {command}"))
        lines = result_lines(self.folder, self._last_summary, places)
        lines = [line.replace(str(self.folder), shown_place(self.folder)) for line in lines]
        if best is None or self._last_summary:
            return lines
        failed = ", and it failed later" if best["status"] == "failed" else ""
        value = f"{self.file.metric} {format_value(best['value'])}"
        return [f"best so far trial {best['trial']:03d}: {value}{failed}", *lines]

    def lines(self, run: Sequence[str]) -> list[str]:
        """Return everything about the sweep as lines for people; ``run`` is the command that runs scripts."""
        brief, file, options = self.brief(), self.file, self.file.options
        method = f"{options.get('search')} search, {options.get('scheduler')} scheduler"
        if options.get("baseline_only"):
            method = "the baseline alone"
        recipe = f"recipe {options.get('recipe')}, " if file.recipes else ""
        failures = [f"trial {trial['trial']:03d}: {trial['why']}" for trial in self.trials if "why" in trial]
        complete = self.state in ("running", "finished") and not self.missing
        trials = f"{brief['done']} of {brief['of']} trials{confirming(brief['confirmations'])}"
        return [
            f"sweep       {brief['name']}: {brief['state']}, {trials}, {method}",
            f"experiment  {file.experiment}: {', '.join(file.objectives)}, {recipe}{options.get('device')}",
            *self.result(),
            *([f"missing     {'; '.join(self.missing)}"] if self.missing else []),
            *([] if complete else [f"next        {self._next_step(run)}"]),
            *in_rows("trials", self._trial_table()),
            *in_rows("failed", failures),
        ]

    def _next_step(self, run: Sequence[str]) -> str:
        """Return what to do with a sweep that has not finished: the command that resumes it, or what to fix first."""
        if self.summary.get("failed") or is_useless(self.summary):
            return START_AGAIN
        search, tracked = str(self.file.options.get("search")), tracked_at(self.folder)
        address = None if tracked == tracking_uri(None) else tracked
        module, script = self.file.module, self.file.script or "SCRIPT"
        command = ["python", "-m", module] if module else [*run, script]
        return resume_command(command, self.folder.name, search, shown_place(self.folder.parent), address)

    def _trial_table(self) -> list[str]:
        metrics = [objective.name for objective in self.file.all_objectives]
        rows = [("trial", *metrics, "best at", "status", "hyperparameters")]
        for trial in self.trials:
            point = trial.get("point", [trial["value"]] * len(metrics))
            details = str(trial["at"] or ""), trial["status"], format_params(trial["config"])
            rows.append((f"{trial['trial']:03d}", *map(format_value, point), *details))
        return in_columns(rows)


def list_sweeps(storage: Path) -> list[dict[str, Any]]:
    """Return the sweeps of a folder in brief, the latest first. One that cannot be read has the reason as its state."""
    sweeps = []
    for folder in sweeps_in(storage):
        try:
            with damage_is_an_error(folder.name):
                sweeps.append(StoredSweep(folder, read_sweep_file(folder)).brief())
        except SweepError as error:  # noqa: PERF203
            file = folder / SWEEP_FILE
            modified_at = file.stat().st_mtime if file.exists() else 0.0
            sweeps.append({"name": folder.name, "state": f"cannot be read: {error}", "began": modified_at})
    return sorted(sweeps, key=lambda sweep: -sweep["began"])


def table_lines(sweeps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return sweeps in brief as the lines of a table."""
    head = ("sweep", "began", "trials", "best", "baseline", "confirmed", "metric", "state")
    return in_columns([head, *(_row(sweep) for sweep in sweeps)])


def _row(sweep: Mapping[str, Any]) -> tuple[str, ...]:
    start = time.strftime("%Y-%m-%d %H:%M", time.localtime(sweep["began"]))
    state = sweep["state"].partition(":")[0]  # ``gaudi-tune show`` has the reason
    if "metric" not in sweep:
        return (sweep["name"], start, "", "", "", "", "", state)
    failed = f", {sweep['failed']} failed" if sweep["failed"] else ""
    return (
        sweep["name"],
        start,
        f"{sweep['done']} of {sweep['of']}{failed}",
        format_value(sweep["best"]),
        f"{format_value(sweep['baseline'])} {sweep['baseline_note']}".strip(),
        in_interval(sweep["confirmed"]) if sweep["confirmed"] else "",
        f"{sweep['mode']} {sweep['metric']}",
        "; ".join([state, *sweep["missing"]]),
    )
