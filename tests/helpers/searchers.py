"""Proposers to test, and what happens to their trials."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import optuna
from optuna.trial import FrozenTrial, TrialState
from ray import tune

from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.define.budget import REPORTS, Budget
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.sweep.record import events
from gaudi_tune.sweep.record.outcome import why_diverged
from gaudi_tune.sweep.record.trial_state import TrialState as SweepTrial
from gaudi_tune.sweep.search.proposer import Proposer
from gaudi_tune.sweep.search.sampler_view import SamplerView
from tests.helpers.fed_state import Fed

SPACE = {"lr": tune.loguniform(1e-4, 1e-1), "optimizer": tune.choice(["sgd", "adamw"]), "layers": 2}
BASELINE = {"lr": 1e-3, "optimizer": "sgd"}
BUDGET = Budget(epochs=3)
SCORE = Objective("score", "max")
ERROR = Failure(FailureKind.LOOP_ERROR, "ValueError: an error")


def searcher_in(folder: Path, space: Any = SPACE, budget: Budget = BUDGET, **changes: Any) -> Proposer:
    arguments: dict[str, Any] = {"baseline": BASELINE, "sampler": "gp", "seed": 0}
    arguments |= {"objectives": [SCORE], **changes}
    proposer = Proposer(SearchSpace(space), **arguments)
    _sweeps[proposer] = Sweep(proposer, budget)
    return proposer


def proposal(proposer: Proposer, trial_id: str) -> dict[str, Any]:
    return proposer.propose(trial_id)


def trials(proposer: Proposer) -> list[FrozenTrial]:
    return proposer.study.get_trials(deepcopy=False)


def states(proposer: Proposer) -> list[TrialState]:
    return [trial.state for trial in trials(proposer)]


def told(proposer: Proposer) -> list[tuple[TrialState, float | None]]:
    """What the sampler would see of each trial."""
    return [(trial.state, trial.values[0] if trial.values else None) for trial in seen(proposer)]


def seen(proposer: Proposer) -> list[FrozenTrial]:
    return (
        SamplerView(proposer.study, proposer._objectives)
        .study_for(optuna.samplers.RandomSampler())
        .get_trials(deepcopy=False)
    )


class Sweep(Fed):
    """The state of a sweep that a proposer proposes for; it tells the proposer what it is told."""

    def __init__(self, proposer: Proposer, budget: Budget = BUDGET) -> None:
        super().__init__(objectives=proposer._objectives, budget=budget, trials=100)
        self.proposer = proposer

    def trial_of(self, trial_id: str) -> SweepTrial:
        """The trial, which begins now if it has not begun."""
        numbers = {trial.trial_id: trial.number for trial in self.state.trials.values()}
        number = numbers.get(trial_id, len(numbers) + 1)
        if trial_id not in numbers:
            self.state.apply(events.TrialBegan(trial=number, trial_id=trial_id, config={}))
        return self.state.trials[number]

    def reported(self, trial_id: str, result: Mapping[str, Any]) -> None:
        trial = self.trial_of(trial_id)
        result = {REPORTS: trial.reports + 1, **result}
        self.tell(trial.number, result, count=result[REPORTS])
        self.proposer.reported(trial)

    def ended(self, trial_id: str, result: Mapping[str, Any] | None = None, failure: Failure | None = None) -> None:
        """End a trial, after a last report if there is one: by a failure, or as that report and the budget say."""
        trial, budget = self.trial_of(trial_id), self.state.budget
        if result:
            self.reported(trial_id, result)
        failure = why_diverged(result or {}, *(objective.name for objective in self.state.objectives)) or failure
        if failure is not None:
            self.fail(trial.number, failure)
        else:
            is_finished = trial.step >= budget.total or budget.spent(result or {})
            self.end(trial.number, "finished" if is_finished else "stopped early")
        self.proposer.ended(trial)


_sweeps = WeakKeyDictionary[Proposer, Sweep]()
_kept = dict[Path, bytes]()


def sweep_of(proposer: Proposer) -> Sweep:
    if proposer not in _sweeps:
        _sweeps[proposer] = Sweep(proposer)
    return _sweeps[proposer]


def report(proposer: Proposer, trial_id: str, result: Mapping[str, Any]) -> None:
    sweep_of(proposer).reported(trial_id, result)


def end(
    proposer: Proposer, trial_id: str, result: Mapping[str, Any] | None = None, failure: Failure | None = None
) -> None:
    sweep_of(proposer).ended(trial_id, result, failure)


def train(proposer: Proposer, trial_id: str, *scores: float) -> None:
    """Report one epoch after another; the last of the budget ends the trial."""
    for epoch, score in enumerate(scores, start=1):
        result = {"score": score, "epoch": epoch}
        if epoch == BUDGET.total:
            end(proposer, trial_id, result)
        else:
            report(proposer, trial_id, result)


def keep(proposer: Proposer, snapshot: Path) -> None:
    """Keep what the log of a sweep would have: what is proposed in this file, and the rest here."""
    snapshot.write_text(json.dumps(proposer.save()))
    _kept[snapshot] = pickle.dumps((sweep_of(proposer).state.snapshot(), proposer.record.snapshot(everything=True)))


def restored(snapshot: Path, **changes: Any) -> Proposer:
    """A proposer of a new process that has what was kept."""
    proposer = searcher_in(snapshot.parent, **changes)
    state_parts, study_part = pickle.loads(_kept[snapshot])
    proposer.restore_study(study_part)
    proposer.restore(json.loads(snapshot.read_text()))
    sweep_of(proposer).state.restore(state_parts)
    return proposer
