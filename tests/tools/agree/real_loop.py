"""The command line of a real sweep: a train loop or a class that writes down each of its reports itself."""

from __future__ import annotations

import json
import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import torch
from ray import tune
from torch.utils import data

from gaudi_tune import Budget, Experiment, get_checkpoint, main, report
from tests.tools.agree.groups import STATE
from tests.tools.agree.loops import Curve

CURVE, LOG = "AGREE_CURVE", "AGREE_LOG"
"""Variables: the options of the curve, as JSON, and the folder with what loops wrote down, a file for each ``x``."""
CONFIRMED = "confirmed"
"""The folder beside it, with a file for each trial that confirms another: its number and the seed."""


def curve() -> Curve:
    return Curve(**json.loads(os.environ[CURVE]))


def write_down(config: dict[str, Any], count: int, metrics: dict[str, Any], saves: bool) -> None:
    entry = json.dumps({**metrics, "x": config["x"], "saves": saves, "count": count})
    place = Path(os.environ[LOG], f"{config['x']!r}")
    if config["confirms"]:  # with the x of another trial
        place = place.parent.with_name(CONFIRMED) / f"{config['confirms']} {config['seed']}"
    with place.open("a") as file:
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


class Noisy(data.Dataset[Any]):
    """Numbers with noise that is drawn in a loader's process."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        inputs = torch.full((8,), index / 64) + torch.rand(8) + random.random()
        return inputs, inputs.sum()


def load(config: dict[str, Any]) -> None:
    """Train a network on what two loader processes make, and save all that the rest of the training depends on."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
    optimizer, epoch = torch.optim.Adam(model.parameters(), lr=0.01 * (1.1 + config["x"])), 0
    if (checkpoint := get_checkpoint()) is not None:
        kept = torch.load(Path(checkpoint.path, "kept.pt"), weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        torch.set_rng_state(kept["random"])
        epoch = kept["epoch"]
    for number in range(epoch + 1, config["epochs"] + 1):
        total = 0.0
        for inputs, targets in data.DataLoader(Noisy(), batch_size=8, shuffle=True, num_workers=2):
            loss = (model(inputs)[:, 0] - targets).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        metrics = {"loss": total, "epoch": number, "error": total, "test_loss": total}
        write_down(config, number, metrics, saves=True)
        kept = {
            "model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state(),
            "epoch": number,
        }  # fmt: skip
        report(metrics, save=partial(save_all, kept, json.dumps({"metrics": metrics})))


def save_all(kept: dict[str, Any], state: str, folder: Path) -> None:
    torch.save(kept, folder / "kept.pt")
    save_state(state, folder)


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
    main(experiment({"loop": loop, "class": Steps, "loader": load}[os.environ["AGREE_KIND"].partition(",")[0]]))
