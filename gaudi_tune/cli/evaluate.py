"""``--evaluate`` scores a checkpoint on data, in this process, without Ray or a sweep."""

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


def score_checkpoint(plan: Plan, checkpoint: Path) -> Mapping[str, Any]:
    """Return the scores of a checkpoint on the data of a plan, by metric.

    Raises:
        SweepError: The experiment has its own train loop, or the checkpoint does not fit the plan.
    """
    experiment, folder = plan.experiment, checkpoint.expanduser().resolve()
    if "evaluate" not in experiment.config_class.field_names():
        raise SweepError(
            f"--evaluate {checkpoint}: only experiments with the shared loop can score a checkpoint, and "
            f"{experiment.name} has its own train loop; load and score the checkpoint in your own code"
        )
    scores: dict[str, Any] = {}
    keep_report: Any = SimpleNamespace(report=lambda metrics, save: scores.update(metrics), get_checkpoint=lambda: None)
    try:
        # Without the variable, the loop would take the best device of this machine.
        with temporary_environment({DEVICE: plan.devices.type.kind}), open_session(keep_report):
            experiment.train_loop({**plan.settings, **experiment.first_params, "evaluate": str(folder)})
    except (OSError, RuntimeError, KeyError, ValueError) as error:  # torch raises these if the weights do not fit
        raise SweepError(
            f"--evaluate {checkpoint}: there is no checkpoint, or it does not fit the model and classes of these "
            f"settings ({error}); give its folder, and the --model, --data and --set that it was trained with"
        ) from error
    return scores
