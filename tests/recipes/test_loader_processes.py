from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from gaudi_tune.recipes.loader_processes import loader_processes
from gaudi_tune.recipes.loading import Batch, BatchIndices, Loader

pytestmark = pytest.mark.processes

BATCHES = [BatchIndices((0, number), [number]) for number in range(8)]


class BadError(Exception):
    """Cannot be unpickled."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"{file} is {why}")


class Tagged(Dataset[Any]):
    """Says which process loaded it; can raise, or kill the process, once or always."""

    def __init__(self, bad: int = -1, error: Exception | None = None, once: Path | None = None) -> None:
        self.bad, self.error, self.once = bad, error, once

    def __getitems__(self, indices: list[int]) -> Batch:
        if self.bad in indices:
            if self.error is not None:
                raise self.error if str(self.error) else BadError("7.jpg", "torn")
            if self.once is None or not self.once.exists():
                if self.once is not None:
                    self.once.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return {"index": torch.tensor(indices), "process": torch.tensor([os.getpid()]), "noise": torch.rand(2)}


@pytest.fixture(scope="module", autouse=True)
def ended_afterwards() -> Iterator[None]:
    yield
    loader_processes.cache_clear()


def test_the_same_processes_load_trial_after_trial_and_validation_too() -> None:
    of_trial = []
    for _ in range(2):
        train, val = iter(Loader(Tagged(), BATCHES, 2)), Loader(Tagged(), BATCHES, 2)
        next(train)  # a validation in the middle of an epoch
        of_trial.append({int(batch["process"]) for batch in (*val, *train)})
    assert len(of_trial[0] | of_trial[1]) <= 2
    assert os.getpid() not in of_trial[0]


def test_requests_of_a_stopped_trial_are_dropped() -> None:
    stopped = iter(Loader(Tagged(), [BATCHES[0]] * 100, 2))
    next(stopped)
    del stopped
    assert [int(batch["index"]) for batch in Loader(Tagged(), BATCHES, 2)] == list(range(8))


def test_a_killed_process_costs_nothing_but_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    usual = [batch["noise"] for batch in Loader(Tagged(), BATCHES, 0)]
    survived = [batch["noise"] for batch in Loader(Tagged(3, once=tmp_path / "killed"), BATCHES, 2)]
    assert all(torch.equal(a, b) for a, b in zip(usual, survived, strict=True))
    assert "a loader process died" in caplog.text


def test_a_batch_that_kills_each_process_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"died 3 times while they loaded .*\[3\].*killed, or crashed"):
        list(Loader(Tagged(3), BATCHES, 2))


@pytest.mark.parametrize(
    ("error", "message"), [(OSError("3.jpg is torn"), "3.jpg is torn"), (ValueError(), "BadError: 7.jpg is torn")]
)
def test_an_error_of_the_data_is_the_trials_own(error: Exception, message: str) -> None:
    with pytest.raises((OSError, RuntimeError), match=message):
        list(Loader(Tagged(3, error), BATCHES, 2))
    assert len(list(Loader(Tagged(), BATCHES, 2))) == len(BATCHES)
