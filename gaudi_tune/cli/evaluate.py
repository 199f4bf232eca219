"""A checkpoint scored on data, in this process: no Ray, no sweep, no training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.variables import temporary_environment
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.devices.find import DEVICE
from gaudi_tune.training.session import open_session


def evaluated(plan: Plan, checkpoint: Path) -> Mapping[str, Any]:
    """Return what a checkpoint scores on the data of a plan, by metric; a SweepError where it does not fit."""
    experiment, place = plan.experiment, checkpoint.expanduser().resolve()
    if "evaluate" not in experiment.config_class.field_names():
        raise SweepError(
            f"--evaluate {checkpoint}: only experiments with the shared loop can score a checkpoint, and "
            f"{experiment.name} has its own train loop; load and score the checkpoint in your own code"
        )
    scores: dict[str, Any] = {}
    keep_report: Any = SimpleNamespace(report=lambda metrics, save: scores.update(metrics), get_checkpoint=lambda: None)
    try:
        # As in a worker: else the device would be the best that is here.
        with temporary_environment({DEVICE: plan.devices.type.kind}), open_session(keep_report):
            experiment.train_loop({**plan.settings, **experiment.first_params, "evaluate": str(place)})
    except (OSError, RuntimeError, KeyError, ValueError) as error:  # torch's, of weights that do not fit
        raise SweepError(
            f"--evaluate {checkpoint}: there is no checkpoint, or it does not fit the model and classes of these "
            f"settings ({error}); give its folder, and the --model, --data and --set that it was trained with"
        ) from error
    return scores
