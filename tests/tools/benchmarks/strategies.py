"""The strategies of the scoreboard: who proposes, stops and resumes, ours and others'.

<search>+<scheduler> is ours, the real objects of the product.
ray-tpe, ray-random and, for two objectives, ray-nsgaii are OptunaSearch (TPE, random, NSGA-II) with Ray's ASHA, which
looks at the loss alone; optuna is Optuna alone, TPE with its HyperbandPruner, as its users run it. All have reduction 3
and grace 1. Rivals that we do not depend on are in ``rival.py``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import optuna
from optuna.distributions import FloatDistribution
from optuna.pruners import HyperbandPruner
from optuna.samplers import NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import TrialState
from ray.tune.schedulers import ASHAScheduler, TrialScheduler
from ray.tune.search import ConcurrencyLimiter, Searcher
from ray.tune.search.optuna import OptunaSearch

from gaudi_tune.base import names
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective, point_in
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.devices.find import DEVICE_TYPES, Devices
from gaudi_tune.on_ray.tune_searcher import TuneSearcher
from gaudi_tune.sweep.policies.schedulers.factory import SCHEDULERS
from gaudi_tune.sweep.policies.schedulers.scheduler import Scheduler
from gaudi_tune.sweep.record.device_time import DeviceTime
from gaudi_tune.sweep.record.events import Decided, Outcome, Reported, TrialBegan, TrialEnded
from gaudi_tune.sweep.record.outcome import why_diverged
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.search.proposer import Proposer, raised

Array: TypeAlias = npt.NDArray[Any]
Curve: TypeAlias = tuple[Array, Callable[[int], tuple[float, float]]]
"""Where in the unit cube it was measured, and what gives the loss after an epoch (from 1), and its seconds."""
Take: TypeAlias = Callable[[Array], Curve | None]
"""Gives the curve of a proposal; None when every row of the table is used."""
OURS = [name for name, kind in SCHEDULERS.items() if not kind.clones]
"""Our schedulers but for pbt: it changes hyperparameters on the way, for which there are no curves."""
LEARNING = ("same", "related", "reversed")
"""Of what an earlier sweep may have been."""
SAMPLERS = {"ray-random": RandomSampler, "ray-tpe": TPESampler, "ray-nsgaii": NSGAIISampler}
ENDLESS = 10**9
"""Trials of a sweep that is cut off by its epochs."""


@dataclass(eq=False)
class Trial:
    """One of a sweep, with what searchers and schedulers look at in Tune's."""

    trial_id: str
    curve: Curve
    status: str = "PENDING"
    epoch: int = 0
    second: float = 0.0
    last_result: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        return {f"u{index}": float(value) for index, value in enumerate(self.curve[0])}

    def set_status(self, status: str) -> None:
        self.status = status


class Strategy(Protocol):
    """Who proposes, stops and resumes."""

    def next(self, take: Take) -> Trial | None:
        """Return the trial that a free worker is to train, new or resumed; None if there is none."""

    def report(self, trial: Trial, loss: float, ended: bool) -> str:
        """Hear of an epoch, after which the trial may have ended; return CONTINUE, PAUSE or STOP."""


class OnTune:
    """A searcher and a scheduler of Tune, called as Tune calls them; stands in for Tune's controller, too."""

    def __init__(self, searcher: Searcher, scheduler: TrialScheduler | None, workers: int) -> None:
        self.searcher = ConcurrencyLimiter(searcher, max_concurrent=workers)
        self.scheduler: Any = scheduler
        if scheduler is not None:
            scheduler.set_search_properties("loss", "min")
        self.trials: list[Trial] = []
        self.numbers = itertools.count()

    def get_trials(self) -> list[Trial]:
        return self.trials

    def next(self, take: Take) -> Trial | None:
        while self._propose(take):
            pass
        chosen = self.chosen() or next((trial for trial in self.trials if trial.status == "PENDING"), None)
        if chosen:
            self.start(chosen)
        return chosen

    def added(self, trial: Trial) -> None:
        """Tell the scheduler of a new trial."""
        self.scheduler.on_trial_add(self, trial)

    def chosen(self) -> Trial | None:
        """Return the trial that the scheduler names."""
        return cast(Trial | None, self.scheduler.choose_trial_to_run(self))

    def start(self, trial: Trial) -> None:
        trial.set_status("RUNNING")

    def decision(self, trial: Trial, result: dict[str, Any], ended: bool) -> str:
        """Return what the scheduler decides after a report."""
        decision = "STOP" if ended else str(self.scheduler.on_trial_result(self, trial, result))
        if decision == "STOP":
            self.scheduler.on_trial_complete(self, trial, result)
        return decision

    def _propose(self, take: Take) -> bool:
        name = f"t{next(self.numbers)}"  # new, too, after a proposal that found every row of the table used
        config = self.searcher.suggest(name)
        curve = None if config is None else take(np.array([v for k, v in config.items() if k.startswith("u")]))
        if curve is None:
            return False
        inner = self.searcher.searcher
        if isinstance(inner, TuneSearcher):
            study, number = inner.proposer.study, inner.proposer._numbers[name]
        else:
            study, number = inner._ot_study, inner._ot_trials[name].number
        tell_row(study, study.get_trials(deepcopy=False)[number]._trial_id, curve[0])
        self.trials.append(Trial(name, curve))
        self.added(self.trials[-1])
        return True

    def report(self, trial: Trial, loss: float, ended: bool) -> str:
        trial.second += trial.curve[1](trial.epoch)[1]
        epochs = {"epoch": trial.epoch, "training_iteration": trial.epoch, names.SECOND: trial.second}
        result = {"loss": loss, "seconds": trial.second / trial.epoch, "trial_id": trial.trial_id, **epochs}
        trial.last_result = result
        decision = self.decision(trial, result, ended)
        if decision == "STOP":
            self.searcher.on_trial_complete(trial.trial_id, result)
            trial.set_status("TERMINATED")
            return decision
        self.searcher.on_trial_result(trial.trial_id, result)
        if decision == "PAUSE":
            trial.set_status("PAUSED")
        return decision


class OnRecord(OnTune):
    """A searcher and a scheduler of ours, with the record of a sweep."""

    def __init__(
        self, proposer: Proposer, policy: Scheduler, workers: int, budget: Budget, objectives: Sequence[Objective]
    ) -> None:
        device_time = DeviceTime(Devices(DEVICE_TYPES["cpu"], (workers,), "simulated"))
        self.state = SweepState(objectives, budget, ENDLESS, device_time)
        searcher = TuneSearcher(proposer, self.state, 0, count_waiting=lambda: len(self.waiting), on_error=raised)
        super().__init__(searcher, None, workers)
        self.own, self.policy, self.workers = proposer, policy, workers
        self.waiting: set[int] = set()
        """Trials that are paused and were not promoted since."""

    def added(self, trial: Trial) -> None:
        self.policy.trial_added(len(self.trials))

    def chosen(self) -> Trial | None:
        training = sum(trial.status in ("RUNNING", "PENDING") for trial in self.trials)
        for number in self._promoted():
            if training < self.workers:
                return self.trials[number - 1]
        return None

    def _promoted(self) -> Sequence[int]:
        """Return the trials that are to continue, which need a group."""
        promoted = self.policy.next_trials(self.state)
        self.waiting.difference_update(promoted)
        return promoted

    def start(self, trial: Trial) -> None:
        super().start(trial)
        number = self.trials.index(trial) + 1
        self.state.apply(TrialBegan(trial=number, trial_id=trial.trial_id, config=trial.config))

    def point(self, result: Mapping[str, Any]) -> tuple[float, ...]:
        """Return the objectives of a report."""
        return point_in(self.state.objectives, result)

    def decision(self, trial: Trial, result: dict[str, Any], ended: bool) -> str:
        number, policy, state = self.trials.index(trial) + 1, self.policy, self.state
        epoch = trial.epoch
        report = Reported(
            trial=number, step=epoch, point=self.point(result), metrics=result, config=trial.config, count=epoch
        )
        state.apply(report)
        self.own.reported(state.trials[number])
        verdict = "finished"
        if not ended:
            decision = policy.decide(state, state.trials[number], report)
            if decision.verdict == "pause":
                self.waiting.add(number)
            self._promoted()
            state.apply(Decided(trial=number, decision=decision))
            verdict = decision.verdict
        if verdict in ("continue", "pause"):
            return verdict.upper()
        policy.trial_ended(number)
        self.waiting.discard(number)
        failure = why_diverged(result, *(objective.name for objective in state.objectives))
        outcome: Outcome = "failed" if failure else "finished" if ended else "stopped early"
        state.apply(TrialEnded(trial=number, outcome=outcome, reason="", failure=failure))
        self.own.ended(state.trials[number])
        return "STOP"


def tell_row(study: optuna.Study, trial_id: int, row: Array) -> None:
    """Put the hyperparameters of the row in the place of those proposed."""
    for index, value in enumerate(row):
        study._storage.set_trial_param(trial_id, f"u{index}", float(value), FloatDistribution(0.0, 1.0))


class OptunaAlone:
    """A study as Optuna's users run one."""

    def __init__(self, seed: int, dimensions: int, epochs: int) -> None:
        pruner = HyperbandPruner(min_resource=1, max_resource=epochs, reduction_factor=3)
        self.study = optuna.create_study(sampler=TPESampler(seed=seed), pruner=pruner)
        self.asked: dict[str, optuna.Trial] = {}
        self.dimensions = dimensions

    def next(self, take: Take) -> Trial | None:
        asked = self.study.ask()
        curve = take(np.array([asked.suggest_float(f"u{index}", 0.0, 1.0) for index in range(self.dimensions)]))
        if curve is None:
            return None
        tell_row(self.study, asked._trial_id, curve[0])
        self.asked[str(asked.number)] = asked
        return Trial(str(asked.number), curve)

    def report(self, trial: Trial, loss: float, ended: bool) -> str:
        asked = self.asked[trial.trial_id]
        if not math.isfinite(loss):
            self.study.tell(asked, state=TrialState.FAIL)
            return "STOP"
        asked.report(loss, trial.epoch)
        if ended:
            self.study.tell(asked, loss)
        elif asked.should_prune():
            self.study.tell(asked, state=TrialState.PRUNED)
        else:
            return "CONTINUE"
        return "STOP"


def make_strategy(
    name: str,
    seed: int,
    dimensions: int,
    epochs: int,
    workers: int,
    learned: Sequence[Mapping[str, Any]] = (),
    objectives: int = 1,
) -> Strategy:
    """Return the strategy of that name for trials of so many hyperparameters and epochs; ours may have learned from an
    earlier sweep.

    Raises:
        ValueError: There is none of that name.
    """
    if name == "optuna":
        return OptunaAlone(seed, dimensions, epochs)
    space = {f"u{index}": FloatDistribution(0.0, 1.0) for index in range(dimensions)}
    if name in SAMPLERS:
        metric, mode = (["loss", "seconds"], ["min", "min"]) if name == "ray-nsgaii" else ("loss", "min")
        searcher = OptunaSearch(space, metric=metric, mode=mode, sampler=SAMPLERS[name](seed=seed))
        asha = ASHAScheduler(time_attr="epoch", max_t=epochs, grace_period=1, reduction_factor=3)
        return OnTune(searcher, asha, workers)
    search, scheduler, kind = [*name.split("+"), "", ""][:3]
    if scheduler not in OURS or kind not in ("", *LEARNING):
        raise ValueError(
            f"take our <search>+<scheduler>, the scheduler one of {', '.join(OURS)}; or {', '.join(SAMPLERS)}, optuna; "
            f"or one of --rivals"
        )
    budget, goals = Budget(epochs=epochs), [Objective("loss", "min"), Objective("seconds", "min")][:objectives]
    own = Proposer(
        SearchSpace(space), objectives=goals, baseline={}, sampler=search, seed=seed, learned=learned,
    )  # fmt: skip
    policy = SCHEDULERS[cast(Any, scheduler)](budget, goals, SearchSpace(space))
    return OnRecord(own, policy, workers, budget, goals)
