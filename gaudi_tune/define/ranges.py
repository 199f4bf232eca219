"""Ranges of hyperparameters: Ray Tune's converted to Optuna's, checks, words for people, and the values in a range."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from gaudi_tune.base.errors import SweepError

if TYPE_CHECKING:
    from optuna import Trial

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
            f"a grid is not a range; give tune.choice({choices!r}), with --search BruteForceSampler and as many "
            f"--num-samples as the grid has combinations"
        )
    if isinstance(entry, Mapping):
        example = next((f"{name}_{key}" for key in entry), f"{name}_lr")
        raise ValueError(
            f"{entry!r} is neither a range nor a constant; a space is flat: give each of its entries a name here, such "
            f"as {example}"
        )
    if isinstance(entry, list | tuple):
        ends = ", ".join(map(repr, entry))
        between = f"give tune.uniform({ends}) or tune.loguniform({ends}) to search between them, or"
        numbers = len(entry) == 2 and all(isinstance(end, Real) for end in entry)
        raise ValueError(
            f"{entry!r} is no range; {between if numbers else 'give'} tune.choice({list(entry)!r}) to search among "
            f"these values"
        )
    if not is_range(entry):
        raise ValueError(f"{entry!r} is neither a range nor a constant; {FIX}")
    from ray.tune.search.optuna import OptunaSearch
    from ray.tune.search.sample import Categorical, Float, Integer

    if not isinstance(entry, Categorical | Float | Integer):
        raise ValueError(f"tune.sample_from draws without a range, and a sampler needs one; {FIX}")
    if not isinstance(entry, Categorical) and entry.lower > entry.upper:
        raise ValueError(f"its lower bound, {entry.lower}, is above its upper, {entry.upper}; give the lower one first")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about choices that a database cannot hold: see check_range()
            return cast(BaseDistribution, OptunaSearch.convert_search_space({name: entry})[name])
    except ValueError as error:
        if isinstance(entry, Categorical):
            description = f"the choices {list(entry.categories)}"
        else:
            description = f"{type(entry).__name__} from {entry.lower} to {entry.upper}"
        raise ValueError(f"{description} cannot be searched by Optuna ({str(error).rstrip('.')}); {FIX}") from error


def plain(value: Any) -> Any:
    """Return a NumPy number as a Python number, an array as a list, and anything else unchanged."""
    return value.tolist() if hasattr(value, "tolist") else value


def check_range(name: str, range_: BaseDistribution, prior: Any = None) -> None:
    """Check that the bounds of a range are finite, a database can hold its choices, and its prior lies inside."""
    if isinstance(range_, CategoricalDistribution):
        wrong = [choice for choice in map(plain, range_.choices) if not isinstance(choice, str | Real | None)]
        if wrong:
            raise SweepError(
                f"the search space's {name}: choices must be numbers, texts, bools or None, but got {wrong!r}; name "
                f"each with a string, and let the train loop translate it"
            )
    elif not all(math.isfinite(bound) for bound in (range_.low, range_.high)):  # type: ignore[attr-defined]
        raise SweepError(f"the search space's {name}: bounds must be finite numbers, but got {range_}")
    if prior is not None and not holds(range_, prior):
        raise SweepError(
            f"the search space's {name}: its prior, {prior!r}, is not in its range, {words_of(range_)}; give a value "
            f"inside, such as {middle(range_)!r}"
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
    if type(value) is bool or not isinstance(value, Real) or not range_.low <= float(value) <= range_.high:
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
