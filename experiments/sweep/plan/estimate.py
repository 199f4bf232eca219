"""How long an epoch takes, as far as earlier sweeps know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.sweep.define.budget import BUDGET_OPTIONS
from experiments.sweep.define.plan import SUMMARY_FILE, Plan
from experiments.sweep.state.sweep_file import sweeps_in


def seconds_each(plan: Plan) -> tuple[float, str] | None:
    """Return the seconds that an epoch (or step) took in the last sweep that trained the same on the same kind of
    device, and that sweep's name; None if the storage has none."""
    same = _like(
        {
            "experiment": plan.experiment.name,
            "recipe": plan.recipe,
            "device": plan.devices.type.kind,
            "workers_per_trial": plan.options.workers_per_trial,
            "settings": plan.settings,
        }
    )
    files = [folder / SUMMARY_FILE for folder in sweeps_in(plan.options.storage)]
    for file in sorted(filter(Path.is_file, files), key=lambda file: -file.stat().st_mtime):
        summary = json.loads(file.read_text())
        each = summary.get("seconds_each", {}).get(plan.budget.unit)
        if each and _like(summary) == same:
            return each, file.parent.name
    return None


def _like(summary: dict[str, Any]) -> str:
    """Return what a sweep trained, as JSON has it."""
    kept = {key: summary[key] for key in ("experiment", "recipe", "device", "workers_per_trial")}
    settings = {name: value for name, value in summary["settings"].items() if name not in BUDGET_OPTIONS}
    return json.dumps({**kept, "settings": settings}, sort_keys=True, default=str)
