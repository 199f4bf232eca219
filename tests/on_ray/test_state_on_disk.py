"""The state of a sweep is written by a thread: nothing waits for a slow disk, and nothing that it refuses is lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.search import SearchGenerator

from gaudi_tune import SweepOptions
from gaudi_tune.base.files import STATE_LOG
from gaudi_tune.on_ray.state_on_disk import KEPT_EVERY_S, StateOnDisk
from gaudi_tune.on_ray.sweep_run import SweepRun
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.sweep.record.state_log import read_log
from tests.helpers.full_disk import disk_full_at
from tests.helpers.quadratic import QUADRATIC
from tests.helpers.scripted import began


@pytest.fixture
def run(tmp_path: Path) -> SweepRun:
    experiment = replace(QUADRATIC, space={"x": tune.uniform(-1.0, 1.0)})
    run = SweepTuner(make_plan(experiment, SweepOptions(name="slow", storage=tmp_path, device="cpu"))).run
    run.plan.folder.mkdir()
    return run


def kept(on_disk: StateOnDisk) -> bool:
    return on_disk.is_complete


def test_nothing_waits_for_a_slow_disk_and_what_it_refuses_is_in_the_next_record(
    run: SweepRun, caplog: pytest.LogCaptureFixture
) -> None:
    folder, proposals, disk_answers = run.plan.folder, SearchGenerator(run.searcher), threading.Event()
    on_disk = StateOnDisk(
        folder, run.state, run.scheduler, run.searcher.proposer, [], lambda: disk_answers.wait(60), resumed=False
    )
    run.state.apply(began(1))
    on_disk.keep_state({"one": ("{}", "{}")}, "{}", proposals)
    assert on_disk.is_writing
    assert not (folder / STATE_LOG).exists()
    disk_answers.set()
    assert kept(on_disk)
    assert list(read_log(folder)["sweep"]["trials"]) == [1]

    run.state.apply(began(2))
    with disk_full_at((folder / STATE_LOG).stat().st_size + 20):
        on_disk.keep_state({"one": ("{}", "{}"), "two": ("{}", "{}")}, "{}", proposals)
        assert not kept(on_disk)
    assert list(read_log(folder)["sweep"]["trials"]) == [1]
    run.state.apply(began(3))
    with caplog.at_level(logging.WARNING):
        on_disk.keep_state({"one": ("{}", "{}"), "two": ("{}", "{}")}, "{}", proposals)
    assert "could not be written" in caplog.text
    assert kept(on_disk)
    parts = read_log(folder)
    assert sorted(parts["sweep"]["trials"]) == [1, 2, 3]
    assert sorted(parts["tune"]["trials"]) == ["one", "two"]


def test_where_a_record_takes_a_minute_the_next_one_is_begun_as_soon_as_is_said(
    run: SweepRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, began_at, ended_at = 0.0, list[float](), list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: now)

    class OnBusyMachine(StateOnDisk):
        def keep(self, trials: Sequence[Trial]) -> None:
            nonlocal now
            began_at.append(now)
            now += 60
            super().keep(trials)
            ended_at.append(now)

    parts = run.state, run.scheduler, run.searcher.proposer
    on_disk = OnBusyMachine(run.plan.folder, *parts, [], lambda: None, resumed=False)
    for iteration in range(20):
        on_disk.on_step_end(iteration, [])
        now += 1
    assert [begin - end for begin, end in zip(began_at[1:], ended_at, strict=False)] == [KEPT_EVERY_S] * 3
