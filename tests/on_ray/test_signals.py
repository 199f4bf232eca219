"""Ctrl-C and SIGTERM: how a sweep ends on them, with and without Ray."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from ray import tune
from ray.tune import Checkpoint
from ray.tune.schedulers import TrialScheduler

from gaudi_tune import SweepOptions
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.devices.cpu import CPU
from gaudi_tune.on_ray import sweep_run
from gaudi_tune.on_ray.signals import Signals
from gaudi_tune.on_ray.sweep_run import SweepRun
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.sweep.record.events import (
    CTRL_C,
    PREEMPTED,
    TERMINATED,
    Decided,
    Decision,
    Ending,
    Reported,
    SweepEnding,
    TrialBegan,
)
from tests.helpers.cluster_sweep import SOON_GONE
from tests.helpers.quadratic import QUADRATIC
from tests.helpers.simulated_actors import Clock
from tests.helpers.simulated_groups import Groups
from tests.helpers.simulated_sweep import simulated_tuner, without_ray
from tests.tools.agree.groups import STATE
from tests.tools.agree.kinds import CheckedSweep, Kind
from tests.tools.agree.loops import Curve, Saves


@pytest.fixture
def interrupts() -> Iterator[list[float]]:
    """When Tune was told to end; Tune itself is not there to hear it."""
    times: list[float] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: times.append(time.monotonic()))
    yield times
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def run(storage: Path) -> SweepRun:
    """A sweep with two running trials, before anything of Ray."""
    run = SweepTuner(make_plan(QUADRATIC, SweepOptions(storage=storage, name="x", device="cpu")), trackers=[]).run
    for number in (1, 2):
        run.state.apply(TrialBegan(trial=number, trial_id=str(number), config={"x": 0.5}))
    return run


def turn(run: SweepRun, *saving: int) -> None:
    """What a turn of Tune's event loop does about the end of the sweep, while trials are saved."""
    run.early_end.check_signals()
    run.early_end.interrupt_when_saved({*saving, *(trial.number for trial in run.state.running)})


def save(run: SweepRun, number: int) -> None:
    config = run.state.trials[number].config
    run.state.apply(Reported(trial=number, step=1, point=(0.1,), metrics={"score": 0.1}, config=config))
    place = run.plan.folder / f"trial-{number:03d}" / "checkpoint_000000"
    trial: Any = SimpleNamespace(experiment_tag=f"{number}_")
    run.on_checkpoint(0, [], trial, Checkpoint(str(place)))


@pytest.mark.parametrize("pauses", [False, True])
def test_tune_is_interrupted_once_every_trial_that_runs_or_is_to_pause_is_saved(
    run: SweepRun, interrupts: list[float], pauses: bool
) -> None:
    run.early_end.ask(Ending("for a test", 0))
    turn(run)
    save(run, 1)
    if pauses:
        run.state.apply(Decided(trial=2, decision=Decision("pause", "it waits")))
    turn(run, *([2] if pauses else []))
    assert not interrupts
    save(run, 2)
    turn(run)
    turn(run)
    assert len(interrupts) == 1


def test_without_ray_the_process_ends_also_if_the_sweep_cannot_be_closed(
    run: SweepRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    run.plan.folder.parent.mkdir(exist_ok=True)
    run.plan.folder.write_text("no folder")  # the summary cannot be written
    run.leaving.leave(Ending("Ray is gone", 1, at_once=True))
    assert left == [1]
    assert "the sweep could not be closed" in caplog.text


def test_once_the_sweep_ends_a_trial_waits_and_takes_over_no_other(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = replace(QUADRATIC, space={"x": tune.uniform(-1.0, 1.0)})
    options = SweepOptions(storage=storage, name="x", device="cpu", scheduler="pbt")
    run = SweepTuner(make_plan(plain, options), trackers=[]).run
    run.state.apply(TrialBegan(trial=1, trial_id="1", config={"x": 0.5}))
    scheduler = mock.Mock(return_value=(Decision("continue"), TrialScheduler.CONTINUE))
    monkeypatch.setattr(run.scheduler, "decide", scheduler)
    trial: Any = SimpleNamespace(experiment_tag="1_", trial_id="1", config={"x": 0.5})
    for ends in (False, True):
        if ends:
            run.early_end.ask(Ending("for a test", 0))
        answer = run.scheduler.on_trial_result(None, trial, {"score": 0.1, "epoch": 1, "training_iteration": 1})
        assert run.state.trials[1].decision.verdict == "continue"
        assert answer == (TrialScheduler.NOOP if ends else TrialScheduler.CONTINUE), "it waits where it has saved"
    scheduler.assert_called_once()


def test_trials_that_have_nothing_to_save_are_not_waited_for(run: SweepRun, interrupts: list[float]) -> None:
    run.early_end.ask(Ending("for a test", 0))
    for number in (1, 2):
        turn(run)
        assert not interrupts, "nobody knows yet whether it saves"
        run.state.apply(
            Reported(trial=number, step=1, point=(0.1,), metrics={"score": 0.1}, config={"x": 0.5}, behind=None)
        )
    turn(run)
    assert len(interrupts) == 1


def test_a_trial_whose_devices_another_has_is_not_waited_for(run: SweepRun, monkeypatch: pytest.MonkeyPatch) -> None:
    trials: list[Any] = [SimpleNamespace(experiment_tag=f"{number}_", actor=f"actor {number}") for number in (1, 2)]
    monkeypatch.setattr(sweep_run, "actor_of", lambda trial: trial.actor)
    monkeypatch.setattr(sweep_run, "waiting_actors", set)
    assert run._trials_that_may_save(trials) == {1, 2}
    monkeypatch.setattr(sweep_run, "waiting_actors", lambda: {"actor 2"})
    assert run._trials_that_may_save(trials) == {1}


def test_a_time_budget_that_is_over_is_said_once(run: SweepRun) -> None:
    told: list[Any] = []
    run.announcer.views[:] = [SimpleNamespace(show=lambda event, state: told.append(event), tick=lambda state: None)]
    for _ in range(2):  # as at each turn of Tune's event loop
        run.early_end.ask(Ending("its time budget is spent", 0, at_once=True))
    assert [type(event) for event in told] == [SweepEnding]


def test_a_target_that_was_reached_stays_the_reason_when_the_time_is_over_too(run: SweepRun) -> None:
    reached = Ending("it reached the target", 0, option="target")
    run.early_end.ask(reached)
    run.early_end.ask(Ending("its time budget is spent", 0, at_once=True))
    assert run.state.ending == reached._replace(at_once=True)
    run.early_end.ask(Ending("all fail", 1, at_once=False))
    assert run.state.ending.option == "target"


def test_in_a_thread_the_sweep_goes_on(run: SweepRun, interrupts: list[float]) -> None:
    run.early_end.ask(Ending("for a test", 1, at_once=True))
    thread = threading.Thread(target=turn, args=(run,))
    thread.start()
    thread.join()
    assert not interrupts
    assert run.state.ending is None


def test_ctrl_c_waits_for_checkpoints_once(run: SweepRun, interrupts: list[float]) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run.early_end.signals.take_over()
    os.kill(os.getpid(), signal.SIGINT)
    turn(run)
    assert not interrupts
    os.kill(os.getpid(), signal.SIGINT)
    turn(run)
    assert len(interrupts) == 1
    assert run.state.ending == Ending("interrupted (Ctrl-C)", CTRL_C, at_once=True)
    signal.signal(signal.SIGINT, before[0])  # as Tune does, once it is interrupted
    run.early_end.signals.give_back(interrupted=True)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_one_ctrl_c_is_enough_for_a_sweep_that_is_ending_already(run: SweepRun, interrupts: list[float]) -> None:
    run.early_end.signals.take_over()
    run.early_end.ask(Ending("the target was reached", 0))
    turn(run)
    assert not interrupts
    os.kill(os.getpid(), signal.SIGINT)
    turn(run)
    run.early_end.signals.give_back(interrupted=False)
    assert len(interrupts) == 1
    assert run.state.ending == Ending("the target was reached", 0, at_once=True)


LEAVING = """
import os, signal, sys
from pathlib import Path

from gaudi_tune import SweepOptions
from gaudi_tune.on_ray.trials import number_of
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan
from tests.helpers.quadratic import QUADRATIC

options = SweepOptions(storage=Path(sys.argv[1]), name="x", device="cpu", json=True)
run = SweepTuner(make_plan(QUADRATIC, options), trackers=[]).run
run.plan.folder.mkdir(parents=True)
run.early_end.signals.take_over()
sys.stdout = sys.stderr  # as with --json
os.kill(os.getpid(), int(sys.argv[2]))
run.on_step_begin(0, [])
print("it went on")
"""


@pytest.mark.processes
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, TERMINATED), (signal.SIGUSR1, PREEMPTED)])
def test_sigterm_closes_the_sweep_and_ends_the_process_before_anything_of_ray_is_called(
    storage: Path, number: signal.Signals, status: int
) -> None:
    command = [sys.executable, "-c", LEAVING, str(storage), str(int(number))]
    left = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert left.returncode == status, left.stderr
    assert "it went on" not in left.stderr
    assert "resume it with: build_tuner(" in left.stderr
    summary = json.loads((storage / "x" / "summary.json").read_text())
    assert json.loads(left.stdout) == summary
    assert summary["ended_early"]["why"] == f"it received {number.name}"


def test_under_nohup_a_closed_terminal_ends_nothing() -> None:
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signals = Signals()
        signals.take_over()
        signal.raise_signal(signal.SIGHUP)
        assert signals.ending is None
        signals.give_back(interrupted=False)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, earlier)


WITHOUT_RAYLET = """
import os, time
import psutil, ray
from gaudi_tune.on_ray import sweep_run
from gaudi_tune.on_ray.signals import Signals
from gaudi_tune.on_ray.ray_watch import RayWatch
from gaudi_tune.private.ray_core import lean_ray

def leave(ending):
    print(ending.why, flush=True)
    os._exit(ending.status)

with lean_ray():
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
RayWatch(Signals(), leave, print).start()
next(child for child in psutil.Process().children(recursive=True) if child.name() == "raylet").kill()
time.sleep(90)
"""


@pytest.mark.processes
@pytest.mark.own_ray
def test_a_sweep_whose_raylet_is_gone_is_left() -> None:
    left = subprocess.run(
        [sys.executable, "-c", WITHOUT_RAYLET],
        cwd=PROJECT_ROOT, env={**os.environ, **SOON_GONE}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert left.returncode == 1, left.stderr
    assert left.stdout.splitlines()[-1] == "Ray's process on this machine (raylet) is gone"


WAITING_FOR_ROOM = """
import signal
import sys
from pathlib import Path

from gaudi_tune import SweepOptions
from gaudi_tune.on_ray.trials import number_of
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan
from tests.helpers.quadratic import QUADRATIC
from gaudi_tune.base import files


def write():
    print(signals.ending, flush=True)
    with open("/dev/full", "w") as full:
        full.write("x")


signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests run under nohup
plan = make_plan(QUADRATIC, SweepOptions(storage=Path(sys.argv[1]), name="x", device="cpu"))
signals = SweepTuner(plan).run.early_end.signals
signals.take_over()
files.RETRY_AFTER_S = 0.1
files.retry_while_disk_is_full(write, "anything")
"""


@pytest.mark.processes
@pytest.mark.parametrize(("number", "heeded"), [(signal.SIGINT, 2), (signal.SIGHUP, 1)])
def test_one_signal_more_ends_the_process_also_while_a_full_disk_is_waited_for(
    storage: Path, number: signal.Signals, heeded: int
) -> None:
    script = [sys.executable, "-c", WAITING_FOR_ROOM, str(storage)]
    with subprocess.Popen(script, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [process.stdout.readline()]
        for _ in range(heeded):
            process.send_signal(number)
            told.append(next(line for line in process.stdout if line != told[-1]))
        assert told[0] == "None\n"
        assert "at_once=True" in told[-1]
        process.send_signal(number)
        assert process.wait() == -number


class CtrlC(tune.Callback):
    """Comes when the sweep has taken over the signals, and no trial has begun."""

    def setup(self, **info: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_a_sweep_ends_on_ctrl_c_before_its_first_trial(tmp_path: Path) -> None:
    before, groups = signal.getsignal(signal.SIGINT), Groups(Clock(), 2)
    began = groups.clock.now()
    with without_ray(tmp_path, groups, CPU):
        plan = simulated_tuner(tmp_path, trials=2, epochs=4).plan
        SweepTuner(plan, callbacks=[CtrlC()], trackers=[]).fit()
    assert groups.clock.now() - began < 300, "Tune waits ten minutes for a proposal, if there is to be none"
    assert signal.getsignal(signal.SIGINT) == before
    assert json.loads(plan.summary_file.read_text())["ended_early"]["status"] == CTRL_C


@pytest.mark.parametrize(("saves", "limit"), [("every", {"target": 0.2}), ("never", {"patience": 1})])
def test_a_sweep_ends_at_its_limit_with_its_trials_saved_if_they_save(
    saves: Saves, limit: dict[str, float], storage: Path, tracking_store: str
) -> None:
    kind = Kind(Curve(saves=saves), {"scheduler": "fifo", **limit}, complete=False)
    sweep = CheckedSweep(f"limit {saves}", kind, storage, tracking_store)
    assert sweep.run() == []
    summary = json.loads((sweep.folder / "summary.json").read_text())
    assert (summary["ended_early"]["status"], summary["complete"]) == (0, False)
    saved = {bool([*sweep.folder.glob(f"trial-{n:03d}/checkpoint_*/{STATE}")]) for n in summary["interrupted"]}
    assert saved == {saves == "every"}
    assert (summary["device_seconds"]["lost"] == 0) is (saves == "every"), "each waited where it had saved"
