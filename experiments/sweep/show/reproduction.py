"""The baseline as it was measured beside the run that it repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from experiments.sweep.define.plan import Plan
from experiments.sweep.define.published import Published
from experiments.sweep.define.words import counted, format_params, format_value
from trainables.runtime import names

SETTINGS = ("data", "mixed_precision")
"""What makes a run comparable to the published one, or not."""


def compared(reports: Sequence[Mapping[str, Any]], plan: Plan, published: Published) -> list[str]:
    """Return the reports of a trial in a table, its figures beside the published ones, and what differs."""
    metric, unit = plan.experiment.metric, plan.budget.unit
    seconds = [seconds_of(report) for report in reports]
    steps = [0, *(report.get(names.STEP, 0) for report in reports)]
    batch = reports[0].get("config", {}).get("batch_size", 0)
    table = [f"{unit:>8} {metric:>14} {'seconds':>9} {'samples/s':>11} {'last step':>11} {'overall':>14}"]
    for report, taken, (before, after) in zip(reports, seconds, pairwise(steps), strict=True):
        over_all = batch * (after - before) / taken if taken else 0.0
        rate = report.get(names.SAMPLES_PER_SECOND, 0.0)
        last = report.get(names.LAST_STEP_SAMPLES_PER_SECOND, 0.0)
        table.append(
            f"{report.get(unit):>8} {report.get(metric):>14.4f} {taken:>9.2f} {rate:>11.1f} {last:>11.1f} "
            f"{over_all:>14.1f}"
        )
    later = median(seconds[1:]) if len(seconds) > 1 else None
    rates, last_rates = (
        [report[name] for report in reports if name in report]
        for name in (names.SAMPLES_PER_SECOND, names.LAST_STEP_SAMPLES_PER_SECOND)
    )
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
        *table,
        f"{'':>22} {'published':>18} {'here':>12}",
        *(
            f"{what:>22} {format_value(said) or '-':>18} {format_value(found) or '-':>12}"
            for what, said, found in figures
        ),
        f"here: {', '.join(filter(None, [here, plan.mode and plan.mode.name, settings]))}",
        *published.notes,
    ]


def seconds_of(report: Mapping[str, Any]) -> float:
    """Return what training took since the report before, with compilation and validation."""
    parts = (names.TRAIN_SECONDS, names.COMPILE_SECONDS, names.EVAL_SECONDS)
    return float(sum(report.get(part, 0.0) for part in parts))
