"""What is learned from earlier sweeps, and what is said of it."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from mlflow.tracking import MlflowClient
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import create_trial

from gaudi_tune import Experiment, SweepError, SweepOptions
from gaudi_tune.base.words import format_params
from gaudi_tune.cli.command_line import parse_options
from gaudi_tune.cli.run import dry_run_lines
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.plan import outside_results
from gaudi_tune.plan.earlier_sweeps import best_that_fit, unused_seed
from gaudi_tune.plan.outside_results import Result, params_of
from gaudi_tune.plan.planner import make_plan, make_proposer
from gaudi_tune.show.plan_text import plan_lines
from gaudi_tune.sweep.record.state_log import StateLog, logged_trials, pack, read_log
from gaudi_tune.sweep.record.sweep_file import keep_num_samples, read_sweep_file, write_sweep_file
from tests.helpers.earlier_sweeps import earlier_sweep
from tests.helpers.loops import quadratic
from tests.helpers.mlflow_store import empty_store

BEFORE = {"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)}
LEARNER = Experiment(name="learner", train_loop=quadratic, space=BEFORE, metric="score")


def plan_of(experiment: Experiment, storage: Path, **changes: Any) -> Any:
    options = {"name": "later", "storage": storage, "device": "cpu", "learn_from": ("earlier",), **changes}
    return make_plan(experiment, SweepOptions(**options))


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage of an earlier sweep, which is the better the nearer x is to 0.5."""
    storage = tmp_path_factory.mktemp("storage")
    earlier_sweep(LEARNER, storage, lambda config: -abs(config["x"] - 0.5), trials=30)
    return storage


def test_the_best_trials_come_first_best_first(earlier: Path) -> None:
    plan = plan_of(LEARNER, earlier)
    lines = plan_lines(plan)
    known = lines.index("known   learns from earlier: 30 of 30 trials fit")
    assert lines[known + 1] == "known   --seed 1, since 0 may propose again what they tried"
    off = [abs(config["x"] - 0.5) for config in plan.learned]
    assert off == sorted(off) and len(off) == 5 and off[-1] < 0.15
    proposer = make_proposer(plan)
    proposed: list[Any] = [proposer.propose(str(number)) for number in range(5)]
    points = [{"x": p["x"], "y": p["y"]} for p in proposed]
    assert points[:2] == plan.learned[:2]
    assert not [point for point in points[2:] if point in plan.learned], "the others wait for what these two report"
    assert f"trial 001  {format_params(plan.learned[0])}" in dry_run_lines(plan)


def test_the_best_of_each_source_come_before_the_second_best(earlier: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.csv"
    old.write_text("x,y,score,at\n" + "".join(f"{x},0.5,{1 - x},1\n" for x in (0.1, 0.2, 0.3, 0.4, 0.5)))
    learned, *alone = (
        plan_of(LEARNER, earlier, learn_from=f).learned for f in (("earlier", str(old)), ("earlier",), (str(old),))
    )
    assert learned == [config for pair in zip(*alone, strict=True) for config in pair]


def test_two_sweeps_of_one_name_in_different_folders_are_two(earlier: Path, tmp_path: Path) -> None:
    earlier_sweep(LEARNER, tmp_path, lambda config: -abs(config["x"] - 0.9), trials=20)
    named_twice = (str(earlier / "earlier"), "earlier", str(tmp_path / "earlier"))
    notes = plan_of(LEARNER, earlier, learn_from=named_twice).learning_notes
    assert notes[:2] == [f"learns from earlier: {n} of {n} trials fit" for n in (30, 20)]


def test_no_trial_of_the_sweeps_that_it_learns_from_is_trained_again(earlier: Path, storage: Path) -> None:
    with_baseline = replace(LEARNER, baseline={"x": 0.5, "y": 0.5})
    earlier_sweep(with_baseline, storage, lambda config: -abs(config["x"] - 0.5), trials=12)

    def proposals(plan: Any, number: int) -> list[Any]:
        proposer = make_proposer(plan)
        return [proposer.propose(str(trial)) for trial in range(number)]

    first = proposals(make_plan(with_baseline, SweepOptions(storage=storage, search="random", device="cpu")), 12)
    plan = plan_of(with_baseline, storage, search="random")
    later = proposals(plan, 12)
    assert plan.options.seed == 1
    assert not {config["seed"] for config in first} & {config["seed"] for config in later}
    points = [(config["x"], config["y"]) for config in later]
    assert points[0] == (0.5, 0.5) and len({*points}) == 12
    drawn = points[1 + len(plan.learned) :]
    assert not {*drawn} & {(config["x"], config["y"]) for config in first}


def test_the_seed_moves_only_where_an_earlier_sweep_may_have_had_it(earlier: Path, storage: Path) -> None:
    assert plan_of(LEARNER, earlier, seed=7).options.seed == 7
    shutil.copytree(earlier, storage)
    later = plan_of(LEARNER, storage)
    later.folder.mkdir()
    write_sweep_file(later)
    source = read_sweep_file(later.folder)
    assert source.options["seed"] == 1
    assert unused_seed(0, [source]) == 2  # it learned from a sweep with the seed 0
    source.options["seed"] = 2**32 - 1
    assert unused_seed(3, [source]) == 0


def test_learning_from_a_changed_space_says_what_fits(earlier: Path) -> None:
    later = {"x": FloatDistribution(0.0, 0.45), "dropout": FloatDistribution(0.0, 0.5)}
    plan = plan_of(replace(LEARNER, space=later), earlier)
    said = plan.learning_notes[0]
    fit, out = (int(part.split()[0]) for part in (said.partition(": ")[2], said.rpartition(", ")[2]))
    assert said == (
        f"learns from earlier: {fit} of 30 trials fit, dropout is new, y is gone, {out} lie outside x's range"
    )
    assert fit + out == 30 and 5 < fit < 25
    assert all(config.keys() == {"x"} and config["x"] <= 0.45 for config in plan.learned)
    first: Any = make_proposer(plan).propose("0")
    assert first["x"] == plan.learned[0]["x"] and 0 <= first["dropout"] <= 0.5


def test_trials_of_another_branch_than_the_one_that_is_left_do_not_fit(storage: Path) -> None:
    def space(trial: optuna.Trial) -> None:
        if trial.suggest_categorical("optimizer", ["sgd", "adamw"]) == "sgd":
            trial.suggest_float("sgd.x", 0.1, 1.0, log=True)
        else:
            trial.suggest_float("adamw.x", 0.0, 0.1)

    branching = replace(LEARNER, space=space)
    earlier_sweep(branching, storage, lambda config: config["x"], trials=12)
    plan = plan_of(branching, storage, settings=("optimizer=adamw",))
    assert all(config.keys() == {"adamw.x"} for config in plan.learned)
    assert "lie outside optimizer's range" in plan.learning_notes[0]
    both = make_proposer(plan_of(branching, storage))
    first: Any = both.propose("0")
    assert first["optimizer"] == "sgd" and first["x"] > 0.1


def test_a_resumed_sweep_keeps_what_it_learned(earlier: Path, storage: Path) -> None:
    shutil.copytree(earlier, storage)
    plan = plan_of(LEARNER, storage)
    plan.folder.mkdir()
    write_sweep_file(plan)
    (storage / "earlier" / "state.log").unlink()
    again = make_plan(LEARNER, SweepOptions(resume="later", storage=storage))
    assert again.learned == plan.learned
    assert again.learning_notes == ["learns from earlier, as it began"]
    assert (plan.start_time, again.start_time) == (None, read_sweep_file(plan.folder).began)


def test_the_same_options_begin_a_sweep_and_continue_it(storage: Path) -> None:
    options = SweepOptions(name="night", resume="auto", storage=storage, device="cpu", seed=7, num_samples=4)
    begun = make_plan(LEARNER, options)
    assert not begun.resumed
    begun.folder.mkdir(parents=True)
    write_sweep_file(begun)
    again = make_plan(LEARNER, options)
    assert again.resumed
    assert (again.folder, again.options.seed, again.num_samples) == (begun.folder, 7, 4)
    keep_num_samples(begun.folder, 6)  # a person has added two meanwhile
    assert make_plan(LEARNER, options).num_samples == 6
    with pytest.raises(SweepError, match="--resume night: it keeps the options it began with; leave out --seed"):
        make_plan(LEARNER, replace(options, seed=8))
    with pytest.raises(SweepError, match="--resume auto goes with --name NAME"):
        make_plan(LEARNER, replace(options, name=None))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": "other"}, "--learn-from earlier: that is a sweep of learner, not of other; leave it out"),
        ({"mode": "min"}, "--learn-from earlier: its objective is max score, and the experiment's is min score"),
        (
            {"space": {"x": FloatDistribution(2.0, 3.0)}},
            "--learn-from earlier: 0 of 30 trials fit, y is gone, 30 lie outside x's range; leave it out, or widen",
        ),
    ],
)
def test_a_sweep_of_no_use_is_an_error(changes: dict[str, Any], says: str, earlier: Path) -> None:
    with pytest.raises(SweepError, match=says):
        plan_of(replace(LEARNER, **changes), earlier)


def test_a_trial_of_an_earlier_sweep_may_be_the_baseline(earlier: Path) -> None:
    (third,) = (trial for trial in logged_trials(earlier / "earlier") if trial.number == 3)
    baseline = plan_of(LEARNER, earlier, learn_from=(), baseline="earlier:3").experiment.baseline
    assert baseline == {name: third.best_config[name] for name in BEFORE}
    with pytest.raises(SweepError, match="--baseline earlier:31: its search has no such trial; it has 1 to 30"):
        plan_of(LEARNER, earlier, learn_from=(), baseline="earlier:31")


def test_a_failed_trial_is_not_learned_from() -> None:
    results = [Result({"x": 0.9}, None), Result({"x": 0.3}, 0.3), Result({"x": 0.4}, 0.4)]
    configs, description = best_that_fit(results, LEARNER.search_space, Objective("score"))
    assert configs == [{"x": 0.4}, {"x": 0.3}]
    assert description == "2 of 3 trials fit, 1 have no score, y is new"


def test_a_trial_that_has_nothing_of_the_space_does_not_fit() -> None:
    found = best_that_fit([Result({"x": 0.5}, 0.5)], SearchSpace({"z": BEFORE["y"]}), Objective("score"))
    assert found == ([], "0 of 1 trials fit, z is new, x is gone")


def test_a_trial_whose_hyperparameters_changed_counts_with_those_of_its_best_report(storage: Path) -> None:
    earlier_sweep(LEARNER, storage, lambda config: config["x"])
    (state,) = storage.glob("earlier/state.log")
    parts = read_log(state.parent)
    parts["sweep"]["trials"][2]["best_config"] |= {"x": 0.25, "y": 0.75}
    parts["sweep"]["trials"][2]["point"] = [1.5]
    StateLog(state.parent).append(pack(parts))
    assert plan_of(LEARNER, storage).learned[0] == {"x": 0.25, "y": 0.75}
    assert plan_of(LEARNER, storage, learn_from=(), baseline="earlier:2").experiment.baseline == {"x": 0.25, "y": 0.75}


def test_a_table_of_a_space_that_branches_keeps_each_value(tmp_path: Path, storage: Path) -> None:
    def space(trial: optuna.Trial) -> None:
        if trial.suggest_categorical("optimizer", ["sgd", None]) == "sgd":
            trial.suggest_float("sgd.x", 0.1, 1.0)
            trial.suggest_float("momentum", 0.0, 0.9)
        else:
            trial.suggest_float("none.x", 0.0, 0.1)

    branching = replace(LEARNER, space=space, baseline={})
    rows = "score,optimizer,x,momentum\n0.9,sgd,0.2,\n0.8,None,0.05,\n0.7,sgd,5,0.3\n0.6,None,0.07,0.3\n"
    (tmp_path / "old.csv").write_text(rows)
    plan = plan_of(branching, storage, learn_from=(str(tmp_path / "old.csv"),))
    best = [{"optimizer": "sgd", "sgd.x": 0.2}, *({"optimizer": None, "none.x": x} for x in (0.05, 0.07))]
    assert plan.learned == best  # the first has no momentum, which the sampler proposes
    assert plan.learning_notes[0].endswith("3 of 4 trials fit, 1 lie outside x's range")
    fixed = plan_of(branching, storage, learn_from=(str(tmp_path / "old.csv"),), settings=("optimizer=sgd",))
    assert fixed.learned == [{"sgd.x": 0.2}]


def test_the_command_line_takes_several() -> None:
    assert parse_options(["--learn-from", "a", "b", "--learn-from", "c"]).learn_from == ("a", "b", "c")


ROWS = [(0.1, "sgd", 0.6), (0.4, "adamw", 0.9), (0.5, "sgd", 0.8), (1.5, "sgd", 0.99)]
"""Values of x and of the optimizer, and the score; the best x lies outside."""
MIXED = Experiment(
    name="mixed",
    train_loop=quadratic,
    space={"x": FloatDistribution(0.0, 1.0), "optimizer": CategoricalDistribution(["sgd", "adamw"])},
    metric="score",
)


def table(folder: Path) -> str:
    file = folder / "old.csv"
    lines = ["score,x,optimizer,note", *(f"{score},{x},{optimizer},by hand" for x, optimizer, score in ROWS)]
    file.write_text("\n".join([*lines, ",0.3,sgd,crashed"]) + "\n")
    return str(file)


def study(folder: Path) -> str:
    address = f"sqlite:///{folder / 'old.db'}"
    old = optuna.create_study(study_name="old", storage=address, direction="maximize")
    ranges = {"x": FloatDistribution(0.0, 9.0), "optimizer": CategoricalDistribution(["sgd", "adamw"])}
    for x, optimizer, score in ROWS:
        params, curve = {"x": x, "optimizer": optimizer}, {1: score / 2, 2: score}
        old.add_trial(create_trial(value=score, params=params, distributions=ranges, intermediate_values=curve))
    return f"optuna:old@{address}"


def runs(folder: Path) -> str:
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.create_experiment("old", str(folder / "artifacts"))
    for x, optimizer, score in ROWS:
        run = client.create_run(experiment).info.run_id
        client.log_param(run, "x", x)
        client.log_param(run, "optimizer", optimizer)
        for step, value in ((1, score), (2, score / 2)):  # its best is not its last
            client.log_metric(run, "score", value, step=step)
    again = client.create_run(experiment, tags={"kind": "confirmation"}).info.run_id  # of a trial that is there
    client.log_param(again, "x", 0.4)
    client.log_metric(again, "score", 9.0)
    clone = client.create_run(experiment).info.run_id  # its best is not that of the x that it began with
    client.log_param(clone, "x", 0.2)
    client.log_metric(clone, "score", 0.95)
    client.log_metric(clone, "hyperparameters/x", 0.3)
    return "mlflow:old"


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return empty_store(tmp_path / "mlflow.db")


@pytest.mark.parametrize("make", [table, study, runs])
def test_results_from_outside_are_learned_from_and_what_lies_outside_is_named(
    make: Callable[[Path], str], uri: str, tmp_path: Path, storage: Path
) -> None:
    source = make(tmp_path)
    plan = plan_of(MIXED, storage, learn_from=(source,), tracking_uri=uri)
    assert plan.learned == [
        {"x": 0.4, "optimizer": "adamw"}, {"x": 0.5, "optimizer": "sgd"}, {"x": 0.1, "optimizer": "sgd"}
    ]  # fmt: skip
    fit = "3 of 5 trials fit, 1 have no score" if make is table else "3 of 4 trials fit"
    assert f"learns from {source}: {fit}, 1 lie outside x's range" in plan.learning_notes


@pytest.mark.parametrize(
    ("given", "value"), [("TRUE", True), ("true", True), ("1", 1), ("16.0", 16), (16.0, 16), ("0.5", 0.5), ("", "")]
)
def test_a_value_is_read_as_the_space_has_it(given: object, value: object) -> None:
    kinds, rates = CategoricalDistribution([True, False, 16, ""]), CategoricalDistribution([None, 0.5])
    space = SearchSpace({"kind": kinds, "x": FloatDistribution(0.0, 1.0), "rate": rates})
    read = params_of(space, {"kind": given, "x": "", "rate": "", "other": given})
    assert read == {"kind": value, "rate": None} and type(read["kind"]) is type(value)


def test_of_many_runs_the_best_are_read(
    uri: str, tmp_path: Path, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside_results, "MAX_RUNS", 2)
    client = MlflowClient(uri)
    old = client.create_experiment("old", str(tmp_path / "artifacts"))
    for x, score in ((0.125, 0.9), (0.25, math.inf), (0.5, 0.1), (0.75, 0.2)):
        run = client.create_run(old).info.run_id
        client.log_param(run, "x", x)
        client.log_metric(run, "score", score)
    assert plan_of(LEARNER, storage, learn_from=("mlflow:old",), tracking_uri=uri).learned == [{"x": 0.125}]


def test_a_metric_is_looked_for_under_the_name_that_it_has_in_mlflow(uri: str, tmp_path: Path, storage: Path) -> None:
    client = MlflowClient(uri)
    run = client.create_run(client.create_experiment("old", str(tmp_path / "artifacts"))).info.run_id
    client.log_param(run, "x", 0.25)
    client.log_metric(run, "score_1", 0.5)
    experiment = replace(MIXED, metric="score@1", space={"x": FloatDistribution(0.0, 1.0)})
    assert plan_of(experiment, storage, learn_from=("mlflow:old",), tracking_uri=uri).learned == [{"x": 0.25}]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{folder}/none.csv", "it cannot be read"),
        ("{folder}/other.csv", "it has no column score, only loss, x; rename one"),
        ("{folder}/twice.csv", "it has more than one column score, only score, x, score; rename one"),
        ("{folder}/comma.csv", "line 3 has more values than the first; put one with commas in quotes"),
        ("optuna:old", "give the study's name and the address of its storage"),
        ("optuna:older@sqlite:///{folder}/old.db", "there is no such study, only old; name one of these"),
        ("optuna:old@postgresql://me:secret@host/db", "the file of the sweep would have this password"),
        ("mlflow:none", "there is no such experiment"),
    ],
)
def test_a_source_from_outside_that_cannot_be_used_is_an_error(
    source: str, says: str, uri: str, tmp_path: Path, storage: Path
) -> None:
    for name, text in (("other", "loss,x\n1,2"), ("twice", "score,x,score\n1,2,3"), ("comma", "score,x\n1,2\n0,9,0,5")):
        (tmp_path / f"{name}.csv").write_text(f"{text}\n")
    if source.endswith("old.db"):
        study(tmp_path)
    with pytest.raises(SweepError, match=re.escape(says)):
        plan_of(MIXED, storage, learn_from=(source.format(folder=tmp_path),), tracking_uri=uri)
