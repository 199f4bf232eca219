"""The search space: ranges by hyperparameter, or a function that asks an Optuna trial for values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, distribution_to_json
from optuna.samplers import RandomSampler
from optuna.trial import FixedTrial, FrozenTrial

from gaudi_tune.base.errors import SweepError, users_error, written
from gaudi_tune.define.field_rules import is_finite, is_variable, plain
from gaudi_tune.define.ranges import check_range, convert_tune_range, holds, is_range, middle, suggest_in, words_of

if TYPE_CHECKING:
    from optuna import Study, Trial

SpaceFunction: TypeAlias = "Callable[[Trial], Mapping[str, Any] | None]"
"""A function that asks an Optuna trial for hyperparameters, and may return further ones that it sets itself."""

MOST_HYPERPARAMETERS = 300
"""The largest number of hyperparameters: with more, planning takes seconds, and no sampler learns from trials."""
DRAWS = 50
"""How many random draws show the names and ranges of a space: what a function asks for may depend on the answers."""
MAX_RANGES = 4
"""How many ranges of a hyperparameter are shown in a branch: one that depends on a number has others in each draw."""


class WithPrior(NamedTuple):
    """A range of a search space that carries a prior."""

    range: Any
    """A range of Optuna or of Ray Tune."""
    prior: Any
    """A value in the range that is likely to be good. It is tried first, and there are proposals near it."""


class Draw(NamedTuple):
    """One configuration of a search space, and what the space asked for on the way."""

    config: dict[str, Any]
    """Hyperparameters by name, including constants."""
    ranges: dict[str, BaseDistribution]
    """The range of each hyperparameter that the space asked for; all others are constants."""
    study_names: dict[str, str]
    """The name that the study has for each of these hyperparameters."""
    priors: dict[str, Any]
    """The priors of those hyperparameters that have one."""


@dataclass(frozen=True)
class Changes:
    """How a search space differs from its definition."""

    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Hyperparameters that have the same value in all trials."""
    factors: Mapping[str, int] = field(default_factory=dict)
    """The factors by which bounds or choices of hyperparameters are multiplied."""
    ranges: Mapping[str, BaseDistribution | WithPrior] = field(default_factory=dict)
    """Ranges in place of those of the definition."""
    added: frozenset[str] = frozenset()
    """Hyperparameters in ``ranges`` that the definition does not have."""


class SearchSpace:
    """Ranges, constants and fixed values of hyperparameters.

    Whether it is defined by a mapping or a function, it works as a function of a trial. It learns its own names and
    ranges by calling that function :data:`DRAWS` times.

    A function that branches may ask for a hyperparameter in a different range in each branch. It then names it with a
    dot: ``sgd.lr`` and ``adamw.lr`` are the hyperparameter ``lr`` everywhere except in the study, whose sampler learns
    about them separately.
    """

    def __init__(self, definition: Mapping[str, Any] | SpaceFunction, changes: Changes | None = None) -> None:
        """Read the definition.

        Args:
            definition: Ranges of Optuna or of Ray Tune, perhaps with a prior, and constants, by name; or a function of
                an Optuna trial, whose ``suggest_...`` methods also take a ``prior``.
            changes: How the space differs from the definition.

        Raises:
            SweepError: An entry is neither a range nor a constant. The text names all such entries.
        """
        self._changes = changes or Changes()
        if isinstance(definition, Mapping):
            self._function: SpaceFunction = partial(_ask_for_all, *_split_entries(definition))
        elif callable(definition):
            self._function = definition
        else:
            raise SweepError(
                f"the search space must be ranges by name or a function of an Optuna trial, but got "
                f"{written(definition)}; give one, such as {{'lr': tune.loguniform(1e-4, 1e-1)}}"
            )

    @property
    def fixed(self) -> Mapping[str, Any]:
        """Hyperparameters that are not searched but have these values in every trial. They count as settings, so that
        proposals do not have them."""
        return self._changes.fixed

    def fix(self, values: Mapping[str, Any]) -> SearchSpace:
        """Return this space without the given hyperparameters, which then have these values in every trial."""
        return SearchSpace(self._function, replace(self._changes, fixed={**self.fixed, **values}))

    def multiply(self, names: Iterable[str], factor: int) -> SearchSpace:
        """Return this space with the bounds or choices of some hyperparameters, which must be numbers, multiplied."""
        factors = {**self._changes.factors, **dict.fromkeys(names, factor)}
        if factors == self._changes.factors:
            return self  # with its draws
        return SearchSpace(self._function, replace(self._changes, factors=factors))

    def replace_ranges(self, ranges: Mapping[str, BaseDistribution | WithPrior]) -> SearchSpace:
        """Return this space with other ranges for some hyperparameters.

        The space asks for them where it did before; it always asks for one that is new. The ranges are not multiplied.
        """
        added = self._changes.added | {name for name in ranges if name not in self.names}
        all_ranges = {**self._changes.ranges, **ranges}
        return SearchSpace(self._function, replace(self._changes, ranges=all_ranges, added=added))

    def propose(self, study: Study) -> tuple[dict[str, Any], int]:
        """Return the study's next configuration and its number, from 0."""
        trial = study.ask()
        # Unlike in _draw(), errors are not changed, because here they come from the sampler.
        proxy = _TrialProxy(trial, self._changes)
        constants = self._call(proxy)
        return self._make_draw(proxy, trial, constants).config, trial.number

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

    def nearest(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return values that the space could propose: those of ``params`` where they are in a range that the space asks
        for, and otherwise the middle of the range."""
        study = optuna.create_study(sampler=_NearestSampler(params))
        draw = self._draw(study.ask())
        return {name: value for name, value in draw.config.items() if name in draw.ranges or name in params}

    @cached_property
    def draws(self) -> list[Draw]:
        """Random draws, which show the names and ranges of the space."""
        return self.random_draws(DRAWS)

    def random_draws(self, number: int) -> list[Draw]:
        """Return random draws, which are the same in each call."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # Optuna would report each study that it creates
        study = optuna.create_study(sampler=RandomSampler(seed=0))
        return [self._draw(study.ask()) for _ in range(number)]

    def _draw(self, trial: Trial, answers: Mapping[str, Any] | None = None) -> Draw:
        """Call the space's function with a trial, and check what it asks for and returns."""
        proxy = _TrialProxy(trial, self._changes, answers)
        try:
            with warnings.catch_warnings():
                # Optuna warns of values outside their range (see outside()) and choices that a database cannot hold
                # (see check_range()).
                warnings.simplefilter("ignore")
                constants = self._call(proxy)
        except SweepError:
            raise
        except (Exception, SystemExit) as error:
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
        if constants is not None and not isinstance(constants, Mapping):
            raise SweepError(
                f"the search space's function must return a mapping or None, but returned {written(constants)}; "
                f"what it asks the trial for need not be returned"
            )
        for name, range_ in trial.distributions.items():
            check_range(name, range_, proxy.priors.get(hyperparameter(name)))
        draw = self._make_draw(proxy, trial, constants)
        if strange := [name for name in draw.config if not is_variable(name)]:
            raise SweepError(
                f"the search space cannot have the name {', '.join(map(repr, strange))}: names must be those of Python "
                f"variables, and none of its keywords; take letters, digits and _, such as 'weight_decay'"
            )
        unusable = [
            (name, value)
            for name, value in draw.config.items()
            if not isinstance(value, str | Real | None) or (isinstance(value, Real) and not is_finite(value))
        ]
        if wrong := sorted(name for name, value in unusable if is_range(value)):
            raise SweepError(
                f"the search space's function must return values, but returned a range for {', '.join(wrong)}; ask "
                f"the trial instead, for example trial.suggest_float({wrong[0]!r}, 0.0, 1.0)"
            )
        if unusable:
            name, value = unusable[0]
            raise SweepError(
                f"the search space's function must return finite numbers, texts, bools or None, but returned "
                f"{name}={written(value)}; make it in the train loop"
            )
        return draw

    def _call(self, proxy: _TrialProxy) -> Mapping[str, Any] | None:
        """Call the space's function, then ask for the replaced ranges that it did not ask for, and return its
        constants."""
        constants = self._function(cast("Trial", proxy))
        constant_names = constants if isinstance(constants, Mapping) else {}
        for name in self._changes.ranges:
            if name in self._changes.added or name in constant_names:
                proxy.ask(name)
        return constants

    def _make_draw(self, proxy: _TrialProxy, trial: Trial, constants: Mapping[str, Any] | None) -> Draw:
        config = {name: plain(value) for name, value in (constants or {}).items()}
        config |= {hyperparameter(name): value for name, value in trial.params.items()}
        config = {name: value for name, value in config.items() if name not in self.fixed}
        ranges = {hyperparameter(name): range_ for name, range_ in trial.distributions.items()}
        return Draw(config, ranges, proxy.study_names, proxy.priors)

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
        ranges: dict[str, list[BaseDistribution]] = {}
        for draw in self.draws:
            for name, range_ in draw.ranges.items():
                if range_ not in ranges.setdefault(name, []):
                    ranges[name].append(range_)
        return ranges

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
    def example(self) -> dict[str, Any]:
        """A random configuration of the space."""
        return dict(self.draws[0].config)

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
        return {
            name: [
                *sorted(map(distribution_to_json, ranges)),
                *sorted(f"prior of {study_name}: {prior!r}" for study_name, prior in self._priors_of(name).items()),
            ]
            for name, ranges in self.ranges.items()
        }

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

    def _priors_of(self, name: str) -> dict[str, Any]:
        """Return the priors of a hyperparameter, by the study's names for it."""
        return {study_name: prior for study_name, prior in self.priors.items() if hyperparameter(study_name) == name}


def hyperparameter(study_name: str) -> str:
    """Return the hyperparameter that has this name in the study: ``lr`` for ``sgd.lr``."""
    return study_name.rpartition(".")[2]


class _NearestSampler(RandomSampler):
    """A sampler that proposes given values where they are in range, and otherwise the middle of the range."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__()
        self._params = params

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the value of a hyperparameter."""
        value = self._params.get(hyperparameter(param_name))
        return value if holds(param_distribution, value) else middle(param_distribution)


class _TrialProxy:
    """What the function of a space gets as its trial.

    It passes everything on to an Optuna trial, but applies the changes of the space to each ``suggest_...``, and
    records the hyperparameters that the function asks for and their priors.
    """

    def __init__(self, trial: Trial, changes: Changes, answers: Mapping[str, Any] | None = None) -> None:
        """Make a proxy.

        Args:
            trial: The trial to ask.
            changes: How the space differs from its definition.
            answers: The values that the trial will answer with, by the names that it uses. None: it draws values.
        """
        self._trial, self._changes = trial, changes
        self._answers = answers
        self._requests: dict[str, tuple[Any, ...]] = {}
        """The method and the arguments with which the function asked for each hyperparameter."""
        self.study_names: dict[str, str] = {}
        """The name under which the function asked for each hyperparameter."""
        self.priors: dict[str, Any] = {}
        """The prior of each hyperparameter that has one."""
        self.last_name: str | None = None
        """The name for which the function asked last."""

    def name_in_trial(self, study_name: str) -> str:
        """Return the name that the trial has for a hyperparameter: fixed answers may go by the short name."""
        return study_name if self._answers is None or study_name in self._answers else hyperparameter(study_name)

    def ask(self, name: str) -> None:
        """Ask for a hyperparameter in its replaced range, unless it is fixed or the function has asked for it."""
        if name not in self._changes.fixed and self.study_names.setdefault(name, name) == name:
            self.last_name = name
            self._suggest_replaced(name, name)

    def _suggest_replaced(self, name: str, name_in_trial: str) -> Any:
        range_, prior = _split_prior(self._changes.ranges[name])
        if prior is not None:
            self.priors[name] = prior
        return suggest_in(self._trial, name_in_trial, range_)

    def _check_request(self, study_name: object, request: tuple[str, tuple[Any, ...], dict[str, Any]]) -> None:
        """Check what the function asks for, which Optuna would take for something else, or take too long for."""
        if not isinstance(study_name, str):
            raise SweepError(f"the search space asks for {written(study_name)}, which is no name; give a text")
        attribute, args, kwargs = request
        texts = [bound for bound in (*args, *kwargs.values()) if isinstance(bound, str)]
        if texts and attribute != "suggest_categorical":
            raise SweepError(f"the search space's {study_name}: bounds must be numbers, but got {texts[0]!r}; give one")
        if self._requests.setdefault(study_name, request) != request:
            raise SweepError(f"the search space asks for {study_name!r} in two ranges; give one of them another name")
        if len(self._requests) > MOST_HYPERPARAMETERS:
            raise SweepError(f"the search space may ask for {MOST_HYPERPARAMETERS} hyperparameters; fix those beyond")

    def __getattr__(self, attribute: str) -> Any:
        trial_attribute = getattr(self._trial, attribute)
        if not attribute.startswith("suggest_"):
            return trial_attribute

        def suggest(study_name: str, *args: Any, prior: Any = None, **kwargs: Any) -> Any:
            self._check_request(study_name, (attribute, args, kwargs))
            name, self.last_name = hyperparameter(study_name), study_name
            if name in self._changes.fixed:
                return self._changes.fixed[name]
            if self.study_names.setdefault(name, study_name) != study_name:
                raise ValueError(
                    f"{study_name} and {self.study_names[name]} are the same hyperparameter; ask for one of them"
                )
            if name in self._changes.ranges:
                return self._suggest_replaced(name, self.name_in_trial(study_name))
            factor = self._changes.factors.get(name, 1)
            if factor > 1 and attribute == "suggest_int" and kwargs.get("log"):
                raise SweepError(
                    f"{name} counts for each worker, and the numbers of a logarithmic range do not divide among "
                    f"{factor}; give it choices, such as tune.choice([16, 32, 64])"
                )
            if prior is not None:
                self.priors[name] = _multiply(prior, factor)
            args = tuple(_multiply(value, factor) for value in args)
            kwargs = {key: _multiply(value, factor) for key, value in kwargs.items()}
            return trial_attribute(self.name_in_trial(study_name), *args, **kwargs)

        return suggest


def _multiply(value: Any, factor: int) -> Any:
    """Return a bound, or each choice of a list, multiplied. What is not a number, such as ``log=True``, stays."""
    value = plain(value)
    if isinstance(value, list | tuple):
        return [_multiply(choice, factor) for choice in value]
    return value if factor == 1 or isinstance(value, bool) or not isinstance(value, Real) else value * factor


def _ask_for_all(
    ranges: Mapping[str, BaseDistribution], priors: Mapping[str, Any], constants: Mapping[str, Any], trial: Trial
) -> Mapping[str, Any]:
    """Ask a trial for every range, and return the constants. This is the function of a space defined by a mapping."""
    for name, range_ in ranges.items():
        suggest_in(trial, name, range_, **({"prior": priors[name]} if name in priors else {}))
    return constants


def _split_prior(entry: Any) -> tuple[Any, Any]:
    """Return the entry of a space without its prior, and the prior, or None if it has none."""
    return (entry.range, entry.prior) if isinstance(entry, WithPrior) else (plain(entry), None)


def _split_entries(entries: Mapping[str, Any]) -> tuple[dict[str, BaseDistribution], dict[str, Any], dict[str, Any]]:
    """Return the ranges, the priors and the constants of a mapping."""
    ranges: dict[str, BaseDistribution] = {}
    priors: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    errors = [f"{written(name)} is no name; give a text, such as 'lr'" for name in entries if not isinstance(name, str)]
    for name, entry in ((name, entry) for name, entry in entries.items() if isinstance(name, str)):
        value, prior = _split_prior(entry)
        if isinstance(entry, WithPrior):
            priors[name] = prior
        if isinstance(value, BaseDistribution):
            ranges[name] = value
        elif value is None or isinstance(value, str | Real):
            constants[name] = value
            if isinstance(value, Real) and not is_finite(value):
                errors.append(f"{name}: a constant must be a finite number, but got {value}; give another")
        else:
            try:
                ranges[name] = convert_tune_range(name, value)
            except ValueError as error:
                errors.append(f"{name}: {error}")
    if errors:
        raise SweepError(f"the search space cannot be used: {'; '.join(errors)}")
    for name, range_ in ranges.items():
        check_range(name, range_)
    return ranges, priors, constants
