"""A sweep on real workers in which each trial fails in another way, and who is told of what kind it is.

The messages speak of other failures than happen.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import mlflow
import optuna
import pytest

from gaudi_tune import Experiment, build_tuner
from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.on_ray.tune_files import results_so_far
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.show.trackers.tracker import TRACKERS
from gaudi_tune.sweep.record.device_time import LOST
from gaudi_tune.sweep.search.sampler_view import ran_out_of_memory
from tests.helpers.groups import in_one_group
from tests.helpers.json_lines import JsonLinesTracker
from tests.helpers.loops import failing
from tests.helpers.stored_study import stored_trials

pytestmark = pytest.mark.workers

KINDS: dict[str, FailureKind | None] = {
    "spoil the process": None,
    "report oddities": None,
    "finish": None,
    "raise": FailureKind.LOOP_ERROR,
    "diverge": FailureKind.DIVERGED,
    "report None": FailureKind.UNUSABLE_REPORT,
    "be killed once": None,
    "be killed": FailureKind.LOST,
    "raise again": FailureKind.LOOP_ERROR,
    "run out of memory": FailureKind.OUT_OF_MEMORY,  # last: after it, configurations are drawn that are then rejected
}
"""What each trial does, in their order, and what kind of failure that is."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("storage") / "failures"


@pytest.fixture(scope="module")
def sweep(ray_here: None, folder: Path) -> SweepTuner:
    def space(trial: optuna.Trial) -> dict[str, Any]:
        trial.suggest_float("x", -1.0, 1.0)
        way = list(KINDS)[trial.number % len(KINDS)]
        return {"way": way.removesuffix(" again"), "log": str(folder.with_suffix(".killed"))}

    experiment = Experiment(train_loop=failing, space=space, metric="score", name="failing")
    options: dict[str, Any] = {"epochs": 3, "scheduler": "fifo", "search": "random", "retries": 1, "confirm": 0}
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("TUNE_RESULT_DIR", "RAY_AIR_LOCAL_CACHE_DIR", "TUNE_ONLY_STORE_CHECKPOINT_SCORE_ATTRIBUTE"):
            patch.setenv(variable, "1")  # with each of which Tune would fail
        patch.setitem(TRACKERS, JsonLinesTracker.name, lambda plan: JsonLinesTracker(folder.with_suffix(".jsonl")))
        tuner = build_tuner(
            experiment, name=folder.name, storage=folder.parent, num_samples=len(KINDS), device="cpu", **options
        )
        tuner = in_one_group(tuner)
        tuner.fit()
    return tuner


@pytest.fixture(scope="module")
def ends(sweep: SweepTuner, folder: Path) -> list[dict[str, Any]]:
    """The events of the trials' ends, in the order of the trials."""
    lines = [json.loads(line) for line in folder.with_suffix(".jsonl").read_text().splitlines()]
    return sorted((line for line in lines if line["event"] == "TrialEnded"), key=lambda line: int(line["trial"]))


def test_the_end_of_each_trial_carries_its_failure(sweep: SweepTuner, ends: list[dict[str, Any]]) -> None:
    failures = [line["failure"] and Failure.from_plain(line["failure"]) for line in ends]
    assert [failure and failure.kind for failure in failures] == list(KINDS.values())
    assert [trial.failure for trial in sweep.run.state.trials.values()] == failures
    assert [line["reason"] for line in ends if line["failure"]] == [failure.text for failure in failures if failure]
    raised, raised_again = (failures[list(KINDS).index(way)] for way in ("raise", "raise again"))
    assert raised.fingerprint.startswith("ValueError ")
    assert raised.cause == raised_again.cause


def test_the_last_line_of_a_failure_says_what_happened(ends: list[dict[str, Any]]) -> None:
    last_lines = [line["failure"]["text"].splitlines()[-1] for line in ends if line["failure"]]
    assert last_lines[0] == "ValueError: out of memory on the device: diverged, as its node has died"
    assert last_lines[1] == "diverged: train_loss is nan after epoch 2"
    assert last_lines[2].startswith("the train loop's report is unusable: 'score'")
    assert last_lines[3].endswith("or your train loop called os._exit() (lost 2 times, --retries 1)")
    assert last_lines[4] == last_lines[0]
    assert last_lines[5] == "out of memory on the device: a smaller micro_batch or batch_size needs less"


def test_a_trial_whose_worker_is_killed_once_is_tried_again_and_finishes(sweep: SweepTuner) -> None:
    trial = sweep.run.state.trials[1 + list(KINDS).index("be killed once")]
    assert (trial.status, trial.step) == ("finished", 3)
    assert sweep.run.state.device_time.by_trial[trial.number].get(LOST, 0.0) > 0


def test_mlflow_and_the_study_have_the_kinds(sweep: SweepTuner, folder: Path) -> None:
    runs = mlflow.search_runs(experiment_names=["failing"], filter_string="tags.kind = 'trial'", output_format="list")
    tags = {int(run.data.tags["trial"]): run.data.tags for run in runs}
    expected = [kind and kind.value for kind in KINDS.values()]
    assert [tags[number].get("failure_kind") for number in sorted(tags)] == expected
    trials = stored_trials(folder)
    assert [trial.user_attrs.get("failure_kind") for trial in trials] == expected
    assert [ran_out_of_memory(trial) for trial in trials] == [kind == "out of memory" for kind in expected]


def test_the_record_of_what_a_loop_did_is_whole(sweep: SweepTuner, folder: Path) -> None:
    assert len(results_so_far(folder)) == len(KINDS)
    statuses = {way: sweep.run.state.trials[number].status for number, way in enumerate(KINDS, start=1)}
    assert [statuses[way] for way in ("spoil the process", "report oddities", "finish")] == ["finished"] * 3
    query = "tags.trial = '002' and tags.kind = 'trial'"
    (run,) = mlflow.search_runs(experiment_names=["failing"], filter_string=query, output_format="list")
    assert "big" not in run.data.metrics  # MLflow has no infinite numbers
    assert (run.data.metrics["_"], run.data.metrics["x"]) == (1.0, 1 / 3)
    assert math.isnan(run.data.metrics["a/_"])
