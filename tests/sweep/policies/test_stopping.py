"""The rules that end a sweep before its last trial."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gaudi_tune import SweepOptions
from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.define.objective import Mode
from gaudi_tune.sweep.policies.stopping import StoppingRules
from gaudi_tune.sweep.record.forecast import Forecast
from tests.helpers.fed_state import Fed


def rules(**options: Any) -> StoppingRules:
    return StoppingRules(SweepOptions(**options))


@pytest.mark.parametrize(("mode", "short_of_it"), [("max", 0.4), ("min", 0.6)])
def test_the_target_ends_the_sweep_when_it_is_reached(mode: Mode, short_of_it: float) -> None:
    fed, stopping = Fed(mode=mode), rules(target=0.5)
    fed.begin(1)
    assert stopping.after_report(fed.state) is None
    fed.report(1, 1, short_of_it)
    assert stopping.after_report(fed.state) is None
    fed.report(1, 2, 0.5)
    ending = stopping.after_report(fed.state)
    assert ending is not None
    assert (ending.why, ending.status) == ("score 0.5 reached the target of 0.5", 0)


def test_patience_counts_trials_since_the_best_before_a_resume_too() -> None:
    fed, stopping = Fed(), rules(patience=2)
    fed.trial(1, 0.1)
    fed.trial(2, 0.2)
    assert stopping.after_trial(fed.state) is None
    fed.trial(3, 0.1)
    ending = stopping.after_trial(fed.state)
    assert ending is not None
    assert "2 trials have paused or ended since the best" in ending.why
    resumed = Fed()
    resumed.state.restore(fed.state.snapshot())
    resumed.trial(4, 0.1)
    assert stopping.after_trial(resumed.state) is not None


def test_patience_counts_a_trial_that_pauses_and_not_again_when_it_ends_but_with_pbt() -> None:
    fed, stopping = Fed(), rules(patience=2)
    fed.begin(1, 2, 3)
    fed.report(1, 1, 0.1, "pause")
    fed.report(2, 1, 0.5)  # the best
    assert stopping.after_trial(fed.state) is None
    fed.report(2, 2, 0.4, "pause")
    fed.report(3, 1, 0.3, "pause")
    assert rules(patience=2, scheduler="pbt").after_trial(fed.state) is None
    ending = stopping.after_trial(fed.state)
    assert ending is not None
    assert "2 trials have paused or ended since the best" in ending.why
    for number in (1, 2, 3):
        fed.end(number, "stopped early")
    assert rules(patience=3).after_trial(fed.state) is None


def test_the_time_budget_is_in_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    stopping = rules(time_budget=0.5)
    now = 1029.0
    assert stopping.out_of_time() is None
    now = 1031.0
    ending = stopping.out_of_time()
    assert ending is not None
    assert "time budget of 30 s" in ending.why
    assert ending.at_once
    assert rules().out_of_time() is None


def test_the_last_report_before_the_time_is_over_is_saved() -> None:
    fed = Fed()
    fed.begin(1)
    fed.report(1, 1, 0.1, step_s=50.0)
    assert not rules(time_budget=1.0).is_last_report(fed.state.trials[1])
    fed.report(1, 2, 0.1, step_s=61.0)
    assert rules(time_budget=1.0).is_last_report(fed.state.trials[1])
    assert not rules().is_last_report(fed.state.trials[1])


@pytest.mark.parametrize(("minutes", "after_s", "end"), [(5, 5, False), (5, 180, True), (4, 135, False)])
def test_no_more_trials_begin_if_the_rest_is_needed_for_the_confirmation(
    minutes: float, after_s: float, end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch takes 10 s. A trial that waits may go on for three, after the one that trains for three, and four trials
    confirm, in two rounds of four epochs: 140 s, which is too much of four minutes."""
    now = time.monotonic()
    fed, stopping = Fed(confirm=1, seeds=2), rules(time_budget=minutes)
    fed.begin(1, 2)
    fed.report(1, 1, 0.1, "pause", train_s=10.0, step_s=10.0)
    fed.report(2, 1, 0.1, train_s=10.0, step_s=10.0)
    assert Forecast(fed.state).seconds_to_finish(2) == pytest.approx(30 + 30 + 2 * 40, abs=1)
    monkeypatch.setattr(time, "monotonic", lambda: now + after_s)
    assert stopping.no_more_trials(fed.state, 2) is end
    monkeypatch.setattr(time, "monotonic", lambda: now + 301)
    ending = stopping.out_of_time()
    assert ending is not None
    assert ("the confirmation would have taken more than half of it" in ending.why) is (minutes == 4)


def failed(fed: Fed, number: int, kind: FailureKind, text: str, fingerprint: str = "") -> None:
    fed.begin(number)
    fed.fail(number, Failure(kind, text, fingerprint))


def test_a_sweep_that_only_diverges_ends_and_one_that_has_a_value_goes_on() -> None:
    for has_value in (False, True):
        fed, stopping = Fed(), rules(same_errors=2)
        if has_value:
            fed.trial(9, 0.1)
        for number in (1, 2, 3, 4):
            assert stopping.after_trial(fed.state) is None
            failed(fed, number, FailureKind.DIVERGED, f"diverged: loss is nan after epoch {number}")
        ending = stopping.after_trial(fed.state)
        assert (ending is None) is has_value
        assert ending is None or "4 trials in a row diverged, and no trial did better: diverged" in ending.why


def test_the_same_error_again_and_again_ends_the_sweep() -> None:
    fed, stopping = Fed(), rules(same_errors=3)
    for number in (1, 2):
        failed(fed, number, FailureKind.LOOP_ERROR, f"RuntimeError: no file /data/{number}.bin", "RuntimeError 1a")
    failed(fed, 3, FailureKind.DIVERGED, "diverged: loss is nan after epoch 1")  # which is no error of the loop
    for number in (4, 5, 6):
        assert stopping.after_trial(fed.state) is None
        text = f"Traceback ...\nRuntimeError: no file /data/{number}.bin"
        failed(fed, number, FailureKind.LOOP_ERROR, text, "RuntimeError 1a")
    ending = stopping.after_trial(fed.state)
    assert ending is not None
    assert (ending.status, ending.why) == (1, "3 trials in a row failed alike: RuntimeError: no file /data/6.bin")
    resumed = Fed()
    resumed.state.restore(fed.state.snapshot())  # a person who resumes has changed something
    failed(resumed, 7, FailureKind.LOOP_ERROR, "RuntimeError: no file /data/7.bin", "RuntimeError 1a")
    assert stopping.after_trial(resumed.state) is None
    assert resumed.state.trials[6].failure == fed.state.trials[6].failure


@pytest.mark.parametrize("fails_after", [0, 1])
def test_failures_between_which_a_trial_got_further_and_paused_are_not_in_a_row(fails_after: int) -> None:
    fed, stopping = Fed(), rules(same_errors=2)

    def fail(number: int) -> None:
        fed.begin(number)
        if fails_after:
            fed.report(number, fails_after, 0.5)
        fed.end(number, "failed", "ValueError: no sgd", raised=True)

    fed.trial(9, 0.5)  # one that finished says nothing of where the others fail
    fail(1)
    fed.begin(2)
    fed.report(2, 1, 0.5, "pause")
    fail(3)
    assert (stopping.after_trial(fed.state) is None) is (fails_after == 0)
    fail(4)
    assert stopping.after_trial(fed.state) is not None


def test_no_number_of_errors_ends_the_sweep_where_the_option_is_0() -> None:
    fed, stopping = Fed(), rules(same_errors=0)
    for number in range(1, 9):
        failed(fed, number, FailureKind.LOOP_ERROR, "RuntimeError: no")
    assert stopping.after_trial(fed.state) is None


@pytest.mark.parametrize("kind", FailureKind)
def test_the_kinds_of_failures_decide_and_not_what_their_messages_say(kind: FailureKind) -> None:
    fed, stopping = Fed(), rules(same_errors=3)
    for number, text in enumerate(("diverged: loss is nan", "out of memory on the device", "no score"), start=1):
        failed(fed, number, kind, text)
        ends = number == 3 and kind not in (FailureKind.DIVERGED, FailureKind.OUT_OF_MEMORY)
        assert (stopping.after_trial(fed.state) is not None) is (ends or kind == FailureKind.UNUSABLE_REPORT)


@pytest.mark.parametrize(
    ("one", "another", "alike"),
    [
        ((FailureKind.LOOP_ERROR, "ValueError 1a"), (FailureKind.LOOP_ERROR, "ValueError 1a"), True),
        ((FailureKind.LOOP_ERROR, "ValueError 1a"), (FailureKind.LOOP_ERROR, "ValueError 1b"), False),
        ((FailureKind.LOST, ""), (FailureKind.LOST, ""), True),
        ((FailureKind.LOST, ""), (FailureKind.START_FAILED, ""), False),
        ((FailureKind.LOST, ""), (FailureKind.OUT_OF_MEMORY, ""), False),
    ],
)
def test_failures_are_alike_if_kind_and_fingerprint_are(
    one: tuple[FailureKind, str], another: tuple[FailureKind, str], alike: bool
) -> None:
    fed, stopping = Fed(), rules(same_errors=2)
    for number, (kind, fingerprint) in enumerate([one, another], start=1):
        failed(fed, number, kind, "the same message", fingerprint)
    assert (stopping.after_trial(fed.state) is not None) is alike


def test_a_first_report_that_cannot_be_used_ends_the_sweep_at_once() -> None:
    fed, stopping = Fed(), rules(same_errors=0)
    fed.begin(1, 2)
    failed(fed, 1, FailureKind.UNUSABLE_REPORT, "no score")
    ending = stopping.after_trial(fed.state)
    assert ending is not None
    assert (ending.status, ending.at_once) == (1, True)
    assert ending.why == "every trial would fail like this: no score"


def test_a_report_that_cannot_be_used_fails_its_trial_alone_once_another_could_be() -> None:
    fed = Fed()
    fed.begin(1, 2)
    fed.report(2, 0, 0.5)  # of a budget in seconds, within the first
    failed(fed, 1, FailureKind.UNUSABLE_REPORT, "no score")
    assert rules().after_trial(fed.state) is None
