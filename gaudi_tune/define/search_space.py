"""Where to search: ranges by hyperparameter, or a function that asks an Optuna trial for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from keyword import iskeyword
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, distribution_to_json
from optuna.samplers import RandomSampler
from optuna.trial import FixedTrial, FrozenTrial

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.ranges import check_range, holds, is_range, middle, of_tune, plain, suggest_in, words_of

if TYPE_CHECKING:
    from optuna import Study, Trial

SpaceFunction: TypeAlias = "Callable[[Trial], Mapping[str, Any] | None]"
"""Asks an Optuna trial for hyperparameters, and returns others that it sets itself."""

DRAWS = 50
"""How often a space is asked to learn its names and ranges: what a function asks for may depend on the answers."""


class WithPrior(NamedTuple):
    """A range of a search space that carries a prior."""

    range: Any
    """Of Optuna or of Ray Tune."""
    prior: Any
    """The value in it that is likely to be good: it is tried first, and there are proposals near it."""


class Draw(NamedTuple):
    """What the space said once."""

    config: dict[str, Any]
    """Hyperparameters by name."""
    ranges: dict[str, BaseDistribution]
    """The range of each hyperparameter that was asked for; the others are constants."""
    asked: dict[str, str]
    """The name under which the study has each of these."""
    priors: dict[str, Any]
    """Those of them that have a prior."""


@dataclass(frozen=True)
class Changes:
    """How a search space differs from its definition."""

    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Hyperparameters that have one value."""
    times: Mapping[str, int] = field(default_factory=dict)
    """By what the bounds or choices of a hyperparameter are multiplied."""
    others: Mapping[str, BaseDistribution | WithPrior] = field(default_factory=dict)
    """Ranges in the place of those of the definition."""
    new: frozenset[str] = frozenset()
    """Those of them that the definition does not know."""


class SearchSpace:
    """Ranges, constants and fixed values of hyperparameters.

    However it is written, it works as a function of a trial, and what it knows of itself it learns by asking that
    function :data:`DRAWS` times.

    A function that branches may ask for a hyperparameter in another range in each branch, and names it with a dot then:
    ``sgd.lr`` and ``adamw.lr`` are the hyperparameter ``lr`` everywhere but in the study, where the sampler learns them
    apart.
    """

    def __init__(self, definition: Mapping[str, Any] | SpaceFunction, changes: Changes | None = None) -> None:
        """Read the definition.

        Args:
            definition: Ranges of Optuna or of Ray Tune, perhaps with a prior, and constants, by name; or a function of
                an Optuna trial, whose ``suggest_...`` take a ``prior``, too.
            changes: What is different from the definition.

        Raises:
            SweepError: Names each hyperparameter whose entry is neither a range nor a constant.
        """
        self._changes = changes or Changes()
        if isinstance(definition, Mapping):
            self._function: SpaceFunction = partial(_ask_for_all, *_parts(definition))
        elif callable(definition):
            self._function = definition
        else:
            raise SweepError(
                f"the search space must be ranges by name or a function of an Optuna trial, but got {definition!r}"
            )

    @property
    def fixed(self) -> Mapping[str, Any]:
        """Hyperparameters that are not searched, and have these values in every trial. They are settings, and no part
        of a proposal."""
        return self._changes.fixed

    def fix(self, values: Mapping[str, Any]) -> SearchSpace:
        """Return this space without the given hyperparameters, which have these values in every trial."""
        return SearchSpace(self._function, replace(self._changes, fixed={**self.fixed, **values}))

    def multiply(self, names: Iterable[str], factor: int) -> SearchSpace:
        """Return this space with the bounds or choices of some hyperparameters, which are numbers, multiplied."""
        times = {**self._changes.times, **dict.fromkeys(names, factor)}
        return SearchSpace(self._function, replace(self._changes, times=times))

    def search(self, ranges: Mapping[str, BaseDistribution | WithPrior]) -> SearchSpace:
        """Return this space with other ranges for some hyperparameters, which are asked for where they were before; one
        that is new is asked for always. They are not multiplied."""
        new = self._changes.new | {name for name in ranges if name not in self.names}
        return SearchSpace(self._function, replace(self._changes, others={**self._changes.others, **ranges}, new=new))

    def propose(self, study: Study) -> tuple[dict[str, Any], int]:
        """Return the study's next configuration and its number, from 0."""
        trial = study.ask()
        # Without the checks of _draw(): what fails here is the sampler, and its error is left as it is.
        asked = _Asked(trial, self._changes)
        constants = self._ask(asked)
        return self._drawn(asked, trial, constants).config, trial.number

    def enqueue(self, study: Study, params: Mapping[str, Any], **attributes: Any) -> None:
        """Make ``params``, by hyperparameter, the study's next configuration, with these attributes."""
        study.enqueue_trial({name: params[own] for own, name in self.at(params).asked.items()}, attributes)

    def at(self, params: Mapping[str, Any], number: int = 0) -> Draw:
        """Return what the space says where it is answered with ``params``.

        Args:
            params: A value for each hyperparameter that the space asks for, by the hyperparameter or as the study
                has it.
            number: Of the trial.

        Raises:
            SweepError: It asks for something else, or for a choice that is none.
        """
        return self._draw(cast("Trial", FixedTrial(dict(params), number)), params)

    def nearest(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return values that may be proposed, those of ``params`` where the space asks for them and they are in their
        range. A space that branches may ask for others, or in other ranges: they have the middle."""
        study = optuna.create_study(sampler=_Nearest(params))
        draw = self._draw(study.ask())
        return {name: value for name, value in draw.config.items() if name in draw.ranges or name in params}

    @cached_property
    def _draws(self) -> list[Draw]:
        """What the space says to random answers."""
        return self.draw(DRAWS)

    def draw(self, number: int) -> list[Draw]:
        """Return what the space says to so many random answers, which are the same each time."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # else it reports every study in memory
        study = optuna.create_study(sampler=RandomSampler(seed=0))
        return [self._draw(study.ask()) for _ in range(number)]

    def _draw(self, trial: Trial, answers: Mapping[str, Any] | None = None) -> Draw:
        """Ask the space, and check what it says."""
        asked = _Asked(trial, self._changes, answers)
        try:
            with warnings.catch_warnings():
                # Of a value outside its range: see outside(). Of choices that a database cannot hold: check_range().
                warnings.simplefilter("ignore")
                constants = self._ask(asked)
        except SweepError:
            raise
        except Exception as error:
            if answers is not None and asked.last is not None and asked.name_in_trial(asked.last) not in answers:
                raise SweepError(
                    f"the search space asks for {hyperparameter(asked.last)!r}, which has no value here (only "
                    f"{', '.join(answers)} have one); add it"
                ) from error
            after = f"when it had asked for {asked.last!r}" if asked.last else "before it asked for anything"
            raise SweepError(
                f"the search space's function failed {after} ({type(error).__name__}: {error}); fix it there"
            ) from error
        if constants is not None and not isinstance(constants, Mapping):
            raise SweepError(
                f"the search space's function must return a mapping or None, but returned {constants!r}; what it asks "
                f"the trial for need not be returned"
            )
        for name, range_ in trial.distributions.items():
            check_range(name, range_, asked.priors.get(hyperparameter(name)))
        draw = self._drawn(asked, trial, constants)
        if strange := [name for name in draw.config if not _is_name(name)]:
            raise SweepError(
                f"the search space cannot have the name {', '.join(map(repr, strange))}: names must be those of Python "
                f"variables, and none of its keywords; take letters, digits and _, such as 'weight_decay'"
            )
        if wrong := sorted(name for name, value in draw.config.items() if is_range(value)):
            raise SweepError(
                f"the search space's function must return values, but returned a range for {', '.join(wrong)}; ask "
                f"the trial instead, for example trial.suggest_float({wrong[0]!r}, 0.0, 1.0)"
            )
        return draw

    def _ask(self, asked: _Asked) -> Mapping[str, Any] | None:
        """Ask the function, and then for other ranges of what it does not ask for, and return its constants."""
        constants = self._function(cast("Trial", asked))
        of_function = constants if isinstance(constants, Mapping) else {}
        for name in self._changes.others:
            if name in self._changes.new or name in of_function:
                asked.ask(name)
        return constants

    def _drawn(self, asked: _Asked, trial: Trial, constants: Mapping[str, Any] | None) -> Draw:
        set_itself = {name: plain(value) for name, value in (constants or {}).items()}
        found = {**set_itself, **{hyperparameter(name): value for name, value in trial.params.items()}}
        ranges = {hyperparameter(name): range_ for name, range_ in trial.distributions.items()}
        return Draw({k: v for k, v in found.items() if k not in self.fixed}, ranges, asked.names, asked.priors)

    @property
    def names(self) -> set[str]:
        """The hyperparameters that a proposal may have."""
        return {name for draw in self._draws for name in draw.config}

    @property
    def always(self) -> set[str]:
        """The hyperparameters that each proposal has."""
        return set.intersection(*(set(draw.config) for draw in self._draws))

    @cached_property
    def ranges(self) -> dict[str, list[BaseDistribution]]:
        """Every range that a hyperparameter may have; a function may give it several."""
        found: dict[str, list[BaseDistribution]] = {}
        for draw in self._draws:
            for name, range_ in draw.ranges.items():
                if range_ not in found.setdefault(name, []):
                    found[name].append(range_)
        return found

    @cached_property
    def study_ranges(self) -> dict[str, BaseDistribution]:
        """The range of each hyperparameter under the name that the study has for it; not of one that has several."""
        found: dict[str, list[BaseDistribution]] = {}
        for draw in self._draws:
            for name, range_ in draw.ranges.items():
                found.setdefault(draw.asked[name], []).append(range_)
        return {name: ranges[0] for name, ranges in found.items() if all(r == ranges[0] for r in ranges)}

    @cached_property
    def priors(self) -> dict[str, Any]:
        """The priors, under the names that the study has for hyperparameters."""
        return {draw.asked[name]: prior for draw in self._draws for name, prior in draw.priors.items()}

    @property
    def constants(self) -> dict[str, Any]:
        """The hyperparameters that are never asked for, and have the same value in each proposal."""
        configs = [draw.config for draw in self._draws]
        unasked = {name: value for name, value in configs[0].items() if name not in self.ranges}
        return {name: value for name, value in unasked.items() if all(c.get(name) == value for c in configs)}

    def values(self, name: str) -> list[Any]:
        """Return values that a hyperparameter may have: all its choices, and what the draws gave."""
        choices = [c for r in self.ranges.get(name, []) if isinstance(r, CategoricalDistribution) for c in r.choices]
        return list(dict.fromkeys([*choices, *(draw.config[name] for draw in self._draws if name in draw.config)]))

    @property
    def example(self) -> dict[str, Any]:
        """Hyperparameters that may be proposed, at random."""
        return dict(self._draws[0].config)

    @property
    def branches(self) -> bool:
        """Whether what the space asks for depends on the answers."""
        return any(set(draw.asked.values()) != set(self._draws[0].asked.values()) for draw in self._draws)

    @property
    def always_searched(self) -> set[str]:
        """The hyperparameters for which the space always asks, so that a baseline must have them."""
        return set(self.ranges) & self.always

    def outside(self, params: Mapping[str, Any]) -> list[str]:
        """Return the hyperparameters whose value in ``params`` is in no range of theirs.

        Raises:
            SweepError: As :meth:`at`.
        """
        given = {name: ranges for name, ranges in self.ranges.items() if name in params}
        never = [name for name, ranges in given.items() if not any(holds(r, params[name]) for r in ranges)]
        if never or not self.always_searched <= set(params):
            return never
        return [name for name, range_ in self.at(params).ranges.items() if not holds(range_, params[name])]

    def describe(self) -> dict[str, list[str]]:
        """Return the ranges of each hyperparameter as JSON, by which two spaces can be compared."""
        return {
            name: sorted(map(distribution_to_json, ranges))
            + sorted(f"prior of {own}: {prior!r}" for own, prior in self.priors.items() if hyperparameter(own) == name)
            for name, ranges in self.ranges.items()
        }

    def in_words(self) -> dict[str, str]:
        """Return the ranges of each hyperparameter for people, and its priors."""
        return {
            name: ", or ".join(map(words_of, ranges))
            + "".join(
                f", prior {prior}"
                for prior in dict.fromkeys(prior for own, prior in self.priors.items() if hyperparameter(own) == name)
            )
            for name, ranges in self.ranges.items()
        }


def hyperparameter(name: str) -> str:
    """Return the hyperparameter that the study has under this name: ``lr`` for ``sgd.lr``."""
    return name.rpartition(".")[2]


def _is_name(name: object) -> bool:
    """Whether a hyperparameter can be named so: it becomes a field of a dataclass."""
    return isinstance(name, str) and name.isidentifier() and not iskeyword(name)


class _Nearest(RandomSampler):
    """Answers with given values that are in their ranges, and else with the middle of the range."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__()
        self._params = params

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the value."""
        given = self._params.get(hyperparameter(param_name))
        return given if holds(param_distribution, given) else middle(param_distribution)


class _Asked:
    """A trial as a space's function sees it: answers for what is fixed itself, multiplies ranges, and knows what was
    asked for, and its priors."""

    def __init__(self, trial: Trial, changes: Changes, answers: Mapping[str, Any] | None = None) -> None:
        self._trial, self._changes = trial, changes
        self._answers = answers
        self.names: dict[str, str] = {}
        """By hyperparameter, the name under which it was asked for."""
        self.priors: dict[str, Any] = {}
        """Of hyperparameters that have one."""
        self.last: str | None = None

    def name_in_trial(self, name: str) -> str:
        """Return the name under which the trial has the answer."""
        return name if self._answers is None or name in self._answers else hyperparameter(name)

    def ask(self, name: str) -> None:
        """Ask for a hyperparameter in its other range, unless it is fixed or was asked for."""
        if name not in self._changes.fixed and self.names.setdefault(name, name) == name:
            self.last = name
            self._ask_other(name, name)

    def _ask_other(self, own: str, name: str) -> Any:
        range_, prior = _with_its_prior(self._changes.others[own])
        if prior is not None:
            self.priors[own] = prior
        return suggest_in(self._trial, name, range_)

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._trial, attribute)

        def suggest(name: str, *args: Any, prior: Any = None, **kwargs: Any) -> Any:
            own, self.last = hyperparameter(name), name
            if own in self._changes.fixed:
                return self._changes.fixed[own]
            if self.names.setdefault(own, name) != name:
                raise ValueError(f"{name} and {self.names[own]} are the same hyperparameter; ask for one of them")
            if own in self._changes.others:
                return self._ask_other(own, self.name_in_trial(name))
            factor = self._changes.times.get(own, 1)
            if factor > 1 and attribute == "suggest_int" and kwargs.get("log"):
                raise SweepError(
                    f"{own} counts for each worker, and the numbers of a logarithmic range do not divide among "
                    f"{factor}; give it choices, such as tune.choice([16, 32, 64])"
                )
            if prior is not None:
                self.priors[own] = _multiplied(prior, factor)
            bounds = [_multiplied(value, factor) for value in args]
            named = {key: _multiplied(value, factor) for key, value in kwargs.items()}
            return found(self.name_in_trial(name), *bounds, **named)

        return suggest if attribute.startswith("suggest_") else found


def _multiplied(value: Any, factor: int) -> Any:
    """Return a bound or each of the choices multiplied; what is no number, such as ``log=True``, stays."""
    value = plain(value)
    if isinstance(value, list | tuple):
        return [_multiplied(choice, factor) for choice in value]
    return value if factor == 1 or isinstance(value, bool) or not isinstance(value, Real) else value * factor


def _ask_for_all(
    ranges: Mapping[str, BaseDistribution], priors: Mapping[str, Any], constants: Mapping[str, Any], trial: Trial
) -> Mapping[str, Any]:
    """Ask for every range: a mapping as the function that it stands for."""
    for name, range_ in ranges.items():
        suggest_in(trial, name, range_, **({"prior": priors[name]} if name in priors else {}))
    return constants


def _with_its_prior(range_: Any) -> tuple[Any, Any]:
    """Return a range and its prior, None if it has none."""
    return (range_.range, range_.prior) if isinstance(range_, WithPrior) else (plain(range_), None)


def _parts(entries: Mapping[str, Any]) -> tuple[dict[str, BaseDistribution], dict[str, Any], dict[str, Any]]:
    """Return the ranges, the priors and the constants of a mapping."""
    ranges: dict[str, BaseDistribution] = {}
    priors = {name: entry.prior for name, entry in entries.items() if isinstance(entry, WithPrior)}
    constants: dict[str, Any] = {}
    wrong = [f"{name!r} is no name; give a text, such as 'lr'" for name in entries if not isinstance(name, str)]
    for name, entry in ((name, _with_its_prior(entry)[0]) for name, entry in entries.items() if isinstance(name, str)):
        if isinstance(entry, BaseDistribution):
            ranges[name] = entry
        elif entry is None or isinstance(entry, str | Real):
            constants[name] = entry
        else:
            try:
                ranges[name] = of_tune(name, entry)
            except ValueError as error:
                wrong.append(f"{name}: {error}")
    if wrong:
        raise SweepError(f"the search space cannot be used: {'; '.join(wrong)}")
    for name, range_ in ranges.items():
        check_range(name, range_)
    return ranges, priors, constants
