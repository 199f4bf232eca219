"""What the confirmation came to: the score of each configuration over its seeds, and whether the winner is one."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean, stdev
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.words import counted, format_score, format_value
from gaudi_tune.define.objective import Objective
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState

LEVEL = 0.95
"""Confidence of the intervals."""
CONVINCING = 0.975
"""From this confidence on, a winner is said to beat the baseline: then the interval of the difference, which has two
ends, lies above 0, too."""


def confirmed(state: SweepState, seen_by: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return the result of the confirmation so far, JSON-able, or None if no trial of it has ended.

    ``seen_by`` are the earlier sweeps that may have chosen configurations by the test data.

    A score is that of the test data at the epoch whose validation was the best, as in the search. Of a train loop
    without test data it is that validation itself, which chose the configurations and flatters them.

    Intervals are Student's over the seeds. The winner is held against the baseline by Welch's test, and the probability
    of chance is multiplied by the number of configurations of which the winner is the best (Bonferroni). All of that is
    about the first objective; of the others, each configuration has the mean and its interval.
    """
    name, test_metric = state.objective.name, names.test_metric(state.objective.name)
    of_config: dict[int, list[TrialState]] = {}
    for trial in state.trials.values():
        whole = trial.has_ended and trial.status != "failed" and not trial.to_stop  # a loop may end its trial itself
        if trial.confirms and whole and trial.test_point and math.isfinite(trial.test_point[0]):
            of_config.setdefault(trial.confirms, []).append(trial)
    if not of_config:
        return None
    tested = all(trial.tested for trials in of_config.values() for trial in trials)
    rows = {number: _row(state, state.trials[number], trials, tested) for number, trials in of_config.items()}
    baseline = rows.pop(state.baseline.number, None) if state.baseline is not None else None
    rivals = sorted(rows.values(), key=lambda row: -state.objective.score(row["mean"]))
    return {
        "metric": test_metric if tested else name,
        "tested": tested,  # on data that this search has not seen
        "seen_by": list(seen_by) if tested else [],
        "baseline": baseline,
        "rivals": rivals,  # the best first
        "gain": _gain(rivals, baseline, state.objective) if rivals and baseline is not None else None,
    }


def _row(state: SweepState, searched: TrialState, trials: Sequence[TrialState], tested: bool) -> dict[str, Any]:
    """Return what became of a configuration, and mean and interval of each objective but the first."""
    scores = [(trial.test_point if tested else trial.point)[0] for trial in trials]
    columns = list(zip(*(trial.test_point for trial in trials), strict=True))
    other_columns = zip(state.objectives[1:], columns[1:], strict=True)
    means = {objective.name: _mean(values) for objective, values in other_columns}
    return {
        "trial": searched.number,
        "config": {name: value for name, value in searched.config.items() if name != "seed"},
        "searched": searched.best,
        "scores": scores,
        "seeds": [trial.config["seed"] for trial in trials],
        **_mean(scores),
        **({"others": means} if means else {}),
    }


def _mean(scores: Sequence[float]) -> dict[str, Any]:
    """Return mean and bounds; no bounds of one score, which says nothing of how much they vary."""
    mean, interval = fmean(scores), None
    if len(scores) > 1:
        from scipy import stats  # here: it takes a second

        half = float(stats.t.ppf((1 + LEVEL) / 2, len(scores) - 1) * stats.sem(scores))
        interval = [mean - half, mean + half]
    return {"mean": mean, "interval": interval}


def _gain(rivals: list[dict[str, Any]], baseline: Mapping[str, Any], objective: Objective) -> dict[str, Any]:
    """Return how much better than the baseline the winner is, and with what confidence; None where that is not known:
    with one score, or if the seeds make no difference to either."""
    scores, against = ([objective.score(value) for value in row["scores"]] for row in (rivals[0], baseline))
    gain = fmean(scores) - fmean(against)
    if min(len(scores), len(against)) < 2 or not any(map(stdev, (scores, against))):
        return {"mean": gain, "interval": None, "confidence": None}
    from scipy import stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the seeds make no difference to one of them
        welch = partial(stats.ttest_ind, scores, against, equal_var=False)
        bounds, chance = welch().confidence_interval(LEVEL), welch(alternative="greater").pvalue
    confidence = 1 - min(1.0, len(rivals) * float(chance))
    return {"mean": gain, "interval": [float(bounds.low), float(bounds.high)], "confidence": confidence}


def in_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the result of :func:`confirmed` in words, a line each: the baseline, the others, and what follows."""
    baseline, rivals, gain = result["baseline"], result["rivals"], result["gain"]
    rows = [row for row in (baseline, *rivals) if row is not None]
    lines = [
        f"{'baseline' if row is baseline else 'trial {:03d}'.format(row['trial']):<9}  {in_interval(row)} over "
        f"{counted(len(row['scores']), 'seed')} (in the search {format_value(row['searched'])})"
        + "".join(f", {name} {in_interval(other, format_value)}" for name, other in row.get("others", {}).items())
        for row in rows
    ]
    validation = "the validation data that chose the winner" if rivals else "the validation data"
    where = tested_on(result.get("seen_by", ())) if result["tested"] else validation
    return [f"{result['metric']} on {where}", *lines, *([verdict(result)] if gain is not None else [])]


def verdict(result: Mapping[str, Any]) -> str:
    """Return whether the winner beats the baseline, in one sentence; the result has both."""
    gain, winner = result["gain"], f"trial {result['rivals'][0]['trial']:03d}"
    if gain["confidence"] is None:
        by = f"{'-' if gain['mean'] < 0 else '+'}{format_score(abs(gain['mean']))}"
        return f"{winner}: {by} against the baseline; too little to say with what confidence"
    low, high = gain["interval"]
    mean, *bounds = map(format_score, (gain["mean"], low, high))
    by = f"by {mean} ({' to '.join(bounds)}), confidence {_share(gain['confidence'])}"
    if gain["confidence"] >= CONVINCING:
        return f"{winner} beats the baseline {by}"
    if gain["mean"] > 0:
        return f"{winner} is ahead of the baseline {by}: that may be chance; more --seeds would tell"
    behind = f"is behind by {format_score(-gain['mean'])}" if gain["mean"] < 0 else "is as good"
    return f"no trial beats the baseline: the best, {winner}, {behind}"


def in_interval(row: Mapping[str, Any], write: Callable[[float], str] = format_score) -> str:
    """Return a mean with half its interval."""
    half = f" ± {write(row['interval'][1] - row['mean'])}" if row["interval"] else ""
    return f"{write(row['mean'])}{half}"


def _share(confidence: float) -> str:
    return "above 99.9 %" if confidence > 0.999 else f"{100 * confidence:.1f} %"


def tested_on(seen_by: Sequence[str]) -> str:
    """Return in words what the confirmation's test data is, if these earlier sweeps held none out."""
    if not seen_by:
        return "data that the search has not seen"
    return f"data that {' and '.join(seen_by)} may have chosen configurations by (begun without --confirm)"
