"""``gaudi-tune``: what it runs, and what it says about itself."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from ray import tune

from gaudi_tune import SweepError, SweepOptions, build_tuner
from gaudi_tune.cli.commands import main
from gaudi_tune.cli.experiment_script import load_experiment
from gaudi_tune.define.config_file import read_config
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.private.surfaces import version_of
from gaudi_tune.show.summary import write_summary
from gaudi_tune.sweep.record.state_log import logged_trials
from tests.cli.conftest import SCRIPT
from tests.helpers.earlier_sweeps import earlier_sweep
from tests.helpers.kept_sweeps import kept, said
from tests.helpers.quadratic import QUADRATIC


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"gaudi-tune {version_of('gaudi-tune')}\n")


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
    assert (plan["experiment"], plan["space"]) == ("large", {"x": "-9 to 9"})
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
@pytest.mark.parametrize("command", ["-m gaudi_tune ls .", "my.py --help"])
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
    write_summary(
        folder / "summary.json",
        {"version": 2, "metric": "loss", "mode": "min", "counts": {"finished": 4}, "best": best, "complete": True},
    )
    assert main(["export", str(folder), "--to", str(tmp_path / "taken")]) == 0
    table, winner = capsys.readouterr().out.split()
    with Path(table).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["trial", "status", "score", "at", "x"]
    assert [float(row["score"]) for row in rows] == [-abs(float(row["x"])) for row in rows]
    assert read_config(Path(winner)) == {"epochs": 1, "settings": ("x=0.125",)}  # of the sweep, not of the experiment
    options = [f"{script}:SMALL", "--config", winner, "--baseline-only", "--device", "cpu", "--storage", str(storage)]
    assert main(["run", *options, "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["baseline"] == {"x": 0.125}
    (folder / "summary.json").unlink()  # as when the sweep goes on
    assert main(["export", str(folder), "--to", str(tmp_path / "taken")]) == 0
    assert [file.name for file in (tmp_path / "taken").iterdir()] == ["trials.csv"]
    with pytest.raises(FileExistsError):  # and no word of a damaged sweep
        main(["export", str(folder), "--to", str(script)])


def test_what_a_sweep_fixed_belongs_to_its_winner_and_its_table_can_be_learned_from(
    storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "odd.py"
    script.write_text(
        "from gaudi_tune import Experiment, tune\n"
        "ODD = Experiment(train_loop=print, space={'x': tune.uniform(0, 1), 'at': tune.choice([None, 3]), "
        "'loss': tune.choice(['mse', 'mae'])}, metric='loss', baseline={'x': 0.5, 'at': 3, 'loss': 'mae'})\n"
    )
    experiment, _ = load_experiment(str(script))
    earlier_sweep(experiment, storage, lambda config: config["x"] + bool(config["at"]), settings=("loss=mse",))
    (best, *_) = sorted(logged_trials(storage / "earlier"), key=lambda trial: trial.best or 0.0)
    summary = {
        "version": 2,
        "metric": "loss",
        "mode": "min",
        "counts": {},
        "best": {"trial": best.number, "config": best.best_config},
    }
    write_summary(storage / "earlier" / "summary.json", summary)
    assert main(["export", str(storage / "earlier"), "--to", str(tmp_path)]) == 0
    capsys.readouterr()
    options = ["run", str(script), "--device", "cpu", "--storage", str(storage), "--dry-run", "--json"]
    assert main([*options, "--config", str(tmp_path / "best.toml"), "--baseline-only"]) == 0
    winner = {name: best.best_config[name] for name in ("x", "at")}
    assert json.loads(capsys.readouterr().out)["baseline"] == {**winner, "loss": "mse"}
    plan = make_plan(experiment, SweepOptions(storage=storage, device="cpu", learn_from=(f"{tmp_path}/trials.csv",)))
    assert plan.learned[0] == winner and winner["at"] is None


@pytest.mark.parametrize("value", [None, 0.5, True, "1e5", "true", "None", 'q"u', "a,b", "é", ""])
def test_a_winner_is_the_same_after_its_file_was_read(
    value: object, storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "choices.py"
    other = "another" if isinstance(value, str) else False if value is True else 0.25
    script.write_text(
        f"from gaudi_tune import Experiment, tune\n"
        f"CHOICES = Experiment(train_loop=print, space={{'x': tune.uniform(0, 1), 'kind': tune.choice([{value!r}, "
        f"{other!r}])}}, metric='loss', baseline={{'x': 0.5, 'kind': {other!r}}}, name='choices')\n"
    )
    experiment, _ = load_experiment(str(script))
    earlier_sweep(experiment, storage, lambda config: config["x"] + (config["kind"] != value))
    best = {"trial": 1, "config": {"x": 0.125, "kind": value}, "value": 0.5}
    write_summary(
        storage / "earlier" / "summary.json",
        {"version": 2, "metric": "loss", "mode": "min", "counts": {"finished": 1}, "best": best},
    )
    assert main(["export", str(storage / "earlier"), "--to", str(tmp_path)]) == 0
    options = ["--config", str(tmp_path / "best.toml"), "--baseline-only", "--device", "cpu", "--storage", str(storage)]
    capsys.readouterr()
    assert main(["run", str(script), *options, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["baseline"] == {"x": 0.125, "kind": value}
    sources = ("earlier", str(tmp_path / "trials.csv"))
    plans = (make_plan(experiment, SweepOptions(storage=storage, device="cpu", learn_from=(s,))) for s in sources)
    learned, from_table = (plan.learned for plan in plans)
    assert from_table == learned and learned[0]["kind"] == value
