from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from ray import tune

from experiments.sweep.errors import SweepError
from experiments.sweep.experiment import SearchSpace
from experiments.sweep.searcher import SAMPLERS, StudySearcher, make_sampler

SPACE = {"lr": tune.loguniform(1e-4, 1e-1), "optimizer": tune.choice(["sgd", "adamw"]), "layers": 2}
BASELINE = {"lr": 1e-3, "optimizer": "sgd"}


def searcher_in(folder: Path, space: SearchSpace = SPACE, **changes: Any) -> StudySearcher:
    arguments: dict[str, Any] = {"baseline": BASELINE, "sampler": "tpe", "seed": 0, **changes}
    return StudySearcher(
        space,
        metric="score",
        mode="max",
        study_name="a-sweep",
        storage_url=f"sqlite:///{folder}/optuna.db",
        **arguments,
    )


def states(searcher: StudySearcher) -> list[TrialState]:
    return [trial.state for trial in searcher.study.get_trials(deepcopy=False)]


def test_the_baseline_comes_first_and_constants_are_kept(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    first, second = searcher.suggest("a"), searcher.suggest("b")
    assert {name: first[name] for name in BASELINE} == BASELINE
    assert first["layers"] == second["layers"] == 2
    assert 1e-4 <= second["lr"] <= 1e-1
    assert first["seed"] != second["seed"]


def test_the_same_seed_proposes_the_same_another_seed_another(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    one, same, other = (searcher_in(f, seed=s) for f, s in zip(folders, (1, 1, 2), strict=True))
    proposals = [[s.suggest(t) for t in "xyz"] for s in (one, same, other)]
    assert proposals[0] == proposals[1]
    assert proposals[0] != proposals[2]


def test_a_space_may_be_a_function_of_the_trial(tmp_path: Path) -> None:
    def space(trial: optuna.Trial) -> dict[str, Any]:
        optimizer = trial.suggest_categorical("optimizer", ["sgd", "adamw"])
        if optimizer == "sgd":
            trial.suggest_float("momentum", 0.5, 0.9)
        return {"layers": 4}

    searcher = searcher_in(tmp_path, space, baseline={"optimizer": "sgd", "momentum": 0.7})
    first = searcher.suggest("a")
    assert (first["optimizer"], first["momentum"], first["layers"]) == ("sgd", 0.7, 4)


@pytest.mark.parametrize(
    ("result", "error", "state"),
    [
        ({"score": 0.5}, False, TrialState.COMPLETE),
        ({"score": math.nan}, False, TrialState.FAIL),
        ({"score": 0.5, "train_loss": math.inf}, False, TrialState.FAIL),
        ({"loss": 1.0}, False, TrialState.FAIL),
        ({"score": 0.5}, True, TrialState.FAIL),
        (None, True, TrialState.FAIL),
    ],
)
def test_the_study_is_told_how_a_trial_ended(
    result: dict[str, Any] | None, error: bool, state: TrialState, tmp_path: Path
) -> None:
    searcher = searcher_in(tmp_path)
    searcher.suggest("a")
    searcher.on_trial_complete("a", result, error)
    assert states(searcher) == [state]


def test_a_copy_and_a_restored_searcher_go_on_with_the_same_study(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    searcher.suggest("a")
    searcher.suggest("b")
    searcher.save(str(tmp_path / "state"))
    copy.deepcopy(searcher).on_trial_complete("a", {"score": 1.0})
    restored = searcher_in(tmp_path)
    restored.restore(str(tmp_path / "state"))
    restored.on_trial_complete("b", None, error=True)
    assert states(restored) == [TrialState.COMPLETE, TrialState.FAIL]
    stored = optuna.load_study(study_name="a-sweep", storage=f"sqlite:///{tmp_path}/optuna.db")
    assert stored.best_value == 1.0


def test_samplers_go_by_short_name_or_class_name() -> None:
    for short, class_name in SAMPLERS.items():
        assert type(make_sampler(short, 0)).__name__ == class_name
    assert type(make_sampler("BruteForceSampler", 0)).__name__ == "BruteForceSampler"


@pytest.mark.parametrize("name", ["tpo", "BaseSampler", "GridSampler"])
def test_an_unknown_sampler_is_an_error_that_names_those_there_are(name: str) -> None:
    with pytest.raises(SweepError, match=f"--search {name}: "):
        make_sampler(name, 0)
