"""Ranges of hyperparameters: Ray Tune's converted to Optuna's, checks, words for people, and the values in a range."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from gaudi_tune.base.errors import SweepError, written
from gaudi_tune.define.field_rules import is_finite, plain
from gaudi_tune.define.reading import UNREADABLE

if TYPE_CHECKING:
    from optuna import Trial

MOST_CHOICES = 10_000
"""The largest number of choices: with more, planning takes seconds."""
MOST_STEPS = 2**53
"""The largest number of steps in a range."""
LARGEST = 1e300
"""The largest bound: samplers compute with the width of a range."""
FIX = (
    "give a range of Optuna (FloatDistribution, IntDistribution, CategoricalDistribution) or of Ray Tune "
    "(tune.uniform, tune.loguniform, tune.randint, tune.choice, ...), or one number, text or bool for all trials"
)


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
    if isinstance(entry, Mapping) and set(entry) == {"grid_search"}:
        choices = entry["grid_search"]
        raise ValueError(
            f"a grid is not a range; give tune.choice({written(choices)}), with --search BruteForceSampler and as many "
            f"--num-samples as the grid has combinations; in Python, search_alg=BasicVariantGenerator() goes through it"
        )
    if isinstance(entry, Mapping):
        example = next((f"{name}_{key}" for key in entry), f"{name}_lr")
        raise ValueError(
            f"{written(entry)} is neither a range nor a constant; a space is flat: give each of its "
            f"entries a name here, such as {example}"
        )
    if isinstance(entry, list | tuple):
        ends = ", ".join(map(written, entry))
        between = f"give tune.uniform({ends}) or tune.loguniform({ends}) to search between them, or"
        numbers = len(entry) == 2 and all(isinstance(end, Real) for end in entry)
        raise ValueError(
            f"{written(entry)} is no range; {between if numbers else 'give'} tune.choice({written(list(entry))}) to "
            f"search among these values"
        )
    if not is_range(entry):
        raise ValueError(f"{written(entry)} is neither a range nor a constant; {FIX}")
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


def check_choices(choices: Sequence[Any]) -> None:
    """Check that choices can be told from each other and kept in a database; a ValueError says why not."""
    wrong = [choice for choice in choices if not isinstance(choice, str | Real | None)]
    if wrong:
        raise ValueError(
            f"choices must be numbers, texts, bools or None, but got {written(wrong)}; name each with a string, and "
            f"let the train loop translate it"
        )
    if not choices or len(choices) > MOST_CHOICES:
        fix = "give fewer, or a range" if choices else "give two or more"
        raise ValueError(f"a choice must have 1 to {MOST_CHOICES:,} values, but got {len(choices):,}; {fix}")
    if wrong := [choice for choice in choices if isinstance(choice, Real) and not is_finite(choice)]:
        raise ValueError(f"choices must be finite numbers, but got {wrong[0]}; leave it out")
    repeated = [choice for choice, count in Counter(choices).items() if count > 1]
    if repeated:
        raise ValueError(
            f"choices must differ, but got {written(repeated[0])} twice (True is 1, and 1.0 is 1); leave one out"
        )
    if any(isinstance(choice, str) and UNREADABLE.search(choice) for choice in choices):
        raise ValueError("choices must be texts without control characters; name each with another string")


def _check_bounds(entry: Any) -> None:
    """Check the bounds and the step of a range of Ray Tune; a ValueError says what is wrong."""
    lower, upper, step = plain(entry.lower), plain(entry.upper), plain(getattr(entry.sampler, "q", None))
    for bound in (lower, upper, step):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, Real)):
            raise ValueError(f"bounds must be numbers, but got {written(bound)}; give a number, such as 0.1")
    if type(entry).__name__ == "Integer":
        for bound in (lower, upper):
            if bound is None or not is_finite(bound) or bound != int(bound):
                raise ValueError(
                    f"bounds of whole numbers must be whole, but got {bound}; give tune.uniform, or others"
                )
    if lower is not None and upper is not None and lower > upper:
        raise ValueError(f"its lower bound, {lower}, is above its upper, {upper}; give the lower one first")
    if step is not None and type(entry.sampler.sampler).__name__.startswith("_Log"):
        raise ValueError(
            "a logarithmic range has no steps in Optuna; give tune.loguniform without steps, or tune.choice"
        )


def _check_numbers(range_: FloatDistribution | IntDistribution) -> None:
    """Check that samplers can compute with the bounds of a range; a ValueError says why not."""
    low, high, step = range_.low, range_.high, range_.step
    if not all(abs(bound) <= LARGEST for bound in (low, high)):
        raise ValueError(f"bounds must be finite numbers, at most 1e300, but got {words_of(range_)}; give others")
    if isinstance(range_, IntDistribution) and max(abs(low), abs(high)) > 2**53:
        raise ValueError(f"bounds of whole numbers must be at most 2**53, but got {words_of(range_)}; give others")
    if step is not None and (high - low) / step > MOST_STEPS:
        raise ValueError(
            f"a range must have at most {MOST_STEPS:,} steps, but got {words_of(range_)}; give larger steps"
        )


def check_range(name: str, range_: BaseDistribution, prior: Any = None) -> None:
    """Check that the bounds of a range are finite, a database can hold its choices, and its prior lies inside."""
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
    """Return the value in a range that is nearest to a number."""
    return on_step(range_, min(max(number, range_.low), range_.high))  # Optuna makes a range end on a step


def on_step(range_: BaseDistribution, value: Any) -> Any:
    """Return the nearest value on the steps of a range, as people write it: 0.3 for 0.30000000000000004."""
    if not isinstance(range_, FloatDistribution | IntDistribution) or range_.step is None:
        return value
    low, step = Decimal(str(range_.low)), Decimal(str(range_.step))
    rounded = low + round((value - range_.low) / range_.step) * step
    return int(rounded) if isinstance(range_, IntDistribution) else float(rounded)


def suggest_in(trial: Trial, name: str, range_: BaseDistribution, **options: Any) -> Any:
    """Ask a trial for a value in a range."""
    if isinstance(range_, FloatDistribution):
        return trial.suggest_float(name, range_.low, range_.high, step=range_.step, log=range_.log, **options)
    if isinstance(range_, IntDistribution):
        return trial.suggest_int(name, range_.low, range_.high, step=range_.step, log=range_.log, **options)
    return trial.suggest_categorical(name, cast(CategoricalDistribution, range_).choices, **options)
