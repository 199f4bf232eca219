"""The search space: ranges by hyperparameter, or a function that asks an Optuna trial for values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import Any, TypeAlias, cast

import optuna
from optuna import Study, Trial
from optuna.distributions import BaseDistribution, CategoricalDistribution, distribution_to_json
from optuna.samplers import RandomSampler
from optuna.trial import FixedTrial, FrozenTrial
from typing_extensions import override

from gaudi_tune.base.errors import USER_CODE_ERRORS, SweepError, users_error, written
from gaudi_tune.define.ranges import holds, middle, plain, suggest_in, words_of
from gaudi_tune.define.space_checks import Draw, Entries, check_draw, read_entries
from gaudi_tune.define.trial_proxy import TrialProxy, hyperparameter

SpaceFunction: TypeAlias = Callable[[Trial], Mapping[str, Any] | None]
"""A function that asks an Optuna trial for hyperparameters, and may return further ones that it sets itself."""

DRAWS = 50
"""How many random draws show the names and ranges of a space: what a function asks for may depend on the answers."""
MAX_RANGES = 4
"""How many ranges of a hyperparameter are shown in a branch: one that depends on a number has others in each draw."""


class SearchSpace:
    """Ranges, constants and fixed values of hyperparameters.

    Whether it is defined by a mapping or a function, it works as a function of a trial. It learns its own names and
    ranges by calling that function :data:`DRAWS` times.

    A function that branches may ask for a hyperparameter in a different range in each branch. It then names it with a
    dot: ``sgd.lr`` and ``adamw.lr`` are the hyperparameter ``lr`` everywhere except in the study, whose sampler learns
    about them separately.
    """

    def __init__(
        self,
        definition: Mapping[str, Any] | SpaceFunction,
        fixed: Mapping[str, Any] | None = None,
        factors: Mapping[str, int] | None = None,
    ) -> None:
        """Read the definition.

        Args:
            definition: Ranges of Optuna or of Ray Tune, perhaps with a prior, and constants, by name; or a function of
                an Optuna trial, whose ``suggest_...`` methods also take a ``prior``.
            fixed: Hyperparameters that have these values in all trials. They are not multiplied.
            factors: The factors by which bounds or choices of hyperparameters are multiplied.

        Raises:
            SweepError: An entry is neither a range nor a constant. The text names all such entries.
        """
        self.fixed = dict(fixed or {})
        """Hyperparameters that are not searched but have these values in every trial. They count as settings, so that
        proposals do not have them."""
        self._factors = dict(factors or {})
        if isinstance(definition, Mapping):
            self._function: SpaceFunction = partial(_ask_for_all, read_entries(definition))
        else:
            self._function = definition

    def fix(self, values: Mapping[str, Any]) -> SearchSpace:
        """Return this space without the given hyperparameters, which then have these values in every trial."""
        return SearchSpace(self._function, {**self.fixed, **values}, self._factors)

    def multiply(self, names: Iterable[str], factor: int) -> SearchSpace:
        """Return this space with the bounds or choices of some hyperparameters, which must be numbers, multiplied."""
        factors = {**self._factors, **dict.fromkeys(names, factor)}
        if factors == self._factors:
            return self  # with its draws
        return SearchSpace(self._function, self.fixed, factors)

    def propose(self, study: Study) -> tuple[dict[str, Any], int]:
        """Return the study's next configuration and its number, from 0."""
        trial = study.ask()
        # Unlike in _draw(), errors are not changed, because here they come from the sampler.
        proxy = TrialProxy(trial, self.fixed, self._factors)
        return self._draw_of(proxy, self._function(cast("Trial", proxy))).config, trial.number

    def enqueue(self, study: Study, params: Mapping[str, Any], **attributes: Any) -> None:
        """Make ``params`` (values by hyperparameter) the study's next configuration, with these attributes."""
        study_names = self.draw_with(params).study_names
        study.enqueue_trial({study_names[name]: params[name] for name in study_names}, attributes)

    def draw_with(self, params: Mapping[str, Any], number: int = 0) -> Draw:
        """Return the draw that has the values of ``params``.

        Args:
            params: A value for each hyperparameter that the space asks for, by the hyperparameter's name or the
                study's.
            number: The number of the trial.

        Raises:
            SweepError: The space asks for another hyperparameter, or does not have one of the choices.
        """
        return self._draw(cast("Trial", FixedTrial(dict(params), number)), params)

    def draw_near(self, params: Mapping[str, Any]) -> Draw:
        """Return a draw with the values of ``params`` where they are in a range that the space asks for, and otherwise
        with the middle of the range."""
        return self._draw(optuna.create_study(sampler=_NearestSampler(params)).ask())

    @cached_property
    def draws(self) -> list[Draw]:
        """Random draws, which show the names and ranges of the space; a SweepError if the function is wrong."""
        draws = self.random_draws(DRAWS)
        for draw in draws:
            check_draw(draw)
        return draws

    def random_draws(self, number: int) -> list[Draw]:
        """Return random draws, which are the same in each call."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # Optuna would report each study that it creates
        study = optuna.create_study(sampler=RandomSampler(seed=0))
        return [self._draw(study.ask()) for _ in range(number)]

    def _draw(self, trial: Trial, answers: Mapping[str, Any] | None = None) -> Draw:
        """Call the space's function with a trial, and say whose fault it is if that fails."""
        proxy = TrialProxy(trial, self.fixed, self._factors, answers)
        try:
            with warnings.catch_warnings():
                # Optuna warns of values outside their range (see outside()) and choices that a database cannot hold
                # (see check_range()).
                warnings.simplefilter("ignore")
                returned = self._function(cast("Trial", proxy))
        except SweepError:
            raise
        except USER_CODE_ERRORS as error:
            last_name = proxy.last_name
            if answers is not None and last_name is not None and proxy.name_in_trial(last_name) not in answers:
                raise SweepError(
                    f"the search space asks for {hyperparameter(last_name)!r}, which has no value here (only "
                    f"{', '.join(answers)} have one); add it"
                ) from error
            position = f"when it had asked for {last_name!r}" if last_name else "before it asked for anything"
            raise SweepError(
                f"the search space's function failed {position}: {users_error(error)}; fix it there"
            ) from error
        return self._draw_of(proxy, returned)

    def _draw_of(self, proxy: TrialProxy, returned: Mapping[str, Any] | None) -> Draw:
        if returned is not None and not isinstance(returned, Mapping):
            raise SweepError(
                f"the search space's function must return a mapping or None, but returned {written(returned)}; what it "
                f"asks the trial for need not be returned"
            )
        draw, constants = proxy.draw, {name: plain(value) for name, value in (returned or {}).items()}
        config = {name: value for name, value in {**constants, **draw.answers}.items() if name not in self.fixed}
        return draw._replace(config=config, returned=constants)

    @property
    def names(self) -> set[str]:
        """The hyperparameters that a proposal may have."""
        return {name for draw in self.draws for name in draw.config}

    @property
    def always(self) -> set[str]:
        """The hyperparameters that every proposal has."""
        return set.intersection(*(set(draw.config) for draw in self.draws))

    @cached_property
    def ranges(self) -> dict[str, list[BaseDistribution]]:
        """Every range of each hyperparameter. A function that branches may use several."""
        all_ranges: dict[str, list[BaseDistribution]] = {}
        for study_name, study_ranges in self._all_study_ranges.items():
            ranges = all_ranges.setdefault(hyperparameter(study_name), [])
            ranges += [range_ for range_ in study_ranges if range_ not in ranges]
        return all_ranges

    @cached_property
    def _all_study_ranges(self) -> dict[str, list[BaseDistribution]]:
        """Every range by the study's names for hyperparameters."""
        all_ranges: dict[str, list[BaseDistribution]] = {}
        for draw in self.draws:
            for name, range_ in draw.ranges.items():
                ranges = all_ranges.setdefault(draw.study_names[name], [])
                if range_ not in ranges:
                    ranges.append(range_)
        return all_ranges

    @cached_property
    def study_ranges(self) -> dict[str, BaseDistribution]:
        """The ranges by the study's names for hyperparameters, without those names that have several ranges."""
        return {name: ranges[0] for name, ranges in self._all_study_ranges.items() if len(ranges) == 1}

    @cached_property
    def priors(self) -> dict[str, Any]:
        """The priors, by the study's names for hyperparameters."""
        return {draw.study_names[name]: prior for draw in self.draws for name, prior in draw.priors.items()}

    @property
    def constants(self) -> dict[str, Any]:
        """The hyperparameters for which the space never asks, and that have the same value in each proposal."""
        configs = [draw.config for draw in self.draws]
        candidates = {name: value for name, value in configs[0].items() if name not in self.ranges}
        return {name: value for name, value in candidates.items() if all(c.get(name) == value for c in configs)}

    def values(self, name: str) -> list[Any]:
        """Return values that a hyperparameter may have: all its choices, and its values in the draws."""
        choices = [c for r in self.ranges.get(name, []) if isinstance(r, CategoricalDistribution) for c in r.choices]
        return list(dict.fromkeys([*choices, *(draw.config[name] for draw in self.draws if name in draw.config)]))

    @property
    def branches(self) -> bool:
        """Whether what the space asks for depends on earlier answers."""
        return len({frozenset(draw.study_names.values()) for draw in self.draws}) > 1

    @property
    def always_searched(self) -> set[str]:
        """The hyperparameters for which the space always asks, so that a baseline must have them."""
        return set(self.ranges) & self.always

    def outside(self, params: Mapping[str, Any]) -> list[str]:
        """Return the hyperparameters whose value in ``params`` lies outside their range.

        Raises:
            SweepError: See :meth:`draw_with`.
        """
        searched = {name: ranges for name, ranges in self.ranges.items() if name in params}
        impossible = [name for name, ranges in searched.items() if not any(holds(r, params[name]) for r in ranges)]
        if impossible or not self.always_searched <= set(params):
            return impossible
        # A value may lie in the range of another branch than the one that these values take.
        return [name for name, range_ in self.draw_with(params).ranges.items() if not holds(range_, params[name])]

    def describe(self) -> dict[str, list[str]]:
        """Return the ranges and priors of each hyperparameter as text, by which two spaces can be compared."""
        texts = {name: sorted(map(distribution_to_json, ranges)) for name, ranges in self.ranges.items()}
        for study_name, prior in sorted(self.priors.items()):
            texts[hyperparameter(study_name)].append(f"prior of {study_name}: {prior!r}")
        return texts

    def in_words(self) -> dict[str, str]:
        """Return the ranges and priors of each hyperparameter in words: ``0.01 to 0.1 (sgd)`` for one named sgd.lr."""
        words: dict[str, list[str]] = {name: [] for name in self.ranges}
        for study_name, ranges in self._all_study_ranges.items():
            texts = list(map(words_of, ranges))
            if len(texts) > MAX_RANGES:
                texts[1:] = ["another range in other trials"]
            branch = study_name.rpartition(".")[0]
            prior = f", prior {self.priors[study_name]}" if study_name in self.priors else ""
            words[hyperparameter(study_name)].append(", or ".join(texts) + prior + (f" ({branch})" if branch else ""))
        return {name: ", or ".join(texts) for name, texts in words.items()}


class _NearestSampler(RandomSampler):
    """A sampler that proposes given values where they are in range, and otherwise the middle of the range."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__()
        self._params = params

    @override
    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the value of a hyperparameter."""
        value = self._params.get(hyperparameter(param_name))
        return value if holds(param_distribution, value) else middle(param_distribution)


def _ask_for_all(entries: Entries, trial: Trial) -> Mapping[str, Any]:
    """Ask a trial for every range, and return the constants. It is the function of a space defined by a mapping."""
    for name, range_ in entries.ranges.items():
        suggest_in(trial, name, range_, prior=entries.priors.get(name))
    return entries.constants
