"""Which trials are trained again after the search, and in which order."""

from __future__ import annotations

from typing import Any

from gaudi_tune.sweep.search.confirmation_trials import confirmation_configs
from tests.helpers.fed_state import Fed


def searched(**changes: Any) -> Fed:
    """A search of four trials that is over: the third is the best, the fourth failed, the second was stopped."""
    fed = Fed(trials=4, **{"confirm": 2, "seeds": 2, **changes})
    fed.trial(1, 0.1, 0.3, x=1)
    fed.trial(2, 0.5, outcome="stopped early", x=2)
    fed.trial(3, 0.7, 0.6, x=3)
    fed.trial(4, 0.9, outcome="failed", x=4)
    return fed


def keys(configs: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(config["confirms"], config["x"]) for config in configs]


def test_the_baseline_and_the_best_are_trained_again_with_the_same_seeds() -> None:
    found = confirmation_configs(searched().state, 7, search_is_over=True)
    assert keys(found) == [(1, 1), (1, 1), (3, 3), (3, 3), (2, 2), (2, 2)]
    seeds = [config["seed"] for config in found]
    assert seeds == seeds[:2] * 3 and seeds[0] != seeds[1]
    assert {config["seed"] for config in confirmation_configs(searched().state, 8, search_is_over=True)}.isdisjoint(
        seeds
    )


def test_before_the_search_is_over_only_the_baseline_is_known() -> None:
    fed = Fed(trials=4, confirm=1, seeds=3)
    assert confirmation_configs(fed.state, 0, search_is_over=False) == []
    fed.trial(1, 0.1, outcome=None, x=1)
    assert confirmation_configs(fed.state, 0, search_is_over=False) == []
    fed.report(1, 2, 0.1, "pause")
    assert keys(confirmation_configs(fed.state, 0, search_is_over=False)) == [(1, 1)] * 3
    fed.end(1)
    fed.trial(2, 0.5, outcome=None)
    assert keys(confirmation_configs(fed.state, 0, search_is_over=False)) == [(1, 1)] * 3


def test_a_baseline_that_is_the_best_is_trained_again_once_and_so_is_the_next() -> None:
    fed = searched(mode="min", confirm=1)
    assert keys(confirmation_configs(fed.state, 0, search_is_over=True)) == [(1, 1), (1, 1), (2, 2), (2, 2)]


def test_without_confirmation_nothing_is_trained_again() -> None:
    assert confirmation_configs(searched(confirm=0, seeds=0).state, 0, search_is_over=True) == []


def test_the_sweep_is_complete_when_all_that_can_be_confirmed_is() -> None:
    fed = searched(confirm=3)  # three others, of which one failed
    assert (fed.state.expected, fed.state.complete) == (4 + 2 * 3, False)
    for number, config in enumerate(confirmation_configs(fed.state, 0, search_is_over=True), start=5):
        fed.trial(number, 0.95, **config)
    assert fed.state.complete
    assert fed.state.best is fed.state.trials[3]
    assert len(fed.state.since_best) == 1
