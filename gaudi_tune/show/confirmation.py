"""The result of the confirmation: the score of each configuration over its seeds, and whether the winner is real.

``sweep/search/confirmation_trials.py`` chooses what is trained again, ``sweep/record/comparison.py`` compares scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.words import counted, format_score, format_value
from gaudi_tune.sweep.record.comparison import confirmed_scores, half_width
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState

CONVINCING = 0.975
"""The confidence from which on a winner is said to beat the baseline. The test is one-sided: at this confidence the
two-sided interval of the difference lies above 0, too."""
PROBABLE = 0.9
"""The confidence from which on a winner is said to be probably better. Without a real difference, at most one sweep in
ten shows such a lead."""
PLUS_MINUS = "mean ± 95 % confidence interval"
"""What :func:`in_interval` returns, in words."""
SEEDS_ASKED = ", all the same: does the train loop set its own seed?"
"""What is asked where all seeds of a configuration have the same score."""


def confirmed(state: SweepState, earlier_sweeps: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return the result of the confirmation so far, as JSON can have it, or None if none of its trials has ended.

    ``earlier_sweeps`` may have chosen configurations by the test data.

    A score is measured on the test data, at the epoch with the best validation, as in the search. For a train loop
    without test data it is that validation itself, which has chosen the configurations and so is too optimistic.

    The intervals are Student's over the seeds, and the gain is that of
    :func:`~gaudi_tune.sweep.record.comparison.gain_over`, in the first objective. For the others there are the mean and
    the interval of each configuration.
    """
    name, test_metric = state.objective.name, names.test_metric(state.objective.name)
    groups, scores, tested = confirmed_scores(state.trials.values())
    if not groups:
        return None
    rows = {number: _row(state, number, trials, scores[number], tested) for number, trials in groups.items()}
    gain = state.gain(scores)
    baseline = rows.pop(state.baseline.number, None) if state.baseline is not None else None
    rivals = sorted(rows.values(), key=lambda row: -state.objective.score(row["mean"]))
    return {
        "metric": test_metric if tested else name,
        "tested": tested,  # whether on data that this search has not seen
        "seen_by": list(earlier_sweeps) if tested else [],
        "baseline": baseline,
        "rivals": rivals,  # the best first
        "gain": None if gain is None else gain._asdict(),
    }


def _row(
    state: SweepState, number: int, trials: Sequence[TrialState], scores: Sequence[float], tested: bool
) -> dict[str, Any]:
    """Return the scores of a configuration with their mean and interval, those of the other objectives, and whether all
    reports are the same whatever the seed."""
    row = {
        "trial": number,
        "config": {name: value for name, value in state.trials[number].config.items() if name != "seed"},
        "searched": state.trials[number].best,
        "scores": scores,
        "seeds": [trial.config["seed"] for trial in trials],
        "same": len(trials) > 1 and len({(*trial.curve.items(), *trial.test_point) for trial in trials}) == 1,
        **_mean(scores),
    }
    if state.has_front:
        columns = list(zip(*(trial.test_point if tested else trial.point for trial in trials), strict=True))
        objectives = zip(state.objectives[1:], columns[1:], strict=True)
        row["others"] = {objective.name: _mean(values) for objective, values in objectives}
    return row


def _mean(scores: Sequence[float]) -> dict[str, Any]:
    """Return the mean of scores and its interval, which is None for a single score."""
    mean, half = fmean(scores), half_width(scores) if len(scores) > 1 else None
    return {"mean": mean, "interval": None if half is None else [mean - half, mean + half]}


def confirming(number: int) -> str:
    """Return how many of a sweep's trials confirm, in words that follow their number; "" if none do."""
    return f" ({number} of them {'confirms' if number == 1 else 'confirm'})" if number else ""


def in_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the result of :func:`confirmed` in words: the data, the baseline, the other trials, and the verdict."""
    if result["tested"]:
        data = describe_test_data(result.get("seen_by", ()))
    else:
        data = "the validation data that chose the winner" if result["rivals"] else "the validation data"
    rows = [*([] if result["baseline"] is None else [("baseline", result["baseline"])])]
    rows += [(f"trial {row['trial']:03d}", row) for row in result["rivals"]]
    meaning = f": {PLUS_MINUS}" if any(row["interval"] for _, row in rows) else ""
    lines = [f"{result['metric']} after training again in full, on {data}{meaning}"]
    # Where other configurations have the same scores, too, the seeds are not what is wrong.
    are_equal = len(rows) > 1 and len({score for _, row in rows for score in row["scores"]}) == 1
    lines += [_row_line(label, row, "" if are_equal else SEEDS_ASKED) for label, row in rows]
    if are_equal:
        lines.append("all scores are the same: neither the configuration nor the seed makes a difference")
        return lines
    if result["gain"] is not None:
        lines.append(verdict(result))
    return lines


def _row_line(label: str, row: Mapping[str, Any], if_the_same: str) -> str:
    line = f"{label:<9}  {in_interval(row)} over {counted(len(row['scores']), 'seed')}"
    if row.get("same"):
        line += if_the_same
    for name, mean in row.get("others", {}).items():
        line += f", {name} {in_interval(mean, format_value)}"
    return line


def verdict(result: Mapping[str, Any]) -> str:
    """Return in one sentence whether the winner beats the baseline. The result must have both."""
    gain, winner = result["gain"], f"trial {result['rivals'][0]['trial']:03d}"
    mean = gain["mean"]
    if gain["confidence"] is None:
        sign = "-" if mean < 0 else "+"
        return f"{winner}: {sign}{format_score(abs(mean))} against the baseline; too little to say with what confidence"
    low, high = gain["interval"]
    interval = f"{format_score(low)} to {format_score(high)}"
    difference = f"by {format_score(mean)} (95 % interval {interval}), confidence {_percent(gain['confidence'])}"
    if gain["confidence"] >= CONVINCING:
        return f"{winner} beats the baseline {difference}"
    if gain["confidence"] >= PROBABLE:
        sweeps = round(1 / (1 - gain["confidence"]))
        chance = f"one sweep in {sweeps} shows such a lead by chance"
        return f"{winner} is probably better than the baseline, {difference}: {chance}; more --seeds would tell"
    if mean > 0:
        return f"{winner} is ahead of the baseline {difference}: that may be chance; more --seeds would tell"
    comparison = f"is behind by {format_score(-mean)}" if mean < 0 else "is as good"
    return f"no trial beats the baseline: the best, {winner}, {comparison}"


def in_interval(row: Mapping[str, Any], write: Callable[[float], str] = format_score) -> str:
    """Return a mean, and half the width of its interval if it has one."""
    if not row["interval"]:
        return write(row["mean"])
    return f"{write(row['mean'])} ± {write(row['interval'][1] - row['mean'])}"


def _percent(confidence: float) -> str:
    return "above 99.9 %" if confidence > 0.999 else f"{100 * confidence:.1f} %"


def describe_test_data(earlier_sweeps: Sequence[str]) -> str:
    """Return in words what the confirmation's test data is; ``earlier_sweeps`` held no data out."""
    if not earlier_sweeps:
        return "data that the search has not seen"
    return f"data that {' and '.join(earlier_sweeps)} may have chosen configurations by (begun without --confirm)"
