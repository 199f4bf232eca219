"""Sweeps that end before their last trial: the rules by themselves, and a real sweep that reaches its target."""

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
from typing import Any

import pytest
from optuna.storages import InMemoryStorage
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.result import SHOULD_CHECKPOINT

from experiments import SweepOptions, build_tuner
from experiments.sweep.options import PROJECT_ROOT
from experiments.sweep.plan import make_plan
from experiments.sweep.stopping import CTRL_C, TERMINATED, StopSweep, kind_of_error
from experiments.sweep.tuner import make_searcher
from tests.experiments.sweep.quadratic import QUADRATIC
from trainables.runtime.device import OUT_OF_MEMORY


class Running:
    """As much of a trial as the rules look at."""

    def __init__(self, trial_id: str) -> None:
        self.trial_id, self.status, self.error_file = trial_id, Trial.RUNNING, None


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """When Tune was told to end, in place of Tune, which is not there."""
    times: list[float] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: times.append(time.monotonic()))
    yield times
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def trials() -> list[Any]:
    return [Running("a"), Running("b")]


def rule(storage: Path, **options: Any) -> StopSweep:
    return StopSweep(make_plan(QUADRATIC, SweepOptions(storage=storage, name="x", device="cpu", **options)))


def report(stop: StopSweep, trials: list[Any], trial: Any, score: float) -> bool:
    """Report a score, and return whether it is to be saved; saved it is."""
    result: dict[str, Any] = {"score": score}
    stop.on_trial_result(0, trials, trial, result)
    stop.on_step_end(0, trials)
    if result.get(SHOULD_CHECKPOINT):
        stop.on_checkpoint(0, trials, trial)
        stop.on_step_end(0, trials)
    return bool(result.get(SHOULD_CHECKPOINT))


def why(stop: StopSweep) -> str:
    return "" if stop.ending is None else stop.ending.why


def test_at_the_target_every_running_trial_is_saved_before_the_end(
    storage: Path, trials: list[Any], interrupts: list[float]
) -> None:
    stop = rule(storage, target=0.5)
    assert [report(stop, trials, trials[0], score) for score in (0.1, 0.4)] == [False, False]
    assert report(stop, trials, trials[0], 0.5)
    assert not interrupts  # the other has not been saved
    assert report(stop, trials, trials[1], 0.1)
    assert len(interrupts) == 1
    assert stop.ending is not None
    assert (stop.ending.why, stop.ending.status) == ("score 0.5 reached the target of 0.5", 0)


def test_patience_counts_trials_since_the_best(storage: Path, trials: list[Any], interrupts: list[float]) -> None:
    stop = rule(storage, patience=2)
    for score in (0.1, 0.2):
        report(stop, trials, trials[0], score)
        stop.trial_ended(trials[0], "finished", None)
    assert not why(stop)
    stop.trial_ended(trials[0], "stopped early", None)
    assert "2 trials have ended since the best" in why(stop)
    resumed = rule(storage, patience=2)
    resumed.set_state(stop.get_state())
    resumed.trial_ended(trials[0], "failed", None)
    assert why(resumed)


def test_the_time_budget_is_in_minutes(storage: Path, interrupts: list[float]) -> None:
    stop = rule(storage, time_budget=0.001)
    time.sleep(0.07)
    stop.on_step_end(0, [])
    assert len(interrupts) == 1


def test_the_same_error_again_and_again_ends_the_sweep_once_the_others_are_saved(
    storage: Path, trials: list[Any], interrupts: list[float]
) -> None:
    stop = rule(storage, same_errors=3)
    for number in range(2):
        trials[0].error_file = "error.txt"
        stop.trial_ended(trials[0], "failed", f"RuntimeError: no file /data/{number}.bin at 0x7f{number}a")
    stop.trial_ended(trials[1], "failed", "diverged: loss is nan after epoch 1")  # which is no error of the loop
    for number in range(3):
        assert not why(stop)
        stop.trial_ended(trials[0], "failed", f"Traceback ...\nRuntimeError: no file /data/{number}.bin")
    assert stop.ending is not None
    assert stop.ending.status == 1
    assert "3 trials in a row failed alike: RuntimeError: no file /data/2.bin" in stop.ending.why
    trials[0].status = Trial.ERROR
    stop.on_step_end(0, trials)
    assert not interrupts
    assert report(stop, trials, trials[1], 0.1)
    assert len(interrupts) == 1


@pytest.mark.parametrize(
    ("one", "another", "alike"),
    [
        ("x\nbad value 0.25 at 0x7fab12", "bad value 3 at 0x1c", True),
        ("loss -1.5e-05 is below 0", "loss 2.5 is below 0", True),
        ("no file '/tmp/tmpx7k2_w9q/my data.bin'", "no file '/tmp/tmp0v_mzplk/a.bin'", True),
        ("cannot open /tmp/tmpx7k2_w9q: denied", "cannot open /tmp/tmpzv_mzplk: denied", True),
        ("no run 6fa459ea-ee8a-3ca4-abcd-db77e160355e", "no run 00000000-0000-4000-9999-000000000000", True),
        ("node 10.0.0.12:4567 is gone", "node 10.0.3.4:80 is gone", True),
        ("KeyError: 'label'", "KeyError: 'text'", False),
        ("can't read lr", "can't read momentum", False),
        ("no file /data/a", "no folder /data/a", False),
    ],
)
def test_an_error_is_of_the_same_kind_with_other_paths_and_numbers(one: str, another: str, alike: bool) -> None:
    assert (kind_of_error(one) == kind_of_error(another)) is alike


def test_models_too_large_for_the_device_do_not_end_the_sweep(storage: Path, trials: list[Any]) -> None:
    stop = rule(storage, same_errors=2)
    trials[0].error_file = "error.txt"
    for _ in range(3):
        stop.trial_ended(trials[0], "failed", f"Traceback ...\n{OUT_OF_MEMORY}: a smaller batch_size needs less")
    assert not why(stop)


def test_once_the_sweep_ends_nothing_more_is_proposed(storage: Path, interrupts: list[float]) -> None:
    plan = make_plan(QUADRATIC, SweepOptions(storage=storage, name="x", device="cpu", target=0.5))
    searcher, first = make_searcher(plan, InMemoryStorage()), Running("a")
    searcher.set_max_concurrency(2)  # as Tune does
    stop = StopSweep(plan, searcher)
    assert isinstance(searcher.suggest("a"), dict)
    report(stop, [first], first, 0.5)
    assert why(stop)
    assert searcher.suggest("b") is None


def test_in_a_thread_the_sweep_goes_on(storage: Path, trials: list[Any], interrupts: list[float]) -> None:
    stop = rule(storage, same_errors=1)
    trials[0].error_file = "error.txt"
    stop.trial_ended(trials[0], "failed", "RuntimeError: again")
    assert why(stop)
    thread = threading.Thread(target=stop.on_step_end, args=(0, []))
    thread.start()
    thread.join()
    assert not interrupts
    assert not why(stop)


def test_ctrl_c_waits_for_checkpoints_once_and_sigterm_does_not(
    storage: Path, trials: list[Any], interrupts: list[float]
) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stop = rule(storage)
    stop.setup()
    os.kill(os.getpid(), signal.SIGINT)
    stop.on_step_end(0, trials)
    assert not interrupts
    os.kill(os.getpid(), signal.SIGINT)
    stop.on_step_end(0, trials)
    assert len(interrupts) == 1
    assert stop.ending is not None
    assert stop.ending.status == CTRL_C
    signal.signal(signal.SIGINT, before[0])  # as Tune does, once it is interrupted
    stop.on_experiment_end(trials)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    other = rule(storage)
    other.setup()
    os.kill(os.getpid(), signal.SIGTERM)
    other.on_step_end(0, trials)
    other.on_experiment_end(trials)
    signal.signal(signal.SIGINT, before[0])
    assert len(interrupts) == 2
    assert other.ending is not None
    assert other.ending.status == TERMINATED


WAITING_FOR_ROOM = """
import sys
from pathlib import Path

from experiments import SweepOptions
from experiments.sweep.plan import make_plan
from experiments.sweep.stopping import StopSweep
from tests.experiments.sweep.quadratic import QUADRATIC
from trainables.runtime import writing


def write():
    print(stop.ending, flush=True)
    with open("/dev/full", "w") as full:
        full.write("x")


stop = StopSweep(make_plan(QUADRATIC, SweepOptions(storage=Path(sys.argv[1]), name="x", device="cpu")))
stop.setup()
writing.TRY_AGAIN_AFTER_S = 0.1
writing.once_there_is_room(write, "anything")
"""


@pytest.mark.parametrize(("number", "heeded"), [(signal.SIGINT, 2), (signal.SIGTERM, 1)])
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


def test_a_real_sweep_ends_at_its_target_with_its_trials_saved(ray_here: None, tmp_path: Path) -> None:
    plain = replace(QUADRATIC, space={"x": tune.uniform(-1.0, 1.0)})
    options: dict[str, Any] = {"num_samples": 20, "epochs": 27, "scheduler": "fifo", "settings": ("seconds=0.3",)}
    build_tuner(plain, name="good-enough", storage=tmp_path, target=-0.5, **options).fit()
    summary = json.loads((tmp_path / "good-enough" / "summary.json").read_text())
    assert summary["ended_early"]["status"] == 0
    assert summary["best"]["value"] >= -0.5
    assert summary["interrupted"] == [1, 2]
    for number in summary["interrupted"]:
        # Two, if the sweep ended before Tune removed the one before.
        assert len(list((tmp_path / "good-enough" / f"trial-{number:03d}").glob("checkpoint_*/epoch.txt"))) in (1, 2)
