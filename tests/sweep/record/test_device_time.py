"""The arithmetic of device time."""

from __future__ import annotations

import random
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_tune.base import names
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective
from gaudi_tune.devices.find import DEVICE_TYPES, Devices
from gaudi_tune.show.pictures.figures import timeline
from gaudi_tune.sweep.record.device_time import (
    IDLE,
    LOST,
    STARTING,
    TRAINING,
    WAITING,
    DeviceTime,
    seconds_of,
    shares_of,
)
from gaudi_tune.sweep.record.events import SweepBegan
from gaudi_tune.sweep.record.sweep_state import SweepState

BEGAN = 1000.0


class Clock:
    """Time that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = BEGAN
        monkeypatch.setattr("gaudi_tune.sweep.record.device_time.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def device_time_of(kind: Any, count: int, width: int = 1) -> DeviceTime:
    device_time = DeviceTime(Devices(DEVICE_TYPES[kind], (count,), "for a test"), width=width)
    device_time.begin()
    return device_time


def report(
    clock: Clock, of: DeviceTime, trial: int, ordered: float, reported: float, devices: str = "n:", **seconds: float
) -> None:
    clock.now = BEGAN + reported
    own = {"start_s": names.START_SECONDS, "lost_s": names.LOST_SECONDS}
    by_name = {own.get(name, name): value for name, value in seconds.items()}
    of.reported(trial, {names.STEP_SECONDS: reported - ordered, names.DEVICES: devices, **by_name})


def test_the_clock_starts_when_the_sweep_begins(clock: Clock) -> None:
    time = DeviceTime(Devices(DEVICE_TYPES["cpu"], (2,), "for a test"))
    state = SweepState([Objective("score")], Budget(epochs=1), 8, time)
    clock.now = BEGAN + 5
    state.apply(SweepBegan())
    assert (time.began, time.ended) == (BEGAN + 5, BEGAN + 5)


def test_time_that_no_report_accounts_for_is_training_or_its_way() -> None:
    assert seconds_of({}, 3.0) == {TRAINING: 3.0}
    assert seconds_of({names.START_SECONDS: 1.0}, 3.0) == {STARTING: 1.0, TRAINING: 2.0}
    told = seconds_of({names.START_SECONDS: 1.0, "train_s": 1.5, "eval_s": 0.2, "compile_s": 0.1}, 3.0)
    assert told == pytest.approx({STARTING: 1.0, TRAINING: 1.5, "evaluating": 0.2, "compiling": 0.1, WAITING: 0.2})


def test_two_trials_one_after_the_other_and_the_time_between_them(clock: Clock) -> None:
    time = device_time_of("hpu", 2)
    time.started(1)
    report(clock, time, 1, 2, 10, "n:5", start_s=3.0, train_s=5.0)
    report(clock, time, 1, 11, 15, "n:5", train_s=4.0)  # a second for the decision
    clock.now = BEGAN + 16
    time.leave(1, WAITING)
    clock.now = BEGAN + 18
    time.started(2)
    report(clock, time, 2, 18, 20, "n:5", train_s=2.0)
    clock.now = BEGAN + 20
    clock.now = BEGAN + 24
    time.leave(2, LOST)
    clock.now = BEGAN + 30
    time.end()
    assert dict(time.by_trial[1]) == pytest.approx({STARTING: 3, TRAINING: 9, WAITING: 2})
    assert dict(time.by_trial[2]) == pytest.approx({TRAINING: 2, WAITING: 0, LOST: 4})
    seconds = time.by_device()
    assert list(seconds) == ["hpu 5", "unused 1"]
    # Before the first trial the trial actor started: 2 s. Idle: 2 s between the trials, and 6 s at the end.
    assert {k: v for k, v in seconds["hpu 5"].items() if v} == pytest.approx(
        {STARTING: 5, TRAINING: 11, WAITING: 2, LOST: 4, IDLE: 8}
    )
    assert seconds["unused 1"][IDLE] == 30
    assert shares_of(time.total()) == "8 % starting, 18 % training, 3 % waiting for a decision, 7 % lost, 63 % idle"
    view: Any = SimpleNamespace(device_time=time)
    assert timeline(view).layout.yaxis.categoryarray == ("hpu 5", "unused 1")


def test_a_trial_that_fails_before_its_first_report_had_devices(clock: Clock) -> None:
    time = device_time_of("hpu", 4, width=2)
    clock.now = BEGAN + 2
    time.started(1)
    time.started(2)
    report(clock, time, 1, 2, 10, "n:2 n:3", start_s=3.0, train_s=5.0)
    clock.now = BEGAN + 12
    time.leave(2, LOST)
    time.started(3)
    time.paused(3)
    time.leave(3, LOST)  # it had left
    time.leave(1, WAITING)
    time.end()
    seconds = time.by_device()
    assert list(seconds) == ["hpu 0", "hpu 1", "hpu 2", "hpu 3"]
    assert {k: v for k, v in seconds["hpu 0"].items() if v} == pytest.approx({STARTING: 2, LOST: 10})
    assert [sum(kinds.values()) for kinds in seconds.values()] == pytest.approx([12] * 4)


def test_a_trial_that_was_lost_before_its_first_report_had_no_devices_while_it_waited_for_others(clock: Clock) -> None:
    time = device_time_of("hpu", 1)
    time.started(1)
    for now in (3, 9):  # its actor is lost, and the sweep ends before there is another
        clock.now = BEGAN + now
        time.leave(1, LOST)
    time.end()
    assert {kind: seconds for kind, seconds in time.total().items() if seconds} == {LOST: 3, IDLE: 6}


def test_a_trial_of_two_devices_that_moves_is_booked_where_it_was(clock: Clock) -> None:
    time = device_time_of("hpu", 4, width=2)
    time.started(1)
    report(clock, time, 1, 0, 10, "n:0 n:1", train_s=10.0)
    report(clock, time, 1, 10, 40, "n:2 n:3", train_s=10.0, lost_s=5.0, start_s=15.0)
    clock.now = BEGAN + 40
    time.leave(1, WAITING)
    time.end()
    seconds = time.by_device()
    assert sum(sum(kinds.values()) for kinds in seconds.values()) == pytest.approx(4 * 40)
    assert time.total()[TRAINING] == pytest.approx(2 * 20)
    assert seconds["hpu 2"][TRAINING] == pytest.approx(15)  # three quarters of the time
    assert [s.trained_from - BEGAN for s in time.intervals] == [0, 0, 30, 30]


def test_a_trial_that_waits_for_a_device_has_it_from_when_the_other_has_left_it(clock: Clock) -> None:
    time = device_time_of("hpu", 2)
    time.started(1)
    report(clock, time, 1, 0, 30, "n:0 n:1", train_s=30.0)
    report(clock, time, 1, 30, 40, "n:0", train_s=10.0)
    time.started(2)
    report(clock, time, 2, 10, 50, "n:1", start_s=25.0, train_s=15.0)  # it was asked to train at 10
    clock.now = BEGAN + 50
    time.end()
    assert [sum(kinds.values()) for kinds in time.by_device().values()] == pytest.approx([50, 50])


def test_cores_have_no_numbers_and_a_paused_trial_leaves_its_lane(clock: Clock) -> None:
    time = device_time_of("cpu", 2)
    for one in (1, 2):
        time.started(one)
        report(clock, time, one, 0, 5)
    assert [interval.device for interval in time.intervals] == ["cpu 0", "cpu 1"]
    time.paused(1)
    clock.now = BEGAN + 6
    time.started(3)
    report(clock, time, 3, 6, 7)
    assert time.intervals[-1].device == "cpu 0"
    clock.now = BEGAN + 9
    time.leave(3, WAITING)
    time.started(1)
    report(clock, time, 1, 9, 12)
    assert time.by_trial[1][WAITING] == 0  # it was paused, and waited for nothing
    assert sum(time.by_trial[1].values()) == pytest.approx(8)


def test_each_of_the_trials_on_a_device_has_a_lane_there(clock: Clock) -> None:
    """Two trials on each of two GPUs: Ray fills the first before it takes the second."""
    time = DeviceTime(Devices(DEVICE_TYPES["cuda"], (2,), "for a test"), trials_per_device=2)
    for trial, devices in ((1, "n:0"), (2, "n:0"), (3, "n:1")):
        time.started(trial)
        report(clock, time, trial, 0, 10, devices, train_s=10.0)
    clock.now = BEGAN + 10
    time.leave(2, WAITING)
    time.started(4)
    report(clock, time, 4, 10, 15, "n:0", train_s=5.0)
    clock.now = BEGAN + 20
    for trial in (1, 3, 4):
        time.leave(trial, WAITING)
    time.end()
    assert [(interval.trial, interval.device) for interval in time.intervals] == [
        (1, "cuda 0"), (2, "cuda 0.2"), (3, "cuda 1"), (4, "cuda 0.2"),
    ]  # fmt: skip
    seconds = time.by_device()
    assert list(seconds) == ["cuda 0", "cuda 0.2", "cuda 1", "unused 1"]
    assert [sum(kinds.values()) for kinds in seconds.values()] == pytest.approx([20] * 4)
    assert {k: v for k, v in time.total().items() if v} == pytest.approx({TRAINING: 17.5, WAITING: 12.5, IDLE: 10})
    assert time.frozen_copy().devices == time.devices


@pytest.mark.parametrize("numbered", [True, False])
def test_no_two_trials_ever_have_one_lane(numbered: bool, clock: Clock) -> None:
    draw = random.Random(1)
    for each in (1, 2, 3, 5):
        clock.now = BEGAN
        kind = "cuda" if numbered else "cpu"
        time = DeviceTime(Devices(DEVICE_TYPES[kind], (3,), "for a test"), trials_per_device=each)
        places: dict[int, int | None] = dict.fromkeys(range(3 * each))  # the trial of each place, if there is one
        for trial in range(60):
            place = draw.choice(list(places))
            if (earlier := places[place]) is not None:
                time.leave(earlier, WAITING)
            places[place] = trial
            time.started(trial)
            report(clock, time, trial, trial, trial + 1, f"n:{place // each if numbered else ''}")
        time.end()
        lanes = set(time.devices)
        assert len(lanes) == 3 * each
        for one, other in combinations(time.intervals, 2):
            assert one.device != other.device or one.ended <= other.began or other.ended <= one.began
        assert sum(time.total().values()) == pytest.approx(3 * 60)


def test_the_time_in_which_a_sweep_was_interrupted_is_cut_out(clock: Clock) -> None:
    time = device_time_of("hpu", 1)
    time.started(1)
    report(clock, time, 1, 0, 10, "n:0", train_s=10.0)
    clock.now = BEGAN + 12
    state = time.snapshot()
    clock.now = BEGAN + 5000
    resumed = device_time_of("hpu", 1)
    resumed.restore(state)
    resumed.begin()
    clock.now += 3
    resumed.end()
    assert resumed.ended - resumed.began == 15
    assert resumed.intervals[0].began == resumed.began
    assert {k: v for k, v in resumed.total().items() if v} == pytest.approx({TRAINING: 10, IDLE: 5})


def test_the_last_of_two_readable_snapshots_counts(clock: Clock) -> None:
    """The first may have turned out to be torn."""
    time = device_time_of("hpu", 1)
    earlier = time.snapshot()
    time.started(1)
    report(clock, time, 1, 0, 10, "n:0", train_s=10.0)
    resumed = device_time_of("hpu", 1)
    resumed.restore(time.snapshot())
    resumed.restore(earlier)
    assert not resumed.by_trial
    assert not resumed.intervals


def test_a_trial_that_starts_for_long_has_the_lane_that_was_free_for_as_long(clock: Clock) -> None:
    """Trial 1 fails and 3 starts new workers in its place; meanwhile 2 ends, and 4 begins at once where it was."""
    time = device_time_of("cpu", 2)
    for one in (1, 2):
        time.started(one)
        report(clock, time, one, 0, 10)
    clock.now = BEGAN + 10
    time.leave(1, WAITING)
    time.started(3)
    report(clock, time, 2, 10, 20)
    clock.now = BEGAN + 20
    time.leave(2, WAITING)
    time.started(4)
    report(clock, time, 4, 20, 25)
    report(clock, time, 3, 10, 30, start_s=15.0)
    clock.now = BEGAN + 30
    for one in (3, 4):
        time.leave(one, WAITING)
    time.end()
    assert [interval.device for interval in time.intervals] == ["cpu 0", "cpu 1", "cpu 1", "cpu 0"]
    assert [sum(kinds.values()) for kinds in time.by_device().values()] == pytest.approx([30, 30])


def test_devices_of_several_nodes_have_the_addresses_of_their_nodes(clock: Clock) -> None:
    addresses = {"aaaa1": "10.0.0.1", "bbbb2": "10.0.0.2", "cccc3": "10.0.0.2"}  # two on one machine
    time = DeviceTime(Devices(DEVICE_TYPES["hpu"], (2, 2, 2), "for a test"), addresses.__getitem__)
    time.begin()
    for trial, devices in enumerate(("aaaa1:0", "bbbb2:0", "cccc3:0", "aaaa1:1"), start=1):
        time.started(trial)
        report(clock, time, trial, 0, 5, devices)
    names_of = ["10.0.0.1 hpu 0", "10.0.0.1 hpu 1", "10.0.0.2 (cccc) hpu 0", "10.0.0.2 hpu 0", "unused 1", "unused 2"]
    assert time.devices == names_of
