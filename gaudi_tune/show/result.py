"""The result of a sweep in words: the best trial, the confirmation, and the places of everything else."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from gaudi_tune.base.files import REPORT_FILE, SUMMARY_FILE
from gaudi_tune.base.words import counted, format_params, format_value, in_columns, last_line
from gaudi_tune.define.objective import Objective
from gaudi_tune.show.confirmation import in_lines
from gaudi_tune.sweep.record.device_time import shares_of
from gaudi_tune.sweep.record.events import CTRL_C
from gaudi_tune.sweep.record.outcome import failure_of
from gaudi_tune.sweep.record.trial_state import TrialState

START_AGAIN = "fix what made the trials fail, then start a new sweep; this one has nothing to continue"
"""What to do after a sweep that :func:`is_useless`."""


def result_lines(folder: Path, summary: Mapping[str, Any], extra: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Return the lines of a sweep's result. ``extra`` are labels and texts of more lines at the end.

    If no trial reported a finite value, the lines only say where to look.
    """
    lines = _best_lines(summary) if summary.get("best") is not None else []
    lines += in_rows("no effect", summary.get("without_effect", ())) + in_rows("what next", summary.get("next", ()))
    if summary:
        lines += [
            f"devices     {shares_of(summary['device_seconds'])}{_growth(summary)}",
            f"summary     {folder / SUMMARY_FILE}",
        ]
    if (folder / REPORT_FILE).is_file():
        lines.append(f"report      {folder / REPORT_FILE}")
    return lines + [f"{label:<10}  {text}" for label, text in extra]


def exit_status(summary: Mapping[str, Any]) -> int:
    """Return 0 for a sweep that has a result and complete files, and is complete or ended as an option asked.

    The status of a sweep that ended early otherwise is that of its end, such as 130 after Ctrl-C. Any other is 1.
    """
    files_are_incomplete = bool(summary.get("missing"))
    if summary["complete"]:
        return int(summary["failed"] is not None or files_are_incomplete)
    status = int(summary["ended_early"]["status"]) if summary["ended_early"] else CTRL_C
    return status or int(summary["best"] is None or files_are_incomplete)


def is_useless(summary: Mapping[str, Any]) -> bool:
    """Whether nothing can be gained by resuming a sweep: trials have failed, and none has reported a finite value."""
    return bool((summary.get("counts") or {}).get("failed")) and summary.get("best") is None


def _growth(summary: Mapping[str, Any]) -> str:
    grown: Mapping[Any, int] = summary.get("grown") or {}
    return f"; {counted(len(grown), 'trial')} grew, to at most {max(grown.values())} devices" if grown else ""


def _best_lines(summary: Mapping[str, Any]) -> list[str]:
    best, unit, confirmation = summary["best"], summary["unit"], summary["confirmation"]
    value = f"{summary['metric']} {format_value(best['value'])} at {unit} {best[unit]}"
    baseline = f"{format_value(summary['baseline'])} {summary.get('baseline_note', '')}".strip()
    comparison = f"baseline {baseline}" if baseline else "no baseline"
    if baseline and best["trial"] == 1:
        comparison = ", ".join(filter(None, ["the baseline itself", summary.get("baseline_note")]))
    failure = f"; later it failed: {best['failed']}" if best.get("failed") else ""
    lines = [
        f"best        trial {best['trial']:03d}: {value} ({comparison}){failure}",
        *([f"equal       {summary['all_equal']}"] if summary.get("all_equal") else []),
        f"config      {format_params(best['config'])}",
        *_checkpoint_lines(summary),
    ]
    if "front" in summary:
        lines += in_rows("front", front_lines(summary))
    if confirmation is not None:
        lines += in_rows("confirmed", in_lines(confirmation))
    return lines


def _checkpoint_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return lines with the checkpoint of the best report; if it has none, with the best of all checkpoints."""
    best, saved, unit = summary["best"], summary.get("best_saved"), summary["unit"]
    if best["checkpoint"]:
        lines = [f"checkpoint  {best['checkpoint']}"]
    elif saved is None:
        lines = ["checkpoint  none: no report had one, or it was removed"]
    else:
        value = f"{summary['metric']} {format_value(saved['value'])} at {unit} {saved[unit]}"
        lines = ["checkpoint  none of that report, which had nothing to save, or it was removed"]
        lines += [f"best saved  trial {saved['trial']:03d}: {value}", f"            {saved['checkpoint']}"]
    load_line = (saved or best).get("load")
    return [*lines, f"load it     {load_line}"] if load_line else lines


def front_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return the front of a sweep of several objectives as a table, the best in the first objective first."""
    unit = summary["unit"]
    metrics = [objective.partition(" ")[2] for objective in summary["objectives"]]  # "max accuracy": "accuracy"
    rows = [("trial", *metrics, unit, "hyperparameters")]
    for trial in summary["front"]:
        values = map(format_value, trial["values"].values())
        rows.append((f"{trial['trial']:03d}", *values, str(trial[unit]), format_params(trial["config"])))
    if summary["baseline_values"]:
        rows.append(("baseline", *map(format_value, summary["baseline_values"].values()), "", ""))
    return in_columns(rows)


def in_rows(label: str, lines: Sequence[str]) -> list[str]:
    """Return lines of the result, the first one after its label and the others indented."""
    return [f"{'' if row else label:<10}  {line}" for row, line in enumerate(lines)]


def in_list(trial: TrialState, names: Container[str], objectives: Sequence[Objective]) -> dict[str, Any]:
    """Return what lists show of a trial: of its configuration the hyperparameters with these names."""
    failure = failure_of(trial, objectives)
    return {
        "trial": trial.number,
        "status": trial.status if failure is None else "failed",
        "value": trial.best,
        **({"point": list(trial.point)} if trial.point and len(objectives) > 1 else {}),
        **({"why": last_line(failure.text)} if failure is not None else {}),
        "at": None if trial.best is None else trial.best_step,
        "config": {name: value for name, value in trial.best_config.items() if name in names},
    }
