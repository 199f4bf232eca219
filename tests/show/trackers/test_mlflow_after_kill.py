"""What MLflow has of a sweep that was killed and resumed: the outbox knows more than the log."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

from gaudi_tune.show.trackers.mlflow_names import second_name
from gaudi_tune.show.trackers.mlflow_tracker import MlflowTracker
from gaudi_tune.sweep.record.events import SweepBegan
from tests.helpers.mlflow_runs import all_runs, history, runs_of
from tests.helpers.scripted import began, ended, happen, over, plan_of, reported, state_of


def test_a_sweep_that_was_killed_goes_on_in_its_runs(storage: Path) -> None:
    """The outbox knows more than the snapshot: trial 2 began, and trial 1 failed, after it was taken."""
    plan = plan_of(storage, "killed")
    tracker, state = MlflowTracker(plan), state_of(plan)
    happen(tracker, state, SweepBegan(), began(1), reported(1, 1, 0.25))
    snapshot = pickle.loads(pickle.dumps(state.snapshot()))
    happen(tracker, state, reported(1, 2, 0.5), began(2), reported(2, 1, 0.375), ended(1, "failed", "killed"))
    tracker.close()  # and no SweepEnded

    tracker, state = MlflowTracker(plan), state_of(plan)
    state.restore(snapshot)
    happen(tracker, state, SweepBegan(), began(1), began(2), reported(2, 1, 0.375))
    happen(tracker, state, reported(1, 2, 0.5), reported(1, 3, 0.625), reported(2, 2, 0.4))
    happen(tracker, state, ended(1, "finished"), ended(2, "finished"))
    over(tracker, state)
    runs = runs_of(plan)
    assert set(runs) == {"sweep", "001", "002"}
    assert history(plan, runs["001"], "score") == [(1, 0.25), (2, 0.5), (3, 0.625)]
    assert history(plan, runs["002"], "score") == [(1, 0.375), (2, 0.4)]
    assert (runs["001"].info.status, runs["001"].data.tags["status"]) == ("FINISHED", "finished")
    assert "failure" not in runs["001"].data.tags
    assert (runs["sweep"].data.metrics["best_score"], runs["sweep"].data.tags["best_trial"]) == (0.625, "1")


def test_after_a_kill_a_clone_goes_on_below_the_steps_that_its_trial_had_before(storage: Path) -> None:
    plan = plan_of(storage, "cloned")
    tracker, state = MlflowTracker(plan), state_of(plan)
    happen(tracker, state, SweepBegan(), began(1), reported(1, 1, 0.25), reported(1, 2, 0.5), reported(1, 3, 0.75))
    snapshot = pickle.loads(pickle.dumps(state.snapshot()))
    happen(tracker, state, began(1, x=0.7), reported(1, 1, 0.3, x=0.7))
    tracker.close()  # killed

    tracker, state = MlflowTracker(plan), state_of(plan)
    state.restore(snapshot)
    happen(tracker, state, SweepBegan(), began(1), reported(1, 3, 0.75))
    happen(tracker, state, began(1, x=0.7), reported(1, 1, 0.3, x=0.7), reported(1, 2, 0.6, x=0.7))
    over(tracker, state)
    values = [(1, 0.25), (1, 0.3), (2, 0.5), (2, 0.6), (3, 0.75)]
    assert sorted(history(plan, runs_of(plan)["001"], "score")) == values


def test_the_first_report_of_a_trial_that_had_begun_before_a_kill_is_kept_at_step_0_too(storage: Path) -> None:
    plan = plan_of(storage, "killed-early")
    state = state_of(plan)
    tracker = MlflowTracker(plan)
    happen(tracker, state, SweepBegan(), began(1))
    tracker.close()
    tracker, state = MlflowTracker(plan), state_of(plan)
    happen(tracker, state, SweepBegan(), began(1), reported(1, 0, 0.5), reported(1, 1, 0.6))
    tracker.close()
    (run,) = (run for name, run in runs_of(plan).items() if name != "sweep")
    assert history(plan, run, "score") == [(0, 0.5), (1, 0.6)]


def test_a_trial_that_begins_with_other_parameters_after_a_kill_is_another_run(storage: Path) -> None:
    """The killed process had begun trial 2, and neither the study nor the log knows of it."""
    plan = plan_of(storage, "other-parameters")
    tracker, state = MlflowTracker(plan), state_of(plan)
    happen(tracker, state, SweepBegan(), began(1), reported(1, 1, 0.25))
    snapshot = pickle.loads(pickle.dumps(state.snapshot()))
    happen(tracker, state, began(2), reported(2, 1, 0.5), reported(2, 2, 0.95))
    tracker.close()
    for _ in range(2):  # the second time, the new one is known to the outbox alone
        tracker, state = MlflowTracker(plan), state_of(plan)
        state.restore(snapshot)
        happen(tracker, state, SweepBegan(), began(2, x=0.7), reported(2, 1, 0.1, x=0.7), reported(2, 2, 0.3, x=0.7))
        tracker.close()
    happen(tracker := MlflowTracker(plan), state, SweepBegan(), ended(2, "finished"))
    over(tracker, state)
    (sweep,) = [run.info.run_id for run in all_runs(plan) if run.info.run_name == plan.name]
    children = [run for run in all_runs(plan) if run.data.tags.get("mlflow.parentRunId") == sweep]
    runs = sorted((run for run in children if run.data.tags["trial"] == "002"), key=lambda run: run.info.start_time)
    assert [run.data.params["x"] for run in runs] == ["0.2", "0.7"]
    assert [history(plan, run, "score") for run in runs] == [[(1, 0.5), (2, 0.95)], [(1, 0.1), (2, 0.3)]]
    lost, counted = (run.data for run in runs)
    assert (lost.tags["status"], counted.tags["status"], counted.tags["attempt"]) == ("lost", "finished", "2")
    assert math.isnan(lost.metrics["best_score"])  # it is not ranked
    assert counted.metrics["best_score"] == 0.3


def test_a_trial_that_ends_earlier_after_a_kill_has_a_run_with_its_own_reports_alone(storage: Path) -> None:
    """The resumed sweep decides otherwise: trial 1 ends with a report that it continued after before, and 2 waits."""
    plan = plan_of(storage, "ends-earlier")
    tracker, state = MlflowTracker(plan), state_of(plan)
    happen(tracker, state, SweepBegan(), began(1), reported(1, 1, 0.25), began(2), reported(2, 1, 0.125))
    snapshot = pickle.loads(pickle.dumps(state.snapshot()))
    happen(tracker, state, reported(1, 2, 0.5), reported(1, 3, 0.95), reported(2, 2, 0.75))
    tracker.close()
    for _ in range(2):  # the second time, it is killed before the log has the end
        tracker, state = MlflowTracker(plan), state_of(plan)
        state.restore(snapshot)
        happen(tracker, state, SweepBegan(), began(1), reported(1, 2, 0.5), ended(1, "stopped early"))
        tracker.close()
    happen(tracker := MlflowTracker(plan), state, SweepBegan())
    over(tracker, state)
    children = [run for run in all_runs(plan) if run.data.tags.get("configuration", "").startswith(plan.name)]
    histories = {
        (run.data.tags["trial"], run.data.tags.get("attempt"), run.data.tags["status"]): history(plan, run, "score")
        for run in children
    }
    assert histories == {
        ("001", None, "lost"): [(1, 0.25), (2, 0.5), (3, 0.95)],
        ("001", "2", "stopped early"): [(1, 0.25), (2, 0.5)],
        ("002", None, "lost"): [(1, 0.125), (2, 0.75)],
        ("002", "2", "interrupted"): [(1, 0.125)],
    }
    (counted,) = (run for run in children if run.data.tags["status"] == "stopped early")
    assert (counted.data.metrics["best_score"], counted.data.params["x"]) == (0.5, "0.1")
    assert {run.data.tags["configuration"] for run in children} == {"ends-earlier 001", "ends-earlier 002"}


def test_the_best_value_is_that_of_the_sweep_where_training_differs_after_a_kill(storage: Path) -> None:
    plan = plan_of(storage, "differs")
    tracker, state = MlflowTracker(plan), state_of(plan)
    happen(tracker, state, SweepBegan(), began(1), reported(1, 1, 0.25))
    snapshot = pickle.loads(pickle.dumps(state.snapshot()))
    happen(tracker, state, reported(1, 2, 0.95), reported(1, 3, 0.9))
    tracker.close()
    tracker, state = MlflowTracker(plan), state_of(plan)
    state.restore(snapshot)
    happen(tracker, state, SweepBegan(), began(1), reported(1, 2, 0.91), reported(1, 3, 0.9), ended(1, "finished"))
    over(tracker, state)
    metrics = runs_of(plan)["001"].data.metrics
    assert (metrics["best_score"], metrics["best_epoch"]) == (0.91, 2)


def test_names_that_mlflow_takes_for_one_are_kept_apart_after_a_kill_too(storage: Path) -> None:
    """MLflow takes acc@1, which came first, as acc_1; and the loop has names that the sweep gives to its own."""
    plan = plan_of(storage, "alike")
    tracker, state = MlflowTracker(plan), state_of(plan)
    names = ["best_score", "reported/best_score"]
    metrics = {"acc_1": 7.0, names[0]: 3.0, names[1]: 4.0}
    happen(tracker, state, SweepBegan(), began(1), reported(1, 1, 0.5), reported(1, 2, 0.6, also=metrics))
    snapshot = pickle.loads(pickle.dumps(state.snapshot()))
    tracker.close()  # killed
    tracker, state = MlflowTracker(plan), state_of(plan)
    state.restore(snapshot)
    happen(tracker, state, SweepBegan(), began(1), reported(1, 3, 0.7, also=metrics))
    over(tracker, state)
    run = runs_of(plan)["001"]
    assert history(plan, run, "acc_1") == [(1, 0.25), (2, 0.3), (3, 0.35)]
    assert history(plan, run, second_name("acc_1")) == [(2, 7.0), (3, 7.0)]
    assert [run.data.metrics[f"reported/{name}"] for name in names] == [3.0, 4.0]
