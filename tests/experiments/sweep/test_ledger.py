"""The ledger's arithmetic, with trials as far as it looks at them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.experiment import Trial

from experiments.sweep.budget import Budget
from experiments.sweep.ledger import IDLE, LOST, STARTING, TRAINING, WAITING, Ledger, seconds_of, shares_of
from experiments.sweep.pictures.timeline import draw_timeline
from tests.experiments.sweep.quadratic import QUADRATIC
from trainables.runtime import names
from trainables.runtime.device import DEVICE_TYPES, Devices

BEGAN = 1000.0


class Clock:
    """Time that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = BEGAN
        monkeypatch.setattr("experiments.sweep.ledger.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def ledger_of(kind: Any, count: int, width: int = 1) -> Ledger:
    plan: Any = SimpleNamespace(
        experiment=QUADRATIC,
        budget=Budget(epochs=4),
        devices=Devices(DEVICE_TYPES[kind], (count,), "for a test"),
        options=SimpleNamespace(workers_per_trial=width),
    )
    ledger = Ledger(plan)
    ledger.setup()
    return ledger


def trial(number: int) -> Any:
    return SimpleNamespace(
        trial_id=f"id{number}", experiment_tag=f"{number}_x", status=Trial.RUNNING, last_result={"epoch": 4}
    )


def report(
    clock: Clock, ledger: Ledger, of: Any, ordered: float, reported: float, devices: str = "n:", **seconds: float
) -> None:
    clock.now = BEGAN + reported
    ledger.on_trial_result(0, [], of, {names.STEP_SECONDS: reported - ordered, names.DEVICES: devices, **seconds})


def test_what_a_report_does_not_account_for_is_training_or_its_way() -> None:
    assert seconds_of({}, 3.0) == {TRAINING: 3.0}
    assert seconds_of({"start_s": 1.0}, 3.0) == {STARTING: 1.0, TRAINING: 2.0}
    told = seconds_of({"start_s": 1.0, "train_s": 1.5, "eval_s": 0.2, "compile_s": 0.1}, 3.0)
    assert told == pytest.approx({STARTING: 1.0, TRAINING: 1.5, "evaluating": 0.2, "compiling": 0.1, WAITING: 0.2})


def test_two_trials_one_after_the_other_and_the_time_between_them(clock: Clock, tmp_path: Path) -> None:
    ledger, first, second = ledger_of("hpu", 2), trial(1), trial(2)
    ledger.on_trial_start(0, [first], first)
    report(clock, ledger, first, 2, 10, "n:5", start_s=3.0, train_s=5.0)
    report(clock, ledger, first, 11, 15, "n:5", train_s=4.0)  # a second for the decision
    clock.now = BEGAN + 16
    ledger.on_trial_complete(0, [first], first)
    clock.now = BEGAN + 18
    ledger.on_trial_start(0, [first, second], second)
    report(clock, ledger, second, 18, 20, "n:5", train_s=2.0)
    clock.now = BEGAN + 20
    second.status = Trial.ERROR
    second.error_file = None
    clock.now = BEGAN + 24
    ledger.on_trial_error(0, [first, second], second)
    clock.now = BEGAN + 30
    ledger.on_experiment_end([first, second])
    assert dict(ledger.by_trial[1]) == pytest.approx({STARTING: 3, TRAINING: 9, WAITING: 2})
    assert dict(ledger.by_trial[2]) == pytest.approx({TRAINING: 2, WAITING: 0, LOST: 4})
    books = ledger.by_device()
    assert list(books) == ["hpu 5", "unused 1"]
    # Before the first trial the trial actor started: 2 s. Idle: 2 s between the trials, and 6 s at the end.
    assert {k: v for k, v in books["hpu 5"].items() if v} == pytest.approx(
        {STARTING: 5, TRAINING: 11, WAITING: 2, LOST: 4, IDLE: 8}
    )
    assert books["unused 1"][IDLE] == 30
    assert shares_of(ledger.in_all()) == "8 % starting, 18 % training, 3 % waiting for a decision, 7 % lost, 63 % idle"
    draw_timeline(ledger, "a test", tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").stat().st_size > 1000
    assert list(tmp_path.iterdir()) == [tmp_path / "timeline.png"]


def test_a_trial_of_two_devices_that_moves_is_booked_where_it_was(clock: Clock) -> None:
    ledger, moved = ledger_of("hpu", 4, width=2), trial(1)
    ledger.on_trial_start(0, [moved], moved)
    report(clock, ledger, moved, 0, 10, "n:0 n:1", train_s=10.0)
    report(clock, ledger, moved, 10, 40, "n:2 n:3", train_s=10.0, lost_s=5.0, start_s=15.0)
    clock.now = BEGAN + 40
    ledger.on_trial_complete(0, [moved], moved)
    ledger.on_experiment_end([moved])
    books = ledger.by_device()
    assert sum(sum(kinds.values()) for kinds in books.values()) == pytest.approx(4 * 40)
    assert ledger.in_all()[TRAINING] == pytest.approx(2 * 20)
    assert books["hpu 2"][TRAINING] == pytest.approx(15)  # three quarters of the time
    assert [s.trained_from - BEGAN for s in ledger.stretches] == [0, 0, 30, 30]


def test_cores_have_no_numbers_and_a_paused_trial_leaves_its_lane(clock: Clock) -> None:
    ledger, first, second = ledger_of("cpu", 2), trial(1), trial(2)
    for one in (first, second):
        ledger.on_trial_start(0, [first, second], one)
        report(clock, ledger, one, 0, 5)
    assert [stretch.device for stretch in ledger.stretches] == ["cpu 0", "cpu 1"]
    first.status = Trial.PAUSED
    third = trial(3)
    clock.now = BEGAN + 6
    ledger.on_trial_start(0, [first, second, third], third)
    report(clock, ledger, third, 6, 7)
    assert ledger.stretches[-1].device == "cpu 0"
    first.status = Trial.RUNNING
    clock.now = BEGAN + 9
    third.status = Trial.TERMINATED
    ledger.on_trial_complete(0, [first, second, third], third)
    ledger.on_trial_start(0, [first, second, third], first)
    report(clock, ledger, first, 9, 12)
    assert ledger.by_trial[1][WAITING] == 0  # it was paused, and waited for nothing
    assert sum(ledger.by_trial[1].values()) == pytest.approx(8)


def test_the_time_in_which_a_sweep_was_interrupted_is_cut_out(clock: Clock) -> None:
    ledger, first = ledger_of("hpu", 1), trial(1)
    ledger.on_trial_start(0, [first], first)
    report(clock, ledger, first, 0, 10, "n:0", train_s=10.0)
    clock.now = BEGAN + 12
    state = ledger.get_state()
    clock.now = BEGAN + 5000
    resumed = ledger_of("hpu", 1)
    resumed.set_state(state)
    resumed.setup()  # Tune calls it after the state is restored
    clock.now += 3
    resumed.on_experiment_end([])
    assert resumed.ended - resumed.began == 15
    assert resumed.stretches[0].began == resumed.began
    assert {k: v for k, v in resumed.in_all().items() if v} == pytest.approx({TRAINING: 10, IDLE: 5})


def test_a_trial_that_starts_for_long_has_the_lane_that_was_free_for_as_long(clock: Clock) -> None:
    """Trial 1 fails and 3 starts new workers in its place; meanwhile 2 ends, and 4 begins at once where it was."""
    ledger, trials = ledger_of("cpu", 2), [trial(number) for number in range(1, 5)]
    for one in trials[:2]:
        ledger.on_trial_start(0, trials, one)
        report(clock, ledger, one, 0, 10)
    clock.now = BEGAN + 10
    ledger.on_trial_complete(0, trials, trials[0])
    ledger.on_trial_start(0, trials, trials[2])
    report(clock, ledger, trials[1], 10, 20)
    clock.now = BEGAN + 20
    ledger.on_trial_complete(0, trials, trials[1])
    ledger.on_trial_start(0, trials, trials[3])
    report(clock, ledger, trials[3], 20, 25)
    report(clock, ledger, trials[2], 10, 30, start_s=15.0)
    clock.now = BEGAN + 30
    for one in trials[2:]:
        ledger.on_trial_complete(0, trials, one)
    ledger.on_experiment_end(trials)
    assert [stretch.device for stretch in ledger.stretches] == ["cpu 0", "cpu 1", "cpu 1", "cpu 0"]
    assert [sum(kinds.values()) for kinds in ledger.by_device().values()] == pytest.approx([30, 30])
