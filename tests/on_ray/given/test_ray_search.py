"""Search algorithms of Ray Tune: what they propose and are told, after a resume and a kill, too."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.samplers import RandomSampler
from ray import tune
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from ray.tune.search.optuna import OptunaSearch

from gaudi_tune import Experiment, SweepError, SweepOptions, build_tuner
from gaudi_tune.on_ray.given.ray_search import source_of
from gaudi_tune.on_ray.tune_searcher import TuneSearcher
from gaudi_tune.plan.planner import make_proposer
from gaudi_tune.sweep.record.events import SearchExhausted
from gaudi_tune.sweep.record.sweep_file import write_sweep_file
from gaudi_tune.sweep.search.proposer import raised
from tests.helpers.loops import quadratic

PLAIN = Experiment(train_loop=quadratic, space={"x": tune.uniform(-1.0, 1.0)}, metric="score")


def tuner_of(storage: Path, search_alg: Any, space: Any = PLAIN.space, **options: Any) -> Any:
    """The tuner of a sweep that Ray's search algorithm proposes for."""
    experiment = replace(PLAIN, space=space)
    return build_tuner(experiment, search_alg=search_alg, storage=storage, device="cpu", name="x", **options)


def searcher_of(storage: Path, search_alg: Any, space: Any = PLAIN.space, **options: Any) -> Any:
    """The searcher of such a sweep, with its study in memory."""
    built = tuner_of(storage, search_alg, space, **options)
    proposer, state = make_proposer(built.plan), built.run.state
    return TuneSearcher(
        proposer,
        state,
        0,
        source=source_of(built.plan),
        end_search=lambda: state.apply(SearchExhausted(num_trials=proposer.n_proposed, source="the source")),
        on_error=raised,
    )


class Slow(Searcher):
    """Proposes one trial after another, and hears of each."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def suggest(self, trial_id: str) -> Any:
        if len(self.told) == 2:
            return Searcher.FINISHED
        return {"x": np.float64(0.5)} if trial_id != "early" else None

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self.told.append((trial_id, result and result["score"], error))


def test_a_searcher_of_ray_proposes_and_hears_of_its_trials_alone(storage: Path) -> None:
    own = Slow()
    searcher = searcher_of(storage, own, num_samples=9)
    assert searcher.suggest("early") is None
    assert searcher.proposer.n_proposed == 0
    assert searcher.suggest("a")["x"] == 0.5
    assert type(searcher.proposer.trials()[0].params["x"]) is float
    searcher.proposer.request({"x": 0.25})
    assert searcher.suggest("by hand")["x"] == 0.25
    searcher.on_trial_result("a", {"score": 0.1, "training_iteration": 1})
    searcher.on_trial_complete("a")  # it ended while it waited
    searcher.on_trial_complete("by hand", {"score": 0.2})
    assert searcher.suggest("b")
    searcher.on_trial_complete("b", {"score": math.nan})
    assert own.told == [("a", 0.1, False), ("b", None, True)]
    assert searcher.suggest("c") is None  # the trials of before have not ended in the record
    assert searcher._state.num_trials == 3


def test_a_ray_searcher_knows_its_results_and_proposals_after_a_resume(storage: Path, tmp_path: Path) -> None:
    one, other = (searcher_of(storage, OptunaSearch(seed=3), num_samples=9) for _ in range(2))
    configs = [one.suggest(name) for name in ("a", "b")]
    one.on_trial_result("a", {"score": 0.1, "training_iteration": 1})
    one.save(str(tmp_path / "state"))
    other.proposer.restore_study(one.proposer.record.snapshot(everything=True))
    other.restore(str(tmp_path / "state"))
    other.on_trial_complete("a", {"score": 0.3, "training_iteration": 2})
    first, second = other.source._searcher._ot_study.trials
    assert (first.params["x"], first.value) == (configs[0]["x"], 0.3)
    assert second.params["x"] == configs[1]["x"]


def test_a_grid_with_functions_is_gone_through_once_and_goes_on_where_it_was(storage: Path, tmp_path: Path) -> None:
    space = {
        "x": tune.grid_search([0.1, 0.2]),
        "width": tune.grid_search([3, 4]),
        "depth": tune.sample_from(lambda spec: 10 * spec.config.width),
        "rate": tune.uniform(0.0, 1.0),
        "kind": "plain",
    }
    generator = BasicVariantGenerator(points_to_evaluate=[{"x": 0.1, "width": 3}], max_concurrent=1)
    searcher, resumed = (searcher_of(storage, generator, space, num_samples=2) for _ in range(2))
    plan = tuner_of(storage, generator, space, num_samples=2).plan
    assert (plan.num_samples, plan.groups) == (5, 1)  # a point, and the grid of four
    configs = [searcher.suggest(str(number)) for number in range(3)]
    searcher.save(str(tmp_path / "state"))
    resumed.proposer.restore_study(searcher.proposer.record.snapshot(everything=True))
    resumed.restore(str(tmp_path / "state"))
    configs += [resumed.suggest(str(number)) for number in range(3, 5)]
    assert configs[3] == searcher.suggest("3")
    pairs = [(config["x"], config["width"]) for config in configs]
    assert pairs[0] == (0.1, 3)
    assert sorted(pairs[1:]) == [(0.1, 3), (0.1, 4), (0.2, 3), (0.2, 4)]
    assert all(config["depth"] == 10 * config["width"] and config["kind"] == "plain" for config in configs)
    assert len({config["rate"] for config in configs}) == 5
    assert resumed.suggest("5") is None


def killed(searcher: Any, resumed: Any, state: Path, later: int) -> list[Any]:
    """Propose ``later`` trials after the last record of the log, resume from it, and return what is proposed again."""
    searcher.save(str(state))
    logged = searcher.proposer.record.snapshot(everything=True)
    for number in range(later):
        assert searcher.suggest(f"lost-{number}")
    resumed.proposer.restore_study(logged)
    resumed.restore(str(state))
    return [resumed.suggest(f"again-{number}") for number in range(later)]


def test_a_grid_after_a_kill_has_each_point_once(storage: Path, tmp_path: Path) -> None:
    space = {"x": tune.grid_search([number / 12 for number in range(12)])}
    searcher, resumed = (searcher_of(storage, BasicVariantGenerator(), space, num_samples=1) for _ in range(2))
    configs = [searcher.suggest(f"kept-{number}") for number in range(3)]
    configs += killed(searcher, resumed, tmp_path / "state", later=4)
    configs += [resumed.suggest(f"new-{number}") for number in range(5)]
    assert [config["x"] for config in configs] == [number / 12 for number in range(12)]
    assert resumed.suggest("one more") is None


def test_a_searcher_of_ray_after_a_kill_is_told_of_what_it_proposed_again(storage: Path, tmp_path: Path) -> None:
    searcher, resumed = (searcher_of(storage, OptunaSearch(seed=3), num_samples=12) for _ in range(2))
    configs = [searcher.suggest("kept")]
    again = killed(searcher, resumed, tmp_path / "state", later=3)
    configs += again
    for number in range(3):
        resumed.on_trial_complete(f"again-{number}", {"score": 0.1 * number, "training_iteration": 1})
    configs.append(resumed.suggest("new"))
    assert len({config["x"] for config in configs}) == 5
    own_trials = resumed.source._searcher._ot_study.trials
    assert [trial.params["x"] for trial in own_trials] == [config["x"] for config in configs]
    assert [trial.value for trial in own_trials[1:4]] == [0.0, 0.1, 0.2]
    assert [trial.params["x"] for trial in resumed.proposer.trials()] == [config["x"] for config in configs]


def test_a_trial_that_waited_at_a_kill_ends_with_its_last_result(storage: Path, tmp_path: Path) -> None:
    searcher, resumed = (searcher_of(storage, OptunaSearch(seed=3), num_samples=12) for _ in range(2))
    searcher.suggest("waiting")
    searcher.on_trial_result("waiting", {"score": 0.4, "training_iteration": 1, "note": object()})
    killed(searcher, resumed, tmp_path / "state", later=0)
    resumed.on_trial_complete("waiting")
    assert [trial.value for trial in resumed.source._searcher._ot_study.trials] == [0.4]


def test_a_configuration_tried_by_hand_takes_no_point_of_a_grid(storage: Path) -> None:
    space = {"x": tune.grid_search([0.1, 0.2, 0.3])}
    run = tuner_of(storage, BasicVariantGenerator(), space, num_samples=1).run
    run.plan.folder.mkdir(parents=True)
    write_sweep_file(run.plan)
    searcher: Any = run.searcher
    configs = [searcher.suggest("first")]
    run.steering.ask({"do": "try", "config": {"x": 0.2}})
    run.steering.grant_all()
    configs += [searcher.suggest(f"later-{number}") for number in range(3)]
    assert [config["x"] for config in configs] == [0.1, 0.2, 0.2, 0.3]
    assert searcher.suggest("one more") is None


def test_several_objectives_come_from_the_searcher(storage: Path) -> None:
    plan = tuner_of(storage, OptunaSearch(metric=["score", "loss"], mode=["max", "min"])).plan
    assert [str(objective) for objective in plan.objectives] == ["max score", "min loss"]
    assert (plan.options.search, plan.options.scheduler) == ("ray.OptunaSearch", "asha")


def test_options_count_with_a_searcher_as_arguments_do(storage: Path) -> None:
    usual = SweepOptions(scheduler="fifo", num_samples=3, storage=storage, device="cpu")
    searcher: Any = build_tuner(PLAIN, usual, search_alg=OptunaSearch())
    assert (searcher.plan.options.scheduler, searcher.plan.num_samples) == ("fifo", 3)
    with pytest.raises(SweepError, match="and search='tpe' both say what proposes the trials; give one"):
        build_tuner(PLAIN, replace(usual, search="tpe"), search_alg=OptunaSearch())


def by_branch(trial: Any) -> None:
    if trial.suggest_categorical("kind", ["near", "far"]) == "far":
        trial.suggest_float("reach", 1.0, 2.0)


def test_a_space_that_branches_is_given_to_the_searcher_too(storage: Path) -> None:
    searcher = searcher_of(storage, OptunaSearch(space=by_branch, metric="score", mode="max", seed=0), by_branch)
    configs = [searcher.suggest(str(number)) for number in range(6)]
    assert {"reach" in config for config in configs} == {True, False}
    assert all(("reach" in config) == (config["kind"] == "far") for config in configs)
    assert [trial.params["kind"] for trial in searcher.proposer.trials()] == [config["kind"] for config in configs]


@pytest.mark.parametrize(
    ("search_alg", "options", "message"),
    [
        (OptunaSearch, {}, r"search_alg=OptunaSearch is a class; give an object, OptunaSearch\(...\)"),
        ("tpe", {}, "this is no searcher of Ray Tune.* A name is search="),
        (RandomSampler(), {}, "this is no searcher of Ray Tune.* an object of Optuna's sampler="),
        (print, {}, "this is no searcher of Ray Tune; derive it from ray.tune.search.Searcher"),
        (Repeater(OptunaSearch(metric="score", mode="max"), 2), {}, "give its searcher, and confirm=K, seeds=S"),
        (ConcurrencyLimiter(Slow(), 2, batch=True), {}, "each trial counts as it ends; leave batch out"),
        (OptunaSearch(metric="loss", mode="min"), {}, "its metric is 'loss', and the Experiment's is 'score'"),
        (Slow(), {"search": "tpe"}, "search_alg=.*Slow and search='tpe' both say what proposes the trials; give one"),
        (OptunaSearch(), {"space": by_branch}, "it cannot propose a trial .*give it .* a space as a dict, since"),
        (Slow(), {"space": {"y": tune.uniform(0, 1)}}, "it proposes x, and the Experiment's space has y"),
        (
            OptunaSearch(points_to_evaluate=[{"y": 1}]),
            {},
            "it proposes y, and the Experiment's space has x; give both the same",
        ),
        (BasicVariantGenerator(), {"space": by_branch}, "it proposes from a mapping of ranges"),
        (OptunaSearch(), {"space": {"x": tune.grid_search([1])}}, r"search_alg=BasicVariantGenerator\(\) goes through"),
        (None, {"search": "ray.OptunaSearch"}, r"none was given; give one of that class, .*search_alg=OptunaSearch\("),
    ],
)
def test_a_search_algorithm_that_cannot_work_is_refused_with_what_to_give(
    search_alg: Any, options: Any, message: str, storage: Path
) -> None:
    with pytest.raises(SweepError, match=message):
        searcher_of(storage, search_alg, **options)


@pytest.mark.parametrize("brought", ["search_alg=Breaking", "the function of the search space"])
def test_an_error_in_what_a_user_brought_for_the_search_ends_the_sweep(brought: str, storage: Path) -> None:
    broken: list[bool] = []

    def space(trial: Any) -> None:
        x = trial.suggest_float("x", -1.0, 1.0)
        if broken:
            raise KeyError(x)

    class Breaking(Searcher):
        def suggest(self, trial_id: str) -> dict[str, float]:
            if broken:
                raise KeyError(trial_id)
            return {"x": 0.5}

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            """Learn nothing."""

    by_object = brought.startswith("search_alg")
    given: Any = {"search_alg": Breaking()} if by_object else {}
    tuner: Any = build_tuner(PLAIN if by_object else replace(PLAIN, space=space), storage=storage, **given)
    tuner.plan.folder.mkdir(parents=True)
    searcher, state = tuner.run.searcher, tuner.run.state
    assert set(searcher.suggest("a")) == {"x", "seed"}
    broken.append(True)
    assert searcher.suggest("b") == Searcher.FINISHED
    assert state.ending.why.startswith(f"{brought} failed: KeyError: ")
    assert "test_ray_search.py, line" in state.ending.why
    assert state.ending.status == 1
    assert (searcher.proposer.n_proposed, len(searcher.proposer.trials())) == (1, 1), (
        "a resumed sweep makes the proposal"
    )
