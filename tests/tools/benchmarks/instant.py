"""A trial that takes no time: it reports once. ``instant_trials.py`` tunes it."""

from __future__ import annotations

from typing import Any

from gaudi_tune import Experiment, main, report, tune


def train_loop(config: dict[str, Any]) -> None:
    """Report the loss once."""
    report({"loss": (config["x"] - 0.3) ** 2})


INSTANT = Experiment(name="instant", train_loop=train_loop, space={"x": tune.uniform(-1.0, 1.0)}, metric="loss")

if __name__ == "__main__":
    main(INSTANT)
