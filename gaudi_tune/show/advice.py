"""What a sweep says about itself in sentences: values without effect, and what to do next."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from numbers import Real
from statistics import median
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from gaudi_tune.base import names
from gaudi_tune.base.words import counted, format_choice, format_score, format_value, last_line
from gaudi_tune.define.ranges import words_of
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.confirmation import CONVINCING
from gaudi_tune.show.early_order import early_order, score_until
from gaudi_tune.sweep.record.outcome import failure_of
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState

EDGE = 0.02
"""The share of a range, on its own scale, that counts as its edge."""
FEW_VALUES = 8
"""Ranges of fewer numbers have no edge that says something: the best is often the highest."""
CHANCE = 0.01
"""The probability of chance up to which a choice is said to be behind."""
MAX_ROWS = 1000
"""The largest number of validation rows that is seen in the steps of a metric."""
MIN_VALUES = 4
"""The fewest different values of a metric in which its steps are seen."""
MIN_CLOSE = 3
"""How many of the best trials must lie within one step of the metric before that is said."""
FLOAT32 = 1e-6
"""How far a share of rows may be from its fraction: networks compute in float32."""
LATE = 0.2
"""The last share of a search in which a new best means that it still improved."""
MIN_SEARCHED = 5
"""The fewest trials of a search of which is said that the best is the baseline, that it still improved, or that nothing
is left to do."""
MAX_COMPARED = 100
"""How many trials, and different values of a metric, are looked at for this: the first ones."""
MAX_NAMED = 4
"""How many trials a sentence names."""


def without_effect(space: SearchSpace, trials: Sequence[TrialState]) -> list[str]:
    """Return sentences about sampled values that seem to change nothing, from the second trial on.

    Either no trial has read the value from its configuration, or trials with different values report the same numbers
    to the last bit.

    Args:
        space: The search space.
        trials: The trials of the search, in their order.
    """
    seen = [trial for trial in trials if trial.curve and trial.status not in ("running", "failed")][:MAX_COMPARED]
    unread = [name for name in space.ranges if _nobody_reads(name, seen)]
    sentences = []
    if unread:
        sentences.append(
            f"no trial has read {_listed(unread)} from its configuration: nothing that the search tries there has an "
            f"effect; read config[{unread[0]!r}] in the train loop, or take it out of the space"
        )
    return sentences + [_equal_sentence(group, changed) for group, changed in _equal_trials(seen, space)]


def _nobody_reads(name: str, trials: Sequence[TrialState]) -> bool:
    having = [trial for trial in trials if name in trial.config]
    return len(having) > 1 and all(name in trial.metrics.get(names.UNREAD, "").split("\n") for trial in having)


def _equal_trials(trials: Sequence[TrialState], space: SearchSpace) -> Iterator[tuple[list[TrialState], list[str]]]:
    """Yield trials with equal numbers and the hyperparameters in which they differ, for each such group of trials."""
    groups: dict[Any, list[TrialState]] = defaultdict(list)
    for trial in trials:
        losses = frozenset((name, value) for name, value in trial.metrics.items() if name.endswith("loss"))
        if any(_is_dense(value) for _, value in (*trial.curve.items(), *losses)):
            groups[tuple(trial.curve.items()), losses].append(trial)
    for group in groups.values():
        changed = [name for name in space.ranges if len({str(trial.config.get(name)) for trial in group}) > 1]
        if changed:
            yield group, changed


def _is_dense(value: Any) -> bool:
    """Whether a number is none that comes of counting rows, or that a person writes: these are equal by chance."""
    if not isinstance(value, Real) or not math.isfinite(number := float(value)):
        return False
    return abs(float(Fraction(number).limit_denominator(100_000)) - number) > 1e-12 * abs(number)


def _equal_sentence(trials: Sequence[TrialState], changed: Sequence[str]) -> str:
    more = [f"{len(trials) - MAX_NAMED} more"] if len(trials) > MAX_NAMED else []
    numbers = _listed([*(f"{trial.number:03d}" for trial in trials[:MAX_NAMED]), *more])
    differ, them = ("differs", "it") if len(changed) == 1 else ("differ", "them")
    return (
        f"trials {numbers} report the same numbers to the last bit, though {_listed(changed)} {differ}: does the train "
        f"loop use {them}?"
    )


def next_steps(plan: Plan, state: SweepState, confirmation: Mapping[str, Any] | None) -> list[str]:
    """Return what to do after a sweep, a sentence each, the most important first; none while a trial runs, or if none
    has a value. If all have the same, only that many failed.

    With several objectives, all of it is about the first.

    Args:
        plan: The plan of the sweep.
        state: The sweep at its end.
        confirmation: The result of the confirmation, as in the summary.
    """
    ranked = state.ranked(trial for trial in state.searched if trial.best is not None)
    failures = _about_failures(state)
    if not ranked or plan.options.baseline_only or state.running:
        return []
    if len({trial.point for trial in ranked}) < 2:
        return [failures] if failures else []
    space, confirmed = plan.experiment.search_space, confirmation or {}
    gain = confirmed.get("gain")
    winner = state.trials[confirmed["rivals"][0]["trial"]] if confirmed.get("rivals") else ranked[0]
    sentences = [failures, _about_rows(ranked, state), _about_baseline(winner, ranked, state, gain)]
    ranges = space.draw_with(winner.best_config, winner.number - 1).ranges
    sentences += [_about_edge(name, winner, range_) for name, range_ in ranges.items()]
    choices = [name for name, kinds in space.ranges.items() if {*map(type, kinds)} == {CategoricalDistribution}]
    sentences += _about_choices(choices, ranked, state)
    order = early_order(ranked, state.objective)
    words = order.in_words(plan.budget.unit, plan.rungs) if order is not None else ""
    sentences += [words if "--grace" in words else "", _about_end(plan.name, ranked, state)]
    # If the verdict is open, it says what would tell; and trials that wait can still be continued.
    is_settled = not state.open_trials and (gain is None or (gain["confidence"] or 0.0) >= CONVINCING)
    if not any(sentences) and is_settled and len(ranked) >= MIN_SEARCHED:
        sentences = [f"nothing seen here asks for another search: gaudi-tune export {plan.name} takes the best away"]
    return [sentence for sentence in sentences if sentence]


def _about_failures(state: SweepState) -> str:
    """Say that at least half of the trials have failed, and most of them why."""
    failures = [failure for trial in state.searched if (failure := failure_of(trial, state.objectives)) is not None]
    if not failures or 2 * len(failures) < len(state.searched):
        return ""
    kind, count = Counter(failure.kind for failure in failures).most_common(1)[0]
    example = next(failure for failure in reversed(failures) if failure.kind == kind)
    return (
        f"{len(failures)} of {counted(len(state.searched), 'trial')} failed, {count} of them of the kind "
        f"{kind.value!r} ({last_line(example.text)}): correct that, or take what leads there out of the ranges"
    )


def _about_rows(ranked: Sequence[TrialState], state: SweepState) -> str:
    """Say that the metric counts in steps that are too coarse for the differences between the best trials."""
    step = step_of(sorted({value for trial in ranked for value in trial.curve.values()})[:MAX_COMPARED])
    values = [trial.point[0] for trial in ranked]
    close = [value for value in values if abs(value - values[0]) <= (step or 0.0) + FLOAT32]
    if step is None or len(close) < MIN_CLOSE:
        return ""
    return (
        f"the {len(close)} best trials differ in {state.objective.name} by at most {format_value(step, 2)}, which is "
        f"one row of the validation data: more of it, or a finer metric such as a loss, would tell them apart"
    )


def step_of(values: Collection[float]) -> float | None:
    """Return the step in which a share of rows counts; None if the values are no shares of so few rows.

    >>> step_of({11 / 24, 0.5, 13 / 24, 0.625})
    0.041666666666666664
    >>> step_of({0.1234, 0.5432, 0.9876, 0.3141})
    """
    steps = []
    for whole in (1, 100):  # a share, or a percentage
        shares = [Fraction(value / whole).limit_denominator(MAX_ROWS) for value in values]
        rows = math.lcm(*(share.denominator for share in shares))
        exact = all(abs(float(s) - v / whole) <= FLOAT32 for s, v in zip(shares, values, strict=True))
        if len(values) >= MIN_VALUES and exact and 1 < rows <= MAX_ROWS:
            steps.append(whole / rows)
    return max(steps, default=None)


def _about_baseline(
    winner: TrialState, ranked: Sequence[TrialState], state: SweepState, gain: Mapping[str, Any] | None
) -> str:
    """Say that nothing better than the baseline was found."""
    is_best = ranked[0] is state.baseline or (gain is not None and gain["mean"] <= 0)
    if not is_best or len(ranked) < MIN_SEARCHED:
        return ""
    again = "" if ranked[0] is state.baseline else ", trained again,"
    return f"the baseline{again} is the best of {len(ranked)} trials: search nearer to it, with more trials, or keep it"


def _about_edge(name: str, winner: TrialState, range_: BaseDistribution) -> str:
    """Say that the winner's value is at an edge of a range that could be wider."""
    value = winner.best_config[name]
    edge = edge_of(range_, value)
    return edge and (
        f"{name}={format_choice(value)} of trial {winner.number:03d} is at the {edge} edge of its range "
        f"({words_of(range_)}): widen it"
    )


def edge_of(range_: BaseDistribution, value: Any) -> str:
    """Return at which edge of its range a value is, "lower" or "upper"; "" if at none, or if it could not be wider.

    >>> edge_of(FloatDistribution(1e-6, 1e-2, log=True), 1e-6)
    'lower'
    >>> edge_of(FloatDistribution(0.0, 0.5), 0.0)
    ''
    """
    if not isinstance(range_, FloatDistribution | IntDistribution) or range_.low == range_.high:
        return ""
    if range_.step and (range_.high - range_.low) / range_.step < FEW_VALUES - 1:
        return ""
    low, high, number = (math.log(end) if range_.log else end for end in (range_.low, range_.high, value))
    share = (number - low) / (high - low)
    if share <= EDGE and range_.low != 0:  # what counts from 0, as a rate does, has nothing below
        return "lower"
    return "upper" if share >= 1 - EDGE and range_.high != 1 else ""


def _about_choices(choices: Sequence[str], ranked: Sequence[TrialState], state: SweepState) -> Iterator[str]:
    """Say of each choice that all its trials are too far behind the others for that to be chance.

    The choice of the most trials is named first, and its trials count no more for the others: what one optimizer does
    is not said of the weight decay that its trials happened to have.
    """
    trials = list(ranked)
    while sentences := list(_choices_behind(choices, trials, state)):
        group, sentence = max(sentences, key=lambda pair: len(pair[0]))
        yield sentence
        trials = [trial for trial in trials if trial not in group]


def _choices_behind(
    choices: Sequence[str], trials: Sequence[TrialState], state: SweepState
) -> Iterator[tuple[list[TrialState], str]]:
    """Yield the trials of each choice that are behind most others, and a sentence about it.

    A trial counts with its value at the last step that all of them have reached, so that being stopped costs nothing.
    If the choice made no difference, any of the trials might as well be those of the choice: that counts the chance
    that so many others are ahead of all of them (a precedence test; Nelson, 1963), times the choices that are compared.
    """
    groups: dict[tuple[str, str], list[TrialState]] = defaultdict(list)
    for trial in trials:
        for name in (name for name in choices if name in trial.best_config):
            groups[name, format_choice(trial.best_config[name])].append(trial)
    for (name, value), group in groups.items():
        having = [trial for trial in trials if name in trial.best_config]
        step = min(max(trial.curve) for trial in having)
        scores = {trial.number: score_until(trial, step, state.objective) for trial in having}
        best = max(scores.pop(trial.number) for trial in group)
        ahead = sum(score > best for score in scores.values())
        chance = math.comb(len(having) - ahead, len(group)) / math.comb(len(having), len(group))
        if 2 * ahead > len(scores) and len(groups) * chance <= CHANCE:
            reached, middle = (format_score(state.objective.score(score)) for score in (best, median(scores.values())))
            at, unless = "", ""
            if any(max(trial.curve) > step for trial in having):
                at, unless = f" at {state.budget.unit} {step}", ", unless it learns late"
            yield (
                group,
                f"{name}={value} was behind in all of its {counted(len(group), 'trial')}: at best {reached}{at}, half "
                f"of the others beyond {middle}: leave it out{unless}",
            )


def _about_end(name: str, ranked: Sequence[TrialState], state: SweepState) -> str:
    """Say that the search ended while it still improved."""
    place = sorted(trial.number for trial in ranked).index(ranked[0].number) + 1
    if len(ranked) < MIN_SEARCHED or place <= (1 - LATE) * len(ranked):
        return ""
    return (
        f"the best came late, as trial {place} of {len(ranked)}: the search ended while it was still improving; "
        f"continue it with --resume {name} --add-trials {len(ranked)}"
    )


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
