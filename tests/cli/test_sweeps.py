"""``gaudi-tune ls`` and ``show``: what they say of sweeps that run, have ended or were killed."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from gaudi_tune import Experiment, SweepError, SweepOptions
from gaudi_tune.base.files import OUTBOX_FILE, STATE_LOG
from gaudi_tune.cli.commands import main
from gaudi_tune.cli.sweeps import StoredSweep, list_sweeps
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.result import START_AGAIN, result_lines
from gaudi_tune.show.summary import reopen_summary, summarise, write_summary
from gaudi_tune.show.trackers.records import SWEEP, BeginSweep, to_line
from gaudi_tune.show.trackers.store import MLFLOW_UI
from gaudi_tune.sweep.record.events import Ending
from gaudi_tune.sweep.record.lock import SweepLock
from gaudi_tune.sweep.record.state_log import StateLog, pack, read_log
from gaudi_tune.sweep.record.sweep_file import winner_of, write_sweep_file
from tests.helpers.earlier_sweeps import earlier_sweep
from tests.helpers.fed_state import Fed
from tests.helpers.kept_sweeps import kept, said
from tests.helpers.loops import quadratic
from tests.helpers.quadratic import QUADRATIC


def test_a_sweep_of_several_objectives_is_shown_with_its_front(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = kept(storage, "both", 0.2, 0.8, 0.5, num_samples=3, objectives=("score:max", "seconds:min"))
    text = said(capsys, "show", str(plan.folder))
    assert "experiment  quadratic: max score, min seconds, recipe" in text
    assert "front       trial     score  seconds  epoch  hyperparameters\n            002       0.8    1.6" in text
    assert "001    0.2    0.4      1        finished  x=0.9" in text
    (brief,) = json.loads(said(capsys, "ls", str(storage), "--json"))
    assert (brief["metric"], brief["mode"], brief["best"]) == ("score", "max", 0.8)
    whole = json.loads(said(capsys, "show", str(plan.folder), "--json"))
    assert whole["trials"][1]["point"] == [0.8, 1.6]
    assert whole["options"]["objectives"] == ["score:max", "seconds:min"]
    resumed = SweepOptions(resume="both", storage=storage, add_trials=1)
    assert make_plan(QUADRATIC, resumed).objectives == plan.objectives
    with pytest.raises(SweepError, match="it keeps the options it began with; leave out --objectives"):
        make_plan(QUADRATIC, replace(resumed, objectives=("score:max",)))


def test_sweeps_are_listed_with_how_they_stand(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(storage, "done", 0.1, 0.8, num_samples=2, confirm=0)
    kept(storage, "early", 0.2, 0.3, 0.4, num_samples=5, ending=Ending("--patience 1", 0))
    kept(storage, "killed", 0.5, num_samples=5).summary_file.unlink()
    torn = kept(storage, "torn", 0.5, num_samples=5)
    (torn.folder / "sweep.json").write_text("{")
    running = SweepLock(kept(storage, "running", 0.6, 0.7, num_samples=5).folder)
    found = {sweep["name"]: sweep for sweep in json.loads(said(capsys, "ls", str(storage), "--json"))}
    running.release()
    assert {name: sweep["state"].partition(":")[0] for name, sweep in found.items()} == {
        "done": "finished", "early": "ended early", "killed": "killed", "torn": "cannot be read", "running": "running",
    }  # fmt: skip
    told = {name: (sweep["done"], sweep["of"], sweep["best"]) for name, sweep in found.items() if "best" in sweep}
    assert told == {"done": (2, 2, 0.8), "early": (2, 5, 0.4), "killed": (1, 5, 0.5), "running": (2, 5, 0.7)}
    lines = said(capsys, "ls", str(storage)).splitlines()
    assert lines[0].split() == ["sweep", "began", "trials", "best", "baseline", "confirmed", "metric", "state"]
    (done,) = [line for line in lines if line.startswith("done")]
    assert done.split()[3:] == ["2", "of", "2", "0.8", "0.1", "max", "score", "finished"]
    assert main(["ls", str(storage / "gone")]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_show_and_ls_say_in_a_line_what_the_files_of_a_sweep_lack(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = kept(storage, "done", 0.1, 0.8, num_samples=2, confirm=0)
    gaps = ["MLflow does not have 2 trials in full", "state.log does not have the last state"]
    write_summary(plan.summary_file, {**json.loads(plan.summary_file.read_text()), "missing": gaps})
    assert said(capsys, "ls", str(storage)).splitlines()[1].endswith(f" finished; {gaps[0]}; {gaps[1]}")
    lines = said(capsys, "show", str(plan.folder)).splitlines()
    assert f"missing     {gaps[0]}; {gaps[1]}" in lines
    assert any(line.startswith("next ") and "--resume done" in line for line in lines)
    assert json.loads(said(capsys, "ls", str(storage), "--json"))[0]["missing"] == gaps


def test_the_value_of_a_baseline_says_how_far_it_was_trained(storage: Path) -> None:
    plan = make_plan(QUADRATIC, SweepOptions(name="a", storage=storage, device="cpu", epochs=9))
    fed = Fed(epochs=9, trials=3)
    notes = []
    fed.begin(1)
    for step in (1, 9):
        fed.report(1, step, 0.1 * step)
        notes.append(summarise(plan, fed.state, {}))
    assert [summary["baseline_note"] for summary in notes] == ["after 1 of 9 epochs", ""]
    assert "(the baseline itself, after 1 of 9 epochs)" in result_lines(plan.folder, notes[0])[0]
    assert "(the baseline itself)" in result_lines(plan.folder, notes[1])[0]
    fed.begin(2)
    fed.report(2, 9, 0.95)
    assert "(baseline 0.9)" in result_lines(plan.folder, summarise(plan, fed.state, {}))[0]
    fed.state.trials[1].config = {"x": 0.7}
    fed.report(1, 9, 9.5)
    assert summarise(plan, fed.state, {})["baseline_note"] == "with hyperparameters changed on the way"
    fed.end(1, "failed", "RuntimeError")
    assert summarise(plan, fed.state, {})["baseline_note"] == "failed"


def test_a_sweep_is_shown_with_its_trials(
    storage: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = kept(storage, "early", 0.2, 0.3, 0.4, num_samples=5, ending=Ending("--patience 1", 0))
    text = said(capsys, "show", str(plan.folder))
    assert "sweep       early: ended early: --patience 1, 2 of 5 trials, gp search, asha-promote scheduler" in text
    assert "best        trial 003: score 0.4 at epoch 1 (baseline 0.2)" in text
    assert f"run '{storage.parent / 'my tune.py'}' --resume early --storage {storage}" in text
    assert (
        "trials      trial  score  best at  status       hyperparameters\n"
        "            001    0.2    1        finished     x=0.9" in text
    )
    assert "003    0.4    1        interrupted  x=" in text
    assert said(capsys, "show", "early", "--storage", str(storage)) == text, "a name will do"
    monkeypatch.setattr(sys, "argv", ["/usr/bin/gaudi-tune"])
    assert f"next        gaudi-tune run '{storage.parent / 'my tune.py'}' --resume early" in (
        said(capsys, "show", str(plan.folder))
    )
    write_sweep_file(replace(plan, command=("python", "-m", "pkg.mod")))
    assert "next        python -m pkg.mod --resume early" in said(capsys, "show", str(plan.folder))
    whole = json.loads(said(capsys, "show", str(plan.folder), "--json"))
    assert [trial["status"] for trial in whole["trials"]] == ["finished", "finished", "interrupted"]
    assert whole["trials"][0] == {"trial": 1, "status": "finished", "value": 0.2, "at": 1, "config": {"x": 0.9}}
    assert whole["summary"]["best"]["trial"] == 3
    assert main(["show", "none", "--storage", str(storage), "--json"]) == 2
    out, err = capsys.readouterr()
    assert f"none: no such sweep; give its folder, or the name of one in {storage}; found there: early" in err
    assert f"error: {json.loads(out)['error']}\n" == err
    plan.summary_file.unlink()
    assert "mlflow" not in said(capsys, "show", str(plan.folder)), "nobody knows before the end"


@pytest.mark.parametrize("options", [{}, {"objectives": ("score:max", "seconds:min")}], ids=["one", "several"])
def test_the_summary_has_the_trials_as_the_study_has_them(
    storage: Path, capsys: pytest.CaptureFixture[str], options: dict[str, Any]
) -> None:
    plan = kept(storage, "early", 0.2, 0.3, 0.4, num_samples=5, ending=Ending("--patience 1", 0), **options)
    log = plan.folder / STATE_LOG
    of_summary = said(capsys, "show", str(plan.folder))
    summary = json.loads(plan.summary_file.read_text())
    assert StoredSweep.find(plan.folder, storage).trials == summary.pop("trials")
    kept_log = log.read_bytes()
    log.unlink()
    assert said(capsys, "show", str(plan.folder)) == of_summary
    log.write_bytes(kept_log)
    write_summary(plan.summary_file, summary)
    assert said(capsys, "show", str(plan.folder)) == of_summary


def test_a_resumed_sweep_keeps_its_begin(storage: Path) -> None:
    plan = kept(storage, "early", 0.2, 0.3, num_samples=5, ending=Ending("--patience 1", 0))
    file = plan.folder / "sweep.json"
    first = json.loads(file.read_text())["began"]
    os.utime(file, (first + 5000, first + 5000))
    write_sweep_file(replace(plan, start_time=first))
    (found,) = list_sweeps(storage)
    assert found["began"] == first == pytest.approx(time.time(), abs=100)


def test_a_longer_sweep_that_was_killed_is_not_finished(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = kept(storage, "longer", 0.1, 0.8, num_samples=2, confirm=0)
    early = kept(storage, "early", 0.2, 0.3, 0.4, num_samples=5, ending=Ending("Ctrl-C", 130))
    for folder in (plan.folder, early.folder):
        reopen_summary(folder)
    found = {sweep["name"]: sweep for sweep in json.loads(said(capsys, "ls", str(storage), "--json"))}
    assert {name: (sweep["state"], sweep["best"]) for name, sweep in found.items()} == {
        "longer": ("killed", 0.8), "early": ("killed", 0.4),
    }  # fmt: skip


def test_show_says_how_many_of_the_trials_confirm(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = kept(storage, "done", 0.1, 0.8, num_samples=2, confirm=0)
    summary = json.loads(plan.summary_file.read_text())
    write_summary(plan.summary_file, {**summary, "expected": 8, "confirmations": 6})
    assert "done: finished, 2 of 8 trials (6 of them confirm), gp search" in said(capsys, "show", str(plan.folder))
    assert json.loads(said(capsys, "ls", str(storage), "--json"))[0]["confirmations"] == 6


def test_a_sweep_killed_after_a_resume_is_shown_from_its_log(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kept(storage, "early", 0.2, 0.3, 0.4, num_samples=5, ending=Ending("Ctrl-C", 130)).folder
    assert "best        trial 003: score 0.4" in said(capsys, "show", str(folder))
    reopen_summary(folder)
    parts = read_log(folder)
    parts["sweep"]["trials"][3]["status"] = "paused"
    StateLog(folder).append(pack(parts))
    os.utime(folder / STATE_LOG, times=(0, 0))  # a clock that was set, or a copy: times of files say nothing
    parts["sweep"]["trials"][1]["point"] = [0.25]  # the baseline went on
    StateLog(folder).append(pack(parts))
    (row,) = json.loads(said(capsys, "ls", str(storage), "--json"))
    assert (row["best"], row["baseline"], row["wall_s"]) == (0.4, None, None)
    with pytest.raises(SweepError, match=r"that sweep has no winner \(it has not ended"):
        winner_of(folder)
    text = said(capsys, "show", str(folder))
    assert "best so far trial 003: score 0.4" in text
    assert "003    0.4    1        paused    x=" in text
    assert "best        trial" not in text and "devices     " not in text


def test_of_equal_trials_the_next_objective_counts(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kept(storage, "tied", 0.4, 0.4, num_samples=3, objectives=("score:max", "seconds:min")).folder
    reopen_summary(folder)
    parts = read_log(folder)
    parts["sweep"]["trials"][2]["point"] = [0.4, 0.5]
    StateLog(folder).append(pack(parts))
    assert "best so far trial 002: score 0.4" in said(capsys, "show", str(folder))


def test_a_sweep_that_was_killed_is_ranked_as_its_summary_ranks_it(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a trial reported after its last checkpoint, and lost by an error, does not count."""
    folder = kept(storage, "early", 0.2, 0.3, 0.4, num_samples=3, raises=2, confirm=0).folder
    ended = json.loads(said(capsys, "show", str(folder), "--json"))
    assert [trial["value"] for trial in ended["trials"]] == [0.2, 0.3, 0.4]
    assert "best        trial 003: score 0.4" in said(capsys, "show", str(folder))
    (folder / "summary.json").unlink()
    assert json.loads(said(capsys, "show", str(folder), "--json"))["trials"] == ended["trials"]
    assert "best so far trial 003: score 0.4" in said(capsys, "show", str(folder))
    assert json.loads(said(capsys, "ls", str(storage), "--json"))[0]["best"] == 0.4


def test_confirmed_means_are_no_baseline(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline = {"mean": 0.1, "interval": None}
    for name, alone, confirmed in (("cut short", False, None), ("alone", True, baseline)):
        options: dict[str, Any] = {"baseline_only": True, "seeds": 2} if alone else {"num_samples": 2}
        plan = kept(storage, name.replace(" ", "-"), 0.1, **options)
        summary = json.loads(plan.summary_file.read_text())
        summary["confirmation"] = {"baseline": baseline, "rivals": []}
        write_summary(plan.summary_file, summary)
        found = {sweep["name"]: sweep for sweep in json.loads(said(capsys, "ls", str(storage), "--json"))}
        assert found[plan.name]["confirmed"] == confirmed


def test_recipes_are_shown_where_there_are_some(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(storage, "two", 0.2, num_samples=2)
    own = Experiment(name="own", train_loop=quadratic, space={"x": tune.uniform(-1.0, 1.0)}, metric="score")
    earlier_sweep(own, storage, lambda config: config["x"])
    assert "max score, recipe sample, cpu\n" in said(capsys, "show", "two", "--storage", str(storage))
    assert "experiment  own: max score, cpu\n" in said(capsys, "show", "earlier", "--storage", str(storage))


def test_show_says_how_to_open_the_store_of_a_sweep(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = kept(storage, "done", 0.1, num_samples=1, confirm=0)
    store = "sqlite:////somewhere else/mlflow.db"
    record = BeginSweep(
        run=SWEEP, time_ms=1, name="done", tags={}, params={}, tracking_uri=store, experiment="quadratic",
        artifacts=None, data="", facts=[],
    )  # fmt: skip
    (plan.folder / OUTBOX_FILE).write_bytes(to_line(record))
    lines = said(capsys, "show", str(plan.folder)).splitlines()
    (line,) = (number for number, text in enumerate(lines) if text.startswith("mlflow      http://127.0.0.1:5000"))
    assert lines[line + 1].strip() == f"open its store with: {MLFLOW_UI} --backend-store-uri '{store}'"
    assert MLFLOW_UI in (PROJECT_ROOT / "Makefile").read_text().replace("$(BIN)/", ""), "make ui is the same command"


def test_a_summary_of_another_version_counts_as_none(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = kept(storage, "old", 0.1, 0.8, num_samples=2, confirm=0)
    summary = json.loads(plan.summary_file.read_text())
    write_summary(plan.summary_file, {**summary, "version": 1})
    assert json.loads(said(capsys, "show", str(plan.folder), "--json"))["summary"] == {}


def test_a_sweep_whose_trials_have_all_failed_is_listed_as_failed(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = kept(storage, "gone", math.nan, math.nan, num_samples=2, confirm=0, ending=Ending("why: all of it", 1))
    assert said(capsys, "ls", str(storage)).splitlines()[1].endswith("max score  ended early")
    summary = json.loads(plan.summary_file.read_text())
    write_summary(plan.summary_file, {**summary, "complete": True, "failed": "all of it: ..."})
    assert said(capsys, "ls", str(storage)).splitlines()[1].endswith("max score  failed")
    assert f"next        {START_AGAIN}" in said(capsys, "show", str(plan.folder))


def test_a_sweep_is_shown_with_why_trials_failed(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = kept(storage, "nan", 0.2, math.nan, num_samples=2)
    text = said(capsys, "show", str(plan.folder))
    assert text.endswith("\nfailed      trial 002: diverged: score is nan after epoch 1\n")


def test_a_sweep_of_which_all_trials_failed_is_to_be_begun_again(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ending = Ending("the first 1 trials failed alike", 1)
    plan = kept(storage, "alike", math.nan, 0.2, ending=ending, num_samples=5)
    summary = json.loads(plan.summary_file.read_text())
    assert "--resume alike" in said(capsys, "show", str(plan.folder)), "a trial has a value"
    write_summary(plan.summary_file, {**summary, "best": None, "counts": {"failed": 1}})
    assert f"\nnext        {START_AGAIN}\n" in said(capsys, "show", str(plan.folder))
