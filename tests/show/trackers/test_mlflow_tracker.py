"""What MLflow has of a sweep, from events alone: without Ray, and with a real store."""

from __future__ import annotations

import logging
import math
import zlib
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.trackers.mlflow_names import numbers_in, own_names
from gaudi_tune.show.trackers.mlflow_tracker import MlflowTracker
from gaudi_tune.show.trackers.tracker import TRACKERS
from gaudi_tune.show.trackers.trial_run import PARAM_METRIC_PREFIX
from gaudi_tune.sweep.record.events import (
    Decided,
    Decision,
    Ending,
    Event,
    Outcome,
    Reported,
    SweepBegan,
    SweepEnded,
    SweepEnding,
)
from tests.helpers.deliveries import free_port
from tests.helpers.mlflow_runs import history, runs_of
from tests.helpers.scripted import began, ended, happen, over, plan_of, reported, state_of

INTERRUPTED = Ending("Ctrl-C", 130)


def artifacts(plan: Plan, run: Run, folder: str | None = None) -> set[str]:
    return {file.path for file in MlflowClient(plan.tracking_uri).list_artifacts(run.info.run_id, folder)}


def reported_both(trial: int, step: int, score: float, seconds: float) -> Reported:
    return replace(reported(trial, step, score, {"seconds": seconds}), point=(score, seconds))


def test_trials_on_the_front_have_a_tag_also_after_a_crash(storage: Path) -> None:
    plan = plan_of(storage, "pareto", objectives=("score:max", "seconds:min"))
    tracker, state = MlflowTracker(plan), state_of(plan)
    happen(tracker, state, SweepBegan(), *(began(trial) for trial in (1, 2, 3)))
    happen(tracker, state, reported_both(1, 1, 0.5, 5.0), reported_both(2, 1, 0.4, 9.0))
    happen(tracker, state, reported_both(3, 1, 0.3, 1.0))
    tracker.close()
    tags = {name: run.data.tags.get("pareto_front") for name, run in runs_of(plan).items()}
    assert tags == {"sweep": None, "001": "true", "002": None, "003": "true"}
    again = MlflowTracker(plan)
    happen(again, state, SweepBegan(), reported_both(2, 2, 0.6, 2.0))
    over(again, state)
    runs = runs_of(plan)
    tags = {name: run.data.tags.get("pareto_front") for name, run in runs.items()}
    assert tags == {"sweep": None, "001": "false", "002": "true", "003": "true"}
    sweep = runs["sweep"].data
    assert {name: sweep.metrics[name] for name in ("best_score", "best_seconds", "trials_on_front")} == {
        "best_score": 0.6, "best_seconds": 1.0, "trials_on_front": 2,
    }  # fmt: skip
    assert sweep.params["objectives"] == "max score, min seconds"


def test_the_run_of_the_sweep_has_what_the_confirmation_came_to(storage: Path) -> None:
    plan = plan_of(storage, "confirmed", objectives=("score:max", "seconds:min"))
    tracker, state = MlflowTracker(plan), state_of(plan)
    happen(tracker, state, SweepBegan())
    none: dict[str, Any] = {"interval": None}
    rows: list[dict[str, Any]] = [
        {"trial": number, "mean": 0.25 * number, "interval": interval, "others": {"seconds": {"mean": number, **none}}}
        for number, interval in ((1, None), (2, [0.25, 0.75]))
    ]
    gain = {"mean": 0.25, "interval": None, "confidence": None}
    confirmation = {"metric": "test_score", "baseline": rows[0], "rivals": rows[1:], "gain": gain}
    state.close()
    summary = {"device_seconds": {}, "best": None, "confirmation": confirmation}
    happen(tracker, state, SweepEnded(summary=summary))
    tracker.close()
    sweep = runs_of(plan)["sweep"].data
    assert {name: value for name, value in sweep.metrics.items() if name.startswith("confirmed/")} == {
        "confirmed/test_score of baseline": 0.25, "confirmed/test_score of winner": 0.5,
        "confirmed/seconds of baseline": 1, "confirmed/seconds of winner": 2, "confirmed/gain": 0.25,
        "confirmed/half width of test_score of winner": 0.25,
    }  # fmt: skip
    assert sweep.tags["confirmed"].startswith("trial 002: +0.2500 against the baseline")


def test_a_sweep_of_every_outcome(storage: Path) -> None:
    plan = plan_of(storage, "outcomes")
    plan = replace(plan, settings={**plan.settings, "width": 8, "scheduler": "cosine"})
    tracker, state = MlflowTracker(plan), state_of(plan)
    report, checkpoint = plan.folder / "report.html", plan.folder / "trial-002" / "checkpoint_000000"
    for file in (report, plan.summary_file):
        file.write_text("written")
    checkpoint.mkdir(parents=True)
    (checkpoint / "epoch.txt").write_text("1")
    happen(tracker, state, SweepBegan())
    happen(tracker, state, *(began(trial) for trial in (1, 2, 3, 4)))
    happen(tracker, state, reported(1, 1, 0.25), reported(2, 1, 0.5), reported(3, 1, 0.125), reported(4, 1, 0.0))
    happen(tracker, state, Decided(trial=2, decision=Decision("stopped early", "below the others")))
    happen(tracker, state, ended(2, "stopped early", "not among the best third of 4 at epoch 1"))
    happen(tracker, state, reported(1, 2, 0.375), ended(1, "finished", "it has had its 4 epochs"))
    happen(tracker, state, ended(3, "failed", "Traceback\nRuntimeError: on purpose"))
    happen(tracker, state, SweepEnding(ending=INTERRUPTED))
    over(tracker, state, checkpoint)

    runs = runs_of(plan)
    assert {name: run.info.status for name, run in runs.items()} == {
        "sweep": "KILLED", "001": "FINISHED", "002": "FINISHED", "003": "FAILED", "004": "KILLED",
    }  # fmt: skip
    one, two, three, four = (runs[number].data for number in ("001", "002", "003", "004"))
    assert (one.params, one.tags["status"], one.tags["trial_id"]) == ({"x": "0.1", "seed": "1"}, "finished", "id-1")
    assert runs["001"].info.run_name == "trial 001 x=0.1"
    assert {"stopped_because", "failure", "failure_kind"} & {*one.tags, *four.tags} == set()
    assert (two.tags["status"], two.tags["stopped_because"]) == (
        "stopped early", "not among the best third of 4 at epoch 1",
    )  # fmt: skip
    assert (three.tags["status"], three.tags["failure"]) == ("failed", "Traceback\nRuntimeError: on purpose")
    assert three.tags["failure_kind"] == "loop error"
    assert set(one.metrics) - {"seconds/training", "seconds/waiting for a decision"} == {
        "score", "acc_1", "best_score", "best_epoch",
    }  # fmt: skip
    assert history(plan, runs["001"], "score") == [(1, 0.25), (2, 0.375)]

    sweep = runs["sweep"].data
    assert {name: sweep.metrics[name] for name in ("trials_finished", "trials_stopped_early", "trials_failed")} == {
        "trials_finished": 1, "trials_stopped_early": 1, "trials_failed": 1,
    }  # fmt: skip
    assert history(plan, runs["sweep"], "best_score") == [(0, 0.25), (0, 0.5), (3, 0.5)]
    assert (sweep.tags["best_trial"], sweep.tags["ended_early"]) == ("2", "Ctrl-C")
    assert (sweep.params["num_samples"], sweep.metrics["seconds/training"]) == ("4", 4.5)
    kept = {name: sweep.params[name] for name in ("width", "scheduler", "set/scheduler")}
    assert kept == {"width": "8", "scheduler": "asha-promote", "set/scheduler": "cosine"}
    assert sweep.tags["version.torch"]
    assert artifacts(plan, runs["sweep"]) == {"space.json", "summary.json", "report.html"}
    assert artifacts(plan, runs["002"], "checkpoint") == {"checkpoint/epoch.txt"}
    assert runs["sweep"].info.run_id in tracker.address
    assert MlflowTracker(plan).address == "http://127.0.0.1:5000"  # before the store has the run
    assert tracker.load_line() is None  # the experiment has no predictor


def test_a_sweep_that_is_resumed_has_not_ended_early_any_more(storage: Path) -> None:
    plan = plan_of(storage, "again")
    for ending in (INTERRUPTED, None):
        tracker, state = MlflowTracker(plan), state_of(plan)
        happen(tracker, state, SweepBegan(), *([SweepEnding(ending=ending)] if ending is not None else []))
        for trial in (1, 2, 3, 4):
            happen(tracker, state, began(trial), reported(trial, 4, 0.5), ended(trial, "finished"))
        over(tracker, state)
        assert ("ended_early" in runs_of(plan)["sweep"].data.tags) == (ending is not None)


@pytest.mark.parametrize(
    ("outcome", "ending", "status"),
    [
        ("finished", None, "FINISHED"),
        (None, Ending("the target was reached", 0), "FINISHED"),
        ("failed", None, "FAILED"),
    ],
    ids=["complete", "asked", "failed"],
)
def test_the_status_of_a_sweep_is_how_it_ended(
    outcome: Outcome | None, ending: Ending | None, status: str, storage: Path
) -> None:
    plan = plan_of(storage, f"ends as {status} {outcome}".replace(" ", "-"))
    tracker, state = MlflowTracker(plan), state_of(plan)
    happen(tracker, state, SweepBegan())
    if ending is not None:
        happen(tracker, state, SweepEnding(ending=ending))
    if outcome is not None:
        for trial in (1, 2, 3, 4):
            happen(tracker, state, began(trial), reported(trial, 4, 0.5), ended(trial, outcome))
    over(tracker, state)
    assert runs_of(plan)["sweep"].info.status == status


FROM_0 = [began(1), *(reported(1, epoch, epoch / 4) for epoch in (0, 1, 0, 1, 2))]
"""A trial that lost its workers makes its first reports again."""
OFTEN = [
    began(2),
    *(
        replace(reported(2, epoch, count / 4), count=count)
        for epoch, count in ((1, 1), (1, 2), (1, 2), (2, 3), (1, 1), (1, 2), (2, 3), (2, 4))
    ),
]
ODD_NAMES: dict[str, Any] = {
    "a//b": 1.0, "val/": 2.0, "../x": 3.0, "": 4.0, "n" * 300: 5.0, "acc@1": 6, "phase": "train",
}  # fmt: skip
NAMED = [began(3, layers="conv " * 100), reported(3, 1, 0.5, ODD_NAMES)]
CHANGING = [
    began(4), reported(4, 1, 0.25), began(4, x=0.7), reported(4, 2, 0.5, x=0.7),
    # It takes over what another trial had an epoch ago.
    began(4, x=0.8, optimizer="adamw"), reported(4, 1, 0.4, x=0.8, optimizer="adamw"),
]  # fmt: skip
GOES_BACK = [began(5), *(reported(5, step, 0.3 + step / 100) for step in (1, 2, 3, 4, 5))]
GOES_BACK += [began(5, x=0.7, seed=9), reported(5, 3, 0.9, x=0.7, seed=9), ended(5, "finished")]
INFINITE = [began(6), reported(6, 1, math.inf), reported(6, 2, 0.5, {"ratio": math.inf, "gap": -math.inf})]
LONG_NAMES = {f"{'n' * 250}{number}": number for number in (1, 2)}
LONG_VALUES = [began(number, layers="conv " * 2000 + str(number), **LONG_NAMES) for number in (7, 8)]
OWN_BEST: list[Event] = [began(9)]
for own_epoch, own_score in enumerate((0.5, 0.9, 0.1), start=1):
    own = {
        "best_score": 1000.0 * own_epoch,
        "best_epoch": 77,
        f"{PARAM_METRIC_PREFIX}lr": own_epoch,
        "seconds/training": 5,
    }
    OWN_BEST += [reported(9, own_epoch, own_score, own)] * 2  # once more, since it lost its workers


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, dict[str, Run]]:
    """A sweep whose trials report what MLflow does not take as it is, and its runs."""
    plan = plan_of(tmp_path_factory.mktemp("odd"), "odd")
    tracker, state = MlflowTracker(plan), state_of(plan)
    trials = (FROM_0, OFTEN, NAMED, CHANGING, GOES_BACK, INFINITE, LONG_VALUES, OWN_BEST)
    # Of two values in one millisecond, MLflow takes the larger one for the latest.
    events = [replace(event, time=1e9 + second) for second, event in enumerate(chain.from_iterable(trials))]
    happen(tracker, state, SweepBegan(), *events)
    over(tracker, state)
    return plan, runs_of(plan)


@pytest.mark.parametrize(
    ("trial", "scores"),
    [
        ("001", [(0, 0.0), (1, 0.25), (2, 0.5)]),
        ("002", [(1, 0.25), (1, 0.5), (2, 0.75), (2, 1.0)]),
        ("006", [(2, 0.5)]),
    ],
    ids=["epochs from 0", "several an epoch", "infinite ones left out"],
)
def test_all_reports_are_there_once_each(
    trial: str, scores: list[tuple[int, float]], odd: tuple[Plan, dict[str, Run]]
) -> None:
    plan, runs = odd
    assert history(plan, runs[trial], "score") == scores
    assert not {"ratio", "gap"} & {*runs[trial].data.metrics}


def test_names_that_mlflow_refuses_are_changed(odd: tuple[Plan, dict[str, Run]]) -> None:
    run = odd[1]["003"]
    assert [run.data.metrics[name] for name in ("a/b", "val", "x", "_", "n" * 250, "acc_1")] == [1, 2, 3, 4, 5, 6]
    assert "phase" not in run.data.metrics  # no number
    assert len(run.info.run_name or "") <= 250  # PostgreSQL takes no more


def test_hyperparameters_that_change_while_a_trial_trains_are_metrics_and_words_are_tags(
    odd: tuple[Plan, dict[str, Run]],
) -> None:
    plan, runs = odd
    run = runs["004"]
    assert run.data.params["x"] == "0.4"
    assert set(history(plan, run, f"{PARAM_METRIC_PREFIX}x")) == {(2, 0.7), (1, 0.8)}
    assert set(history(plan, run, "score")) == {(1, 0.25), (2, 0.5), (1, 0.4)}
    assert run.data.tags[f"{PARAM_METRIC_PREFIX}optimizer"] == "adamw"
    assert f"{PARAM_METRIC_PREFIX}seed" not in run.data.metrics


def test_the_best_value_of_a_clone_that_went_back_is_the_latest(odd: tuple[Plan, dict[str, Run]]) -> None:
    metrics = odd[1]["005"].data.metrics
    assert (metrics["best_score"], metrics["best_epoch"]) == (0.9, 3)


def test_long_parameters_that_begin_alike_are_kept_apart(odd: tuple[Plan, dict[str, Run]]) -> None:
    one, two = (odd[1][number].data.params for number in ("007", "008"))
    assert len({one["layers"], two["layers"]}) == 2
    assert sorted(value for name, value in one.items() if name.startswith("nnn")) == ["1", "2"]


def test_a_best_value_that_a_loop_reports_itself_is_beside_that_of_the_sweep(odd: tuple[Plan, dict[str, Run]]) -> None:
    plan, run = odd[0], odd[1]["009"]
    metrics = run.data.metrics
    assert (metrics["best_score"], metrics["best_epoch"]) == (0.9, 2)
    assert (metrics["reported/best_score"], metrics["reported/best_epoch"]) == (3000.0, 77)
    assert metrics["reported/seconds/training"] == 5
    assert history(plan, run, f"reported/{PARAM_METRIC_PREFIX}lr") == [(1, 1), (2, 2), (3, 3)]


def test_the_end_of_a_sweep_without_a_server_names_the_command(
    storage: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaudi_tune.show.trackers.delivery.GIVE_UP_AFTER_S", 1)
    uri = f"http://127.0.0.1:{free_port()}"
    plan = replace(plan_of(storage, "away"), tracking_uri=uri)  # it was there when the plan was made
    tracker, state = MlflowTracker(plan), state_of(plan)
    happen(tracker, state, SweepBegan(), began(1), reported(1, 1, 0.25), ended(1, "finished"))
    with caplog.at_level(logging.ERROR):
        over(tracker, state)
    assert plan.how_to_resume() in caplog.text


def test_a_tracker_opens_nothing_before_the_sweep_begins(storage: Path) -> None:
    plan = plan_of(storage, "idle")
    (tracker,) = [make(plan) for make in TRACKERS.values()]
    tracker.close()
    assert tracker.load_line() is None
    assert list(plan.folder.iterdir()) == []


def test_a_sort_by_the_best_value_gives_the_order_of_the_sweep(storage: Path) -> None:
    plan = plan_of(storage, "ranked")
    tracker, state = MlflowTracker(plan), state_of(plan)
    happen(tracker, state, SweepBegan(), *(began(trial) for trial in (1, 2, 3)), began(4, confirms=1))
    happen(tracker, state, reported(1, 1, 0.9), reported(1, 2, 0.1), reported(2, 1, 0.5), reported(2, 2, 0.6))
    happen(tracker, state, reported(4, 1, 0.95), best := reported(3, 1, 0.7))
    happen(tracker, state, replace(ended(3, "failed", "boom"), time=best.time + 1))
    over(tracker, state)
    runs = runs_of(plan)
    assert history(plan, runs["001"], "best_score") == [(1, 0.9)]
    assert history(plan, runs["002"], "best_score") == [(1, 0.5), (2, 0.6)]
    assert {run: runs[run].data.metrics["best_epoch"] for run in ("001", "002")} == {"001": 1, "002": 2}
    client, order = MlflowClient(plan.tracking_uri), ["metrics.best_score DESC"]
    experiment, sweep = runs["sweep"].info.experiment_id, f"tags.mlflow.parentRunId = '{runs['sweep'].info.run_id}'"
    has_value = f"{sweep} and tags.kind = 'trial' and metrics.best_score > 0"
    ranked = client.search_runs([experiment], has_value, order_by=order)
    assert [run.data.tags["trial"] for run in ranked] == ["001", "002"]  # the best report of 003 was lost with it
    (confirmation,) = client.search_runs([experiment], f"{sweep} and tags.kind = 'confirmation'")
    assert confirmation.data.tags["trial"] == "004"


def test_a_trial_that_waits_says_so_until_it_goes_on(storage: Path) -> None:
    plan = plan_of(storage, "waits")
    tracker, state = MlflowTracker(plan), state_of(plan)
    pause = Decided(trial=1, decision=Decision("pause", "not among the best third of 3 at epoch 1"))
    happen(tracker, state, SweepBegan(), began(1), began(2), reported(1, 1, 0.5), pause, reported(2, 1, 0.5))
    happen(tracker, state, replace(pause, trial=2), began(2))
    tracker.close()
    tracker.flush()  # as for a record of the state that comes after the end
    assert {name: run.data.tags.get("status") for name, run in runs_of(plan).items()} == {
        "sweep": None, "001": "paused", "002": None,
    }  # fmt: skip


def test_every_number_has_a_name_of_its_own() -> None:
    numbers = numbers_in({"acc@1": 0.5, "acc_1": 0.25, "improved": True, "note": "warm", "steps": 10**400})
    assert numbers == {"acc@1": 0.5, "acc_1": 0.25, "improved": 1.0}
    assert own_names(numbers, {}) == {
        "acc_1": "acc_1", "improved": "improved", "acc@1": f"acc_1_{zlib.crc32(b'acc@1'):08x}",
    }  # fmt: skip


def test_a_number_keeps_its_name_from_report_to_report() -> None:
    known_names: dict[str, str] = {}
    assert own_names(["acc@1"], known_names) == {"acc@1": "acc_1"}
    other, third = own_names(["acc_1"], known_names)["acc_1"], own_names(["acc#1"], known_names)["acc#1"]
    assert len({"acc_1", other, third}) == 3
    assert own_names(["acc_1", "acc@1"], known_names) == {"acc_1": other, "acc@1": "acc_1"}
