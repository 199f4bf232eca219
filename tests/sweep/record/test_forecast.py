"""How much of a sweep is left."""

from __future__ import annotations

import time

import pytest

from gaudi_tune.sweep.record.events import Verdict
from gaudi_tune.sweep.record.forecast import Forecast
from tests.helpers.fed_state import Fed


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left counts from the last report of each trial, and a busy machine takes a while between two lines."""
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)


def report(fed: Fed, number: int, epoch: int, value: float, verdict: Verdict = "continue") -> None:
    """Report a value; each epoch since the last report took a second."""
    seconds = float(epoch - fed.state.trials[number].step)
    fed.report(number, epoch, value, verdict, train_s=seconds, step_s=seconds)


def epochs_left(fed: Fed) -> float | None:
    """Return the seconds that are left where trials train one by one."""
    return Forecast(fed.state).seconds_left(1)


def test_the_rest_to_train_is_counted() -> None:
    fed = Fed(trials=5, epochs=9, confirm=1, seeds=2)
    fed.begin(1, 2)
    assert epochs_left(fed) is None
    report(fed, 1, 1, 0.1, "pause")
    # Trial 2 and three new ones get as far as trial 1 has, and four more confirm.
    assert epochs_left(fed) == pytest.approx(1 + 3 + 4 * 9)
    report(fed, 2, 9, 0.2)
    fed.end(2)
    fed.begin(1)
    report(fed, 1, 3, 0.3)
    assert epochs_left(fed) == pytest.approx(6 + 3 * 9 + 4 * 9)
    assert [trial.number for trial in fed.state.paused] == []
    report(fed, 1, 4, 0.3, "pause")
    assert [trial.number for trial in fed.state.paused] == [1]
    assert epochs_left(fed) == pytest.approx(3 * (9 + 4) / 2 + 4 * 9)
    fed.begin(3, 4, 5)
    for number in (3, 4, 5):
        report(fed, number, 1, 0.1)
        fed.end(number)
    fed.end(1, "stopped early")
    fed.begin(6, confirms=1)
    report(fed, 6, 8, 0.3)
    assert epochs_left(fed) == pytest.approx(1 + 3 * 9)


def test_trials_that_still_train_are_not_expected_to_end_where_the_first_ones_were_stopped() -> None:
    fed = Fed(trials=10, epochs=9)
    fed.begin(*range(1, 9))
    for number in range(1, 9):
        report(fed, number, 1, 0.1)
    for number in (1, 2):
        fed.end(number, "stopped early")
    # Six got beyond epoch 1, nobody knows how far; two are to begin, and one in four ends after epoch 1.
    assert epochs_left(fed) == pytest.approx(6 * 8 + 2 * (1 + 0.75 * 8))
    report(fed, 3, 3, 0.1)
    fed.end(3, "stopped early")
    report(fed, 4, 3, 0.1)
    # Of the two at epoch 3 one went on: so does every other one of the four that are still at epoch 1.
    assert epochs_left(fed) == pytest.approx(6 + 4 * (2 + 0.5 * 6) + 2 * (1 + 0.75 * (2 + 0.5 * 6)))


def test_a_sweep_takes_as_long_as_its_longest_trial() -> None:
    """However many groups there are: a trial trains in one."""
    fed = Fed(trials=3, epochs=81, count=8)
    fed.begin(1, 2, 3)
    for number in (1, 2):
        fed.report(number, 1, 0.1, "stopped early", train_s=20.0, step_s=20.0)
        fed.end(number, "stopped early")
    for epoch in range(1, 28):
        fed.report(3, epoch, 0.2, train_s=20.0, step_s=20.0, count=epoch)
    assert Forecast(fed.state).seconds_left(8) == pytest.approx(54 * 20)
    assert Forecast(fed.state).seconds_to_finish(8) == pytest.approx(54 * 20)
    fed.report(3, 28, 0.2, train_s=5.0, step_s=5.0, count=28)  # it has more devices by now
    assert Forecast(fed.state).seconds_left(8) == pytest.approx(53 * 5)


def test_a_round_of_the_confirmation_takes_as_long_as_a_trial() -> None:
    fed = Fed(trials=2, epochs=4, confirm=1, seeds=2, count=8)
    fed.begin(1, 2)
    for number in (1, 2):
        fed.report(number, 4, 0.1, train_s=40.0, step_s=40.0)
        fed.end(number)
    assert Forecast(fed.state).seconds_left(8) == pytest.approx(40)
    assert Forecast(fed.state).seconds_left(3) == pytest.approx(2 * 40)


def test_interrupted_trials_of_a_resumed_sweep_are_still_to_train() -> None:
    fed = Fed(trials=3, epochs=9)
    for number in (1, 2, 3):
        fed.begin(number)
        report(fed, number, 4, 0.1)
    resumed = Fed(trials=3, epochs=9)
    resumed.state.restore(fed.state.snapshot())
    resumed.begin(1)
    assert epochs_left(resumed) is None
    report(resumed, 1, 9, 0.2)
    resumed.end(1)
    resumed.begin(2)
    assert epochs_left(resumed) == pytest.approx(2 * 5)


def test_the_confirmation_takes_as_long_as_its_slowest_trials() -> None:
    fed = Fed(confirm=1, seeds=2)
    fed.begin(1, 2)
    fed.report(1, 1, 0.1, "pause", train_s=10.0, step_s=10.0)
    fed.report(2, 1, 0.9, "pause", train_s=30.0, step_s=30.0)  # the best: two rounds of four epochs like this one
    assert Forecast(fed.state).seconds_to_finish(2) == pytest.approx(20 * 3 + 2 * 4 * 30)
