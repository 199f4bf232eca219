"""The command line of a real sweep: a train loop or a class that writes down each of its reports itself."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from ray import tune

from gaudi_tune import Budget, Experiment, get_checkpoint, main, report
from tests.tools.agree.groups import STATE
from tests.tools.agree.loops import Curve

CURVE, LOG = "AGREE_CURVE", "AGREE_LOG"
"""Variables: the options of the curve, as JSON, and the folder with what loops wrote down, a file for each ``x``."""


def curve() -> Curve:
    return Curve(**json.loads(os.environ[CURVE]))


def write_down(config: dict[str, Any], count: int, metrics: dict[str, Any], saves: bool) -> None:
    entry = json.dumps({**metrics, "x": config["x"], "saves": saves, "count": count})
    with Path(os.environ[LOG], f"{config['x']!r}").open("a") as file:
        file.write(f"{entry}\n")


def save_state(state: str, folder: Path) -> None:
    (folder / STATE).write_text(state)


def loop(config: dict[str, Any]) -> None:
    """Make the reports of a curve."""
    state: dict[str, Any] = {"epoch": 0, "reports": 0}
    if (checkpoint := get_checkpoint()) is not None:
        state = json.loads(Path(checkpoint.path, STATE).read_text())
    for metrics, saves in curve().reports(config, state["epoch"], state["reports"]):
        state = {"epoch": metrics["epoch"], "reports": state["reports"] + 1, "metrics": metrics}
        write_down(config, state["reports"], metrics, saves)
        report(metrics, save=partial(save_state, json.dumps(state)) if saves else None)


class Steps(tune.Trainable):
    """The same as a class of Ray's; for some trials saving or loading fails."""

    def setup(self, config: dict[str, Any]) -> None:
        self._state: dict[str, Any] = {"epoch": 0, "reports": 0}

    def step(self) -> dict[str, Any]:
        metrics, saves = next(curve().reports(self.config, self._state["epoch"], self._state["reports"]))
        self._state = {"epoch": metrics["epoch"], "reports": self._state["reports"] + 1, "metrics": metrics}
        write_down(self.config, self._state["reports"], metrics, saves)
        return metrics

    def save_checkpoint(self, folder: str) -> None:
        self._fail("save fails")
        save_state(json.dumps(self._state), Path(folder))

    def load_checkpoint(self, folder: Any) -> None:
        self._fail("load fails")
        self._state = json.loads(Path(folder, STATE).read_text())

    def _fail(self, how: str) -> None:
        if curve().mishap == how and curve().strikes(self.config):
            raise RuntimeError(how)


def experiment(train_loop: Any) -> Experiment:
    space = {"x": tune.uniform(-1.0, 1.0)}
    return Experiment(name="agree", train_loop=train_loop, space=space, metric="loss", budget=Budget(epochs=6))


if __name__ == "__main__":
    main(experiment(Steps if "class" in os.environ["AGREE_KIND"] else loop))
