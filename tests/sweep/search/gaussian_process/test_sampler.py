from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.study import StudyDirection
from optuna.trial import TrialState
from threadpoolctl import threadpool_info, threadpool_limits

from gaudi_tune.private.optuna import constraint_attributes, replace_trial
from gaudi_tune.sweep.search.gaussian_process import sampler
from gaudi_tune.sweep.search.gaussian_process.process import GaussianProcess
from gaudi_tune.sweep.search.gaussian_process.sampler import GaussianProcessSampler


def loss(trial: optuna.Trial) -> float:
    """Least at lr 0.01 and x 0.3; y means nothing."""
    lr = trial.suggest_float("lr", 1e-4, 1.0, log=True)
    x, _ = trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("y", 0.0, 1.0)
    return abs(math.log10(lr) + 2) + 4 * abs(x - 0.3)


def tuned(trials: int, direction: Literal["minimize", "maximize"] = "minimize") -> optuna.Study:
    sign = 1 if direction == "minimize" else -1
    study = optuna.create_study(direction=direction, sampler=GaussianProcessSampler(seed=1))
    study.optimize(lambda trial: sign * loss(trial), n_trials=trials)
    return study


def test_it_proposes_where_the_values_are_good() -> None:
    values = [trial.values[0] for trial in tuned(25).trials[13:]]
    by_chance = [loss(optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=s)).ask()) for s in range(200)]
    assert np.mean(values < np.quantile(by_chance, 0.2)) > 0.6


def test_a_seed_repeats_the_proposals_whichever_way_is_better() -> None:
    least, most = tuned(13), tuned(13, "maximize")
    assert [trial.params for trial in least.trials] == [trial.params for trial in most.trials]


def test_a_space_may_branch() -> None:
    study = optuna.create_study(sampler=GaussianProcessSampler(seed=0))

    def of_a_branch(trial: optuna.Trial) -> float:
        if trial.suggest_categorical("optimizer", ["sgd", "adamw"]) == "sgd":
            return 1 + abs(trial.suggest_float("momentum", 0.5, 0.99) - 0.9)
        return abs(trial.suggest_float("beta2", 0.9, 0.999) - 0.95)

    study.optimize(of_a_branch, n_trials=25)
    assert set(study.sampler.infer_relative_search_space(study, study.trials[0])) == {"optimizer", "momentum", "beta2"}
    assert sorted(trial.values[0] for trial in study.trials[12:])[2] < 0.005  # by chance one in twenty


def test_every_kind_of_range_is_searched() -> None:
    study = optuna.create_study(sampler=GaussianProcessSampler(seed=0))
    for _ in range(30):
        trial = study.ask()
        layers, width = trial.suggest_int("layers", 1, 5), trial.suggest_int("width", 16, 1024, log=True)
        dropout = trial.suggest_float("dropout", 0.0, 0.6, step=0.2)
        study.tell(trial, abs(layers - 5) + abs(math.log2(width) - 7) + dropout)
    late = [trial.params for trial in study.trials[15:]]
    assert sum(params["layers"] >= 4 and params["width"] < 400 for params in late) >= 8
    assert {params["dropout"] for params in late} <= {0.0, 0.2, 0.4, 0.6}, "and not 7e-18"
    assert {type(params["layers"]) for params in late} == {type(params["width"]) for params in late} == {int}


def test_whole_numbers_with_many_values_are_searched_and_keep_to_their_step() -> None:
    study = optuna.create_study(sampler=GaussianProcessSampler(seed=0))
    for _ in range(30):
        trial = study.ask()
        width, units = trial.suggest_int("width", 8, 1024, step=8), trial.suggest_int("units", 1, 100_000, log=True)
        study.tell(trial, abs(width - 512) / 512 + abs(math.log10(units) - 3))
    space = study.trials[0].distributions
    proposed = [study.sampler.sample_relative(study, study.trials[-1], space) for _ in range(5)]
    assert all(params["width"] % 8 == 0 for params in proposed), "Optuna takes any other for none, and draws at random"
    late = [trial.params for trial in study.trials[15:]]
    near = [abs(params["width"] - 512) <= 100 and 300 < params["units"] < 3000 for params in late]
    assert np.mean(near) > 0.25, "by chance one in 25"


def test_trials_that_violate_a_constraint_are_bad() -> None:
    study = optuna.create_study(sampler=GaussianProcessSampler(seed=0))
    for number in range(25):
        params = study.ask({"x": FloatDistribution(0.0, 1.0)}).params
        trial = study.get_trials()[number]
        trial.state, trial.values = TrialState.COMPLETE, [-params["x"]]
        trial.system_attrs |= constraint_attributes({"memory": params["x"] - 0.5})
        replace_trial(study, trial)
    late = [trial.params["x"] for trial in study.trials[12:]]
    assert np.mean([0.3 < x <= 0.5 for x in late]) > 0.4


def test_proposals_keep_away_from_running_trials_and_not_from_failed_ones() -> None:
    """All begin with the same numbers, so that without any trial between them they are the same."""

    def proposed(study: optuna.Study) -> float:
        study.sampler = GaussianProcessSampler(seed=1)
        return study.ask({"x": FloatDistribution(0.0, 1.0)}).params["x"]

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(lambda trial: (trial.suggest_float("x", 0.0, 1.0) - 0.3) ** 2, n_trials=12)
    first = proposed(study)
    study.tell(study.trials[-1].number, state=TrialState.FAIL)
    again = proposed(study)
    assert again == first
    beside = proposed(study)
    assert abs(beside - again) > 1e-4


@pytest.mark.parametrize("values", [[0.1] * 139 + [0.9], [0.5] * 40, [1e308, -1e308] * 20])
def test_scores_that_say_little_are_no_error_and_no_trial_is_proposed_twice(values: list[float]) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), direction="maximize")
    space: dict[str, BaseDistribution] = {name: FloatDistribution(0.0, 1.0) for name in "abcdef"}
    for value in values:
        study.tell(study.ask(space), value)
    known = [trial.params for trial in study.trials]
    for seed in range(4):
        sampler = GaussianProcessSampler(seed)
        found = sampler.sample_relative(
            study, study.trials[-1], sampler.infer_relative_search_space(study, study.trials[-1])
        )
        assert found and found not in known


def test_the_best_corner_is_proposed_once() -> None:
    study = optuna.create_study(sampler=GaussianProcessSampler(seed=0))

    def of_a_branch(trial: optuna.Trial) -> float:
        name = trial.suggest_categorical("optimizer", ["sgd", "adamw"])
        return trial.suggest_float(name, 0.0, 1.0) + trial.suggest_float("x", 0.0, 1.0) + (name == "sgd")

    study.optimize(of_a_branch, n_trials=40)
    assert len({tuple(trial.params.items()) for trial in study.trials}) == 40
    assert study.best_params == {"optimizer": "adamw", "adamw": 0.0, "x": 0.0}


def test_a_space_may_be_exhausted() -> None:
    study = optuna.create_study(sampler=GaussianProcessSampler(seed=0))
    study.optimize(lambda trial: trial.suggest_categorical("x", [1, 2]), n_trials=15)
    assert study.best_params == {"x": 1}


def test_an_outlier_does_not_hide_the_others() -> None:
    study = tuned(10)
    outlier = {"lr": 1.0, "x": 1.0, "y": 0.5}
    study.add_trial(optuna.trial.create_trial(params=outlier, distributions=study.trials[0].distributions, value=1e9))
    study.optimize(loss, n_trials=17)
    assert np.median([trial.values[0] for trial in study.trials[14:]]) < 0.5


@pytest.mark.parametrize("objectives", [1, 2])
def test_the_most_promising_for_its_time_is_proposed(objectives: int) -> None:
    """x alone counts. The time grows with width and falls with batch, a choice; or all take as long, or nearly."""

    def late(times: float) -> list[tuple[float, int, float]]:
        study = optuna.create_study(directions=["minimize"] * objectives, sampler=GaussianProcessSampler(seed=0))
        for _ in range(30):
            trial = study.ask()
            x, width = trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("width", 1.0, 64.0, log=True)
            batch = trial.suggest_categorical("batch", [8, 16, 32])
            trial.set_user_attr("seconds_each", 10 * (width / batch) ** times)
            study.tell(trial, [(x - 0.3) ** 2, (x - 0.5) ** 2][:objectives])
        return [(t.params["width"], t.params["batch"], t.params["x"]) for t in study.trials[12:]]

    plain, timed = late(0.0), late(1.0)
    assert late(0.01) == plain, "no proposal depends on how exact a clock is"
    cheap = [np.median([width / batch for width, batch, _ in found]) for found in (timed, plain)]
    assert cheap[0] < cheap[1] / 3
    few = [np.mean([batch == 8 for _, batch, _ in found]) for found in (timed, plain)]
    assert few[0] < few[1]
    assert np.mean([0.2 < x < 0.6 for _, _, x in timed]) > 0.6, "and it is good"


def test_several_objectives_are_searched_together_also_in_a_branch() -> None:
    """Two parabolas with their least values at 0.3 and 0.7, in one of two branches: between them is the front."""
    study = optuna.create_study(sampler=GaussianProcessSampler(seed=0), directions=["minimize", "maximize"])

    def of_a_branch(trial: optuna.Trial) -> tuple[float, float]:
        if trial.suggest_categorical("optimizer", ["sgd", "adamw"]) == "sgd":
            return 2 + trial.suggest_float("momentum", 0.0, 1.0), -2.0
        x = trial.suggest_float("beta2", 0.0, 1.0)
        return (x - 0.3) ** 2, -((x - 0.7) ** 2)

    study.optimize(of_a_branch, n_trials=20)
    late = [trial.params.get("beta2", -1.0) for trial in study.trials[12:]]
    assert np.mean([0.28 <= x <= 0.72 for x in late]) > 0.6  # by chance 0.22
    assert np.ptp([x for x in late if 0.28 <= x <= 0.72]) > 0.2, "both ends of the front"


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each process was fitted. Each began with the kernel of the one before, and was computed in one thread."""
    found: list[bool] = []
    kernels: list[Any] = [None]

    class Watched(GaussianProcess):
        def __init__(self, *arguments: Any, fit: bool) -> None:
            found.append(fit)
            assert arguments[-1] == kernels[-1]
            assert {pool["num_threads"] for pool in threadpool_info()} == {1}
            super().__init__(*arguments, fit=fit)
            kernels.append(self.kernel if fit else kernels[-1])

    monkeypatch.setattr(sampler, "GaussianProcess", Watched)
    return found


def test_a_proposal_is_computed_in_one_thread_and_leaves_the_number_of_threads(fits: list[bool]) -> None:
    with threadpool_limits(2):
        before = threadpool_info()
        assert {pool["num_threads"] for pool in before} == {2}
        tuned(11)
        assert fits and threadpool_info() == before


def test_kernels_are_fitted_again_once_there_are_a_tenth_more_trials(fits: list[bool]) -> None:
    tuned(45)
    assert [10 + place for place, fit in enumerate(fits) if fit] == [10, 11, 13, 15, 17, 19, 21, 24, 27, 30, 33, 37, 41]


LINE: dict[str, BaseDistribution] = {"x": FloatDistribution(0.0, 1.0)}


def study_of(trials: Iterable[tuple[float, dict[int, float]]]) -> optuna.Study:
    """Each with its x and its curve; one without a curve has failed, and counts as bad."""
    study = optuna.create_study()
    for x, curve in trials:
        value = min(curve.values(), default=50.0)
        study.add_trial(
            optuna.trial.create_trial(params={"x": x}, distributions=LINE, intermediate_values=curve, value=value)
        )
    return study


@pytest.fixture
def proposed(monkeypatch: pytest.MonkeyPatch) -> Callable[[optuna.Study, float], npt.NDArray[np.float64]]:
    """What 12 samplers propose of which that share goes by the trials that trained furthest."""

    def x_of(study: optuna.Study, share: float) -> npt.NDArray[np.float64]:
        monkeypatch.setattr(sampler, "LONGEST_SHARE", share)
        samplers = [GaussianProcessSampler(seed) for seed in range(12)]
        return np.array([each.sample_relative(study, study.trials[-1], LINE)["x"] for each in samplers])

    return x_of


def test_some_proposals_go_by_the_trials_that_trained_furthest_as_they_were_then(proposed: Any) -> None:
    """After an epoch 0.9 leads, after nine 0.1 does, and one trial alone got to 27."""
    xs = np.random.default_rng(0).random(36).tolist()
    curves = [{1: 1 + abs(x - 0.9), 9: abs(x - 0.1)} if n % 3 == 0 else {1: 1 + abs(x - 0.9)} for n, x in enumerate(xs)]
    study = study_of([*zip(xs, curves, strict=True), (0.55, {1: 1.35, 9: 0.45, 27: -1.0})])
    furthest, all_alike, both = proposed(study, 1.0), proposed(study, 0.0), proposed(study, 0.5)
    assert np.abs(furthest - 0.1).max() < 0.1 < np.abs(all_alike - 0.1).min()
    assert (both == furthest).any() and (both == all_alike).any()


def test_these_proposals_keep_away_from_trials_that_failed(proposed: Any) -> None:
    xs = np.random.default_rng(0).random(36).tolist()
    curves = [{} if x > 0.7 else {1: 2 - x, 9: 1 - x} if n % 2 else {1: 2 - x} for n, x in enumerate(xs)]
    study = study_of(zip(xs, curves, strict=True))
    assert 0.6 < np.median(proposed(study, 1.0)) < 0.75


def test_trials_that_end_at_nearly_the_same_second_trained_as_far(proposed: Any) -> None:
    """The longest by a little are far from 0.2, where the values are best; one trial was stopped soon."""
    xs = np.random.default_rng(0).random(36).tolist()
    study = study_of([*((x, {600 + round(100 * x): (x - 0.2) ** 2}) for x in xs), (0.5, {60: 3.0})])
    assert np.abs(proposed(study, 1.0) - 0.2).max() < 0.05


@pytest.mark.parametrize(("sign", "direction"), [(1, StudyDirection.MINIMIZE), (-1, StudyDirection.MAXIMIZE)])
def test_until_a_step_a_trial_is_worth_its_best_and_one_that_failed_the_worst_of_these(
    sign: int, direction: StudyDirection
) -> None:
    def trial(at_end: float, *reported: float) -> optuna.trial.FrozenTrial:
        curve = {step: sign * value for step, value in enumerate(reported, start=1)}
        return optuna.trial.create_trial(value=sign * at_end, intermediate_values=curve)

    known = [trial(0.1, 0.5, 0.4, 0.1), trial(0.3, 0.3, 0.6), trial(0.0)]
    assert [sign * past.values[0] for past in sampler._as_at_step(2, known, direction)] == [0.4, 0.3, 0.4]
    assert [sign * past.values[0] for past in known] == [0.1, 0.3, 0.0], "they are copies"
