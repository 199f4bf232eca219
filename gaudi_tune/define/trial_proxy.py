"""The trial that the function of a search space gets: an Optuna trial with the changes of the space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.ranges import multiplied, plain, suggest_in
from gaudi_tune.define.space_checks import Draw

if TYPE_CHECKING:
    from optuna import Trial


def hyperparameter(study_name: str) -> str:
    """Return the hyperparameter that has this name in the study: ``lr`` for ``sgd.lr``."""
    return study_name.rpartition(".")[2]


class TrialProxy:
    """Passes everything on to an Optuna trial, and records what the function asks for.

    A hyperparameter that is fixed is not asked for. Otherwise its range is multiplied, if it counts for each worker: a
    fixed value is that of a whole trial.
    """

    def __init__(
        self,
        trial: Trial,
        fixed: Mapping[str, Any],
        factors: Mapping[str, int],
        answers: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a proxy.

        Args:
            trial: The trial to ask.
            fixed: Hyperparameters that have the same value in all trials.
            factors: The factors by which bounds or choices of hyperparameters are multiplied.
            answers: The values that the trial will answer with, by the names that it uses. None: it draws values.
        """
        self._trial, self._fixed, self._factors, self._answers = trial, fixed, factors, answers
        self._requests: dict[str, BaseDistribution] = {}
        """The range in which the function asked for each name."""
        self.draw = Draw({}, {}, {}, {}, {}, {})
        """What the function has asked for."""
        self.last_name: str | None = None
        """The name for which the function asked last."""

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False, prior: Any = None
    ) -> Any:
        """Ask for a number."""
        self.last_name = name
        return self._suggest(name, FloatDistribution(plain(low), plain(high), log=log, step=plain(step)), prior)

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False, prior: Any = None
    ) -> Any:
        """Ask for a whole number."""
        self.last_name = name
        return self._suggest(name, IntDistribution(plain(low), plain(high), log=log, step=plain(step)), prior)

    def suggest_categorical(self, name: str, choices: Sequence[Any], *, prior: Any = None) -> Any:
        """Ask for one of several values."""
        self.last_name = name
        return self._suggest(name, CategoricalDistribution(list(map(plain, plain(choices)))), prior)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("suggest_"):  # Optuna's old names, which would pass the changes by
            raise AttributeError(f"{attribute}() is an old name of Optuna's; call suggest_float()")
        return getattr(self._trial, attribute)

    def _suggest(self, study_name: str, range_: BaseDistribution, prior: Any) -> Any:
        """Answer with the fixed value, or with that of the trial in the range of a whole trial."""
        name = hyperparameter(study_name)
        if self._requests.setdefault(study_name, range_) != range_:  # Optuna would answer from the first range
            raise SweepError(f"the search space asks for {study_name!r} in two ranges; give one of them another name")
        if name in self._fixed:
            value = self._fixed[name]
        else:
            if (other := self.draw.study_names.setdefault(name, study_name)) != study_name:
                raise SweepError(
                    f"the search space asks for {study_name} and {other} in one trial, and both are the same "
                    f"hyperparameter, {name}; give one of them another name after the dot"
                )
            factor = self._factors.get(study_name, self._factors.get(name, 1))
            self.draw.ranges[name] = range_ = multiplied(name, range_, factor)
            if prior is not None:
                self.draw.priors[name] = plain(prior) if factor == 1 else plain(prior) * factor
            value = suggest_in(self._trial, self.name_in_trial(study_name), range_)
        self.draw.answers[name] = value
        return value

    def name_in_trial(self, study_name: str) -> str:
        """Return the name that the trial has for a hyperparameter: fixed answers may go by the short name."""
        return study_name if self._answers is None or study_name in self._answers else hyperparameter(study_name)
