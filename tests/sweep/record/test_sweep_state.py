"""What is true of a sweep follows from its events alone, also after a snapshot."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from gaudi_tune.base import names
from gaudi_tune.define.objective import Objective
from gaudi_tune.sweep.record.device_time import EVALUATING, LOST, TRAINING
from gaudi_tune.sweep.record.events import Ending, Reported, SweepEnded, SweepEnding, TrialRecovered
from gaudi_tune.sweep.record.sweep_state import SweepState
from tests.helpers.fed_state import Fed


def test_the_best_is_the_best_report_and_of_equal_ones_the_lower_number() -> None:
    fed = Fed()
    fed.begin(1, 2, 3)
    fed.report(2, 1, 0.5)
    fed.report(1, 1, 0.5)
    assert fed.state.best is fed.state.trials[1]
    fed.report(3, 1, math.nan)
    fed.report(3, 2, math.inf)
    assert fed.state.best is fed.state.trials[1]
    assert (fed.state.trials[3].best, fed.state.trials[3].value, fed.state.trials[3].curve) == (None, None, {})
    fed.report(2, 2, 0.7)
    fed.report(2, 3, 0.1)
    assert (fed.state.best.number, fed.state.best.best, fed.state.best.best_step) == (2, 0.7, 2)
    assert fed.state.trials[2].curve == {1: 0.5, 2: 0.7, 3: 0.1}


def test_less_is_better_where_the_objective_says_so() -> None:
    fed = Fed(mode="min")
    fed.trial(1, 3.0, 2.0)
    fed.trial(2, 1.0, 4.0)
    assert fed.state.best is fed.state.trials[2]
    assert fed.state.best_at_end is fed.state.trials[1]


def test_patience_counts_trials_that_ended_since_a_better_value_and_not_since_an_equal_one() -> None:
    fed = Fed()
    fed.trial(1, 0.5)
    fed.trial(2, 0.4)
    assert len(fed.state.since_best) == 2
    fed.begin(3)
    fed.report(3, 1, 0.5)
    assert len(fed.state.since_best) == 2
    fed.report(3, 2, 0.6)
    assert len(fed.state.since_best) == 0


def test_the_ends_of_trials_are_counted() -> None:
    fed = Fed(trials=5)
    fed.trial(1, 0.1, 0.2)
    fed.trial(2, 0.1, outcome="stopped early")
    fed.trial(3, math.nan, outcome="failed", reason="diverged")
    fed.trial(4, 0.1, outcome=None)
    fed.begin(5)
    fed.report(5, 1, 0.1, "pause")
    assert dict(fed.state.counts()) == {"finished": 1, "stopped early": 1, "failed": 1}
    assert [trial.number for trial in fed.state.running] == [4]
    assert fed.state.best_at_end is fed.state.trials[1]
    assert not fed.state.complete
    fed.state.apply(SweepEnding(ending=Ending("for a test", 0)))
    fed.state.close()
    fed.state.apply(SweepEnded(summary={}))
    assert (fed.state.trials[4].status, fed.state.trials[5].status) == ("interrupted", "paused")
    assert fed.state.has_ended


def test_the_time_after_a_checkpoint_is_lost_unless_the_trial_waited_for_others_to_save() -> None:
    for ending, lost in ((Ending("for a test", 0), [False, True]), (Ending("at once", 0, at_once=True), [True, True])):
        fed = Fed(trials=2)
        fed.trial(1, 0.1, outcome=None)
        fed.save(1)
        fed.trial(2, 0.1, outcome=None)
        fed.state.apply(SweepEnding(ending=ending))
        fed.state.close()
        assert [fed.state.device_time.by_trial[number]["lost"] > 0 for number in (1, 2)] == lost


def test_a_sweep_is_complete_when_all_its_trials_have_ended() -> None:
    fed = Fed(trials=2)
    fed.trial(1, 0.1)
    assert not fed.state.complete
    fed.trial(2, 0.1)
    assert fed.state.complete


def test_a_trial_that_goes_on_after_all_has_not_ended() -> None:
    fed = Fed(trials=1)
    fed.trial(1, 0.1)
    fed.begin(1)
    assert not fed.state.counts()
    assert not fed.state.complete
    fed.end(1, "stopped early")
    assert dict(fed.state.counts()) == {"stopped early": 1}


def test_a_paused_trial_has_no_devices_until_it_goes_on() -> None:
    fed = Fed()
    fed.begin(1)
    fed.report(1, 1, 0.1, verdict="pause")
    assert not fed.state.running
    fed.begin(1)
    assert fed.state.running == [fed.state.trials[1]]
    assert fed.state.trials[1].decision.verdict == "continue"


def test_a_decision_is_void_once_a_trial_starts_again() -> None:
    fed = Fed()
    fed.begin(1)
    fed.report(1, 1, 0.1, verdict="stopped early")
    fed.state.apply(TrialRecovered(trial=1))
    assert fed.state.trials[1].decision.verdict == "continue"


def test_a_snapshot_brings_all_of_it_back() -> None:
    fed = Fed()
    fed.trial(1, 0.2, 0.9, 0.3)
    fed.trial(2, 0.4, outcome="failed", reason="RuntimeError: no")
    fed.begin(3, y="text")
    fed.report(3, 1, 0.5)
    fed.save(3)
    fed.begin(4)
    fed.report(4, 1, 0.1, verdict="pause")
    kept = pickle.loads(pickle.dumps(fed.state.snapshot()))
    again = Fed().state
    again.restore(kept)
    again.restore(kept)  # a second time changes nothing
    for number, trial in fed.state.trials.items():
        restored = again.trials[number]
        assert restored.curve == trial.curve
        assert restored.checkpoints == trial.checkpoints
        assert (restored.best, restored.value, restored.reason) == (trial.best, trial.value, trial.reason)
        assert restored.began_with == trial.began_with
    assert [trial.status for trial in again.trials.values()] == ["finished", "failed", "interrupted", "paused"]
    assert again.best is again.trials[1]
    assert again.best_at_end is again.trials[1]
    assert again.since_best == fed.state.since_best
    assert again.ended_in_a_row == []
    assert len(again.device_time.intervals) == len(fed.state.device_time.intervals)


def test_a_snapshot_of_another_version_is_refused_before_anything_changes() -> None:
    fed = Fed()
    fed.trial(1, 0.2)
    kept = fed.state.snapshot()
    with pytest.raises(ValueError, match="its version is 99, and this code reads version 10"):
        fed.state.restore({**kept, "sweep": {**kept["sweep"], "version": 99, "trials": {}}})
    kept["sweep"]["trials"][1]["colour"] = "red"
    with pytest.raises(ValueError, match=r"colour\n.*nexpected keyword argument"):
        fed.state.restore(kept)
    assert list(fed.state.trials) == [1]


def test_the_best_checkpoint_is_the_best_of_those_that_are_still_there(tmp_path: Path) -> None:
    fed = Fed()
    fed.begin(1)
    for step, score in enumerate((0.9, 0.5, 0.7), start=1):
        fed.report(1, step, score)
        fed.save(1)
    for saved in fed.state.trials[1].checkpoints[1:]:
        (tmp_path / saved.place).mkdir(parents=True)
    best = fed.state.best_checkpoint(tmp_path, fed.state.trials.values())
    assert best is not None
    assert (best.step, best.value) == (3, 0.7)
    fed.save(1)  # the same place once more
    assert len(fed.state.trials[1].checkpoints) == 3


def saving_every_third() -> Fed:
    """A sweep whose trial 1 saves with every third report, and has made five."""
    fed = Fed(epochs=9)
    fed.begin(1)
    for step, (score, behind) in enumerate([(0.9, None), (0.4, None), (0.5, 0), (0.8, 1), (0.6, 2)], start=1):
        fed.report(1, step, score, count=step, behind=behind)
    return fed


def test_a_checkpoint_is_booked_with_the_report_that_came_with_it() -> None:
    fed = saving_every_third()
    fed.save(1)
    saved = fed.state.trials[1].checkpoints[-1]
    assert (saved.step, saved.value, saved.report) == (3, 0.5, 3)
    assert fed.state.trials[1].best == 0.9, "the best report counts for the ranking, saved or not"


def test_a_trial_that_continues_from_an_older_checkpoint_books_what_that_has() -> None:
    fed = saving_every_third()
    fed.save(1)
    fed.report(1, 6, 0.7, count=6)  # which is lost before it is saved, and the trial continues from report 3
    kept = fed.state.snapshot()
    resumed = Fed(epochs=9)
    resumed.state.restore(kept)
    resumed.report(1, 4, 0.81, count=4, behind=1)
    resumed.save(1)
    saved = resumed.state.trials[1].checkpoints[-1]
    assert (saved.step, saved.value, saved.report) == (3, 0.5, 3)


def test_a_clone_does_not_book_the_report_of_another_trial() -> None:
    fed = saving_every_third()
    fed.begin(1, x=0.9)  # with other hyperparameters, from what another trial saved with its third report
    fed.report(1, 4, 0.3, count=4, behind=1)
    fed.save(1)
    assert math.isnan(fed.state.trials[1].checkpoints[-1].value)


def test_the_best_that_can_be_saved_is_wanted_where_a_loop_does_not_save_each_report() -> None:
    fed = saving_every_third()
    trial = fed.state.trials[1]
    assert not fed.state.saves_best(trial), "its last report came without"
    fed.report(1, 6, 0.7, count=6)
    assert fed.state.saves_best(trial)
    fed.save(1)
    fed.report(1, 9, 0.7, count=9)
    assert not fed.state.saves_best(trial), "it is no better than what is saved"


def several() -> Fed:
    """A sweep that wants a high score and few seconds."""
    return Fed(trials=3, confirm=2, seeds=2, others=[Objective("seconds", "min")])


def front_of(fed: Fed) -> list[tuple[int, tuple[float, ...]]]:
    return [(trial.number, trial.point) for trial in fed.state.front]


def test_a_trial_counts_with_all_objectives_of_its_best_report() -> None:
    fed = several()
    fed.begin(1)
    fed.report(1, 1, 0.5, seconds=3.0)
    fed.report(1, 2, 0.6, seconds=4.0)
    fed.report(1, 3, 0.6, seconds=1.0)
    fed.report(1, 4, 0.4, seconds=1.0)
    assert front_of(fed) == [(1, (0.6, 1.0))]
    assert fed.state.trials[1].best_step == 3, "of equal values that with the better others"
    fed.report(1, 5, 0.6, seconds=2.0)
    assert fed.state.trials[1].best_step == 3


def test_the_front_and_the_best_of_it() -> None:
    fed = several()
    fed.begin(1, 2, 3)
    fed.report(1, 1, 0.5, seconds=3.0)
    fed.report(2, 1, 0.7, seconds=5.0)
    fed.report(3, 1, 0.4, seconds=3.0)
    assert front_of(fed) == [(2, (0.7, 5.0)), (1, (0.5, 3.0))]
    assert fed.state.best is fed.state.trials[2]
    fed.report(2, 2, 0.8, seconds=2.0)
    assert front_of(fed) == [(2, (0.8, 2.0))]
    fed.report(2, 3, 0.9, seconds=9.0)  # what it had dominated is on the front again
    assert front_of(fed) == [(2, (0.9, 9.0)), (1, (0.5, 3.0))]
    fed.report(3, 2, 0.9, seconds=8.0)
    assert front_of(fed) == [(3, (0.9, 8.0)), (1, (0.5, 3.0))]
    fed.report(1, 2, math.nan, seconds=1.0)
    fed.report(1, 3, 0.6)  # without one of the objectives
    assert fed.state.trials[1].point == (0.5, 3.0)


def test_a_new_point_of_the_front_ends_the_patience() -> None:
    fed = several()
    fed.begin(1, 2, 3)
    fed.report(1, 1, 0.5, seconds=3.0)
    fed.end(1)
    fed.report(2, 1, 0.4, seconds=4.0)
    assert fed.state.since_best == {1}
    fed.report(2, 2, 0.45, seconds=2.0)
    assert fed.state.since_best == set()


def test_a_trial_of_the_front_of_which_nothing_is_left_leaves_it() -> None:
    fed = several()
    fed.begin(1, 2)
    fed.report(1, 1, 0.5, seconds=3.0)
    fed.report(2, 1, 0.6, seconds=2.0)
    fed.end(2, "failed", "no space left", raised=True)
    assert front_of(fed) == [(1, (0.5, 3.0))]


def test_a_trial_whose_best_could_not_be_saved_stands_for_what_was() -> None:
    fed = Fed("max")
    fed.begin(1, 2)
    fed.report(1, 1, 0.5)
    fed.save(1)
    fed.report(2, 1, 0.8)
    fed.report(1, 2, 0.9)
    assert fed.state.leader == (0.9, 1)
    fed.end(1, "failed", "its save failed", raised=True)
    assert fed.state.leader == (0.8, 2)
    first = fed.state.trials[1]
    assert (first.best, first.best_step, first.point) == (0.5, 1, (0.5,))


def test_a_score_on_test_data_that_is_no_number_is_none() -> None:
    fed = Fed("max")
    fed.begin(1)
    fed.report(1, 1, 0.5, test_score=None)
    trial = fed.state.trials[1]
    assert (trial.test_point, trial.tested) == ((0.5,), False)
    fed.report(1, 2, 0.6, test_score=0.4)
    assert (trial.test_point, trial.tested) == ((0.4,), True)


def test_the_better_of_two_reports_in_one_epoch_is_its_value() -> None:
    fed = Fed("max")
    fed.begin(1)
    for value in (0.3, 0.8, 0.5):
        fed.report(1, 1, value)
    assert fed.state.trials[1].curve == {1: 0.8}


def test_a_snapshot_keeps_the_front() -> None:
    fed, restored = several(), several()
    fed.begin(1, 2, 3)
    for number, score in ((1, 0.5), (2, 0.6), (3, 0.4)):
        fed.report(number, 1, score, seconds=score * 10)
        fed.save(number)
    restored.state.restore(pickle.loads(pickle.dumps(fed.state.snapshot())))
    assert front_of(restored) == front_of(fed)
    assert len(front_of(fed)) == 3
    assert restored.state.best is restored.state.trials[2]
    assert restored.state.trials[2].checkpoints[0].point == (0.6, 6.0)


def test_the_confirmed_are_of_the_front_and_far_from_each_other() -> None:
    fed = several()
    fed.begin(1, 2, 3, 4, 5)
    for number, score, seconds in ((1, 0.1, 9.0), (2, 0.9, 8.0), (3, 0.85, 7.0), (4, 0.3, 1.0), (5, 0.95, 9.5)):
        fed.report(number, 1, score, seconds=seconds)
        fed.end(number)
    assert [trial.number for trial in fed.state.to_confirm] == [1, 5, 4]


def test_repeated_training_after_a_kill_is_lost_and_another_trials_is_not() -> None:
    def report(state: SweepState, count: int, **config: Any) -> None:
        took = {names.TRAIN_SECONDS: 2.0, names.EVAL_SECONDS: 1.0, names.STEP_SECONDS: 3.0}
        metrics = {"score": 0.5, **took, names.DEVICES: "n:"}
        state.apply(
            Reported(trial=1, step=count, point=(0.5,), metrics=metrics, config={"x": 0.5, **config}, count=count)
        )

    fed, resumed = Fed(), Fed()
    fed.begin(1)
    for count in (1, 2, 3):
        report(fed.state, count)
    resumed.state.restore(pickle.loads(pickle.dumps(fed.state.snapshot())))
    resumed.begin(1)
    for count in (2, 3, 4):
        report(resumed.state, count)
    seconds = resumed.state.device_time.by_trial[1]
    assert (seconds[TRAINING], seconds[EVALUATING], seconds[LOST]) == (8, 4, 6)
    resumed.begin(1, y=0.1)  # with population-based training
    report(resumed.state, 3, y=0.1)
    assert (seconds[TRAINING], seconds[EVALUATING], seconds[LOST]) == (10, 5, 6)
