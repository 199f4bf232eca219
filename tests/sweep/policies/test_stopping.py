"""The rules that end a sweep before its last trial."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gaudi_tune import SweepOptions
from gaudi_tune.devices.device import OUT_OF_MEMORY
from gaudi_tune.group.errors import UNUSABLE_REPORT
from gaudi_tune.sweep.policies.stopping import StoppingRules, kind_of_error
from gaudi_tune.sweep.record.forecast import Forecast
from tests.helpers.fed_state import Fed


def rules(**options: Any) -> StoppingRules:
    return StoppingRules(SweepOptions(**options))


def test_the_target_ends_the_sweep_when_it_is_reached() -> None:
    fed, stopping = Fed(), rules(target=0.5)
    fed.begin(1)
    assert stopping.after_report(fed.state) is None
    fed.report(1, 1, 0.4)
    assert stopping.after_report(fed.state) is None
    fed.report(1, 2, 0.5)
    ending = stopping.after_report(fed.state)
    assert ending is not None
    assert (ending.why, ending.status) == ("score 0.5 reached the target of 0.5", 0)


def test_a_target_for_which_less_is_better() -> None:
    fed, stopping = Fed(mode="min"), rules(target=0.5)
    fed.begin(1)
    fed.report(1, 1, 0.6)
    assert stopping.after_report(fed.state) is None
    fed.report(1, 2, 0.4)
    assert stopping.after_report(fed.state) is not None


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


def test_the_time_budget_is_in_minutes() -> None:
    stopping = rules(time_budget=0.001)
    assert stopping.out_of_time() is None
    time.sleep(0.07)
    ending = stopping.out_of_time()
    assert ending is not None
    assert "time budget of 0 s" in ending.why
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


@pytest.mark.parametrize(("minutes", "after_s", "end"), [(4, 5, False), (4, 135, True), (3, 75, False)])
def test_no_more_trials_begin_if_the_rest_is_needed_for_the_confirmation(
    minutes: float, after_s: float, end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch takes 10 s. A trial that waits may go on for three, and four trials confirm, in two rounds of four
    epochs: 110 s, which is too much of three minutes."""
    now = time.monotonic()
    fed, stopping = Fed(confirm=1, seeds=2), rules(time_budget=minutes)
    fed.begin(1, 2)
    fed.report(1, 1, 0.1, "pause", train_s=10.0, step_s=10.0)
    fed.report(2, 1, 0.1, train_s=10.0, step_s=10.0)
    assert Forecast(fed.state).seconds_to_finish(2) == pytest.approx(30 + 2 * 40, abs=1)
    monkeypatch.setattr(time, "monotonic", lambda: now + after_s)
    assert stopping.no_more_trials(fed.state, 2) is end
    monkeypatch.setattr(time, "monotonic", lambda: now + 241)
    ending = stopping.out_of_time()
    assert ending is not None
    assert ("the confirmation would have taken more than half of it" in ending.why) is (minutes == 3)


def failed(fed: Fed, number: int, reason: str, raised: bool = True) -> None:
    fed.begin(number)
    fed.end(number, "failed", reason, raised)


def test_a_sweep_that_only_diverges_ends_and_one_that_has_a_value_goes_on() -> None:
    for has_value in (False, True):
        fed, stopping = Fed(), rules(same_errors=2)
        if has_value:
            fed.trial(9, 0.1)
        for number in (1, 2, 3, 4):
            assert stopping.after_trial(fed.state) is None
            failed(fed, number, f"diverged: loss is nan after epoch {number}", raised=False)
        ending = stopping.after_trial(fed.state)
        assert (ending is None) is has_value
        assert ending is None or "4 trials in a row diverged, and no trial did better: diverged" in ending.why


def test_the_same_error_again_and_again_ends_the_sweep() -> None:
    fed, stopping = Fed(), rules(same_errors=3)
    for number in (1, 2):
        failed(fed, number, f"RuntimeError: no file /data/{number}.bin at 0x7f{number}a")
    failed(fed, 3, "diverged: loss is nan after epoch 1", raised=False)  # which is no error of the loop
    for number in (4, 5, 6):
        assert stopping.after_trial(fed.state) is None
        failed(fed, number, f"Traceback ...\nRuntimeError: no file /data/{number}.bin")
    ending = stopping.after_trial(fed.state)
    assert ending is not None
    assert (ending.status, ending.why) == (1, "3 trials in a row failed alike: RuntimeError: no file /data/6.bin")
    resumed = Fed()
    resumed.state.restore(fed.state.snapshot())  # a person who resumes has changed something
    failed(resumed, 7, "RuntimeError: no file /data/7.bin")
    assert stopping.after_trial(resumed.state) is None


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
        failed(fed, number, "RuntimeError: no")
    assert stopping.after_trial(fed.state) is None


def test_models_too_large_for_the_device_do_not_end_the_sweep() -> None:
    fed, stopping = Fed(), rules(same_errors=2)
    for number in (1, 2, 3):
        failed(fed, number, f"Traceback ...\n{OUT_OF_MEMORY}: a smaller batch_size needs less")
    assert stopping.after_trial(fed.state) is None


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


def test_a_first_report_that_cannot_be_used_ends_the_sweep_at_once() -> None:
    fed, stopping = Fed(), rules(same_errors=0)
    fed.begin(1, 2)
    failed(fed, 1, f"{UNUSABLE_REPORT}: no score")
    ending = stopping.after_trial(fed.state)
    assert ending is not None
    assert (ending.status, ending.at_once) == (1, True)
    assert ending.why == f"every trial would fail like this: {UNUSABLE_REPORT}: no score"


def test_a_report_that_cannot_be_used_fails_its_trial_alone_once_another_could_be() -> None:
    fed = Fed()
    fed.begin(1, 2)
    fed.report(2, 0, 0.5)  # of a budget in seconds, within the first
    failed(fed, 1, f"{UNUSABLE_REPORT}: no score")
    assert rules().after_trial(fed.state) is None
