"""Searchers to test, and what happens to their trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from ray import tune

from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.sweep.search.sampler_view import SamplerView
from gaudi_tune.sweep.search.searcher import StudySearcher

SPACE = {"lr": tune.loguniform(1e-4, 1e-1), "optimizer": tune.choice(["sgd", "adamw"]), "layers": 2}
BASELINE = {"lr": 1e-3, "optimizer": "sgd"}
BUDGET = Budget(epochs=3)
SCORE = Objective("score", "max")


def searcher_in(folder: Path, space: Any = SPACE, **changes: Any) -> StudySearcher:
    arguments: dict[str, Any] = {"baseline": BASELINE, "sampler": "gp", "seed": 0, "budget": BUDGET}
    arguments |= {"objectives": [SCORE], "storage": f"sqlite:///{folder}/optuna.db", **changes}
    return StudySearcher(SearchSpace(space), study_name="a-sweep", **arguments)


def proposal(searcher: StudySearcher, trial_id: str) -> dict[str, Any]:
    config = searcher.suggest(trial_id)
    assert isinstance(config, dict)
    return config


def trials(searcher: StudySearcher) -> list[FrozenTrial]:
    return searcher.study.get_trials(deepcopy=False)


def states(searcher: StudySearcher) -> list[TrialState]:
    return [trial.state for trial in trials(searcher)]


def told(searcher: StudySearcher) -> list[tuple[TrialState, float | None]]:
    """What the sampler would see of each trial."""
    return [(trial.state, trial.values[0] if trial.values else None) for trial in seen(searcher)]


def seen(searcher: StudySearcher) -> list[FrozenTrial]:
    return (
        SamplerView(searcher.study, searcher._objectives)
        .study_for(optuna.samplers.RandomSampler())
        .get_trials(deepcopy=False)
    )


def train(searcher: StudySearcher, trial_id: str, *scores: float) -> None:
    """Report one epoch after another; the last of the budget ends the trial."""
    for epoch, score in enumerate(scores, start=1):
        result = {"score": score, "epoch": epoch}
        if epoch == BUDGET.total:
            searcher.on_trial_complete(trial_id, result)
        else:
            searcher.on_trial_result(trial_id, result)


def crashed(searcher: StudySearcher, snapshot: Path, **changes: Any) -> StudySearcher:
    """A searcher of a new process that has the snapshot and the database, to which all had been written."""
    assert searcher._open_record is not None
    searcher._open_record._writes.join()
    restored = searcher_in(snapshot.parent, **changes)
    restored.restore(str(snapshot))
    return restored
