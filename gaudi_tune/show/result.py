"""The end of a sweep in words: the best, what the confirmation says, and where everything is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.words import format_params, format_value, in_columns
from gaudi_tune.define.sweep_plan import REPORT_FILE, SUMMARY_FILE
from gaudi_tune.show.confirmation import in_lines
from gaudi_tune.sweep.record.device_time import shares_of
from gaudi_tune.sweep.record.events import CTRL_C

START_AGAIN = "fix that, then start a new sweep"
"""What to do after a sweep that :func:`is_useless`."""


def result_lines(folder: Path, summary: Mapping[str, Any], others: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Return what a sweep came to, a line each; ``others`` are more lines for the end, each a word and what it stands
    for. Where no trial reported a finite value, it is only where to look."""
    return [
        *(_best_lines(summary) if summary.get("best") is not None else []),
        *([f"devices     {shares_of(summary['device_seconds'])}"] if summary else []),
        *([f"summary     {folder / SUMMARY_FILE}"] if summary else []),
        *([f"report      {folder / REPORT_FILE}"] if (folder / REPORT_FILE).is_file() else []),
        *(f"{word:<10}  {what}" for word, what in others),
    ]


def exit_status(summary: Mapping[str, Any]) -> int:
    """Return 0 for a sweep that has a result and all its files, and is complete or ended as it was asked to."""
    incomplete = bool(summary.get("missing"))
    if summary["complete"]:
        return int(summary["failed"] is not None or incomplete)
    return int((summary["ended_early"] or {"status": CTRL_C})["status"] or summary["best"] is None or incomplete)


def is_useless(summary: Mapping[str, Any]) -> bool:
    """Whether a sweep has nothing to go on with: trials have failed, and none has reported a finite value."""
    return bool((summary.get("trials") or {}).get("failed")) and summary.get("best") is None


def _best_lines(summary: Mapping[str, Any]) -> list[str]:
    best = summary["best"]
    (unit,) = best.keys() & {names.EPOCH, names.STEP, names.SECOND}
    reached, checkpoint, confirmation = format_value(best["value"]), best["checkpoint"], summary["confirmation"]
    beside = f"{format_value(summary['baseline'])} {summary.get('baseline_note', '')}".strip()
    later = f"; later it failed: {best['failed']}" if best.get("failed") else ""
    return [
        f"best        trial {best['trial']:03d}: {summary['metric']} {reached} at {unit} {best[unit]} "
        f"({f'baseline {beside}' if beside else 'no baseline'}){later}",
        f"config      {format_params(best['config'])}",
        *(in_rows("front", front_lines(summary, unit)) if "front" in summary else []),
        *(in_rows("confirmed", in_lines(confirmation)) if confirmation is not None else []),
        f"checkpoint  {checkpoint or 'none: no report had one, or it was removed'}",
        *([f"load it     {best['load']}"] if best.get("load") else []),
    ]


def front_lines(summary: Mapping[str, Any], unit: str) -> list[str]:
    """Return the front of a sweep of several objectives as a table, the best in the first objective first."""
    rows = [("trial", *(objective.partition(" ")[2] for objective in summary["objectives"]), unit, "hyperparameters")]
    for one in summary["front"]:
        values = map(format_value, one["values"].values())
        rows.append((f"{one['trial']:03d}", *values, str(one[unit]), format_params(one["config"])))
    if of_baseline := summary["baseline_values"]:
        rows.append(("baseline", *map(format_value, of_baseline.values()), "", ""))
    return in_columns(rows)


def in_rows(word: str, lines: Sequence[str]) -> list[str]:
    """Return lines of the result, the first beside its word and the others below."""
    return [f"{word if not row else '':<10}  {line}" for row, line in enumerate(lines)]
