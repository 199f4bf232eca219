"""Tune's own trials and checkpoints on disk, held to a budget; no Ray runs."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.train._internal.session import _TrainingResult
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from experiments import SweepError, SweepOptions
from experiments.sweep.checkpoint_budget import KeepToBudget
from experiments.sweep.options import bytes_of
from experiments.sweep.plan import make_plan
from experiments.sweep.schedulers.population import make_population
from experiments.sweep.summary import best_of
from tests.experiments.sweep.quadratic import QUADRATIC

PLAIN = replace(QUADRATIC, space={"x": tune.uniform(-1.0, 1.0)})
SIZE = 1000
"""Bytes of a checkpoint."""


class Sweep:
    """Trials and their checkpoints, as a sweep has them in the middle."""

    def __init__(self, storage: Path, budget: str, scheduler: TrialScheduler | None = None, mode: Any = "max") -> None:
        experiment = replace(PLAIN, mode=mode)
        self.plan = make_plan(experiment, SweepOptions(storage=storage, name="sweep", checkpoint_budget=budget))
        self.scheduler = scheduler or FIFOScheduler()
        self.callback = KeepToBudget(self.plan, self.scheduler)
        self.trials: list[Trial] = []

    def add(self, status: str, *scores: float, saves: set[int]) -> Trial:
        """Add a trial that reported these scores, and saved after the given of them, from 1."""
        number, mode = len(self.trials) + 1, self.plan.experiment.mode
        config = tune.CheckpointConfig(checkpoint_score_attribute="score", checkpoint_score_order=mode)
        names: dict[str, str] = {"trial_id": str(number), "experiment_tag": f"{number}_x"}
        trial = Trial("quadratic", stub=True, checkpoint_config=config, **names)
        for epoch, score in enumerate(scores, start=1):
            result = {"score": score, "epoch": epoch, "training_iteration": epoch}
            trial.update_last_result(result)
            if epoch in saves:
                place = self.place(number, epoch)
                place.mkdir(parents=True)
                (place / "state.pt").write_bytes(b"s" * SIZE)
                saved = _TrainingResult(tune.Checkpoint.from_directory(place), result)
                trial.run_metadata.checkpoint_manager.register_checkpoint(saved)
        trial.set_status(status)
        self.trials.append(trial)
        return trial

    def place(self, number: int, epoch: int) -> Path:
        return self.plan.folder / f"trial-{number:03d}" / f"checkpoint_{epoch:06d}"

    def step(self) -> list[str]:
        """Save a trial, let Tune take a step, and return which checkpoints are there: trial and epoch."""
        self.callback.on_trial_save(0, self.trials, self.trials[0])
        self.callback.on_step_end(0, self.trials)
        return self.there()

    def there(self) -> list[str]:
        found = sorted(self.plan.folder.glob("trial-*/checkpoint_*"))
        return [f"{int(place.parent.name[-3:])}/{int(place.name[-6:])}" for place in found]


def test_checkpoints_of_ended_trials_go_the_worst_first_and_no_more_than_must(storage: Path) -> None:
    sweep = Sweep(storage, budget="3KB")
    sweep.add("TERMINATED", 0.2, 0.5, saves={2})
    sweep.add("TERMINATED", 0.1, 0.3, saves={2})
    sweep.add("ERROR", 0.4, saves={1})
    sweep.add("TERMINATED", 0.9, 0.6, saves={1, 2})
    assert sweep.step() == ["1/2", "4/1", "4/2"]
    # Tune knows what is gone.
    assert [trial.checkpoint is None for trial in sweep.trials] == [False, True, True, False]
    assert sweep.step() == ["1/2", "4/1", "4/2"]


def test_less_is_better_where_the_metric_says_so(storage: Path) -> None:
    sweep = Sweep(storage, budget="2KB", mode="min")
    for score in (0.2, 0.9, 0.5):
        sweep.add("TERMINATED", score, saves={1})
    assert sweep.step() == ["1/1", "3/1"]


def test_the_best_stay_by_their_best_and_by_their_last_value(storage: Path, caplog: pytest.LogCaptureFixture) -> None:
    sweep = Sweep(storage, budget="1KB")
    sweep.add("TERMINATED", 0.9, 0.1, saves={1, 2})
    sweep.add("TERMINATED", 0.2, 0.6, saves={1, 2})
    sweep.add("TERMINATED", 0.7, 0.5, saves={1, 2})
    with caplog.at_level(logging.WARNING):
        assert sweep.step() == ["1/1", "2/2"]
        assert sweep.step() == ["1/1", "2/2"]
    assert caplog.text.count("--checkpoint-budget 1KB: checkpoints that are still needed take 2.0KB") == 1
    best = best_of(sweep.trials, sweep.plan)
    assert best is not None
    assert (best["trial"], best["value"], best["checkpoint"]) == (1, 0.9, str(sweep.place(1, 1)))
    assert sweep.trials[0].checkpoint is not None  # its last is gone, its best is there
    assert sweep.trials[0].checkpoint.path == str(sweep.place(1, 1))


@pytest.mark.parametrize("status", ["RUNNING", "PAUSED", "PENDING"])
def test_a_trial_that_has_not_ended_keeps_what_it_may_go_on_from(status: str, storage: Path) -> None:
    sweep = Sweep(storage, budget="2KB")
    sweep.add("TERMINATED", 0.9, saves={1})
    sweep.add(status, 0.3, 0.2, 0.1, saves={1, 2, 3})
    sweep.add("TERMINATED", 0.5, saves={1})
    being_written = sweep.place(2, 4)
    being_written.mkdir()
    assert sweep.step() == ["1/1", "2/2", "2/3", "2/4"]
    sweep.trials[1].set_status("TERMINATED")
    assert sweep.step() == ["1/1", "2/2"]


def test_the_best_saved_stays_until_the_new_best_is_saved(storage: Path) -> None:
    sweep = Sweep(storage, budget="1KB")
    sweep.add("TERMINATED", 0.7, saves={1})
    sweep.add("TERMINATED", 0.5, 0.8, saves={1, 2})
    running = sweep.add("RUNNING", 0.6, 0.9, saves={1})
    assert sweep.step() == ["2/2", "3/1"]
    assert running.checkpoint is not None


def test_what_a_crash_has_left_goes_first(storage: Path) -> None:
    sweep = Sweep(storage, budget="2KB")
    sweep.add("TERMINATED", 0.9, saves={1})
    sweep.add("TERMINATED", 0.1, saves={1})
    left = sweep.place(2, 7)
    left.mkdir()
    (left / "state.pt").write_bytes(b"s" * SIZE)
    assert sweep.step() == ["1/1", "2/1"]


def test_pbt_keeps_what_may_be_taken_over_and_what_was(storage: Path) -> None:
    scheduler = make_population(QUADRATIC.recipes["sample"].budget, PLAIN.space)
    sweep = Sweep(storage, budget="1KB", scheduler=scheduler)
    scheduler.set_search_properties("score", "max")
    strong = sweep.add("RUNNING", *(0.1 * epoch for epoch in range(1, 9)), saves={1, 2, 4, 5, 6, 7, 8})
    weak = sweep.add("RUNNING", 0.1, saves=set())
    for trial in sweep.trials:
        scheduler.on_trial_add(None, trial)
    scheduler._trial_state[strong].last_perturbation_time = 5
    weak.run_metadata.checkpoint_manager._latest_checkpoint_result = _TrainingResult(
        tune.Checkpoint.from_directory(sweep.place(1, 2)), {"score": 0.2, "epoch": 2}
    )
    assert sweep.step() == ["1/2", "1/5", "1/6", "1/7", "1/8"]


def test_the_summary_names_no_checkpoint_that_is_gone(storage: Path) -> None:
    sweep = Sweep(storage, budget="9KB")
    sweep.add("TERMINATED", 0.9, saves={1})
    (sweep.place(1, 1) / "state.pt").unlink()
    sweep.place(1, 1).rmdir()
    sweep.callback.on_experiment_end(sweep.trials)
    best = best_of(sweep.trials, sweep.plan)
    assert best is not None
    assert (best["value"], best["checkpoint"]) == (0.9, None)


def test_a_budget_is_a_number_of_bytes() -> None:
    assert [bytes_of(given) for given in (None, "10GB", "1.5 MiB", "700")] == [None, 10**10, 3 * 2**19, 700]


@pytest.mark.parametrize("given", ["", "much", "0", "-3GB", "10 apples"])
def test_a_budget_that_is_none_is_said_before_anything_starts(given: str, storage: Path) -> None:
    with pytest.raises(SweepError, match=f"--checkpoint-budget {given}: give a number of bytes above 0"):
        make_plan(QUADRATIC, SweepOptions(storage=storage, checkpoint_budget=given))
