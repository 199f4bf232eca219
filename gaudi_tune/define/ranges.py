"""Ranges of hyperparameters: Ray Tune's converted to Optuna's, checks, words for people, and the values in a range."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from gaudi_tune.base.errors import SweepError, written

if TYPE_CHECKING:
    from optuna import Trial

LARGEST = 1e300
"""The largest bound: samplers compute with the width of a range."""
LARGEST_WHOLE = 2**53
"""The largest bound of whole numbers: beyond, floats leave some out."""
FIX = (
    "give a range of Optuna (FloatDistribution, IntDistribution, CategoricalDistribution) or of Ray Tune "
    "(tune.uniform, tune.loguniform, tune.randint, tune.choice, ...), or one number, text or bool for all trials"
)


class WithPrior(NamedTuple):
    """A range of a search space that carries a prior.

    >>> from gaudi_tune import Experiment, WithPrior, tune
    >>> def train_loop(config):
    ...     ...
    >>> space = {"lr": WithPrior(tune.loguniform(1e-5, 1e-1), prior=1e-3)}
    >>> Experiment(train_loop=train_loop, space=space, metric="loss").search_space.in_words()
    {'lr': '1e-05 to 0.1, logarithmic, prior 0.001'}
    """

    range: Any
    """A range of Optuna or of Ray Tune."""
    prior: Any
    """A value in the range that is likely to be good. It is tried first, and there are proposals near it."""


def plain(value: Any) -> Any:
    """Return a NumPy number as a Python number, an array as a list, and anything else unchanged."""
    return value.tolist() if hasattr(value, "tolist") and not isinstance(value, type) else value


def is_range(value: object) -> bool:
    """Whether a value is a range of Optuna or of Ray Tune. Tune, which takes seconds to import, is not imported."""
    return isinstance(value, BaseDistribution) or any(
        kind.__module__ == "ray.tune.search.sample" and kind.__name__ == "Domain" for kind in type(value).__mro__
    )


def convert_tune_range(name: str, entry: Any) -> BaseDistribution:
    """Return Optuna's range for one of Ray Tune's.

    Raises:
        ValueError: It is not a range, or Optuna has no range like it.
    """
    if not is_range(entry):
        raise ValueError(_why_no_range(name, entry))
    from ray.tune.search.optuna import OptunaSearch
    from ray.tune.search.sample import Categorical, Float, Integer

    if not isinstance(entry, Categorical | Float | Integer):
        raise ValueError(
            f"tune.sample_from draws without a range, and a sampler needs one; {FIX}; in Python, "
            f"search_alg=BasicVariantGenerator() calls it"
        )
    if isinstance(entry, Categorical):
        check_choices(list(map(plain, entry.categories)))
    else:
        _check_bounds(entry)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about choices that a database cannot hold: see check_range()
            return cast(BaseDistribution, OptunaSearch.convert_search_space({name: entry})[name])
    except (ValueError, TypeError, OverflowError) as error:
        kind = (
            "the choices"
            if isinstance(entry, Categorical)
            else f"{type(entry).__name__} from {entry.lower} to {entry.upper}"
        )
        raise ValueError(f"{kind} cannot be searched by Optuna ({str(error).rstrip('.')}); {FIX}") from error


def _why_no_range(name: str, entry: Any) -> str:
    """Return what to write in place of an entry of a space that is neither a range nor a constant."""
    if isinstance(entry, Mapping) and set(entry) == {"grid_search"}:
        return (
            f"a grid is not a range; give tune.choice({written(entry['grid_search'])}), with --search "
            f"BruteForceSampler and as many --num-samples as the grid has combinations; in Python, "
            f"search_alg=BasicVariantGenerator() goes through it"
        )
    if isinstance(entry, Mapping) or (isinstance(entry, list | tuple) and any(map(is_range, entry))):
        keys = [*entry] if isinstance(entry, Mapping) else [0]
        return (
            f"{written(entry)} is neither a range nor a constant; a space is flat: give each of its entries a name "
            f"here, such as {name}_{keys[0] if keys else 'lr'}"
        )
    if isinstance(entry, list | tuple):
        ends = ", ".join(map(written, entry))
        between = f"give tune.uniform({ends}) or tune.loguniform({ends}) to search between them, or"
        numbers = len(entry) == 2 and all(isinstance(end, Real) for end in entry)
        return (
            f"{written(entry)} is no range; {between if numbers else 'give'} tune.choice({written(list(entry))}) to "
            f"search among these values"
        )
    return f"{written(entry)} is neither a range nor a constant; {FIX}"


def check_choices(choices: Sequence[Any]) -> None:
    """Check that choices can be told from each other and kept in a database; a ValueError says why not."""
    wrong = [choice for choice in choices if not isinstance(choice, str | Real | None)]
    if wrong:
        raise ValueError(
            f"choices must be numbers, texts, bools or None, but got {written(wrong)}; name each with a string, and "
            f"let the train loop translate it"
        )
    if wrong := [choice for choice in choices if isinstance(choice, Real) and not math.isfinite(choice)]:
        raise ValueError(f"choices must be finite numbers, but got {wrong[0]}; leave it out")
    counts = [*Counter(choices).items(), *Counter(map(str, choices)).items()]  # options and MLflow have texts
    if repeated := [choice for choice, count in counts if count > 1]:
        raise ValueError(
            f"choices must differ, but got {written(repeated[0])} twice (True is 1, 1.0 is 1, and the text '1' is "
            f"written as 1 is); leave one out"
        )


def _check_bounds(entry: Any) -> None:
    """Check the bounds and the step of a range of Ray Tune for what Optuna would change without a word."""
    if type(entry).__name__ == "Integer":
        for bound in (entry.lower, entry.upper):
            if isinstance(bound, float) and not bound.is_integer():
                raise ValueError(f"bounds of whole numbers must be whole, but got {bound}; give others")
    is_stepped = getattr(entry.sampler, "q", None) is not None
    if is_stepped and type(entry.sampler.sampler).__name__.startswith("_Log"):
        raise ValueError(
            "a logarithmic range has no steps in Optuna; give tune.loguniform without steps, or tune.choice"
        )


def check_range(name: str, range_: BaseDistribution, prior: Any = None) -> None:
    """Check that samplers can compute with the bounds of a range, and that its prior lies inside."""
    try:
        if isinstance(range_, CategoricalDistribution):
            check_choices(list(map(plain, range_.choices)))
        else:
            assert isinstance(range_, FloatDistribution | IntDistribution), "Optuna has three kinds of ranges"
            _check_numbers(range_)
    except ValueError as error:
        raise SweepError(f"the search space's {name}: {error}") from error
    if prior is not None and not holds(range_, prior):
        raise SweepError(
            f"the search space's {name}: its prior, {written(prior)}, is not in its range, {words_of(range_)}; give a "
            f"value inside, such as {middle(range_)!r}"
        )


def _check_numbers(range_: FloatDistribution | IntDistribution) -> None:
    bounds = (abs(range_.low), abs(range_.high))
    if not all(bound <= LARGEST for bound in bounds):
        raise ValueError(f"bounds must be finite numbers, at most 1e300, but got {words_of(range_)}; give others")
    if isinstance(range_, IntDistribution) and max(bounds) > LARGEST_WHOLE:
        raise ValueError(f"bounds of whole numbers must be at most 2**53, but got {words_of(range_)}; give others")


def multiplied(name: str, range_: BaseDistribution, factor: int) -> BaseDistribution:
    """Return a range with its bounds and steps, or its choices, multiplied."""
    if factor == 1:
        return range_
    if isinstance(range_, CategoricalDistribution):
        return CategoricalDistribution([choice * factor for choice in cast("Sequence[Any]", range_.choices)])
    assert isinstance(range_, FloatDistribution | IntDistribution), "Optuna has three kinds of ranges"
    if isinstance(range_, IntDistribution) and range_.log:
        raise SweepError(
            f"{name} counts for each worker, and the numbers of a logarithmic range do not divide among {factor}; give "
            f"it choices, such as tune.choice([16, 32, 64])"
        )
    step: Any = None if range_.step is None else range_.step * factor
    return type(range_)(range_.low * factor, range_.high * factor, log=range_.log, step=step)  # type: ignore[arg-type]


def words_of(range_: BaseDistribution) -> str:
    """Return a range in words."""
    if isinstance(range_, CategoricalDistribution):
        return f"one of {', '.join(map(str, range_.choices))}"
    assert isinstance(range_, FloatDistribution | IntDistribution), "Optuna has three kinds of ranges"
    default_step = 1 if isinstance(range_, IntDistribution) else None
    steps = f" in steps of {range_.step:g}" if range_.step not in (None, default_step) else ""
    low, high = (str(end) if isinstance(end, int) else f"{end:g}" for end in (range_.low, range_.high))
    return f"{low} to {high}{steps}{', logarithmic' if range_.log else ''}"


def holds(range_: BaseDistribution, value: Any) -> bool:
    """Whether a value is in a range."""
    if isinstance(range_, CategoricalDistribution):
        return any(value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in range_.choices)
    assert isinstance(range_, FloatDistribution | IntDistribution), "Optuna has three kinds of ranges"
    number: Any = value  # not yet a float: float() does not take an integer of hundreds of digits
    if type(value) is bool or not isinstance(value, Real) or not range_.low <= number <= range_.high:
        return False
    steps = (float(value) - range_.low) / range_.step if range_.step else 0.0
    return math.isclose(steps, round(steps), abs_tol=1e-8)


def middle(range_: BaseDistribution) -> Any:
    """Return the middle of a range, on its logarithmic scale if it has one; of choices, the first."""
    if isinstance(range_, CategoricalDistribution):
        return range_.choices[0]
    assert isinstance(range_, FloatDistribution | IntDistribution), "Optuna has three kinds of ranges"
    low, high = range_.low, range_.high
    return nearest(range_, math.sqrt(low * high) if range_.log else (low + high) / 2)


def nearest(range_: FloatDistribution | IntDistribution, number: float) -> float:
    """Return the value of a range that is nearest to a number, as people write it: 0.3 for 0.30000000000000004."""
    inside = min(max(number, range_.low), range_.high)
    if range_.step is None:
        return inside
    low, step = Decimal(str(range_.low)), Decimal(str(range_.step))
    on_step = low + round((inside - range_.low) / range_.step) * step  # Optuna makes a range end on a step
    return int(on_step) if isinstance(range_, IntDistribution) else float(on_step)


def suggest_in(trial: Trial, name: str, range_: BaseDistribution, **options: Any) -> Any:
    """Ask a trial for a value in a range."""
    if isinstance(range_, FloatDistribution):
        return trial.suggest_float(name, range_.low, range_.high, step=range_.step, log=range_.log, **options)
    if isinstance(range_, IntDistribution):
        return trial.suggest_int(name, range_.low, range_.high, step=range_.step, log=range_.log, **options)
    return trial.suggest_categorical(name, cast(CategoricalDistribution, range_).choices, **options)
