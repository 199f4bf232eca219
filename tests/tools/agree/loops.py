"""The train loops of the sweeps: every report can be computed from the configuration and its number."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gaudi_tune.base.names import test_metric

Saves = Literal["every", "third", "better", "never"]
Mishap = Literal["", "raises", "nan", "infinity", "loses", "early", "done", "save fails", "load fails"]


class LostError(Exception):
    """Raised by a loop where its process dies."""


@dataclass(frozen=True)
class Curve:
    """What a loop reports, and when it saves."""

    saves: Saves = "every"
    reads: bool = True
    """Whether it asks for its checkpoint where it begins."""
    mishap: Mishap = ""
    """What happens to a third of the trials after their second report."""
    each: int = 1
    """How many reports an epoch has."""
    from_0: bool = False
    """Whether it counts epochs from 0."""
    says: Literal["each", "second", "none"] = "each"
    """Which reports say the epoch."""
    forgets: bool = False
    """Whether it counts epochs from 1 again where a trial continues."""
    metric: str = "loss"
    maximizes: bool = False
    """Whether more of the metric is better; it is the negative loss then."""
    steps: int = 0
    """How many optimizer steps an epoch has; 0 where epochs are counted."""
    also: Mapping[str, Any] = field(default_factory=dict)
    """What each report has besides."""

    def loss(self, config: dict[str, Any], report: int) -> float:
        """Return a report's loss: it falls, and goes up and down on the way, in a confirmation with each seed."""
        seed = f" {config['seed']}" if config.get("confirms") else ""
        noise = random.Random(f"{config['x']} {report}{seed}").uniform(-0.4, 0.4)
        return (config["x"] - 0.3) ** 2 + 1 / report + noise + 0.1 * config.get("width", 0)

    def strikes(self, config: Mapping[str, Any]) -> bool:
        """Whether the mishap happens to a trial."""
        return bool(self.mishap) and random.Random(f"{config['x']}").random() < 1 / 3

    def reports(self, config: dict[str, Any], epoch: int, done: int) -> Iterator[tuple[dict[str, Any], bool]]:
        """Yield the reports of a trial that has made so many, and whether each comes with a checkpoint."""
        strikes = self.strikes(config)
        losses = [self.loss(config, report) for report in range(1, done + 1)]
        epochs = config["steps"] // self.steps if self.steps else config["epochs"]
        for report in range(done + 1, self.each * epochs + 1):
            loss = self.loss(config, report)
            if strikes and report == 3:
                loss = self._strike(config, loss)
                if math.isnan(loss) and self.mishap == "early":
                    return
            epoch = (report - 1) // self.each + (0 if self.from_0 else 1)
            value = -loss if self.maximizes else loss
            metrics = {"epoch": epoch, "error": abs(config["x"]) + loss, **self.also}
            metrics |= {self.metric: value, test_metric(self.metric): value + 1}
            if strikes and report == 3 and self.mishap == "done":
                metrics["done"] = True
            if self.forgets:
                metrics["epoch"] -= done // self.each
            if self.says == "none" or (self.says == "second" and report % 2):
                del metrics["epoch"]
            if self.steps:
                metrics["step"] = metrics.pop("epoch") * self.steps
            yield metrics, self._is_saved(report, loss, losses)
            losses.append(loss)

    def _strike(self, config: dict[str, Any], loss: float) -> float:
        match self.mishap:
            case "raises":
                raise ValueError(f"x={config['x']:.3f} is unlucky")
            case "loses" if config["x"] not in _LOST:
                _LOST.add(config["x"])
                raise LostError("a worker is gone")
            case "nan" | "early":
                return math.nan
            case "infinity":
                return math.inf
        return loss

    def _is_saved(self, report: int, loss: float, losses: list[float]) -> bool:
        match self.saves:
            case "every":
                return True
            case "third":
                return report % 3 == 0
            case "better":
                return all(loss < earlier for earlier in losses)
        return False


_LOST = set[float]()
"""The trials whose workers were lost once, by their x."""
