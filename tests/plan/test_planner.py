"""Bad input: each a clear error before a worker starts."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from experiments.tune_bert import EXPERIMENT
from gaudi_tune import Experiment, SweepError, SweepOptions, build_tuner
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.options import COMMAND_LINE_ONLY, TRAITS
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.plan.apply import choose_recipe
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.plan_text import plan_lines
from gaudi_tune.training.trial_config import TrialConfig
from tests.helpers.loops import QuadraticConfig, quadratic
from tests.helpers.planned_bert import plan_for, with_space
from tests.helpers.quadratic import QUADRATIC

OTHERS = set(EXPERIMENT.baseline) - {"dropout"}


def test_without_an_accelerator_the_recipe_is_sample_and_the_plan_says_why(storage: Path) -> None:
    plan = plan_for(storage, device="cpu")
    assert plan.recipe == "sample"
    assert any(line.startswith("recipe  sample: there is no accelerator") for line in plan_lines(plan))
    assert plan.settings["epochs"] == EXPERIMENT.recipes["sample"].budget.epochs
    assert not plan.folder.exists()


def test_with_an_accelerator_the_recipe_is_the_published_one() -> None:
    assert choose_recipe(EXPERIMENT, SweepOptions(), "hpu") == ("full", "there is an accelerator")
    assert choose_recipe(EXPERIMENT, SweepOptions(recipe="sample"), "hpu") == ("sample", "as --recipe says")


def graphs_line(plan: Plan) -> list[str]:
    return [line for line in plan_lines(plan) if line.startswith("graphs")]


def test_the_plan_says_how_many_graphs_are_compiled(storage: Path) -> None:
    plan = plan_for(storage, settings=("compile=true",))
    of = "3 of samples of a micro-batch"
    assert graphs_line(plan) == [f"graphs  this space has 3 graph signatures for {plan.num_samples} trials ({of})"]
    of_lengths = plan_for(storage, settings=("compile=true", "padded_lengths=6"))
    (line,) = graphs_line(of_lengths)
    assert line.endswith(f"({of}), each for up to 6 lengths of samples: up to 18 graphs")
    some = with_space({"dropout": tune.choice([0.0, 0.1, 0.3]), **{name: EXPERIMENT.baseline[name] for name in OTHERS}})
    (line,) = graphs_line(make_plan(some, SweepOptions(storage=storage, settings=("compile=true",))))
    assert "2 graph signatures" in line and "(2 of dropout or none)" in line


@dataclass(frozen=True, kw_only=True)
class CompiledConfig(QuadraticConfig):
    """Its graph has x as a constant."""

    def graph_signature(self, device: DeviceType, workers: int) -> dict[str, Any]:
        return {"x": self.x}


def test_the_plan_says_that_each_trial_compiles_a_graph(storage: Path) -> None:
    space = {"x": tune.uniform(-1.0, 1.0)}
    anything = replace(QUADRATIC, config_class=CompiledConfig, space=space, baseline={"x": 0.5})
    (line,) = graphs_line(make_plan(anything, SweepOptions(storage=storage, name="x")))
    assert "compiles a new one, because" in line
    assert "x can have any value: give it few values" in line


def test_the_plan_says_what_ends_the_sweep_early(storage: Path) -> None:
    plan = plan_for(storage, num_samples=1, time_budget=480, target=0.9, patience=20)
    (line,) = (line for line in plan_lines(plan) if line.startswith("limits"))
    ends = "after 8 h 00 m, or when val_accuracy reaches 0.9, or after 20 trials without a better value"
    assert line == f"limits  the sweep ends {ends}"
    assert ": 1 trial, the baseline first" in plan_lines(plan)[0]
    assert not any(line.startswith("limits") for line in plan_lines(plan_for(storage)))


def test_the_plan_of_a_baseline_alone_says_so_and_nothing_of_weak_trials(storage: Path) -> None:
    lines = plan_lines(plan_for(storage, name="alone", baseline_only=True))
    assert lines[0] == "sweep   alone: the baseline alone, at most 6 epochs"
    assert not any("weak trials" in line for line in lines)


def test_options_override_the_recipe(storage: Path) -> None:
    plan = plan_for(storage, epochs=2, num_samples=3, name="mine", settings=("max_length=16", "val_samples=50"))
    assert (plan.budget.epochs, plan.num_samples, plan.name) == (2, 3, "mine")
    assert "max_length=16" in " ".join(f"{k}={v}" for k, v in plan.settings.items())
    assert "50 to validate" in " ".join(plan.facts)
    assert plan_for(storage, baseline_only=True).num_samples == 1


def test_a_relative_path_is_made_absolute_because_workers_run_elsewhere(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/train.csv").write_text("text,label\n" + "".join(f"text {n},{n % 2}\n" for n in range(80)))
    plan = plan_for(storage, data="mine")
    assert plan.settings["data"] == str(tmp_path / "mine")
    assert "64 texts to train on, 8 to validate, 8 to test" in plan.facts[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workers_per_trial": 64}, r"--workers-per-trial 64: not possible with \d+ cpu devices; possible here: 1"),
        (
            {"search": "CmaEsSampler"},
            r"CmaEsSampler: this sampler needs a package .* \(No module named 'cmaes'\); install it",
        ),
        ({"seed": 2**32}, f"--seed {2**32}: must be below {2**32}"),
        (
            {"time_budget": float("inf"), "retries": -1},
            "--time-budget inf: must be a finite number; --retries -1: must be",
        ),
        ({"target": 92.0}, "--target 92: val_accuracy is a fraction from 0 to 1; give 0.92 for 92 %"),
        ({"name": ""}, "--name '': a name has 1 to 100 letters"),
        ({"checkpoint_budget": "1B"}, "--checkpoint-budget 1B: must be at least 1000"),
        ({"add_trials": 2}, "--add-trials goes with --resume NAME"),
        ({"epochs": 2, "steps": 10}, "--epochs 2 --steps 10: epochs or steps must be above 0, and the other 0"),
        ({"eval_every": 2}, "--eval-every 2: eval_every needs a budget in steps.*; the recipe has 6 epochs"),
        ({"steps": 10, "eval_every": 20}, "--steps 10 --eval-every 20: eval_every .* must be from 1 to steps"),
        (
            {"workers_per_trial": 1, "settings": ("batch_size=20", "micro_batch=7")},
            "--workers-per-trial 1: batch_size must be .* 3 equal parts .* got batch_size=20, .* micro_batch=7",
        ),
        ({"settings": ("train_samples=16",)}, "batch_size must be at most the 16 training samples, but got 64"),
        ({"search": "annealing"}, "--search annealing: no such sampler; take gp, tpe, random"),
        ({"grace": 2, "scheduler": "fifo"}, "--grace 2: --scheduler fifo takes none; leave it out"),
        ({"confirm": 0, "most_seeds": 9}, "--most-seeds 9 goes with --confirm K"),
        ({"seconds": 60, "grace": 70}, "--seconds 60 --grace 70: grace must be at most the budget, 60 seconds"),
        ({"data": "/no/such/data"}, "--data /no/such/data: no such file or folder"),
        ({"model": "/no/such/model"}, "--model /no/such/model: no such folder"),
        ({"name": "../escape"}, r"--name \.\./escape: a name has 1 to 100 letters, digits"),
        ({"settings": ("seed=1",)}, "--set seed=1: there is no setting 'seed'; the settings are lr, batch_size"),
        ({"settings": ("lr=1", "lr=2")}, "--set lr=2: lr is given twice"),
        ({"settings": ("max_length",)}, "--set max_length: give KEY=VALUE"),
        (
            {"settings": ("max_length=long",)},
            "--set max_length=long: max_length must be a valid integer, but got 'long'",
        ),
        ({"address": "127.0.0.1:1"}, "--address 127.0.0.1:1: no Ray cluster answers there"),
        ({"tracking_uri": "nonsense://x"}, "--tracking-uri nonsense://x: no MLflow tracking store answers"),
        ({"confirm": 2, "baseline_only": True}, "--confirm 2: --baseline-only has no winner; leave --confirm out"),
        ({"confirm": 2, "scheduler": "pbt"}, "--confirm 2: --scheduler pbt changes hyperparameters"),
        ({"confirm": 1, "num_samples": 1}, "--confirm 1: one trial is the baseline"),
        ({"confirm": 0, "seeds": 3}, "--seeds 3 goes with --confirm K"),
        ({"tracking_uri": "postgresql://ada:secret@host/x"}, r"postgresql://\*\*\*: .* for PostgreSQL PGPASSWORD"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_impossible_options_are_refused(changes: dict[str, Any], message: str, storage: Path) -> None:
    with pytest.raises(SweepError, match=message):
        plan_for(storage, **changes)


def test_objectives_take_the_place_of_the_experiments_metric(storage: Path) -> None:
    plan = plan_for(storage, objectives=("samples_per_s:max", "val_loss", "peak_memory_gb:min"))
    assert plan.objectives == (
        Objective("samples_per_s", "max"), Objective("val_loss", "min"), Objective("peak_memory_gb", "min"),
    )  # fmt: skip
    assert plan.in_brief()["objectives"] == ["max samples_per_s", "min val_loss", "min peak_memory_gb"]
    lines = plan_lines(plan)
    first = lines.index("metric  samples_per_s: more is better")
    assert lines[first + 1 : first + 3] == [
        "        val_loss: less is better, as its name says",
        "        peak_memory_gb: less is better",
    ]
    one = plan_for(storage, objectives=("val_loss:min",))
    assert one.objectives == (one.experiment.objective,) == (Objective("val_loss", "min"),)
    assert plan_for(storage).objectives == (EXPERIMENT.objective,)
    assert "objectives" not in plan_for(storage).in_brief()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objectives": ("noise",)}, "is more or less of noise better? Give noise:max or noise:min"),
        ({"objectives": ("val_loss:less",)}, "is more or less of val_loss better? Give val_loss:max or val_loss:min"),
        ({"objectives": ("val_loss", "val_loss:max")}, "val_loss val_loss:max: name one to 3 metrics, each once"),
        ({"objectives": ("a:max", "b:max", "c:max", "d:max")}, "name one to 3 metrics, each once"),
        ({"objectives": ("val_accuracy", "val_loss"), "scheduler": "pbt"}, "--scheduler pbt compares trials by one"),
        ({"objectives": ("val_accuracy", "val_loss"), "scheduler": "median"}, "take asha, asha-promote or fifo"),
    ],
)
def test_objectives_that_cannot_be(changes: dict[str, Any], message: str, storage: Path) -> None:
    with pytest.raises(SweepError, match=re.escape(message)):
        plan_for(storage, **changes)


def test_the_plan_says_which_cluster_it_joins_and_that_others_may_share_it(storage: Path) -> None:
    alone = make_plan(QUADRATIC, SweepOptions(storage=storage, device="cpu"))
    assert not any(line.startswith("ray ") for line in plan_lines(alone))
    joined = replace(alone, cluster="10.0.0.7:6379, 2 nodes")
    (line,) = (line for line in plan_lines(joined) if line.startswith("ray "))
    assert line.startswith(
        "ray     joins the cluster at 10.0.0.7:6379, 2 nodes; devices that other sweeps there use are not"
    )


def test_data_and_model_are_checked_once(storage: Path) -> None:
    checked: list[TrialConfig] = []

    def look(config: TrialConfig) -> list[str]:
        checked.append(config)
        return []

    make_plan(replace(EXPERIMENT, check=look), SweepOptions(storage=storage))
    assert [vars(config)["batch_size"] for config in checked] == [64]  # the largest that the space has


def test_an_unknown_option_names_only_options_that_build_tuner_takes(storage: Path) -> None:
    with pytest.raises(SweepError, match=r"no option num_sample \(did you mean num_samples\?\); the opt") as unknown:
        build_tuner(QUADRATIC, num_sample=3)
    named = set(str(unknown.value).partition("the options are ")[2].split(", "))
    assert named == {*TRAITS} - {*COMMAND_LINE_ONLY}
    for name in COMMAND_LINE_ONLY:
        options: dict[str, Any] = {name: True}
        with pytest.raises(SweepError, match=f"does not take {name}, which the command line does; leave"):
            build_tuner(QUADRATIC, storage=storage, **options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheduler": "pbtt"}, "--scheduler pbtt: must be 'asha-promote', 'asha', .* or 'fifo'"),
        ({"num_samples": "many"}, "--num-samples many: must be a whole number"),
        ({"objectives": (":min",)}, "metric must be the name of one number .* but got ''"),
        ({"notify": "http://"}, "a webhook's address begins with https:// or http:// and a host"),
        ({"name": 3}, "--name 3: must be a text"),
        ({"learn_from": {"a", "b"}}, r"--learn-from .*: must be a tuple, such as \('earlier',\)"),
        ({"dry_run": "no"}, "--dry-run no: must be True or False"),
        ({"search": "TPESampler(n_ei_candidates=0)", "num_samples": 20}, "this sampler cannot search"),
        ({"settings": {"lr": 0.1}}, r"--set \{'lr': 0.1\}: must be a tuple, such as \('lr=0.1',\)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_value_given_to_the_api_is_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SweepError, match=message):
        build_tuner(QUADRATIC, **changes)


def test_pbt_with_nothing_to_change_is_an_error(storage: Path) -> None:
    assert make_plan(QUADRATIC, SweepOptions(storage=storage, scheduler="pbt", name="x")).options.scheduler == "pbt"
    choices = replace(QUADRATIC, space={"x": tune.randint(0, 9)}, baseline={"x": 1})
    with pytest.raises(SweepError, match="--scheduler pbt: it changes hyperparameters with a range or a choice of dec"):
        make_plan(choices, SweepOptions(storage=storage, scheduler="pbt", name="x"))


def test_a_confirmation_holds_test_data_out(storage: Path) -> None:
    plan = plan_for(storage, num_samples=3, confirm=5, seeds=2)
    assert (plan.confirm, plan.seeds) == (2, 2), "there are two others"
    assert plan.settings["hold_out"] is True
    assert "then trains the best 2 trials and the baseline again in full, with 2 seeds each" in "\n".join(
        plan_lines(plan)
    )
    texts = re.search(r"(\d+) to validate, \d+ to test", plan.facts[0])  # a separate part
    without = plan_for(storage, confirm=0)
    assert (without.confirm, without.seeds, without.settings["hold_out"]) == (0, 0, False)
    whole = re.search(r"(\d+) to validate, 5 classes", without.facts[0])
    assert texts is not None and whole is not None
    assert texts[1] == whole[1]
    population = plan_for(storage, scheduler="pbt")
    assert any("train at the same time are the population; every " in line for line in plan_lines(population))
    for without in (plan_for(storage, baseline_only=True), population):
        assert without.confirm == 0


@pytest.mark.parametrize(
    ("options", "seeds"),
    [
        ({}, (3, 6)),
        ({"seeds": 4}, (4, 4)),  # as many as were asked for
        ({"time_budget": 9}, (3, 3)),  # whose search ends where the first seeds need the time
        ({"seeds": 4, "most_seeds": 9}, (4, 9)),
        ({"most_seeds": 2}, (3, 3)),
        ({"confirm": 0}, (0, 0)),
        ({"baseline_only": True, "seeds": 2}, (2, 2)),
    ],
)
def test_seeds_are_added_unless_their_number_or_the_time_is_given(
    storage: Path, options: dict[str, Any], seeds: tuple[int, int]
) -> None:
    plan = plan_for(storage, **options)
    assert (plan.seeds, plan.most_seeds) == seeds
    added = "with 3 seeds each, or 6 if these leave it open (--confirm, --seeds, --most-seeds)"
    assert (added in "\n".join(plan_lines(plan))) == (seeds == (3, 6))
    again = SweepOptions(**{**plan.final_options(), "config": None})
    assert (again.seeds or 0, again.most_seeds or 0) == seeds


def test_a_confirmation_keeps_as_many_groups_busy(storage: Path) -> None:
    def groups(**changes: Any) -> int:
        return plan_for(storage, device="cpu", **changes).groups

    cores = plan_for(storage, device="cpu", num_samples=64).groups
    assert groups(baseline_only=True) == 1
    assert groups(baseline_only=True, seeds=2) == min(cores, 2)
    assert groups(num_samples=2, confirm=1, seeds=9) == min(cores, 18)


def test_a_batch_that_the_workers_cannot_share_is_an_error_where_graphs_are_compiled_too(storage: Path) -> None:
    with pytest.raises(SweepError, match=r"cannot train: batch_size .*2 workers"):
        plan_for(storage, device="cpu", workers_per_trial=2, settings=("compile=true", "batch_size=5"))


def test_data_that_only_the_loop_understands_is_said_to_be_unchecked(storage: Path) -> None:
    experiment = Experiment(train_loop=quadratic, space={"x": tune.uniform(0.0, 1.0)}, metric="score")
    facts = make_plan(experiment, SweepOptions(storage=storage, device="cpu", data="no.csv", model=__file__)).facts
    assert facts == [
        "data no.csv: no file or folder here; not checked, since the experiment has no check",
        f"model {__file__}: not checked, since the experiment has no check",
    ]
    with pytest.raises(SweepError, match=r"xxx is no path \(.*; give a file, a folder, or a name on the hub"):
        make_plan(experiment, SweepOptions(storage=storage, device="cpu", data="x" * 300))


@pytest.mark.parametrize("name", ["rules", "mode_on", "__class__"])
def test_a_hyperparameter_with_a_name_that_a_configuration_has_itself_is_refused(name: str, storage: Path) -> None:
    experiment = Experiment(train_loop=quadratic, space={name: tune.uniform(0.0, 1.0)}, metric="score")
    with pytest.raises(SweepError, match=f"^{name}: this name is a trial's own; give it another, such as my_{name}$"):
        make_plan(experiment, SweepOptions(storage=storage, device="cpu"))
