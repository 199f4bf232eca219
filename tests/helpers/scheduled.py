"""A scheduler's decisions in a sweep in which nothing trains."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from ray import tune

from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.sweep.policies.schedulers.scheduler import Scheduler
from gaudi_tune.sweep.record.events import Decided, Verdict
from tests.helpers.fed_state import Fed

CONTINUE: Verdict = "continue"
PAUSE: Verdict = "pause"
STOP: Verdict = "stopped early"
EPOCHS = Budget(epochs=27)
SCORE = Objective("score")
SPACE = SearchSpace({"lr": tune.loguniform(1e-4, 1e-1), "optimizer": tune.choice(["sgd", "adamw"])})


class Sweep:
    """A record, and a scheduler that is asked as a sweep asks it. Trials have names here, and numbers there."""

    def __init__(
        self,
        kind: type[Scheduler],
        objectives: Sequence[Objective] = (SCORE,),
        *,
        trials: int = 1000,
        budget: Budget = EPOCHS,
    ) -> None:
        self.budget, self.numbers = budget, dict[str, int]()
        self.scheduler = kind(budget, objectives, SPACE)
        self.fed = Fed(objectives=objectives, budget=budget, trials=trials)
        self.state = self.fed.state

    def add(self, name: str, *, begins: bool = True) -> int:
        """Add a trial, which begins at once or has yet to begin."""
        number = self.numbers.setdefault(name, len(self.numbers) + 1)
        self.scheduler.trial_added(number)
        if begins:
            self.begin(name)
        return number

    def begin(self, name: str) -> None:
        """Give a trial a group, for the first time or after a pause."""
        self.fed.begin(self.numbers[name], lr=0.1)

    def report(self, name: str, epoch: int, score: float, *, starts_over: bool = False, **metrics: Any) -> Verdict:
        """Report, and return what follows."""
        return self.tell(name, {"epoch": epoch, "score": score, **metrics}, starts_over=starts_over)

    def tell(self, name: str, result: Mapping[str, Any], *, starts_over: bool = False, count: int = 0) -> Verdict:
        if name not in self.numbers:
            self.add(name)
        number = self.numbers[name]
        report = self.fed.tell(number, result, count=count, starts_over=starts_over)
        decision = self.scheduler.decide(self.state, self.state.trials[number], report)
        self.scheduler.next_trials(self.state)
        self.state.apply(Decided(trial=number, decision=decision))
        return decision.verdict

    def reason(self, name: str) -> str:
        return self.state.trials[self.numbers[name]].reason

    def end(self, name: str) -> None:
        self.scheduler.trial_ended(self.numbers[name])
        self.fed.end(self.numbers[name])

    def fail(self, name: str) -> None:
        """Have a trial lose its group; it may be retried."""
        self.scheduler.trial_failed(self.numbers[name])

    def next_trials(self) -> list[str]:
        return self._names(self.scheduler.next_trials(self.state))

    def trials_to_end(self) -> list[str]:
        return self._names(self.scheduler.trials_to_end(self.state))

    def go_on(self) -> str:
        """Give a group to the first of the trials that are to continue."""
        name = self.next_trials()[0]
        self.begin(name)
        return name

    def held(self) -> dict[str, int]:
        """The trials that wait, and the rungs at which they do."""
        held = self.scheduler.get_state()["_held_rungs"]
        return dict(zip(self._names(held), held.values(), strict=True))

    def scores(self) -> dict[int, dict[str, float]]:
        """The scores of halving without what breaks ties."""
        rungs = self.scheduler.get_state()["_scores"]
        return {rung: {self._names([n])[0]: s[0] for n, s in scores.items()} for rung, scores in rungs.items()}

    def after_a_resume(self) -> Sweep:
        """The sweep, resumed from what is kept of it."""
        resumed = Sweep(type(self.scheduler), self.state.objectives, trials=self.state.num_trials, budget=self.budget)
        resumed.numbers = dict(self.numbers)
        parts = pickle.loads(pickle.dumps({**self.state.snapshot(), "scheduler": self.scheduler.get_state()}))
        resumed.state.restore(parts)
        resumed.scheduler.set_state(parts["scheduler"])
        return resumed

    def _names(self, numbers: Sequence[int] | Mapping[int, Any]) -> list[str]:
        names = {number: name for name, number in self.numbers.items()}
        return [names[number] for number in numbers]
