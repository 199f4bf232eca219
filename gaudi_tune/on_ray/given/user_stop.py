"""Ray Tune's ``stop``, beside the rules of the options: numbers by metric, a function, or a Stopper."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from ray.tune.stopper import Stopper
from ray.tune.utils.util import unflatten_dict

from gaudi_tune.define.given_objects import describe_stop
from gaudi_tune.on_ray.given.guarded import Guarded
from gaudi_tune.sweep.record.events import Ending

logger = logging.getLogger(__name__)


class UserStop:
    """Asks the user's ``stop`` after each report. An error in it is logged, and ends nothing."""

    def __init__(self, stop: Mapping[str, float] | Callable[[str, Mapping[str, Any]], bool] | Stopper | None) -> None:
        """Take a ``stop`` that was checked, or None."""
        self._stop, self._guarded = stop, Guarded("stop")
        self._has_warned = False

    def why_trial_ends(self, trial_id: str, result: Mapping[str, Any]) -> str:
        """Return why a trial ends after this flat result; "" if it does not."""
        stop = self._stop
        if isinstance(stop, Mapping):
            return self._reached(stop, result)
        if not self._guarded.call("__call__", lambda: bool(stop and stop(trial_id, unflatten_dict(dict(result))))):
            return ""
        return f"its {describe_stop(stop).removeprefix('a trial ends when ').removesuffix(' says so')} says stop"

    def why_sweep_ends(self) -> Ending | None:
        """Return why the whole sweep ends, if a Stopper says so."""
        stop = self._stop
        if not isinstance(stop, Stopper) or not self._guarded.call("stop_all", lambda: bool(stop.stop_all())):
            return None
        return Ending(f"its {type(stop).__name__} says stop", status=0)

    def _reached(self, stop: Mapping[str, float], result: Mapping[str, Any]) -> str:
        for name, value in stop.items():
            reached = result.get(name)
            if isinstance(reached, Real) and float(reached) >= value:
                return f"{name} {float(reached):.4g} reached the {value:g} of its stop"
            if not isinstance(reached, Real) and not self._has_warned:
                self._has_warned = True
                logger.warning("stop names %s, which a report has not as a number; that ends no trial", name)
        return ""
