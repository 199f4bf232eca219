"""The fields of the page for a configuration to try: the ranges of each, and on which other field these depend."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution

from gaudi_tune.define.ranges import words_of
from gaudi_tune.define.search_space import SearchSpace


@lru_cache(maxsize=1)
def fields_of(space: SearchSpace) -> dict[str, list[dict[str, Any]]]:
    """Return the ranges of each hyperparameter: in words, the choices if it has some, and the branch with that range.

    A branch is the name and the values of another hyperparameter; None if the range is that of every configuration, or
    if more than one other hyperparameter decides.
    """
    return {
        name: [
            {"words": words_of(range_), "choices": _choices(range_), "when": branch}
            for range_, branch in _branches(space, name)
        ]
        for name in space.ranges
    }


def _choices(range_: BaseDistribution) -> list[Any] | None:
    if not isinstance(range_, CategoricalDistribution):
        return None
    return [str(choice) if choice is None else choice for choice in range_.choices]


def _branches(space: SearchSpace, name: str) -> list[tuple[BaseDistribution, dict[str, Any] | None]]:
    """Return each range of a hyperparameter with its branch."""
    ranges = space.ranges[name]
    if len(ranges) > 1 or name not in space.always:
        for decider in sorted(space.always_searched - {name}):
            (choices, *further_ranges) = space.ranges[decider]
            if further_ranges or not isinstance(choices, CategoricalDistribution):
                continue
            ranges_by_value = defaultdict[Hashable, list[BaseDistribution | None]](list)
            for draw in space.draws:
                if (range_ := draw.ranges.get(name)) not in ranges_by_value[draw.config[decider]]:
                    ranges_by_value[draw.config[decider]].append(range_)
            if len(ranges_by_value) == len(choices.choices) and all(
                len(ranges_of_value) == 1 for ranges_of_value in ranges_by_value.values()
            ):
                return [
                    (
                        range_,
                        {
                            "name": decider,
                            "values": [value for value in ranges_by_value if ranges_by_value[value] == [range_]],
                        },
                    )
                    for range_ in ranges
                ]
    return [(range_, None) for range_ in ranges]
