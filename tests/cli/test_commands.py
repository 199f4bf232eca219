"""``gaudi-tune``: what it lists and shows, and what it would run."""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
import time
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from ray import tune

from gaudi_tune import Experiment, SweepError, SweepOptions, build_tuner
from gaudi_tune.base.files import STATE_LOG
from gaudi_tune.base.process import version_of
from gaudi_tune.cli.commands import main
from gaudi_tune.cli.experiment_script import load_experiment
from gaudi_tune.cli.sweeps import list_sweeps
from gaudi_tune.define.config_file import read_config
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan, make_proposer
from gaudi_tune.show.result import result_lines
from gaudi_tune.show.summary import reopen_summary, search_of, summarise, write_summary
from gaudi_tune.show.trackers.outbox import RECORDS_FILE
from gaudi_tune.show.trackers.records import SWEEP, BeginSweep, to_line
from gaudi_tune.show.trackers.store import MLFLOW_UI
from gaudi_tune.sweep.record.events import Ending, SweepEnding
from gaudi_tune.sweep.record.lock import SweepLock
from gaudi_tune.sweep.record.outcome import why_diverged
from gaudi_tune.sweep.record.state_log import StateLog, pack, read_log
from gaudi_tune.sweep.record.sweep_file import write_sweep_file
from tests.helpers.earlier_sweeps import earlier_sweep
from tests.helpers.fed_state import Fed
from tests.helpers.loops import quadratic
from tests.helpers.quadratic import QUADRATIC

SCRIPT = '''
"""Tune a parabola."""
from gaudi_tune import Experiment, main
from ray import tune
from tests.helpers.loops import quadratic

SMALL = Experiment(name="small", train_loop=quadratic, space={"x": tune.uniform(-1.0, 1.0)}, metric="score")
LARGE = Experiment(name="large", train_loop=quadratic, space={"x": tune.uniform(-9.0, 9.0)}, metric="score")
'''


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is pytest's again after it was a script's."""
    for name, value in (("argv", ["pytest"]), ("path", list(sys.path))):
        monkeypatch.setattr(sys, name, value)
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "my tune.py"
    file.write_text(SCRIPT)
    return file


def kept(
    storage: Path, name: str, *scores: float, ending: Ending | None = None, raises: int = 0, **options: Any
) -> Plan:
    """A sweep's folder, as one leaves it whose trials reported these scores; the last is lost if it ends early.

    The trial ``raises`` saves its score, reports a much better one, and raises an error.
    """
    plan = make_plan(QUADRATIC, SweepOptions(name=name, storage=storage, device="cpu", epochs=1, **options))
    plan = replace(plan, command=("python", "-m", "gaudi_tune", "run", str(storage.parent / "my tune.py")))
    plan.folder.mkdir(parents=True)
    write_sweep_file(plan)
    proposer, fed = make_proposer(plan), Fed(epochs=1, trials=plan.num_samples, others=plan.objectives[1:])
    for number, score in enumerate(scores, start=1):
        config: Any = proposer.propose(f"id{number}")
        lost = ending is not None and number == len(scores)
        fed.begin(number, **config)
        fed.report(number, 1, score, seconds=2 * score)
        proposer.reported(fed.state.trials[number])
        if number == raises:
            fed.save(number)
            fed.report(number, 2, 10 * score)
            proposer.reported(fed.state.trials[number])
            fed.end(number, "failed", "RuntimeError: unlucky", raised=True)
            proposer.ended(fed.state.trials[number])
        elif not lost:
            divergence = why_diverged(fed.state.trials[number].metrics, "score")
            if divergence:
                fed.fail(number, divergence)
            else:
                fed.end(number)
            proposer.ended(fed.state.trials[number])
    tune_part = {"trials": {f"id{n}": (json.dumps({"experiment_tag": str(n)}), "{}") for n in fed.state.trials}}
    study_part, scheduler_part = proposer.record.snapshot(everything=True), SweepTuner(plan).run.scheduler.get_state()
    parts = {**fed.state.snapshot(), "tune": tune_part, "study": study_part, "scheduler": scheduler_part}
    StateLog(plan.folder).append(pack(parts))
    if ending is not None:
        fed.state.apply(SweepEnding(ending=ending))
    fed.state.close()
    summary = summarise(plan, fed.state, {"mlflow": "http://127.0.0.1:5000"})
    write_summary(plan.summary_file, {**summary, "trials": search_of(plan, fed.state)})
    return plan


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"gaudi-tune {version_of('gaudi-tune')}\n")


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
    os.utime(plan.summary_file, (0, 0))  # the log was written later
    assert said(capsys, "show", str(plan.folder)) == of_summary
    log.unlink()
    assert said(capsys, "show", str(plan.folder)) == of_summary, "an old summary is better than none"


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
    os.utime(folder / STATE_LOG, times=(time.time() + 60, time.time() + 60))
    text = said(capsys, "show", str(folder))
    assert "best so far trial 003: score 0.4" in text
    assert "003    0.4    1        paused    x=" in text
    assert "best        trial" not in text and "devices     " not in text


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
    (plan.folder / RECORDS_FILE).write_bytes(to_line(record))
    lines = said(capsys, "show", str(plan.folder)).splitlines()
    (line,) = (number for number, text in enumerate(lines) if text.startswith("mlflow      http://127.0.0.1:5000"))
    assert lines[line + 1].strip() == f"open its store with: {MLFLOW_UI} --backend-store-uri '{store}'"
    assert MLFLOW_UI in (PROJECT_ROOT / "Makefile").read_text().replace("$(BIN)/", ""), "make ui is the same command"


def test_a_summary_without_a_version_is_read_as_today_s(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = kept(storage, "old", 0.1, 0.8, num_samples=2, confirm=0)
    today = said(capsys, "show", str(plan.folder), "--json")
    summary = json.loads(plan.summary_file.read_text())
    for lacks in ("", "search"):  # the first ones had no list
        old = {**summary, "trials": summary["counts"], "search": summary["trials"]}
        old = {name: value for name, value in old.items() if name not in ("version", "counts", lacks)}
        write_summary(plan.summary_file, old)
        shown, expected = json.loads(said(capsys, "show", str(plan.folder), "--json")), json.loads(today)
        if lacks:
            del expected["summary"]["trials"]
        assert shown == expected


def test_a_sweep_whose_trials_have_all_failed_is_listed_as_failed(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = kept(storage, "gone", math.nan, math.nan, num_samples=2, confirm=0, ending=Ending("why: all of it", 1))
    assert said(capsys, "ls", str(storage)).splitlines()[1].endswith("max score  ended early")
    summary = json.loads(plan.summary_file.read_text())
    write_summary(plan.summary_file, {**summary, "complete": True, "failed": "all of it: ..."})
    assert said(capsys, "ls", str(storage)).splitlines()[1].endswith("max score  failed")
    assert "next        fix that, then start a new sweep" in said(capsys, "show", str(plan.folder))


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
    assert "\nnext        fix that, then start a new sweep\n" in said(capsys, "show", str(plan.folder))


def test_without_a_command_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "list the sweeps of a folder" in capsys.readouterr().out


def test_run_explains_itself_without_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert "run SCRIPT [options of a sweep]" in said(capsys, "run", "--help")
    assert main(["run"]) == 2
    assert "run: give the script, such as: python -m gaudi_tune run my.py" in capsys.readouterr().err


def test_a_trial_is_trained_again_with_what_its_sweep_had(
    storage: Path, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.write_text("from gaudi_tune import main\nfrom tests.helpers.quadratic import QUADRATIC\nmain(QUADRATIC)\n")
    had: dict[str, Any] = {"settings": ("seconds=0.5",), "config": Path("gone.toml")}
    plan = kept(storage, "first", 0.8, 0.1, 0.3, num_samples=3, confirm=0, **had)
    trials = json.loads(said(capsys, "show", str(plan.folder), "--json"))["trials"]
    named = ["--script", str(script), "--dry-run", "--json"]
    asked = ["rerun", "first", "--storage", str(storage), "--trial", "3", "--seeds", "4", *named]
    again = json.loads(said(capsys, *asked))
    assert again["baseline"] == trials[2]["config"]
    assert (again["num_samples"], again["confirmations"], again["epoch"]) == (1, 4, 1)
    assert again["settings"]["seconds"] == 0.5
    assert again["seed"] == plan.options.seed + 1, "its seeds are others"
    assert Path(again["folder"]).parent == storage, "beside the first"
    winner = json.loads(said(capsys, "rerun", str(plan.folder), "--epochs", "3", *named))
    assert winner["baseline"] == trials[0]["config"]
    assert (winner["confirmations"], winner["epoch"]) == (5, 3)
    assert json.loads(said(capsys, *asked, "--set", "seconds=0.25"))["settings"]["seconds"] == 0.25
    by_time = kept(storage, "timed", 0.8, num_samples=1, confirm=0, seconds=60)
    assert json.loads(said(capsys, "rerun", str(by_time.folder), *named))["second"] == 60
    assert main([*asked[:5], "7", *asked[6:]]) == 2
    assert "first:7: its search has no such trial; it has 1 to 3" in capsys.readouterr().err


def test_a_script_runs_because_a_person_names_it_and_not_a_file(
    storage: Path, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = kept(storage, "first", 0.8, num_samples=1)
    script.write_text("raise SystemExit('it ran')\n")
    assert main(["rerun", str(plan.folder), "--dry-run"]) == 2
    err = capsys.readouterr().err
    assert "name the script with the experiment (--script my.py), since the file of a sweep does not say" in err
    assert f"--script '{script}'" in err


def test_a_sampler_of_a_module_is_named_again_to_resume_a_sweep(
    storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_sampler_for_resumes.py").write_text(
        "import optuna\ndef make():\n    return optuna.samplers.RandomSampler()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    search = "my_sampler_for_resumes.make()"
    plan = kept(storage, "own", 0.8, num_samples=3, search=search)
    sys.modules.pop("my_sampler_for_resumes")
    asked = SweepOptions(resume="own", storage=storage)
    with pytest.raises(SweepError, match=r"say it again: --search 'my_sampler_for_resumes\.make\(\)'"):
        make_plan(QUADRATIC, asked)
    assert "my_sampler_for_resumes" not in sys.modules
    again = make_plan(QUADRATIC, replace(asked, search=search))
    assert again.objects.sampler is not None
    assert f"search={search!r}" in again.how_to_resume()
    assert "--search 'my_sampler_for_resumes.make()'" in replace(again, command=("my.py",)).how_to_resume()
    plan.summary_file.unlink()
    assert "--search 'my_sampler_for_resumes.make()'" in said(capsys, "show", str(plan.folder))


def test_a_sampler_that_is_an_object_is_given_again_to_resume_a_sweep(storage: Path) -> None:
    kept(storage, "own", 0.8, num_samples=3, search="RandomSampler")
    sampler = optuna.samplers.RandomSampler()
    assert isinstance(build_tuner(QUADRATIC, resume="own", storage=storage, sampler=sampler), tune.Tuner)


def test_a_script_runs_with_or_without_main(
    script: Path, storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--storage", str(storage), "--dry-run", "--json", "--device", "cpu"]
    plan = json.loads(said(capsys, "run", f"{script}:LARGE", *options))
    assert (plan["experiment"], plan["space"]) == (
        "large",
        {"x": "-9 to 9"},
    )
    script.write_text(SCRIPT + "main(SMALL, 'Small things.')\nraise RuntimeError('the sweep is over')\n")
    assert json.loads(said(capsys, "run", str(script), *options))["experiment"] == "small"
    assert load_experiment(str(script))[1] == "Small things."
    (tmp_path / "a:1").mkdir()
    script = script.rename(tmp_path / "a:1" / "my.py")
    assert json.loads(said(capsys, "run", str(script), *options))["experiment"] == "small"
    with pytest.raises(SystemExit):
        main(["run", str(script), "--help"])
    assert "Small things." in capsys.readouterr().out


def test_the_class_of_a_script_keeps_its_types(script: Path, storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = (
        "from __future__ import annotations\n"
        + SCRIPT
        + (
            "from dataclasses import dataclass\nfrom gaudi_tune import TrialConfig\n"
            "from typing import Literal\nWhole = Literal[1, 2]\n"
            "@dataclass(frozen=True, kw_only=True)\nclass Own(TrialConfig):\n    x: float\n    n: Whole | None = None\n"
            "OWN = Experiment(train_loop=quadratic, config_class=Own, space=SMALL.space, metric='score')\n"
        )
    )
    script.write_text(own.replace('"""Tune a parabola."""\n', ""))
    plan = json.loads(said(capsys, "run", f"{script}:OWN", "--storage", str(storage), "--dry-run", "--json"))
    assert (plan["metric"], plan["settings"]["n"]) == ("score", None)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("{script}", "name one of its experiments .SMALL, LARGE., as in .*my tune.py:SMALL"),
        ("{script}:OTHER", "name one of its experiments .SMALL, LARGE."),
        ("gone.py", "gone.py: there is no file gone.py; give a script"),
    ],
)
def test_a_script_without_that_experiment_is_an_error(target: str, says: str, script: Path) -> None:
    with pytest.raises(SweepError, match=says):
        load_experiment(target.format(script=script))


@pytest.mark.processes
def test_lists_and_pages_import_nothing_that_takes_seconds(storage: Path) -> None:
    kept(storage, "done", 0.1, 0.8, num_samples=2, confirm=0)
    code = (
        "import sys; from gaudi_tune.cli.commands import main\n"
        f"for command in (['ls', {str(storage)!r}], ['show', {str(storage / 'done')!r}]): assert main(command) == 0\n"
        "print(sorted({'mlflow', 'pandas', 'ray', 'scipy', 'sklearn', 'torch'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


@pytest.mark.processes
@pytest.mark.parametrize("command", ["-m gaudi_tune ls .", "-m gaudi_tune --help", "my.py --help"])
def test_a_reader_may_leave(command: str, tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text(SCRIPT + "main(SMALL)\n")
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [sys.executable, *command.split()], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
        stdout=writes, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writes)
    assert done.returncode in (0, 141)  # argparse takes no notice
    assert done.stderr == ""


def test_the_line_of_a_script_that_fails_is_shown(tmp_path: Path) -> None:
    """It names the hyperparameter of a range that Ray Tune cannot make."""
    script = tmp_path / "my.py"
    script.write_text('from ray import tune\nspace = {\n    "momentum": tune.loguniform(0, 1),\n}\n')
    with pytest.raises(
        SweepError, match=r"greater than 0.*my\.py, line 3\) in .*\"momentum\": tune.loguniform\(0, 1\)"
    ):
        load_experiment(str(script))


def test_a_sweep_is_taken_away_as_a_table_and_its_winner_as_a_file_of_options(
    storage: Path, script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment, _ = load_experiment(f"{script}:SMALL")
    earlier_sweep(experiment, storage, lambda config: -abs(config["x"]), trials=4)
    folder = storage / "earlier"
    best = {"trial": 3, "config": {"x": 0.125, "seed": 5}, "value": 0.5}
    write_summary(folder / "summary.json", {"version": 2, "counts": {"finished": 4}, "best": best, "complete": True})
    assert main(["export", str(folder), "--to", str(tmp_path / "taken")]) == 0
    table, winner = capsys.readouterr().out.split()
    with Path(table).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["trial", "status", "score", "at", "x"]
    assert [float(row["score"]) for row in rows] == [-abs(float(row["x"])) for row in rows]
    assert read_config(Path(winner)) == {"settings": ("x=0.125",)}
    options = [f"{script}:SMALL", "--config", winner, "--baseline-only", "--device", "cpu", "--storage", str(storage)]
    assert main(["run", *options, "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["baseline"] == {"x": 0.125}
