"""How long a trial trains, in epochs, optimizer steps or seconds, which is also the unit of schedulers and curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.dataclasses import dataclass

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import counted
from gaudi_tune.define.reading import FORBID, Count, TwoOrMore, with_our_errors
from gaudi_tune.training.trial_config import TrialConfig

REPORTS = "training_iteration"
"""Ray Tune's name for the number of a trial's reports."""
EXCHANGES = 9
"""About how many times a trial of a population is compared with the others, if it reports often enough."""
BUDGET_OPTIONS = ("epochs", "steps", "eval_every", "seconds", "grace", "reduction")
"""The fields of a budget. Each is an option of a sweep, too."""
WORTH_STOPPING = 0.8
"""Share of the budget after which trials are no longer stopped, because that would save less than a fifth of it."""


@with_our_errors
@dataclass(frozen=True, kw_only=True, config=FORBID)
class Budget:
    """The length of a full trial, the distance between two of its reports, and where trials are compared.

    >>> from gaudi_tune import Budget
    >>> Budget(epochs=30).rungs()  # the epochs after which trials are compared
    [1, 3, 9]
    >>> Budget(epochs=30, grace=5, reduction=2).rungs()
    [5, 10, 20]
    >>> print(Budget(steps=5000, eval_every=500))
    5000 steps (a report every 500)
    """

    epochs: Count = 0
    """Passes over the training data, with a report after each. 0 where ``steps`` counts."""
    steps: Count = 0
    """Optimizer steps. 0 where ``epochs`` counts."""
    eval_every: Count = 0
    """Steps between two reports; 0 where ``epochs`` counts."""
    seconds: Count = 0
    """Seconds of training, without compilation. A trial ends at its first report after them, unless its epochs or steps
    end earlier. The learning rate's schedule stays that of the epochs or steps. 0: no limit."""
    grace: Count = 0
    """Epochs, steps or seconds after which trials are compared for the first time. 0: at their first report; with
    ``seconds``, early enough for two more rungs."""
    reduction: TwoOrMore = 3
    """From one rung to the next, a trial trains this many times as long, and one in this many trials gets there."""

    def __post_init__(self) -> None:
        try:
            TrialConfig(epochs=self.epochs, steps=self.steps, eval_every=self.eval_every)  # checks these three together
        except ValueError as error:
            raise SweepError(f"{error}; give a budget such as Budget(epochs=10)") from error
        if self.grace > self.total:
            raise SweepError(f"grace must be at most the budget, {self}, but got {self.grace}; give less")

    @property
    def unit(self) -> str:
        """The unit of the budget, as reports name it: "epoch", "step" or "second"."""
        return "second" if self.seconds else self._trained_unit

    @property
    def axis(self) -> str:
        """The entry of a flat result that counts the units, as Ray's schedulers take it for their ``time_attr``."""
        return names.SECOND if self.seconds else self._trained_unit

    @property
    def total(self) -> int:
        """The length of a full trial in units."""
        return self.seconds or self.steps or self.epochs

    @property
    def _trained_unit(self) -> str:
        return names.STEP if self.steps else names.EPOCH

    @property
    def between_reports(self) -> int:
        """The smallest number of units from one report to the next."""
        return 1 if self.seconds else self.eval_every or 1

    def progress(self, result: Mapping[str, Any]) -> int:
        """Return how many epochs, steps or whole seconds a trial has trained. If its loop does not report epochs or
        steps, its reports are counted."""
        return int(result.get(names.SECOND, 0)) if self.seconds else self._trained(result)

    def _trained(self, result: Mapping[str, Any]) -> int:
        return int(result.get(self._trained_unit, result.get(REPORTS, 0) * (self.eval_every or 1)))

    def rungs(self) -> list[int]:
        """Return after how many units trials are compared: after the grace, and then each time they have trained
        ``reduction`` times as long. Rungs so late that stopping there would save little are left out."""
        first_rung = -(-self.seconds // self.reduction**2) if self.seconds else self.between_reports
        rungs = [self.grace or first_rung]
        while rungs[-1] * self.reduction <= WORTH_STOPPING * self.total:
            rungs.append(rungs[-1] * self.reduction)
        return [rung for rung in rungs if rung <= WORTH_STOPPING * self.total]

    def exchange_every(self) -> int:
        """Return the number of units between two comparisons of a trial with the others of a population."""
        return max(1, round(self.total / self.between_reports / EXCHANGES)) * self.between_reports

    def spent(self, result: Mapping[str, Any]) -> bool:
        """Whether a trial has trained in full."""
        return self.progress(result) >= self.total or self._trained(result) >= (self.steps or self.epochs)

    def settings(self) -> dict[str, int]:
        """Return the budget as settings of a train loop."""
        return {name: value for name in ("epochs", "steps", "eval_every") if (value := getattr(self, name))}

    def __str__(self) -> str:
        length = counted(self.steps or self.epochs, self._trained_unit)
        if self.eval_every:
            length += f" (a report every {self.eval_every})"
        return f"{counted(self.seconds, self.unit)} or {length}" if self.seconds else length
