"""Options from a TOML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_tune import SweepError, build_tuner
from gaudi_tune.cli.command_line import parse_options
from gaudi_tune.define.config_file import merged, read_config, with_file
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.plan_text import plan_lines
from tests.helpers.quadratic import QUADRATIC

FILE = """
num-samples = 5
time_budget = 1.5
set = {fail_at = 0, seconds = 0.25}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "sweep.toml"
    file.write_text(FILE)
    return file


def test_a_plan_has_the_options_of_the_file(file: Path, storage: Path) -> None:
    plan = make_plan(QUADRATIC, with_file({"config": str(file), "storage": storage, "device": "cpu"}))
    assert (plan.num_samples, plan.options.time_budget, plan.settings["fail_at"]) == (5, 1.5, 0)
    assert plan.settings["seconds"] == 0.25
    assert set(plan.experiment.search_space.ranges) == {"x"}
    assert f"config  {file}" in plan_lines(plan)


def test_the_command_line_wins(file: Path) -> None:
    options = parse_options(["--config", str(file), "--num-samples", "9", "--set", "fail_at=3", "diverge_at=1"])
    assert (options.num_samples, options.time_budget) == (9, 1.5)
    assert options.settings == ("seconds=0.25", "fail_at=3", "diverge_at=1")
    # Even where it says what is the default: 0 is no sign of silence.
    file.write_text("seed = 4")
    assert parse_options(["--config", str(file)]).seed == 4
    assert parse_options(["--config", str(file), "--seed", "0"]).seed == 0
    assert with_file({"num_samples": 3, "config": file}).seed == 4
    assert with_file({"num_samples": 3, "config": file, "seed": 0}).seed == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_sample = 3", r"there is no option 'num_sample' \(did you mean num_samples\?\)"),
        ("resume = 'x'", "there is no option 'resume'"),
        ("num_samples = 0", "--num-samples 0: must be at least 1"),
        ("num_samples = true", "--num-samples True: must be a number"),
        ("num_samples = 5\nnum-samples = 6", "num-samples and num_samples are the same option; give it once"),
        ("dry_run = 'no'", "--dry-run no: must be True or False"),
        ("search = tpe", 'is not TOML .*strings need quotes, as in search = "tpe"'),
        ("[space]\nx = {uniform = [0, 1]}", "no option 'space'; ranges are in the Experiment of the script"),
        ("set = 3", r"set must be a table; write \[set\]"),
        ("[set]\nx = [1, 2]", r"x = \[1, 2\] must be a number, a string or a bool"),
    ],
)
def test_an_error_names_the_file(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(SweepError, match=f"--config {file}: .*{message}"):
        read_config(file)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"--config .*gone.toml: cannot be read .*; give a TOML file"):
        read_config(tmp_path / "gone.toml")


def test_an_error_in_a_setting_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text("set = {fail_at = 'soon'}")
    with pytest.raises(SweepError, match=r"--set fail_at=soon \(or in .*wrong.toml\): fail_at must be a valid integer"):
        build_tuner(QUADRATIC, config=file, storage=tmp_path / "results", device="cpu")


def test_a_resumed_sweep_takes_no_file(file: Path) -> None:
    with pytest.raises(SweepError, match="a resumed sweep keeps the options it began with; leave it out"):
        parse_options(["--config", str(file), "--resume", "a"])


def test_overriding_settings_leaves_the_others() -> None:
    assert merged(("a=1", "b=x=y"), ("a=2", "c=3")) == ("b=x=y", "a=2", "c=3")
