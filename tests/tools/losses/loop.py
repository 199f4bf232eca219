"""A loop that saves and continues, for sweeps without a private surface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gaudi_tune import Experiment, get_checkpoint, main, report, tune

FILE = "epoch"


def train_loop(config: dict[str, Any]) -> None:
    """Report a loss that falls from epoch to epoch."""
    checkpoint = get_checkpoint()
    done = int(Path(checkpoint.path, FILE).read_text()) if checkpoint is not None else 0
    for epoch in range(done + 1, config["epochs"] + 1):

        def save(folder: Path, epoch: int = epoch) -> None:
            (folder / FILE).write_text(str(epoch))

        report({"loss": (config["x"] - 0.3) ** 2 + 1 / epoch, "epoch": epoch}, save=save)


EXPERIMENT = Experiment(name="losses", train_loop=train_loop, space={"x": tune.uniform(-1.0, 1.0)}, metric="loss")

if __name__ == "__main__":
    main(EXPERIMENT)
