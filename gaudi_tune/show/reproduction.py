"""The baseline as it was measured beside the run that it repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.words import counted, format_params, format_value, in_columns
from gaudi_tune.define.published_run import Published
from gaudi_tune.define.sweep_plan import Plan

SETTINGS = ("data", "mixed_precision")
"""What makes a run comparable to the published one, or not."""
RATES = (names.SAMPLES_PER_SECOND, names.LAST_STEP_SAMPLES_PER_SECOND)
"""What a report has of the speed of its steps."""


def compared(reports: Sequence[Mapping[str, Any]], plan: Plan, published: Published) -> list[str]:
    """Return the reports of a trial in a table, its figures beside the published ones, and what differs."""
    metric, unit = plan.experiment.metric, plan.budget.unit
    seconds = [seconds_of(report) for report in reports]
    steps = [0, *(report.get(names.STEP, 0) for report in reports)]
    batch = {**plan.settings, **reports[0].get("config", {})}.get("batch_size", 0)
    table: list[Sequence[str]] = [(unit, metric, "seconds", "samples/s", "last step", "overall")]
    for report, taken, (before, after) in zip(reports, seconds, pairwise(steps), strict=True):
        over_all = batch * (after - before) / taken if taken else 0.0
        each_second = [report.get(name, 0.0) for name in RATES] + [over_all]
        cells = [str(report.get(unit)), f"{report.get(metric):.4f}", f"{taken:.2f}", *map("{:.1f}".format, each_second)]
        table.append(cells)
    later = median(seconds[1:]) if len(seconds) > 1 else None
    rates, last_rates = ([report[name] for report in reports if name in report] for name in RATES)
    figures = [
        (metric, published.accuracy, reports[-1].get(metric)),
        (f"first {unit}, s", published.first_epoch_s, seconds[0]),
        (f"each later {unit}, s", published.later_epoch_s, later),
        ("in all, s", published.total_s, sum(seconds)),
        ("samples/s", published.samples_per_s, median(rates) if rates else None),
        ("samples/s, last step", published.last_step_samples_per_s, median(last_rates) if last_rates else None),
    ]
    other_data = ["the sample recipe trains on other data: its figures are not comparable"]
    here = f"{counted(plan.options.workers_per_trial, plan.devices.type.kind + ' worker')}, recipe {plan.recipe}"
    settings = format_params({name: plan.settings[name] for name in SETTINGS if name in plan.settings})
    return [
        f"published by {published.source}, on {published.devices}",
        *(other_data if plan.recipe == "sample" else []),
        *in_columns(table),
        *in_columns(
            [("", "published", "here"), *((what, *(format_value(v) or "-" for v in of)) for what, *of in figures)]
        ),
        f"here: {', '.join(filter(None, [here, plan.mode and plan.mode.name, settings]))}",
        *(f"of the published run: {note}" for note in published.notes),
    ]


def seconds_of(report: Mapping[str, Any]) -> float:
    """Return what training took since the report before, with compilation and validation."""
    parts = (names.TRAIN_SECONDS, names.COMPILE_SECONDS, names.EVAL_SECONDS)
    return float(sum(report.get(part, 0.0) for part in parts))
