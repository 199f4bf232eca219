"""A trial actor with one worker, whose trials leave something, and look for it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ray
from ray.tune.utils.util import flatten_dict

from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.group.trainer import WorkerGroupSpec
from gaudi_tune.group.warm_trainable import warm_trainable
from tests.tools.leaks import ways

PAIRS = {way.name: way for members in ways.SECTIONS.values() for way in members}


def script_loop() -> Any:
    """Return the train loop as if ``ways.py`` were a user's script: it goes to the workers by value."""
    source = Path(ways.__file__).read_text()
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "ways.py", "exec"), script)
    return script["train_loop"]


class Actor:
    """The actor."""

    def __init__(self, storage: str) -> None:
        spec = WorkerGroupSpec(train_loop=script_loop(), num_workers=1, device=DEVICE_TYPES["cpu"], storage=storage)
        trainable = warm_trainable(spec=spec, settings={}, environment_of=lambda config: {})
        self._actor = ray.remote(num_cpus=0)(trainable).remote({})

    def run(self, leave: Iterable[str], look: Iterable[str]) -> dict[str, Any]:
        """Run a trial that looks for some ways and then leaves some, and return what it has reported."""
        config = {"leave": [PAIRS[name].leave for name in leave], "look": {name: PAIRS[name].look for name in look}}
        ray.get(self._actor.reset.remote({**config, "seed": 3}))
        result: dict[str, Any] = flatten_dict(ray.get(self._actor.train.remote()))
        return result

    def end(self) -> None:
        """End the workers."""
        ray.get(self._actor.stop.remote())
