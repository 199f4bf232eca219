"""A session that keeps what a train loop reports in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray.train import Checkpoint
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gaudi_tune.base import names
from gaudi_tune.training.session import SaveFunction, open_session

NUMBERS = (
    names.EPOCH, names.STEP, names.TRAIN_LOSS, names.VAL_LOSS, names.VAL_ACCURACY, names.LEARNING_RATE,
    names.TRAIN_ACCURACY, names.VAL_TOP5_ACCURACY, names.VAL_BALANCED_ACCURACY, names.VAL_MACRO_F1,
)  # fmt: skip
"""What must be the same bit for bit; times are not."""


class Interrupted(BaseException):
    """What ends a trial that has saved between two reports."""


class Collector:
    """Runs a loop in this process, keeps its reports, and saves after one of them."""

    def __init__(
        self,
        start_from: Path | None = None,
        save_at: int = 0,
        save_to: Path | None = None,
        folder: Path = Path(),
        asked_at: int = 0,
    ) -> None:
        """Save at one of the reports, or when the loop asks for the n-th time whether to save, and end there."""
        self.folder = folder
        self.reports: list[dict[str, Any]] = []
        self.asks, self._asked_at = 0, asked_at
        self._start_from, self._save_at, self._save_to = start_from, save_at, save_to

    def report(self, metrics: Mapping[str, Any], save: SaveFunction | None) -> None:
        self.reports.append(dict(metrics))
        if len(self.reports) == self._save_at:
            assert save is not None
            assert self._save_to is not None
            self._save_to.mkdir(parents=True)
            save(self._save_to)

    def save_if_asked(self, save: SaveFunction) -> None:
        self.asks += 1
        if self.asks == self._asked_at:
            assert self._save_to is not None
            self._save_to.mkdir(parents=True)
            save(self._save_to)
            raise Interrupted

    def get_checkpoint(self) -> Checkpoint | None:
        return Checkpoint.from_directory(self._start_from) if self._start_from else None


def reports_of(
    loop: Callable[[dict[str, Any]], None], config: Mapping[str, Any], **session: Any
) -> list[dict[str, Any]]:
    """Run a trial in this process and return all that it reported."""
    collector = Collector(**session)
    with open_session(collector):
        loop(dict(config))
    return collector.reports


def numbers_of(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must repeat."""
    return {name: metrics[name] for name in NUMBERS if name in metrics}


@contextmanager
def hyperparameters_of_each_step() -> Iterator[list[dict[str, Any]]]:
    """Hand out a list that gets what every optimizer of this process has in each of its steps."""
    steps: list[dict[str, Any]] = []

    def note(optimizer: Any, *_: Any) -> None:
        known = [{name: value for name, value in g.items() if name != "params"} for g in optimizer.param_groups]
        own = {"weight_decay": 0, "adapts": True}  # what groups may have of their own
        assert all({**group, **own} == {**known[0], **own} for group in known)
        steps.append(known[0])

    hook = register_optimizer_step_pre_hook(note)
    try:
        yield steps
    finally:
        hook.remove()
