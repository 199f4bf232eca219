"""What the confirmation says, on numbers that can be checked by hand and by scipy."""

from __future__ import annotations

from statistics import fmean, variance
from typing import Any

import pytest
from scipy import stats

from gaudi_tune.define.objective import Objective
from gaudi_tune.show.confirmation import confirmed, in_lines, verdict
from gaudi_tune.sweep.record.events import StopAsked
from tests.helpers.fed_state import Fed

BASELINE, FIRST, SECOND = [0.50, 0.52, 0.51], [0.60, 0.63, 0.61], [0.58, 0.66, 0.56]


def sweep(*scores_of: list[float], mode: Any = "max", test: bool = True, confirm: int = 2) -> dict[str, Any]:
    """The result of a confirmation in which trials 1, 2 and 3 have these scores on the test data."""
    fed = Fed(mode, trials=3, confirm=confirm, seeds=3)
    for number in (1, 2, 3):
        fed.trial(number, 0.9 + number / 100)
    number = 3
    for confirms, scores in enumerate(scores_of, start=1):
        for seed, score in enumerate(scores):
            number += 1
            fed.begin(number, confirms=confirms, seed=seed)
            scored: list[dict[str, Any]] = [{"test_score": score}, {"test_score": 0.99}] if test else [{}, {}]
            fed.report(number, 1, 0.8 if test else score, **scored[0])
            fed.report(number, 2, 0.0 if mode == "max" else 1.0, **scored[1])
            fed.end(number)
    result = confirmed(fed.state)
    assert result is not None
    return result


def test_means_intervals_and_the_winner() -> None:
    result = sweep(BASELINE, FIRST, SECOND)
    assert result["metric"] == "test_score"
    assert [row["trial"] for row in (result["baseline"], *result["rivals"])] == [1, 2, 3]
    assert result["baseline"]["scores"] == BASELINE, "those of the best epoch of validation"
    assert result["rivals"][0]["searched"] == 0.92
    for row in (result["baseline"], *result["rivals"]):
        by_scipy = stats.ttest_1samp(row["scores"], 0.0).confidence_interval(0.95)
        assert row["interval"] == pytest.approx([by_scipy.low, by_scipy.high])


def test_the_confidence_that_the_winner_beats_the_baseline_counts_how_many_could_have_won() -> None:
    result = sweep(BASELINE, FIRST, SECOND)
    # Welch (1947): the error of the difference, and its degrees of freedom.
    errors = [variance(scores) / 3 for scores in (FIRST, BASELINE)]
    error, freedom = sum(errors) ** 0.5, sum(errors) ** 2 / sum(e**2 / 2 for e in errors)
    chance = stats.t.sf((fmean(FIRST) - fmean(BASELINE)) / error, freedom)
    half = error * stats.t.ppf(0.975, freedom)
    assert result["gain"]["interval"] == pytest.approx([sum(FIRST) / 3 - 0.51 - half, sum(FIRST) / 3 - 0.51 + half])
    assert result["gain"]["mean"] == pytest.approx(sum(FIRST) / 3 - 0.51)
    assert result["gain"]["confidence"] == pytest.approx(1 - 2 * chance)
    assert verdict(result).startswith("trial 002 beats the baseline by 0.1033 (95 % interval ")


def test_less_is_better_of_a_loss() -> None:
    result = sweep(FIRST, BASELINE, SECOND, mode="min")
    assert (result["rivals"][0]["trial"], result["gain"]["mean"]) == (2, pytest.approx(0.1033, abs=1e-3))
    assert "beats the baseline" in verdict(result)


@pytest.mark.parametrize(
    ("scores", "says"),
    [
        ([[0.5, 0.52], [0.3, 0.32]], "no trial beats the baseline: the best, trial 002, is behind by 0.2000"),
        (
            [[0.5, 0.52], [0.5467, 0.5667]],
            "trial 002 is probably better than the baseline, by 0.0467 (95 % interval -0.0141 to 0.1075), confidence "
            "96.0 %: one sweep in 25 shows such a lead by chance",
        ),
        ([[0.5, 0.52], [0.51, 0.53]], "trial 002 is ahead of the baseline by 0.0100 (95 % interval "),
        ([[0.5], [0.6]], "trial 002: +0.1000 against the baseline; too little to say with what confidence"),
        ([[0.5, 0.5], [0.5, 0.5]], "trial 002: +0.0000 against the baseline; too little to say"),
        ([[0.5, 0.7], [0.6, 0.6]], "no trial beats the baseline: the best, trial 002, is as good"),
        (
            [[0.5, 0.5], [0.6, 0.7]],
            "trial 002 is ahead of the baseline by 0.1500 (95 % interval -0.4853 to 0.7853), confidence",
        ),
    ],
)
def test_a_winner_that_is_none_is_not_called_one(scores: list[list[float]], says: str) -> None:
    assert verdict(sweep(*scores)).startswith(says)


def test_without_test_data_it_says_that_the_scores_are_those_of_the_validation() -> None:
    result = sweep(BASELINE, FIRST, test=False)
    assert result["metric"] == "score"
    lines = in_lines(result)
    assert lines[0].endswith("on the validation data that chose the winner: mean ± 95 % confidence interval")
    assert in_lines(result | {"rivals": [], "gain": None})[0].startswith(
        "score after training again in full, on the validation data:"
    )
    assert lines[1] == "baseline   0.5100 ± 0.0248 over 3 seeds"


def test_scores_that_do_not_depend_on_the_seed_are_questioned() -> None:
    same, differ = in_lines(sweep([0.5, 0.5, 0.5], FIRST))[1:3]
    assert same.endswith("over 3 seeds, all the same: does the train loop set its own seed?")
    assert "all the same" not in differ
    counted = Fed(trials=1, confirm=0, seeds=2)  # shares of the same rows are equal by chance, what led there is not
    counted.trial(1, 0.5)
    for number, score in ((2, 0.6), (3, 0.7)):
        counted.begin(number, confirms=1, seed=number)
        counted.report(number, 1, score, test_score=0.5)
        counted.end(number)
    result = confirmed(counted.state)
    assert result is not None
    assert in_lines(result)[1] == "baseline   0.5000 ± 0.0000 over 2 seeds"


def test_scores_that_are_the_same_everywhere_are_no_question_of_seeds() -> None:
    lines = in_lines(sweep([0.5, 0.5], [0.5, 0.5]))
    assert lines[-1] == "all scores are the same: neither the configuration nor the seed makes a difference"
    assert "seed?" not in "".join(lines)


def test_test_data_that_an_earlier_sweep_may_have_chosen_by_is_not_called_unseen() -> None:
    result = sweep(BASELINE, FIRST)
    assert "in full, on data that the search has not seen: " in in_lines(result)[0]
    lines = in_lines(result | {"seen_by": ["small", "other"]})
    assert "on data that small and other may have chosen configurations by (begun without --confirm): " in lines[0]


def test_before_a_trial_of_it_has_ended_there_is_nothing_to_say() -> None:
    fed = Fed(trials=1, confirm=1, seeds=2)
    fed.trial(1, 0.5)
    fed.trial(2, 0.6, outcome=None, confirms=1, seed=0)
    assert confirmed(fed.state) is None


def test_all_are_compared_by_validation_where_the_best_epoch_of_a_seed_has_no_test_data() -> None:
    fed = Fed(trials=1, confirm=0, seeds=2)
    fed.trial(1, 0.5)
    for number, tested in ((2, None), (3, 0.4)):
        fed.begin(number, confirms=1, seed=number)
        fed.report(number, 1, 0.6, test_score=tested)
        fed.report(number, 2, 0.5, test_score=0.3)
        fed.end(number)
    result = confirmed(fed.state)
    assert result is not None
    assert (result["metric"], result["baseline"]["scores"]) == ("score", [0.6, 0.6])


def test_a_loop_that_ends_its_trials_itself_is_confirmed_too_and_what_a_person_stopped_does_not_count() -> None:
    fed = Fed(trials=2, confirm=1, seeds=2)
    fed.trial(1, 0.5)
    fed.trial(2, 0.6)
    for number, (confirms, score) in enumerate(((1, 0.50), (1, 0.52), (2, 0.60), (2, 0.62), (2, 0.1)), start=3):
        fed.begin(number, confirms=confirms, seed=number)
        fed.report(number, 1, score)
        if score == 0.1:
            fed.state.apply(StopAsked(trial=number, request="stop"))
        fed.end(number, "stopped early", "its train loop returned after epoch 1 of 4")
    result = confirmed(fed.state)
    assert result is not None
    assert result["baseline"]["scores"] == [0.50, 0.52]
    assert [row["scores"] for row in result["rivals"]] == [[0.60, 0.62]]


@pytest.mark.parametrize(("untested", "mean"), [(0, 3.5), (4, 1.0)])
def test_each_of_several_objectives_has_its_mean_on_test_data_where_all_trials_have_some(
    untested: int, mean: float
) -> None:
    fed = Fed(trials=2, confirm=1, seeds=2, others=[Objective("val_loss", "min"), Objective("seconds", "min")])
    fed.begin(1, 2)
    for number in (1, 2):
        fed.report(number, 1, number / 10, val_loss=1.0, seconds=2.0)
        fed.end(number)
    for number, (confirms, seed) in enumerate(((1, 0), (1, 1), (2, 0), (2, 1)), start=3):
        fed.begin(number, confirms=confirms, seed=seed)
        test_metric: dict[str, Any] = {"test_score": confirms / 10 + seed / 100, "test_loss": 3.0 + seed}
        fed.report(number, 1, 0.5, val_loss=1.0, seconds=2.0, **(test_metric if number != untested else {}))
        fed.report(number, 2, 0.4, val_loss=9.0, seconds=9.0, test_score=0.0, test_loss=9.0)
        fed.end(number)
    result = confirmed(fed.state)
    assert result is not None
    assert (result["baseline"]["trial"], result["rivals"][0]["trial"]) == (1, 2)
    others = result["rivals"][0]["others"]
    assert {name: other["mean"] for name, other in others.items()} == {"val_loss": mean, "seconds": 2.0}
    if untested:  # as the first objective, which is said to be of the validation data
        assert result["metric"] == "score"
        return
    half = stats.t.ppf(0.975, 1) * 0.5
    assert others["val_loss"]["interval"] == pytest.approx([3.5 - half, 3.5 + half])
    assert in_lines(result)[2].endswith("2 seeds, val_loss 3.5 ± 6.353, seconds 2 ± 0")
