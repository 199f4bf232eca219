"""What the forest says of hyperparameters: importance, the path from the baseline, and the ranges that it sees."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import optuna
import pytest

from gaudi_tune.show.pictures import figures
from gaudi_tune.show.pictures.surrogate import NothingToDrawError, range_of, standings
from gaudi_tune.show.pictures.sweep_view import SweepView
from tests.helpers.fed_state import Fed
from tests.show.pictures.test_pictures import EPOCHS, plan_of, view_of

RATES: dict[str, Any] = {"optimizer": "sgd", "dropout": 0.1, "layers": 2, "batch_size": 8, "pooling": True}


def by_rate(folder: Path, mode: Literal["max", "min"], trials: int = 24) -> SweepView:
    """A sweep in which the learning rate decides: too small fails to learn, and the largest diverge."""
    plan = plan_of(folder, mode)
    plan = replace(plan, experiment=replace(plan.experiment, baseline={}))
    sign, fed = (1 if mode == "max" else -1), Fed(mode=mode, epochs=EPOCHS, trials=trials)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=2))
    for number in range(1, trials + 1):
        config, _ = plan.experiment.search_space.propose(study)
        if number == 1:
            config = {**RATES, "lr": 1e-5, "momentum": 0.5}
        score = sign * (1 - abs(math.log10(config["lr"]) + 2.5) / 3)
        fed.begin(number, **config)
        is_good = sign * score > 0.8
        for epoch in range(1, EPOCHS + 1 if is_good or number == 1 else 2):
            fed.report(number, epoch, score - sign * 0.3 / epoch)
        if config["lr"] > 0.05:
            fed.report(number, 2, math.nan)
            fed.end(number, "failed", "diverged")
        else:
            fed.end(number, "finished" if is_good or number == 1 else "stopped early")
    fed.state.close()
    view = SweepView.take(plan, fed.state, "")
    object.__setattr__(plan.experiment, "baseline", {**RATES, "lr": 1e-5, "momentum": 0.5})
    return view


@pytest.mark.parametrize("mode", ["max", "min"])
def test_the_hyperparameter_that_decides_is_the_most_important_and_the_largest_step(
    mode: Literal["max", "min"], tmp_path: Path
) -> None:
    """Also if most trials with good values finished, those with bad ones were stopped, and the largest diverged."""
    view = by_rate(tmp_path, mode)
    (bars,) = figures.importance(view).data
    shares = dict(zip(bars.y, bars.x, strict=True))
    assert max(shares, key=shares.__getitem__) == "lr"
    assert shares["lr"] > 0.5
    (momentum,) = (name for name in shares if name.startswith("momentum"))
    assert re.fullmatch(r"momentum \(only \d+ have it\)", momentum)
    figure = figures.path(view)
    assert figure is not None
    (line,) = figure.data
    assert line.y[0] == "baseline"
    assert line.y[1].startswith("lr=")
    assert line.x[1] - line.x[0] > 0.4
    assert line.x[1] == max(line.x[1], line.x[0])
    assert view.winner is not None
    changed = {part.partition("=")[0].removeprefix("no ") for label in line.y[1:] for part in label.split(", ")}
    names = {*view.winner.params, *view.trials[0].params}
    differing = {n for n in names if view.winner.params.get(n) != view.trials[0].params.get(n)}
    assert changed == differing


def test_importance_of_noise_is_not_drawn(tmp_path: Path) -> None:
    rng = random.Random(1)
    view = view_of([[rng.random()] for _ in range(24)], tmp_path)
    with pytest.raises(NothingToDrawError, match="does not follow from their hyperparameters"):
        figures.importance(view)
    with pytest.raises(NothingToDrawError, match="it takes 20 trials that have ended, and this sweep has 2"):
        figures.importance(view_of([[0.1], [0.2]], tmp_path))


def test_a_stopped_trial_stands_where_it_was_stopped(tmp_path: Path) -> None:
    """Trial 2 was ahead of 1 when it was stopped; 3 was behind both; 4 diverged."""
    view = view_of([[0.2, 0.4, 0.6, 0.8], [0.3], [0.1], [0.9, math.nan]], tmp_path)
    assert standings(view.trials, view.objective) == pytest.approx([2 / 3, 1.0, 1 / 3, 0.0])


def test_numbers_to_choose_from_are_in_their_order_whatever_branch_they_are_from() -> None:
    branches: list[list[float]] = [[0.001, 0.1], [1e-05, 0.001]]
    trials: Any = [
        SimpleNamespace(
            params={"decay": value}, ranges={"decay": optuna.distributions.CategoricalDistribution(choices)}
        )
        for choices in branches
        for value in choices
    ]
    assert range_of("decay", trials) == optuna.distributions.CategoricalDistribution(["1e-05", "0.001", "0.1"])
