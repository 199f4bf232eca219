"""Which trials are trained again after the search, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gaudi_tune.sweep.record.events import TrialsAsked
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


def confirmed(*scores_of: Sequence[float], **changes: Any) -> Fed:
    """The search above, whose trials 1 and 3 are trained again with these scores."""
    fed = searched(confirm=1, **changes)
    number = 4
    for trial, scores in zip((1, 3), scores_of, strict=True):
        for score in scores:
            number += 1
            fed.trial(number, score, x=trial, confirms=trial)
    return fed


@pytest.mark.parametrize(
    ("baseline", "winner", "seeds"),
    [
        ((0.50, 0.52), (0.54, 0.56), 4),  # confidence 92.2 %
        ((0.50, 0.50), (0.54, 0.54), 2),  # seeds that make no difference
        ((0.50, 0.52), (0.90, 0.91), 2),  # it is convincing
        ((0.50, 0.56), (0.52, 0.50), 2),  # the winner is behind
        ((0.50, 0.52), (0.54,), 2),  # one has yet to end
    ],
)
def test_seeds_are_added_where_the_first_ones_leave_the_verdict_open(
    baseline: Sequence[float], winner: Sequence[float], seeds: int
) -> None:
    fed = confirmed(baseline, winner, most_seeds=4)
    assert fed.state.seeds == seeds
    found = confirmation_configs(fed.state, 7, search_is_over=True)
    assert keys(found) == [(1, 1)] * seeds + [(3, 3)] * seeds
    assert [config["seed"] for config in found[:2]] == [
        config["seed"] for config in confirmation_configs(searched().state, 7, search_is_over=True)[:2]
    ]
    assert (fed.state.expected, fed.state.complete) == (4 + 2 * seeds, seeds == 2 == len(winner))


def test_a_number_of_seeds_that_was_given_stays() -> None:
    assert confirmed((0.50, 0.52), (0.54, 0.56)).state.complete


def test_once_open_the_verdict_has_all_seeds_whatever_the_next_of_them_say() -> None:
    fed = confirmed((0.50, 0.52), (0.54, 0.56), most_seeds=4)
    fed.trial(9, 0.95, x=3, confirms=3)
    fed.trial(10, 0.96, x=3, confirms=3)
    assert (fed.state.seeds, fed.state.expected, fed.state.complete) == (4, 12, False)
    fed.trial(11, 0.51, outcome="failed", x=1, confirms=1)
    fed.trial(12, 0.51, x=1, confirms=1)
    assert fed.state.complete


def test_a_winner_after_more_trials_begins_with_the_first_seeds_and_no_trial_is_forgotten() -> None:
    fed = confirmed((0.50, 0.52), (0.54, 0.56), most_seeds=4)
    for number, (score, trial) in enumerate(((0.51, 1), (0.53, 1), (0.9, 3), (0.91, 3)), start=9):
        fed.trial(number, score, x=trial, confirms=trial)
    assert fed.state.complete
    fed.state.apply(TrialsAsked(time=0.0, request="add", num_trials=5))
    fed.trial(13, 0.99, x=5)
    assert (fed.state.seeds, fed.state.expected, fed.state.complete) == (2, 5 + 4 + 2 + 4, False)


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
