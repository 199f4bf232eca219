"""A trial as the pictures and the page show it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from optuna.distributions import BaseDistribution

from gaudi_tune.sweep.record.trial_state import TrialState


@dataclass(kw_only=True)
class ShownTrial(TrialState):
    """A trial at the moment of the snapshot."""

    ranges: Mapping[str, BaseDistribution]
    """The range of each searched hyperparameter."""
    seconds: float
    """How long the trial had its devices."""

    @cached_property
    def params(self) -> dict[str, Any]:
        """The searched hyperparameters with their values in the best report; pbt changes them."""
        return {name: self.best_config[name] for name in self.ranges}

    def row(self) -> dict[str, Any]:
        """Return the trial's row in the page's table."""
        return {
            "number": self.number,
            "status": self.status,
            "confirms": self.confirms,
            "to_stop": self.to_stop,
            "best": self.best,
            "others": self.point[1:],
            "last": self.value,
            "step": self.step,
            "seconds": round(self.seconds, 1),
            "reason": self.reason,
            "params": {name: json_value(value) for name, value in self.params.items()},
        }


def json_value(value: Any) -> Any:
    """Return a value as JSON can have it. None and numbers that are not finite become texts."""
    return str(value) if value is None or (isinstance(value, float) and not math.isfinite(value)) else value
