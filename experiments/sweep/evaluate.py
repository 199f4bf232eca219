"""A checkpoint scored on data, in this process: no Ray, no sweep, no training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from experiments.sweep.define.errors import SweepError
from experiments.sweep.define.plan import Plan
from trainables.runtime.session import open_session


def evaluated(plan: Plan, checkpoint: Path) -> Mapping[str, Any]:
    """Return what a checkpoint scores on the data of a plan, by metric; a SweepError where it does not fit."""
    experiment, place = plan.experiment, checkpoint.expanduser().resolve()
    if "evaluate" not in experiment.config_class.field_names():
        raise SweepError(
            f"--evaluate {checkpoint}: the train loop of {experiment.name} has no setting 'evaluate', which the shared "
            f"loop has (docs/own-model.md)"
        )
    scores: dict[str, Any] = {}
    keep_report: Any = SimpleNamespace(report=lambda metrics, save: scores.update(metrics), get_checkpoint=lambda: None)
    try:
        with open_session(keep_report):
            experiment.train_loop({**plan.settings, **experiment.baseline, "evaluate": str(place)})
    except (OSError, RuntimeError, KeyError) as error:  # torch's, of weights that do not fit
        raise SweepError(
            f"--evaluate {checkpoint}: no checkpoint of {experiment.name} with these settings and classes ({error})"
        ) from error
    return scores
