"""The measured baseline beside the published run that it repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.words import format_params, format_value, in_columns
from gaudi_tune.define.published_run import Published
from gaudi_tune.define.sweep_plan import Plan

SETTINGS = ("data", "mixed_precision")
"""The settings that decide whether a run is comparable to the published one."""
RATES = (names.SAMPLES_PER_SECOND, names.LAST_STEP_SAMPLES_PER_SECOND)
"""The entries of a report with the speed of its steps."""


def compare_with_published(reports: Sequence[Mapping[str, Any]], plan: Plan, published: Published) -> list[str]:
    """Return lines with the reports of a trial in a table, its figures beside the published ones, and differences."""
    lines = [f"published by {published.source}, on {published.devices}"]
    if plan.recipe == "sample":
        lines.append("the sample recipe trains on other data: its figures are not comparable")
    lines += in_columns(_report_table(reports, plan))
    lines += in_columns(_figure_table(reports, plan, published))
    lines.append(
        "seconds: training, compilation and validation since the report before; in all: with the start of the workers, "
        "the loading of the data and checkpoints"
    )
    widths = sorted({_width(report, plan) for report in reports})
    width = f"{widths[0]} to {widths[-1]}" if len(widths) > 1 else str(widths[0])
    workers = f"{width} {plan.devices.type.kind} worker{'' if widths == [1] else 's'}"
    conditions = [f"{workers} (published: {published.workers}), recipe {plan.recipe}"]
    if plan.mode:
        conditions.append(plan.mode.name)
    settings = format_params({name: plan.settings[name] for name in SETTINGS if name in plan.settings})
    if settings:
        conditions.append(settings)
    lines.append(f"here: {', '.join(conditions)}")
    return lines + [f"of the published run: {note}" for note in published.notes]


def _report_table(reports: Sequence[Mapping[str, Any]], plan: Plan) -> list[Sequence[str]]:
    """Return a row for each report: its metric, workers and seconds, and three kinds of samples per second."""
    metric, unit = plan.experiment.metric, plan.budget.unit
    batch_size = {**plan.settings, **reports[0].get("config", {})}.get("batch_size", 0)
    steps = [0, *(report.get(names.STEP, 0) for report in reports)]
    table: list[Sequence[str]] = [(unit, metric, "workers", "seconds", "samples/s", "last step", "overall")]
    for report, (first_step, last_step) in zip(reports, pairwise(steps), strict=True):
        seconds = seconds_of(report)
        overall_rate = batch_size * (last_step - first_step) / seconds if seconds else 0.0
        rates = [*(report.get(name, 0.0) for name in RATES), overall_rate]
        row = [str(report.get(unit)), f"{report.get(metric):.4f}", str(_width(report, plan)), f"{seconds:.2f}"]
        table.append(row + [f"{rate:.1f}" for rate in rates])
    return table


def _figure_table(reports: Sequence[Mapping[str, Any]], plan: Plan, published: Published) -> list[Sequence[str]]:
    """Return a row for each figure: its name, the published value and the value of this run."""
    metric, interval = plan.experiment.metric, plan.budget.eval_every
    between = f"{interval} steps" if interval else plan.budget.unit
    total_seconds = sum(report.get(names.STEP_SECONDS, 0.0) for report in reports)
    seconds = [seconds_of(report) for report in reports]
    later_seconds = median(seconds[1:]) if len(seconds) > 1 else None
    rate, last_rate = (_median_of(name, reports) for name in RATES)
    figures = [
        (metric, published.accuracy, reports[-1].get(metric)),
        (f"first {between}, s", published.first_epoch_s, seconds[0]),
        (f"each later {between}, s", published.later_epoch_s, later_seconds),
        ("all seconds above, s", None, sum(seconds)),
        ("in all, s", published.total_s, total_seconds or None),
        ("samples/s", published.samples_per_s, rate),
        ("samples/s, last step", published.last_step_samples_per_s, last_rate),
    ]
    table: list[Sequence[str]] = [("", "published", "here")]
    for label, published_value, value in figures:
        table.append((label, format_value(published_value) or "-", format_value(value) or "-"))
    return table


def _median_of(name: str, reports: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the median of an entry over the reports that have it; None if none has."""
    values = [report[name] for report in reports if name in report]
    return median(values) if values else None


def _width(report: Mapping[str, Any], plan: Plan) -> int:
    """Return how many workers trained for a report: trials may grow onto idle devices."""
    return int(report.get(names.WORKERS) or plan.options.workers_per_trial)


def seconds_of(report: Mapping[str, Any]) -> float:
    """Return the seconds of training since the previous report, with compilation and validation."""
    parts = (names.TRAIN_SECONDS, names.COMPILE_SECONDS, names.EVAL_SECONDS)
    return float(sum(report.get(part, 0.0) for part in parts))
