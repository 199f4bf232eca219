"""Options and ranges from a TOML file."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import InMemoryStorage

from gaudi_tune import SweepError, SweepOptions, build_tuner
from gaudi_tune.cli.command_line import parse_options
from gaudi_tune.define.config_file import merged, range_of, read_config, with_file
from gaudi_tune.define.search_space import SearchSpace, WithPrior
from gaudi_tune.plan.planner import make_plan, make_searcher
from gaudi_tune.show.plan_text import plan_lines
from gaudi_tune.sweep.record.sweep_file import write_sweep_file
from tests.helpers.earlier_sweeps import options_of_sweep
from tests.helpers.quadratic import QUADRATIC

FILE = """
num-samples = 5
time_budget = 1.5
set = {fail_at = 0}

[space]
x = {uniform = [-0.5, 0.5], baseline = 0.25}
seconds = {choice = [0.0, 0.25], baseline = 0.25}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "sweep.toml"
    file.write_text(FILE)
    return file


@pytest.mark.parametrize(
    ("written", "range_"),
    [
        ({"uniform": [0, 0.5]}, FloatDistribution(0.0, 0.5)),
        ({"loguniform": [1e-5, 1e-2]}, FloatDistribution(1e-5, 1e-2, log=True)),
        ({"quniform": [0.0, 0.5, 0.1]}, FloatDistribution(0.0, 0.5, step=0.1)),
        ({"randint": [1, 10]}, IntDistribution(1, 9)),
        ({"choice": ["sgd", "adamw"], "baseline": "sgd"}, CategoricalDistribution(["sgd", "adamw"])),
        ({"uniform": [0, 1], "prior": 0.1}, WithPrior(FloatDistribution(0.0, 1.0), prior=0.1)),
    ],
)
def test_ranges_have_ray_tunes_names_and_meaning(written: dict[str, Any], range_: Any) -> None:
    assert range_of("x", written) == range_


def test_a_plan_has_what_the_file_says(file: Path, storage: Path) -> None:
    plan = make_plan(QUADRATIC, with_file(None, {"config": str(file), "storage": storage, "device": "cpu"}))
    assert (plan.num_samples, plan.options.time_budget, plan.settings["fail_at"]) == (5, 1.5, 0)
    assert plan.experiment.baseline == {"x": 0.25, "seconds": 0.25}
    assert plan.experiment.search_space.ranges == {
        "x": [FloatDistribution(-0.5, 0.5)],
        "seconds": [CategoricalDistribution([0.0, 0.25])],
    }
    assert any(line.startswith(f"config  {file}: x in -0.5 to 0.5") for line in plan_lines(plan))
    searcher: Any = make_searcher(plan, InMemoryStorage())
    proposals = [searcher.suggest(str(number)) for number in range(4)]
    assert all(abs(proposal["x"]) <= 0.5 and proposal["seconds"] in (0.0, 0.25) for proposal in proposals)
    assert proposals[0] == {"x": 0.25, "seconds": 0.25, "seed": proposals[0]["seed"]}


def test_the_command_line_wins(file: Path) -> None:
    options = parse_options(["--config", str(file), "--num-samples", "9", "--set", "fail_at=3", "diverge_at=1"])
    assert (options.num_samples, options.time_budget) == (9, 1.5)
    assert options.settings == ("fail_at=3", "diverge_at=1")
    # Even where it says what is the default: 0 is no sign of silence.
    file.write_text("seed = 4")
    assert parse_options(["--config", str(file)]).seed == 4
    assert parse_options(["--config", str(file), "--seed", "0"]).seed == 0
    assert with_file(SweepOptions(num_samples=3), {"config": file}).seed == 4
    assert with_file(SweepOptions(num_samples=3), {"config": file, "seed": 0}).seed == 0


def test_a_plain_value_fixes_a_hyperparameter_and_so_does_the_command_line(file: Path, storage: Path) -> None:
    common = ["--storage", str(storage), "--device", "cpu"]
    fixed = make_plan(QUADRATIC, parse_options(["--config", str(file), "--set", "x=0.1", *common]))
    assert fixed.settings["x"] == 0.1
    assert set(fixed.experiment.search_space.ranges) == {"seconds"}
    file.write_text("[space]\nfail_at = 2\n")
    assert make_plan(QUADRATIC, parse_options(["--config", str(file), *common])).settings["fail_at"] == 2


def test_a_space_that_branches_keeps_its_branches() -> None:
    def space(trial: optuna.Trial) -> dict[str, Any]:
        if trial.suggest_categorical("optimizer", ["sgd", "adamw"]) == "sgd":
            trial.suggest_float("sgd.lr", 1e-3, 1.0, log=True)
            trial.suggest_float("momentum", 0.0, 0.9)
        else:
            trial.suggest_float("adamw.lr", 1e-6, 1e-4, log=True)
        return {"depth": 2}

    there = SearchSpace(space).replace_ranges(
        {
            "lr": FloatDistribution(0.1, 0.2),
            "momentum": FloatDistribution(0.5, 0.6),
            "depth": IntDistribution(3, 4),
            "dropout": FloatDistribution(0.0, 0.1),
        }
    )
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(20):
        config, number = there.propose(study)
        assert ("momentum" in config) == (config["optimizer"] == "sgd")
        assert 0.1 <= config["lr"] <= 0.2 and config["depth"] in (3, 4) and config["dropout"] <= 0.1
        assert f"{config['optimizer']}.lr" in study.trials[number].params
    assert set(there.fix({"lr": 0.15}).ranges) == {"optimizer", "momentum", "depth", "dropout"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("num_sample = 3", r"there is no option 'num_sample' \(did you mean num_samples\?\)"),
        ("resume = 'x'", "there is no option 'resume'"),
        ("num_samples = 0", "--num-samples 0: must be at least 1"),
        ("num_samples = true", "--num-samples True: must be a whole number"),
        ("num_samples = 5\nnum-samples = 6", "num-samples and num_samples are the same option; give it once"),
        ("dry_run = 'no'", "--dry-run no: must be a valid boolean"),
        ("name = " + "[" * 3000, "its values are nested too deep"),
        ("num_samples = 'many'", "--num-samples many: must be a whole number"),
        ("space = 3", r"space must be a table; write \[space\]"),
        ("search = tpe", 'is not TOML .*strings need quotes, as in search = "tpe"'),
        ("[space]\nx = [1, 2]", r"x = \[1, 2\] must be a number, a string or a bool; a range is one of \{uniform"),
        ("[space]\nx = {between = [1, 2]}", r"\[space\] x: .* is not a range; write one of \{uniform = \[0.0, 0.5\]\}"),
        ("[space]\nx = {uniform = [1]}", r"\[space\] x: uniform = \[1\] is no range \(it takes 2 numbers\); write"),
        ("[space]\nx = {loguniform = [0, 1]}", r"\[space\] x: loguniform = \[0, 1\] is no range \("),
        ("[space]\nx = {randint = [0.5, 4]}", "it takes 2 whole numbers"),
        ("[space]\nx = {choice = 3}", "it takes a list"),
    ],
)
def test_what_cannot_be_is_an_error_that_names_the_file(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(SweepError, match=f"--config {file}: .*{says}"):
        read_config(file)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"--config .*gone.toml: cannot be read .*; give a TOML file"):
        read_config(tmp_path / "gone.toml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[space]\nxx = {uniform = [0.0, 1.0]}", r"\[space\] xx: there is no such hyperparameter \(did you mean x\?\)"),
        (
            "[space]\nx = {uniform = [0.0, 0.5]}",
            r"\[space\] x: the baseline has 0.9, which lies outside; widen .* x = \{..., baseline = 0.25\}",
        ),
        (
            "[space]\nx = {uniform = [0.0, 1.0], prior = 2.0}",
            "its prior, 2.0, is not in its range",
        ),
        ("set = {fail_at = 'soon'}", r"--set fail_at=soon \(or in .*wrong.toml\): fail_at must be a valid integer"),
    ],
)
def test_what_the_experiment_does_not_take_is_an_error(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(SweepError, match=says):
        build_tuner(QUADRATIC, config=file, storage=tmp_path / "results", device="cpu")


def test_a_sweep_that_goes_on_keeps_the_ranges(file: Path, storage: Path) -> None:
    plan = make_plan(QUADRATIC, with_file(None, {"config": file, "storage": storage, "name": "a", "device": "cpu"}))
    plan.folder.mkdir(parents=True)
    write_sweep_file(replace(plan, command=("python", "tune.py")))
    kept = json.loads((plan.folder / "sweep.json").read_text())
    assert kept["script"] == str(Path("tune.py").resolve())
    file.unlink()
    again = make_plan(QUADRATIC, SweepOptions(resume="a", storage=storage))
    assert again.experiment.search_space.describe() == plan.experiment.search_space.describe()
    given = SweepOptions(resume="a", storage=storage)
    assert asdict(options_of_sweep("quadratic", given, plan.tracking_uri))["num_samples"] == 5
    with pytest.raises(SweepError, match="a resumed sweep keeps the options it began with; leave it out"):
        parse_options(["--config", str(file), "--resume", "a"])


def test_settings_that_are_given_leave_the_others_as_they_were() -> None:
    assert merged(("a=1", "b=x=y"), ("a=2", "c=3")) == ("b=x=y", "a=2", "c=3")
    assert merged(("a=1",), ("a=1",)) == ("a=1",)
