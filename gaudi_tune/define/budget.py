"""How long a trial trains, in epochs, optimizer steps or seconds: the unit of schedulers and of every curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.words import counted
from gaudi_tune.training.trial_config import TrialConfig

REPORTS = "training_iteration"
"""What Ray Tune calls the number of a trial's reports."""
EXCHANGES = 9
"""About how many times in its budget a trial of a population is compared with the others, if it reports that often."""
BUDGET_OPTIONS = ("epochs", "steps", "eval_every", "seconds", "grace", "reduction")
"""The fields of a budget, each of which is an option of a sweep, too."""
WORTH_STOPPING = 0.8
"""Share of the budget after which no trial is stopped any more: that would save less than a fifth of it."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The length of a full trial, and of the stretch between two of its reports."""

    epochs: int = 0
    """Passes over the training data, with a report after each. 0 where ``steps`` counts."""
    steps: int = 0
    """Optimizer steps. 0 where ``epochs`` counts."""
    eval_every: int = 0
    """Steps between two reports; 0 where ``epochs`` counts."""
    seconds: int = 0
    """Seconds of training, at its first report after which a trial ends, if it has not had its epochs or steps by then;
    compilation does not count. The learning rate's schedule stays that of the epochs or steps. 0: any number."""
    grace: int = 0
    """Epochs, steps or seconds after which trials are compared for the first time; 0: at their first report, or when
    two rungs more follow until the end of the seconds."""
    reduction: int = 3
    """From one rung to the next a trial trains this many times as long, and one in this many trials gets there."""

    def __post_init__(self) -> None:
        for name in BUDGET_OPTIONS:
            if type(value := getattr(self, name)) is not int:
                raise ValueError(f"{name} must be a whole number, but got {value!r}")
        TrialConfig(epochs=self.epochs, steps=self.steps, eval_every=self.eval_every)  # whose rules are the budget's
        if self.seconds < 0:
            raise ValueError(f"seconds must be at least 0, but got {self.seconds}")
        if self.reduction < 2:
            raise ValueError(f"reduction must be at least 2, but got {self.reduction}")
        if not 0 <= self.grace <= self.total:
            raise ValueError(f"grace must be at most the budget, {self}, and not negative, but got {self.grace}")

    @property
    def unit(self) -> str:
        """What it counts, as reports name it: "epoch", "step" or "second"."""
        return names.SECOND if self.seconds else self._trained_unit

    @property
    def total(self) -> int:
        """Units of a full trial."""
        return self.seconds or self.steps or self.epochs

    @property
    def _trained_unit(self) -> str:
        return names.STEP if self.steps else names.EPOCH

    @property
    def between_reports(self) -> int:
        """Units from one report to the next, at least."""
        return 1 if self.seconds else self.eval_every or 1

    def progress(self, result: Mapping[str, Any]) -> int:
        """Return the epochs, steps or whole seconds that a trial has trained; a loop that does not report epochs or
        steps has its reports counted."""
        return int(result.get(names.SECOND, 0)) if self.seconds else self._trained(result)

    def _trained(self, result: Mapping[str, Any]) -> int:
        return int(result.get(self._trained_unit, result.get(REPORTS, 0) * (self.eval_every or 1)))

    def rungs(self) -> list[int]:
        """Return where trials are compared: after the grace, and each time they have trained ``reduction`` times as
        long, unless that is so late that to stop there saves little."""
        first = -(-self.seconds // self.reduction**2) if self.seconds else self.between_reports
        rungs = [self.grace or first]
        while rungs[-1] * self.reduction <= WORTH_STOPPING * self.total:
            rungs.append(rungs[-1] * self.reduction)
        return [rung for rung in rungs if rung <= WORTH_STOPPING * self.total]

    def exchange_every(self) -> int:
        """Return after how many units a trial of a population is compared with the others, each time."""
        return max(1, round(self.total / self.between_reports / EXCHANGES)) * self.between_reports

    def spent(self, result: Mapping[str, Any]) -> bool:
        """Whether a trial has trained in full."""
        return self.progress(result) >= self.total or self._trained(result) >= (self.steps or self.epochs)

    def settings(self) -> dict[str, int]:
        """Return it as settings of a train loop."""
        return {name: value for name in ("epochs", "steps", "eval_every") if (value := getattr(self, name))}

    def __str__(self) -> str:
        every = f" (a report every {self.eval_every})" if self.eval_every else ""
        trained = f"{counted(self.steps or self.epochs, self._trained_unit)}{every}"
        return f"{counted(self.seconds, self.unit)} or {trained}" if self.seconds else trained
