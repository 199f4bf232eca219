from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_tune import SweepError, main
from gaudi_tune.cli.command_line import join_values, parse_options
from gaudi_tune.define.options import DEFAULT_STORAGE, GROUPS, PROJECT_ROOT, SweepOptions, checked, flag
from gaudi_tune.plan.planner import make_plan
from tests.helpers.quadratic import QUADRATIC


def exit_status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(QUADRATIC, "A test.", arguments)
    return int(ended.value.code or 0)


def test_every_option_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("--help") == 0
    text = capsys.readouterr().out
    assert "--space" not in text, "a file has ranges"
    for field in SweepOptions.__dataclass_fields__.keys() - {"space"}:
        assert flag(field) in text
    assert "A test." in text


@pytest.mark.processes
def test_help_shows_the_options_in_groups_a_line_each() -> None:
    command = [sys.executable, "-c", "from gaudi_tune import main; main(None, 'A test.', ['--help'])"]
    environment = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    text = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    lines = text.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("╭")] == ["options", *GROUPS]
    assert max(map(len, lines)) <= 80
    # Per option its name and its text, which may stand beside it; per group a description and a rule; and --help.
    options = sum(len(fields(group)) for group in GROUPS.values())
    assert sum(line.startswith("│") for line in lines) <= 2 * options + 2 * len(GROUPS) + 1


def test_the_manual_explains_every_option() -> None:
    manual = (PROJECT_ROOT / "docs" / "options.md").read_text()
    assert [
        field.name for field in fields(SweepOptions) if f"`{flag(field.name)}" not in manual and field.name != "space"
    ] == []


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({}, "python tune it.py --resume x"),
        ({"storage": Path("/data/my results")}, "python tune it.py --resume x --storage /data/my results"),
        ({"tracking_uri": "http://team:5000"}, "python tune it.py --resume x --tracking-uri http://team:5000"),
    ],
)
def test_the_printed_command_resumes_the_sweep(changes: dict[str, Any], command: str, storage: Path) -> None:
    plan = make_plan(QUADRATIC, SweepOptions(name="x", storage=storage))
    there = replace(
        plan, command=("python", "tune it.py"), options=replace(plan.options, **{"storage": DEFAULT_STORAGE, **changes})
    )
    assert " ".join(shlex.split(there.how_to_resume())) == command


def test_resuming_may_add_trials(storage: Path) -> None:
    plan = make_plan(QUADRATIC, SweepOptions(name="x", storage=storage))
    call = f"build_tuner(..., resume='x', storage={str(storage)!r}"
    assert [plan.how_to_resume(), plan.how_to_resume(with_more_trials=True)] == [f"{call})", f"{call}, add_trials=N)"]
    of_script = replace(plan, command=("python", "tune.py")).how_to_resume(with_more_trials=True)
    assert of_script == f"python tune.py --resume x --storage {storage} --add-trials N"


@pytest.mark.parametrize("arguments", [["--nope"], ["--device", "tpu"], ["--epochs", "many"], ["--scheduler", "x"]])
def test_an_unknown_option_or_value_is_an_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(*arguments) == 2
    assert arguments[0].strip("-") in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--nope"], ["--num-samples", "0"]])
def test_an_error_of_the_command_line_is_json_if_that_was_asked_for(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(*arguments, "--json") == 2
    assert "error" in json.loads(capsys.readouterr().out)


def test_an_option_goes_by_its_name_of_the_command_line_too() -> None:
    with pytest.raises(SweepError, match=r"there is no option set \(did you mean settings\?\)"):
        checked({"set": ("a=1",)})


def test_a_repeated_set_keeps_all_its_values() -> None:
    given = ["--set", "a=1", "--name", "x", "--set=b=2", "--set", "c=3", "d=4", "--dry-run"]
    assert join_values(given, "--set") == ["--name", "x", "--dry-run", "--set", "a=1", "b=2", "c=3", "d=4"]
    assert join_values(["--name", "x"], "--set") == ["--name", "x"]
    given = ["--learn_from", "a", "--learn-from=b", "--name", "x"]
    assert join_values(given, "--learn-from") == ["--name", "x", "--learn-from", "a", "b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "3", "--epochs", "4"], "--epochs: it is given 2 times; give it once"),
        (["--num_samples=3", "--num-samples", "4"], "--num-samples: it is given 2 times"),
        (["--epoch", "3"], r"there is no option --epoch \(did you mean --epochs\?\); --help lists all"),
        (["--weight-decay=0.1"], "no option --weight-decay; a hyperparameter .* is given as --set weight_decay=VALUE,"),
        (["--no-dry-run"], r"there is no option --no-dry-run \(did you mean --dry-run\?\)"),
        (["--checkpoint-budget", "10 quintals"], "-budget 10 quintals: could not interpret byte unit: quintals"),
        (["--epochs", "1e3"], "--epochs 1e3: must be a whole number, in digits such as 20"),
        (["--epochs", "1000000000000"], "--epochs 1000000000000: must be at most 1000000000"),
        (["--time-budget", "nan"], "--time-budget nan: must be a finite number"),
        (["--time-budget", "1e400"], "--time-budget 1e400: must be a finite number"),
        (["--storage", ""], "--storage : must be a path, such as results"),
        (["--storage", "~nosuchuser/x"], "--storage ~nosuchuser/x: must be a path, and there is no user ~nosuchuser"),
        (["--name", "a\x1b[31m"], "--name a.*: must have no control characters"),
    ],
)
def test_misread_arguments_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(SweepError, match=message):
        parse_options(arguments)
