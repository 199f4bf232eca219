"""A whole sweep through the API on real workers, with trials that fail, diverge and end early."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.entities import Run
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from optuna_dashboard import wsgi
from ray import tune
from werkzeug.test import Client

from gaudi_tune import SweepOptions, build_tuner
from gaudi_tune.base.files import DELIVERED_FILE, OUTBOX_FILE, STUDY_FILE, SWEEP_FILE
from gaudi_tune.cli.run import dry_run_lines, run
from gaudi_tune.on_ray.local_ray import TUNE_SETTINGS
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.trackers.delivery import MLFLOW_SETTINGS
from gaudi_tune.show.trackers.outbox import Outbox, is_delivered
from gaudi_tune.show.trackers.records import SWEEP, LogFiles
from gaudi_tune.show.trackers.tracker import TRACKERS
from tests.helpers.earlier_sweeps import earlier_sweep
from tests.helpers.groups import in_one_group
from tests.helpers.json_lines import JsonLinesTracker
from tests.helpers.quadratic import QUADRATIC
from tests.helpers.stored_study import stored_trials
from tests.show.pictures.test_pictures import data_in


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("storage") / "mishaps"


@pytest.fixture(scope="module")
def results(ray_here: None, folder: Path) -> tune.ResultGrid:
    # fifo: an early stop could come before the mishap, depending on which group starts first.
    options: dict[str, Any] = {"num_samples": 8, "epochs": 4, "seed": 3, "scheduler": "fifo"}
    earlier_sweep(replace(QUADRATIC, space={"x": tune.uniform(-1.0, 1.0)}), folder.parent, lambda c: -abs(c["x"] + 0.5))
    options["learn_from"] = ("earlier",)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TRACKERS, JsonLinesTracker.name, lambda plan: JsonLinesTracker(events_of(plan.folder)))
        tuner = build_tuner(QUADRATIC, name=folder.name, storage=folder.parent, **options)
    assert isinstance(tuner, tune.Tuner)
    return tuner.fit()


def events_of(folder: Path) -> Path:
    """The file of the second tracker, which has nothing but its one module."""
    return folder.with_suffix(".jsonl")


@pytest.fixture(scope="module")
def runs(results: tune.ResultGrid, folder: Path) -> tuple[Run, list[Run]]:
    """The sweep's run and its children, by trial number."""
    found = mlflow.search_runs(experiment_names=["quadratic"], output_format="list")
    parent = next(run for run in found if run.info.run_name == folder.name)
    children = [run for run in found if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    return parent, sorted(children, key=lambda run: run.info.run_name)


@pytest.fixture(scope="module")
def summary(results: tune.ResultGrid, folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return loaded


def test_one_bad_trial_does_not_end_the_sweep(results: tune.ResultGrid, summary: dict[str, Any]) -> None:
    assert len(results) == 8
    told = " ".join(map(str, results.errors))
    assert len(results.errors) == 2
    assert "failed on purpose at epoch 2" in told
    assert "the experiment asks for 'score', and the report has train_loss, noise" in told
    assert summary["counts"]["failed"] == 3  # one raised, one diverged, one left the metric out
    assert sum(summary["counts"].values()) == 8
    assert summary["counts"].get("stopped early", 0) >= 1


def test_the_best_result_has_a_checkpoint_of_its_epoch(results: tune.ResultGrid, summary: dict[str, Any]) -> None:
    best = results.get_best_result()
    assert best.checkpoint is not None
    assert best.metrics is not None
    assert (Path(best.checkpoint.path) / "epoch.txt").read_text() == str(best.metrics["epoch"])
    assert Path(best.checkpoint.path).name == f"checkpoint_{best.metrics['epoch']:06d}"
    assert summary["best"]["value"] == pytest.approx(best.metrics["score"])
    assert summary["best"]["checkpoint"] == best.checkpoint.path
    assert summary["best"]["value"] > summary["baseline"]


def test_a_dry_run_of_a_sweep_that_goes_on_tells_what_is_left(results: tune.ResultGrid, folder: Path) -> None:
    asked = SweepOptions(resume=folder.name, storage=folder.parent)
    line, note = dry_run_lines(make_plan(QUADRATIC, asked))
    assert line.startswith("all 8 trials have ended")
    assert note.startswith("not read: what Tune keeps in state.log")
    lines = dry_run_lines(make_plan(QUADRATIC, replace(asked, add_trials=2)))
    assert "8 of 10 trials have ended; the first were" in lines
    assert any(line.startswith("at most 8 epochs in all") for line in lines)


def test_a_sweep_that_is_over_is_opened_without_a_ray_of_its_own_and_stays_as_it_is(
    results: tune.ResultGrid, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    opened = build_tuner(QUADRATIC, resume=folder.name, storage=folder.parent).get_results()
    assert opened.get_best_result(scope="all").config == results.get_best_result(scope="all").config
    assert run(QUADRATIC, SweepOptions(resume=folder.name, storage=folder.parent), ["python", "my.py"]) == 0
    said = capsys.readouterr().out
    assert "\nnothing is left to do (--add-trials N makes the sweep longer)" in said
    assert "\nbest        trial " in said
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*")} == before
    assert is_delivered(folder)


def test_a_copied_folder_goes_on_under_another_name_and_leaves_the_original_alone(
    results: tune.ResultGrid, runs: tuple[Run, list[Run]], folder: Path, tmp_path: Path
) -> None:
    copied, before = shutil.copytree(folder, tmp_path / "copied"), mlflow.get_run(runs[0].info.run_id)
    tuner = build_tuner(QUADRATIC, resume=str(copied), name="again", storage=tmp_path / "here", add_trials=1)
    in_one_group(tuner).fit()
    again = tmp_path / "here" / "again"
    assert json.loads((again / SWEEP_FILE).read_text())["origin"] == folder.name
    assert [trial.number for trial in stored_trials(again)] == [*range(9)]
    assert mlflow.get_run(runs[0].info.run_id).to_dictionary() == before.to_dictionary()
    found = mlflow.search_runs(
        experiment_names=["quadratic"], filter_string=f"tags.origin = '{folder.name}'", output_format="list"
    )
    (parent,) = (run for run in found if "mlflow.parentRunId" not in run.data.tags)
    children = [run for run in found if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert parent.info.run_name == "again"
    assert parent.info.status == "FINISHED"
    scores = {run.data.tags["trial"]: run.data.metrics.get("score") for run in children}
    assert {f"{number:03d}" for number in range(1, 9)} <= {*scores}
    assert all(str(run.data.metrics.get("score")) == str(scores[run.data.tags["trial"]]) for run in runs[1])
    assert (copied / SWEEP_FILE).read_text() == (folder / SWEEP_FILE).read_text()


def test_a_sweep_that_is_over_and_has_not_delivered_all_is_known(tmp_path: Path) -> None:
    assert is_delivered(tmp_path), "there is nothing to deliver"
    (tmp_path / OUTBOX_FILE).write_text("{}\n{}\n")
    assert not is_delivered(tmp_path)
    for delivered in (3, 6):
        (tmp_path / DELIVERED_FILE).write_text(f'{{"delivered": {delivered}, "ids": {{}}}}')
        assert is_delivered(tmp_path) is (delivered == 6)


def test_checkpoints_are_written_only_where_they_are_wanted(results: tune.ResultGrid, folder: Path) -> None:
    events = [json.loads(line)["event"] for line in events_of(folder).read_text().splitlines()]
    saved = events.count("CheckpointSaved")
    reported = sum(len(result.metrics_dataframe) for result in results)
    assert saved < reported
    assert any(result.checkpoint is None for result in results if result.error is None)
    assert all(len(list(Path(result.path).glob("checkpoint_*"))) <= 2 for result in results)


def test_a_diverged_trial_stops_at_once(results: tune.ResultGrid) -> None:
    diverged = next(r for r in results if r.config is not None and r.config.get("diverge_at"))
    assert diverged.metrics is not None
    assert diverged.metrics["epoch"] == 2


def test_a_trial_that_says_done_has_finished(
    results: tune.ResultGrid, runs: tuple[Run, list[Run]], summary: dict[str, Any], folder: Path
) -> None:
    done = next(r for r in results if r.config is not None and r.config.get("done_at"))
    assert done.metrics is not None
    assert (done.metrics["epoch"], done.metrics["runs_in"]) == (2, "quadratic")
    lines = JsonLinesTracker(events_of(folder)).lines()
    (outcome,) = [line["outcome"] for line in lines if line["event"] == "TrialEnded" and line["trial"] == 6]
    run = runs[1][5]
    assert (outcome, run.data.tags["status"], run.info.status) == ("finished", "finished", "FINISHED")
    assert summary["counts"]["stopped early"] == 1  # the one whose loop returned
    trials = stored_trials(folder)
    assert trials[5].state == TrialState.COMPLETE


def test_it_tries_first_what_was_good_in_an_earlier_sweep(runs: tuple[Run, list[Run]], folder: Path) -> None:
    learned = json.loads((folder / "sweep.json").read_text())["learned"]
    trials = stored_trials(folder)
    assert [trial.params for trial in trials[1:3]] == learned[:2]
    assert learned == sorted(learned, key=lambda config: abs(config["x"] + 0.5))
    assert runs[0].data.params["learn_from"] == "earlier"


def test_optunas_dashboard_opens_the_study(results: tune.ResultGrid, folder: Path) -> None:
    pages = Client(wsgi(JournalStorage(JournalFileBackend(str(folder / STUDY_FILE)))))
    (study,) = pages.get("/api/studies").get_json()["study_summaries"]
    assert study["study_name"] == folder.name
    trials = pages.get(f"/api/studies/{study['study_id']}?after=0").get_json()["trials"]
    assert Counter(trial["state"] for trial in trials) == Counter(
        trial.state.name.capitalize() for trial in stored_trials(folder)
    )


def test_mlflow_has_a_run_for_the_sweep_and_one_for_each_trial(
    runs: tuple[Run, list[Run]], summary: dict[str, Any]
) -> None:
    parent, children = runs
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["best_score"] == pytest.approx(summary["best"]["value"])
    assert parent.data.tags["best_trial"] == str(summary["best"]["trial"])
    assert parent.info.run_id in summary["mlflow"]
    assert len(children) == 8
    assert children[0].info.run_name == "trial 001 x=0.9"
    assert children[0].data.params["x"] == "0.9"
    assert {child.data.tags["status"] for child in children} == {"finished", "stopped early", "failed"}
    assert children[1].info.status == "FAILED"
    assert "failed on purpose at epoch 2" in children[1].data.tags["failure"]
    assert children[2].data.tags["failure"] == "diverged: train_loss is nan after epoch 2"
    kinds = [child.data.tags.get("failure_kind") for child in children]
    assert kinds == [None, "loop error", "diverged", None, "unusable report", None, None, None]
    assert all(child.data.metrics["system/cpu_utilization_percentage"] >= 0 for child in children)
    assert re.fullmatch(r"\d+ cpu: .* cores.*", parent.data.tags["devices"])
    assert "nothing to load" in parent.data.tags["data"]


def test_the_report_is_drawn_and_goes_to_mlflow_at_the_end(
    results: tune.ResultGrid, folder: Path, summary: dict[str, Any]
) -> None:
    with closing(Outbox(folder)) as outbox:
        of_sweep = [record for record in outbox if record.run == SWEEP]
    assert sum(isinstance(record, LogFiles) for record in of_sweep) == 1
    head = data_in((folder / "report.html").read_text())["head"]
    assert head["state"] == "complete"
    assert head["counts"] == summary["counts"]


def test_a_second_tracker_gets_every_event_in_order(results: tune.ResultGrid, folder: Path) -> None:
    lines = JsonLinesTracker(events_of(folder)).lines()
    events = [line["event"] for line in lines]
    assert (events[0], events[-1]) == ("SweepBegan", "closed")
    assert (events.count("SweepBegan"), events.count("SweepEnded")) == (1, 1)
    assert events[-2] == "SweepEnded"
    for trial in range(1, 9):
        own = [line for line in lines if line.get("trial") == trial]
        assert (own[0]["event"], own[-1]["event"]) == ("TrialBegan", "TrialEnded")
        assert sum(line["event"] == "TrialEnded" for line in own) == 1
        reports = [line for line in own if line["event"] == "Reported"]
        steps = [line["step"] for line in reports]
        assert steps == sorted(set(steps))
        decided = [after["decision"] for line, after in pairwise(own) if line["event"] == "Reported"]
        assert len(decided) == len(reports)
    ends = {line["trial"]: line["outcome"] for line in lines if line["event"] == "TrialEnded"}
    assert (ends[1], ends[2], ends[3]) == ("finished", "failed", "failed")
    (summary,) = [line["summary"] for line in lines if line["event"] == "SweepEnded"]
    assert summary["counts"] == Counter(ends.values())


def test_a_plain_sweep_of_tune_afterwards_has_all_its_files(results: tune.ResultGrid, tmp_path: Path) -> None:
    assert not {*TUNE_SETTINGS, *MLFLOW_SETTINGS} & {*os.environ}
    config = tune.RunConfig(name="plain", storage_path=str(tmp_path), verbose=0)
    (plain,) = tune.Tuner(lambda config: {"score": 1.0}, run_config=config).fit()
    written = {file.name for file in Path(plain.path).iterdir()}
    assert {"params.json", "progress.csv", "result.json"} <= written
