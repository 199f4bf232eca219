"""A callback of Ray Tune that the user gave: an error in it never ends the sweep."""

from __future__ import annotations

from functools import partial
from typing import Any

import cloudpickle
from ray import tune

from gaudi_tune.base.kept_in_process import KeptInProcess
from gaudi_tune.on_ray.given.guarded import Guarded

STATE = ("get_state", "set_state")
"""The methods for a callback's state. The sweep's log keeps that: Tune would end the sweep if it cannot be pickled."""
HOOKS = [
    name for name, value in vars(tune.Callback).items() if callable(value) and name[0] != "_" and name not in STATE
]
"""The methods that Tune calls when something happens."""


class UserCallback(KeptInProcess, tune.Callback):
    """Passes each call of Tune on to the user's callback, and logs its errors. Tune itself would end the sweep."""

    def __init__(self, callback: tune.Callback, **sweep_facts: Any) -> None:
        """Wrap a callback. Its ``setup`` gets ``sweep_facts``, such as ``stop``, in place of what Tune knows."""
        self._callback, self._guarded = callback, Guarded(f"the callback {type(callback).__name__}")
        for hook in HOOKS:
            setattr(self, hook, partial(self._call, hook))
        self.setup = lambda **info: self._call("setup", **{**info, **sweep_facts})

    @property
    def name(self) -> str:
        """The name of the callback's class."""
        return type(self._callback).__name__

    def _call(self, hook: str, *arguments: Any, **info: Any) -> Any:
        return self._guarded.call(hook, getattr(self._callback, hook), *arguments, **info)

    def kept_state(self) -> bytes | None:
        """Return what a resumed sweep gives the callback, pickled; None if it has no state that can be kept."""
        state = self._call("get_state")
        return None if state is None else self._guarded.call("get_state", cloudpickle.dumps, state)

    def restore_state(self, state: bytes) -> None:
        """Give the callback what :meth:`kept_state` returned."""
        self._call("set_state", cloudpickle.loads(state))
