"""Which reports get a checkpoint, and which checkpoints go: a state that is fed with events, and real folders."""

from __future__ import annotations

import logging
import math
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gaudi_tune.define.objective import Mode, Objective
from gaudi_tune.sweep.policies.checkpoints import CheckpointBudget, wants_checkpoint
from gaudi_tune.sweep.record.events import Decided, Decision, Ending, SweepEnding, Verdict
from tests.helpers.fed_state import Fed

SIZE = 1000
"""Bytes of a checkpoint."""
HOUR = 3600.0


def wanted(fed: Fed, number: int, score: float, verdict: Verdict = "continue", every_s: float = HOUR) -> bool:
    trial = fed.state.trials[number]
    fed.report(number, trial.step + 1, score, verdict)
    return wants_checkpoint(fed.state, trial, every_s)


def test_the_best_so_far_gets_a_checkpoint_and_an_equal_one_too() -> None:
    fed = Fed()
    fed.begin(1)
    assert [wanted(fed, 1, score) for score in (0.5, 0.4, 0.5, 0.6, math.nan)] == [True, False, True, True, False]


def test_so_does_the_best_by_its_last_value() -> None:
    fed = Fed()
    fed.trial(1, 0.9)
    fed.state.best_at_end = None
    ends: tuple[Verdict, ...] = ("stopped early", "finished", "stopped early", "failed")
    found = []
    for number, (score, verdict) in enumerate(zip((0.3, 0.2, 0.4, math.nan), ends, strict=True), start=2):
        fed.begin(number)
        found.append(wanted(fed, number, score, verdict))
        fed.end(number)
    assert found == [True, False, True, False]


def test_a_trial_that_has_trained_for_a_while_gets_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    fed = Fed(epochs=99)
    fed.trial(1, 0.9)
    fed.begin(2)
    due = {}
    for moment in (1059.0, 1060.0, 1119.0, 1120.0):
        now = moment
        due[moment] = wanted(fed, 2, 0.1, every_s=60)
        if due[moment]:
            fed.save(2)
    assert due == {1059.0: False, 1060.0: True, 1119.0: False, 1120.0: True}
    now = 2000.0
    assert not wanted(fed, 2, 0.1, "stopped early", every_s=60)  # it ends, and not as the best


def test_once_the_sweep_ends_early_every_running_trial_gets_a_checkpoint() -> None:
    fed = Fed()
    fed.trial(1, 0.9)
    fed.begin(2)
    assert not wanted(fed, 2, 0.1)
    fed.state.apply(SweepEnding(ending=Ending("for a test", 0)))
    assert wanted(fed, 2, 0.1)
    assert not wanted(fed, 2, 0.1, "stopped early")


THREAD = ThreadPoolExecutor(1)


def delete(folder: Path) -> Future[None]:
    return THREAD.submit(shutil.rmtree, folder)


class Sweep(Fed):
    """A state whose checkpoints are on disk."""

    def __init__(self, folder: Path, limit: int, mode: Mode = "max", others: Sequence[Objective] = ()) -> None:
        super().__init__(mode=mode, epochs=9, others=others)
        self.folder, self.budget = folder, CheckpointBudget(folder, limit, delete)

    def add(self, number: int, *scores: float, saves: set[int], ended: bool = True, **metrics: Any) -> None:
        """A trial that reported these scores, and saved after the given of them, from 1."""
        self.begin(number)
        for epoch, score in enumerate(scores, start=1):
            self.report(number, epoch, score, **metrics)
            if epoch in saves:
                self.save(number)
                self.write(number, epoch)
        if ended:
            self.end(number)

    def write(self, number: int, epoch: int) -> Path:
        place = self.folder / f"trial-{number:03d}" / f"checkpoint_{epoch:06d}"
        place.mkdir(parents=True)
        (place / "state.pt").write_bytes(b"s" * SIZE)
        return place

    def keep(self, *in_use: Path) -> list[str]:
        """Keep to the budget, and return which checkpoints are there: trial and epoch."""
        self.budget.enforce(self.state, in_use)
        self.budget.finish()
        found = sorted(self.folder.glob("trial-*/checkpoint_*"))
        return [f"{int(place.parent.name[-3:])}/{int(place.name[-6:])}" for place in found]


def test_checkpoints_of_ended_trials_go_the_worst_first_and_no_more_than_must(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sweep = Sweep(tmp_path, limit=3 * SIZE)
    sweep.add(1, 0.2, 0.5, saves={2})
    sweep.add(2, 0.1, 0.3, saves={2})
    sweep.add(3, 0.4, saves={1})
    sweep.add(4, 0.9, 0.6, saves={1, 2})
    assert sweep.keep() == ["1/2", "4/1", "4/2"]
    assert sweep.keep() == ["1/2", "4/1", "4/2"]
    assert not caplog.records, "there is room for them"


def test_a_disk_that_stalls_keeps_nobody_and_no_more_goes_than_must(tmp_path: Path) -> None:
    sweep, disk_answers = Sweep(tmp_path, limit=2 * SIZE), threading.Event()
    THREAD.submit(disk_answers.wait, 60)
    for number in (1, 2, 3, 4):
        sweep.add(number, 0.1 * number, saves={1})
        sweep.budget.enforce(sweep.state, ())
    sweep.budget.drop(sweep.state, sweep.state.trials[3])
    places = [tmp_path / f"trial-{number:03d}" / "checkpoint_000001" for number in (1, 2, 3, 4)]
    assert sweep.budget.being_deleted == {*places[:3]}
    assert all(place.is_dir() for place in places)
    disk_answers.set()
    assert sweep.keep() == ["4/1"]
    assert not sweep.budget.being_deleted


def test_without_a_limit_nothing_goes(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, limit=1)
    sweep.budget = CheckpointBudget(tmp_path, None, delete)
    sweep.add(1, 0.2, 0.5, saves={1, 2})
    assert sweep.keep() == ["1/1", "1/2"]


def test_a_trial_that_waited_in_vain_leaves_no_checkpoint_unless_it_is_the_best(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, limit=1)
    sweep.budget = CheckpointBudget(tmp_path, None, delete)
    for number, score in ((1, 0.2), (2, 0.9)):
        sweep.add(number, score, saves={1}, ended=False)
        sweep.end(number, "stopped early")
    for number in (1, 2):
        sweep.budget.drop(sweep.state, sweep.state.trials[number])
    assert [sweep.budget.enforce(sweep.state, ()), sweep.budget.enforce(sweep.state, ())] == [True, False]
    assert sweep.keep() == ["2/1"]


def test_those_of_trials_that_wait_go_last_the_worst_first(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, limit=4 * SIZE)
    for number, score in ((1, 0.1), (2, 0.9), (3, 0.2), (4, 0.3), (5, 0.5)):
        sweep.add(number, score, saves={1}, ended=number > 3)
        if number in (1, 3):
            sweep.state.apply(Decided(trial=number, decision=Decision("pause")))
    assert sweep.keep() == ["1/1", "2/1", "3/1", "5/1"]  # trial 4 has ended, and not as the best
    sweep.budget = CheckpointBudget(tmp_path, 3 * SIZE, delete)
    assert sweep.keep() == ["2/1", "3/1", "5/1"]


def test_less_is_better_where_the_metric_says_so(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, limit=2 * SIZE, mode="min")
    for number, score in enumerate((0.2, 0.9, 0.5), start=1):
        sweep.add(number, score, saves={1})
    assert sweep.keep() == ["1/1", "3/1"]


def test_the_best_stay_by_their_best_and_by_their_last_value(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sweep = Sweep(tmp_path, limit=SIZE)
    sweep.add(1, 0.9, 0.1, saves={1, 2})
    sweep.add(2, 0.2, 0.6, saves={1, 2})
    sweep.add(3, 0.7, 0.5, saves={1, 2})
    with caplog.at_level(logging.WARNING):
        assert sweep.keep() == ["1/1", "2/2"]
        assert sweep.keep() == ["1/1", "2/2"]
    assert caplog.text.count("still needed take 2.0KB, more than the 1.0KB allowed") == 1


@pytest.mark.parametrize(("paused", "kept"), [(False, ["1/1", "2/2", "2/3", "2/4"]), (True, ["1/1", "2/4"])])
def test_a_trial_that_trains_keeps_what_it_may_go_on_from(paused: bool, kept: list[str], tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, limit=2 * SIZE)
    sweep.add(1, 0.9, saves={1})
    sweep.add(2, 0.3, 0.2, 0.1, saves={1, 2, 3}, ended=False)
    if paused:
        sweep.report(2, 4, 0.1, verdict="pause")
    sweep.add(3, 0.5, saves={1})
    sweep.write(2, 4)  # which is being written
    assert sweep.keep() == kept
    sweep.end(2)
    assert len(sweep.keep()) == 2


def test_the_best_saved_stays_until_the_new_best_is_saved(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, limit=SIZE)
    sweep.add(1, 0.7, saves={1})
    sweep.add(2, 0.5, 0.8, saves={1, 2})
    sweep.add(3, 0.6, 0.9, saves={1}, ended=False)
    assert sweep.keep() == ["2/2", "3/1"]


def test_remains_of_a_crash_go_first(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, limit=2 * SIZE)
    sweep.add(1, 0.9, saves={1})
    sweep.add(2, 0.1, saves={1})
    sweep.write(2, 7)
    assert sweep.keep() == ["1/1", "2/1"]


def test_files_in_use_stay(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, limit=SIZE)
    sweep.add(1, 0.9, saves={1})
    sweep.add(2, 0.1, 0.2, saves={1, 2})
    assert sweep.keep(tmp_path / "trial-002" / "checkpoint_000001") == ["1/1", "2/1"]


def test_with_several_objectives_each_new_point_of_the_front_gets_a_checkpoint() -> None:
    fed = Fed(others=[Objective("seconds", "min")])
    fed.begin(1, 2)
    found = []
    for number, score, seconds in ((1, 0.5, 5.0), (1, 0.4, 1.0), (2, 0.4, 4.0), (2, 0.45, 6.0), (2, 0.6, 6.0)):
        trial = fed.state.trials[number]
        fed.report(number, trial.step + 1, score, seconds=seconds)
        found.append(wants_checkpoint(fed.state, trial, HOUR))
    assert found == [True, False, True, False, True]


def test_the_checkpoints_of_the_front_stay(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, limit=SIZE, others=[Objective("seconds", "min")])
    sweep.add(1, 0.5, saves={1}, seconds=5.0)
    sweep.add(2, 0.2, saves={1}, seconds=1.0)
    sweep.add(3, 0.9, saves={1}, seconds=9.0)
    sweep.add(4, 0.6, saves={1}, seconds=9.5)
    assert sweep.keep() == ["1/1", "2/1", "3/1"]
    for number in (1, 4):
        sweep.budget.drop(sweep.state, sweep.state.trials[number])
    assert sweep.keep() == ["1/1", "2/1", "3/1"]


def test_a_persons_files_beside_the_trials_are_neither_counted_nor_removed(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, limit=3 * SIZE)
    kept = [sweep.folder / name / "checkpoint_000001" for name in ("trial-001-keep", "trial-notes", "trial-077")]
    for place in kept:
        place.mkdir(parents=True)
        (place / "state.pt").write_bytes(b"s" * 9 * SIZE)
    for number in (1, 2, 3, 4):
        sweep.add(number, 0.1 * number, saves={1})
    sweep.budget.enforce(sweep.state, [])
    sweep.budget.finish()
    assert all((place / "state.pt").is_file() for place in kept)
    trials = [
        number for number in (1, 2, 3, 4) if (sweep.folder / f"trial-{number:03d}" / "checkpoint_000001").is_dir()
    ]
    assert trials == [2, 3, 4]
