"""What the confirmation came to: the score of each configuration over its seeds, and whether the winner is one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev, variance
from typing import Any

from experiments.sweep.define.words import counted, format_value
from experiments.sweep.state.sweep_state import SweepState
from trainables.runtime import names

LEVEL = 0.95
"""Confidence of the intervals."""
CONVINCING = 0.95
"""From this confidence on, a winner is said to beat the baseline."""


def confirmed(state: SweepState) -> dict[str, Any] | None:
    """Return the result of the confirmation so far, JSON-able, or None if no trial of it has ended.

    A score is that of the test data at the epoch whose validation was the best, as in the search. Of a train loop
    without test data it is that validation itself, which chose the configurations and flatters them.

    Intervals are Student's over the seeds. The winner is held against the baseline by Welch's test, and the probability
    of chance is multiplied by the number of configurations of which the winner is the best (Bonferroni). All of that is
    about the first objective; of the others, each configuration has the mean and its interval.
    """
    name, of_test = state.objective.name, names.of_test(state.objective.name)
    scores: dict[int, dict[int, float]] = {}
    others: dict[int, dict[int, tuple[float, ...]]] = {}
    tested = True
    for trial in state.trials.values():
        if trial.confirms and trial.status == "finished" and trial.score is not None and math.isfinite(trial.score):
            scores.setdefault(trial.confirms, {})[trial.config["seed"]] = trial.score
            others.setdefault(trial.confirms, {})[trial.config["seed"]] = trial.other_scores
            tested = tested and of_test in trial.metrics
    if not scores:
        return None
    rows: list[dict[str, Any]] = [
        {
            "trial": number,
            "config": {k: v for k, v in state.trials[number].config.items() if k != "seed"},
            "searched": state.trials[number].best,
            "scores": list(by_seed.values()),
            "seeds": list(by_seed),
            "mean": fmean(by_seed.values()),
            "interval": _interval(list(by_seed.values())),
            **({"others": _others(state, [*others[number].values()])} if state.others else {}),
        }
        for number, by_seed in scores.items()
    ]
    baseline = next((row for row in rows if state.baseline is not None and row["trial"] == state.baseline.number), None)
    rivals = sorted(
        (row for row in rows if row is not baseline), key=lambda row: row["mean"], reverse=state.objective.mode == "max"
    )
    return {
        "metric": of_test if tested else name,
        "tested": tested,  # on data that the search has not seen
        "baseline": baseline,
        "rivals": rivals,  # the best first
        "gain": _gain(rivals, baseline, state.objective.mode) if rivals and baseline is not None else None,
    }


def _others(state: SweepState, scores: Sequence[Sequence[float]]) -> dict[str, dict[str, Any]]:
    """Return mean and interval of each objective but the first."""
    found = {o.name: list(values) for o, values in zip(state.others, zip(*scores, strict=True), strict=True)}
    return {name: {"mean": fmean(values), "interval": _interval(values)} for name, values in found.items()}


def _interval(scores: list[float]) -> list[float] | None:
    """Return the bounds of the mean; None if one score says nothing of how much they vary."""
    if len(scores) < 2:
        return None
    from scipy import stats  # here: it takes a second

    half = stats.t.ppf((1 + LEVEL) / 2, len(scores) - 1) * stats.sem(scores)
    return [float(fmean(scores) - half), float(fmean(scores) + half)]


def _gain(rivals: list[dict[str, Any]], baseline: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Return how much better than the baseline the winner is, and with what confidence; None where that is not known:
    with one score, or if the seeds make no difference to either."""
    scores, against, sign = rivals[0]["scores"], baseline["scores"], 1.0 if mode == "max" else -1.0
    mean = sign * (fmean(scores) - fmean(against))
    gain: dict[str, Any] = {"mean": mean, "interval": None, "confidence": None}
    if min(len(scores), len(against)) < 2 or not any(map(stdev, (scores, against))):
        return gain
    from scipy import stats

    # Welch (1947): the error of the difference, and its degrees of freedom.
    errors = [variance(each) / len(each) for each in (scores, against)]
    error = math.sqrt(sum(errors))
    freedom = sum(errors) ** 2 / sum(e**2 / (len(each) - 1) for e, each in zip(errors, (scores, against), strict=True))
    half = error * float(stats.t.ppf((1 + LEVEL) / 2, freedom))
    chance = float(stats.t.sf(mean / error, freedom))
    return {**gain, "interval": [mean - half, mean + half], "confidence": 1 - min(1.0, len(rivals) * chance)}


def in_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the result of :func:`confirmed` in words, a line each: the baseline, the others, and what follows."""
    baseline, rivals, gain = result["baseline"], result["rivals"], result["gain"]
    rows = [row for row in (baseline, *rivals) if row is not None]
    lines = [
        f"{'baseline' if row is baseline else 'trial {:03d}'.format(row['trial']):<9}  {in_interval(row)} over "
        f"{counted(len(row['scores']), 'seed')} (in the search {format_value(row['searched'])})"
        + "".join(f", {name} {_in_digits(other)}" for name, other in row.get("others", {}).items())
        for row in rows
    ]
    validation = "the validation data that chose the winner" if rivals else "the validation data"
    where = "data that the search has not seen" if result["tested"] else validation
    return [f"{result['metric']} on {where}", *lines, *([verdict(result)] if gain is not None else [])]


def verdict(result: Mapping[str, Any]) -> str:
    """Return whether the winner beats the baseline, in one sentence; the result has both."""
    gain, winner = result["gain"], f"trial {result['rivals'][0]['trial']:03d}"
    if gain["confidence"] is None:
        return f"{winner}: {gain['mean']:+.4f} against the baseline; too little to say with what confidence"
    low, high = gain["interval"]
    by = f"by {gain['mean']:.4f} ({low:.4f} to {high:.4f}), confidence {_share(gain['confidence'])}"
    if gain["confidence"] >= CONVINCING:
        return f"{winner} beats the baseline {by}"
    if gain["mean"] > 0:
        return f"{winner} is ahead of the baseline {by}: that may be chance; more --seeds would tell"
    return f"no trial beats the baseline: the best, {winner}, is behind by {-gain['mean']:.4f}"


def in_interval(row: Mapping[str, Any]) -> str:
    """Return a mean with half its interval."""
    half = f" ± {row['interval'][1] - row['mean']:.4f}" if row["interval"] else ""
    return f"{row['mean']:.4f}{half}"


def _in_digits(row: Mapping[str, Any]) -> str:
    """Return a mean with half its interval, of whatever size it is."""
    half = f" ± {format_value(row['interval'][1] - row['mean'])}" if row["interval"] else ""
    return f"{format_value(row['mean'])}{half}"


def _share(confidence: float) -> str:
    return "above 99.9 %" if confidence > 0.999 else f"{100 * confidence:.1f} %"
