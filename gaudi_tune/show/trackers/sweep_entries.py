"""What the run of a sweep has besides its trials: versions, options, and the results of confirmation and front."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from typing import Any

from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.private.surfaces import installed_versions
from gaudi_tune.sweep.record.sweep_state import SweepState

GIT_COMMIT = "mlflow.source.git.commit"
"""The tag whose value MLflow's page shows as the commit. Importing MLflow's name of it takes a second."""


def provenance() -> dict[str, str]:
    """Return tags for a run: ``version.*`` of the installed packages, git's commit, and whether files were changed."""
    versions = {f"version.{package}": version for package, version in installed_versions().items()}
    return {"version.python": platform.python_version(), **git_state(), **versions}


def git_state() -> dict[str, str]:
    """Return commit and dirty flag of the repository around the current folder; {} outside one or without git."""
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    if commit is None or changes is None:
        return {}
    return {GIT_COMMIT: commit, "git.dirty": str(bool(changes)).lower()}


def _git(*arguments: str) -> str | None:
    command = ["git", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def option_params(plan: Plan) -> dict[str, Any]:
    """Return what the plan adds to the settings as parameters of the sweep's run."""
    options = plan.options
    params: dict[str, Any] = {"device": plan.devices.type.kind, "groups": plan.groups}
    if plan.experiment.has_recipes:
        params["recipe"] = plan.recipe
    params |= {
        "workers_per_trial": options.workers_per_trial,
        "trials_per_device": plan.trials_per_device,
        "num_samples": plan.num_samples,
        "search": options.search,
        "scheduler": options.scheduler,
        "sweep_seed": options.seed,
    }
    if plan.has_front:
        params["objectives"] = ", ".join(map(str, plan.objectives))
    if options.learn_from:
        params["learn_from"] = ", ".join(options.learn_from)
    return params


def confirmation_metrics(confirmation: Mapping[str, Any]) -> dict[str, float]:
    """Return the means of the baseline and of the winner in the confirmation with half the widths of their intervals,
    and the winner's gain."""
    metrics = {}
    rows = {"baseline": confirmation["baseline"], "winner": next(iter(confirmation["rivals"]), None)}
    for role, row in rows.items():
        if row is None:
            continue
        scores = {confirmation["metric"]: row, **row.get("others", {})}
        for name, score in scores.items():
            metrics[f"confirmed/{name} of {role}"] = score["mean"]
            if score["interval"]:
                half_width = score["interval"][1] - score["mean"]
                metrics[f"confirmed/half width of {name} of {role}"] = half_width
    if confirmation["gain"] is not None:
        metrics["confirmed/gain"] = confirmation["gain"]["mean"]
    return metrics


def front_metrics(state: SweepState) -> dict[str, float]:
    """Return how many trials are on the front, and the best value there of each objective but the first."""
    metrics: dict[str, float] = {"trials_on_front": len(state.front)}
    for place, objective in enumerate(state.objectives[1:], start=1):
        best = objective.best(trial.point[place] for trial in state.front)
        metrics[f"best_{objective.name}"] = best
    return metrics
