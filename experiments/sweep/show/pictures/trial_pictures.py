"""Pictures of the trials of a sweep, each in the colour of what became of it: the optimization history, the curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import plotly.graph_objects as go

from experiments.sweep.define.objective import Mode
from experiments.sweep.define.words import format_params, format_value
from experiments.sweep.show.pictures.sweep_view import (
    COLOURS,
    INK,
    NothingToDrawError,
    ShownTrial,
    SweepView,
    by_status,
    line_width,
)
from experiments.sweep.state.events import Status

MARKERS: dict[Status, str] = {
    "finished": "circle",
    "stopped early": "diamond",
    "failed": "x",
    "running": "circle-open",
    "paused": "diamond-open",
    "interrupted": "square",
}
"""Of a trial, beside its colour, by plotly's names."""


def optimization_history(view: SweepView) -> go.Figure:
    """Return the best value of each trial, in their order, and the best so far.

    Optuna's own picture leaves out trials that were stopped early.
    """
    trials, metric = _with_values(view.searched), view.summary["metric"]
    best: Callable[..., float] = max if view.maximize else min
    numbers, values = [trial.number for trial in trials], [trial.best or 0.0 for trial in trials]
    figure = go.Figure()
    steps = {"color": INK, "width": 1.5, "shape": "hv"}
    so_far = list(accumulate(values, best))
    figure.add_scatter(x=numbers, y=so_far, mode="lines", line=steps, name="best so far", hoverinfo="skip")
    if (baseline := view.summary["baseline"]) is not None:
        ends, dots = [numbers[0], numbers[-1]], {"color": INK, "width": 1, "dash": "dot"}
        figure.add_scatter(x=ends, y=[baseline] * 2, mode="lines", line=dots, name="baseline", hoverinfo="skip")
    for status, group in by_status(trials).items():
        _add_marks(figure, status, group, [(trial.number, trial.best or 0.0) for trial in group])
    return figure.update_layout(xaxis_title="trial", yaxis_title=metric)


def front(view: SweepView, one: int, other: int) -> go.Figure | None:
    """Return the trials by two of the objectives, those on the front in rings; None where there are not as many."""
    objectives = view.plan.objectives
    if max(one, other) >= len(objectives):
        return None
    trials, figure = _with_values(view.searched), go.Figure()

    def draw(trials: Sequence[ShownTrial], name: str, **marker: Any) -> None:
        x, y = zip(*[(trial.point[one], trial.point[other]) for trial in trials], strict=True)
        figure.add_scatter(x=x, y=y, mode="markers", marker=marker, name=name, hoverinfo="skip")

    best = [trial for trial in trials if trial.number in view.front]
    if len(objectives) == 2:  # of three, the border is a surface
        x, y = zip(*_border(sorted(trial.point for trial in best), objectives[0].mode), strict=True)
        line = {"color": INK, "width": 1.5}
        figure.add_scatter(x=x, y=y, mode="lines", line=line, name="border", hoverinfo="skip")
    for status, group in by_status(trials).items():
        _add_marks(figure, status, group, [(trial.point[one], trial.point[other]) for trial in group])
    draw(best, f"on the front ({len(best)})", color=INK, symbol="circle-open", size=14)
    if view.plan.experiment.baseline and trials[0].number == 1:
        draw(trials[:1], "baseline", color=INK, symbol="star", size=13)
    words = {"max": "more is better", "min": "less is better"}
    titles = [f"{objectives[at].name} ({words[objectives[at].mode]})" for at in (one, other)]
    return figure.update_layout(xaxis_title=titles[0], yaxis_title=titles[1])


def _border(points: Sequence[Sequence[float]], mode: Mode) -> list[Sequence[float]]:
    """Return the corners of what points of a front reach, from the left to the right; the mode is that of x."""
    corners = [points[0]]
    for (x, y), (next_x, next_y) in pairwise(points):
        corners += [(x, next_y) if mode == "max" else (next_x, y), (next_x, next_y)]
    return corners


def learning_curves(view: SweepView) -> go.Figure:
    """Return the metric by epoch (or step) of each trial."""
    figure, unit, trials = go.Figure(), view.plan.budget.unit, _with_values(view.searched)
    for status, group in by_status(trials).items():
        # One line for all of a status, with gaps: hundreds of lines would be slow.
        points: list[tuple[float | None, ...]] = []
        for trial in group:
            # Six digits, for a file of sane size.
            points += [(step, float(f"{value:.6g}"), trial.number) for step, value in trial.curve.items()]
            points.append((None, None, None))
        steps, values, numbers = zip(*points, strict=True)
        figure.add_scatter(
            x=steps,
            y=values,
            customdata=numbers,
            mode="lines",
            line={"color": COLOURS[status], "width": line_width(len(trials))},
            opacity=0.75,
            legendgroup=status,
            showlegend=False,
            hovertemplate=f"trial %{{customdata}}, {unit} %{{x}}: %{{y:.4f}}<extra></extra>",
        )
        _add_marks(figure, status, group, [next(reversed(trial.curve.items())) for trial in group])
    return figure.update_layout(xaxis_title=unit, yaxis_title=view.summary["metric"])


def confirmation(view: SweepView) -> go.Figure | None:
    """Return the scores of the confirmation by configuration, and their means with intervals; None if there is none."""
    result = view.summary["confirmation"]
    if result is None:
        return None
    rows = [row for row in (result["baseline"], *result["rivals"]) if row is not None]
    figure, lines = go.Figure(), {"color": INK, "width": 1.5}
    ends = [(at, end) for at, row in enumerate(rows) if row["interval"] for end in (*row["interval"], None)]
    figure.add_scatter(
        x=[at for at, _ in ends], y=[end for _, end in ends], mode="lines", line=lines, name="95 % interval of the mean"
    )
    places = [(at, score) for at, row in enumerate(rows) for score in row["scores"]]
    means = [(at, row["mean"]) for at, row in enumerate(rows)]
    for name, symbol, marks in (("one seed", "circle-open", places), ("mean", "diamond", means)):
        x, y = zip(*marks, strict=True)
        marker = {"color": COLOURS["finished"], "symbol": symbol, "size": 7}
        figure.add_scatter(x=x, y=y, mode="markers", name=name, marker=marker)
    labels = ["baseline" if row is result["baseline"] else f"trial {row['trial']}" for row in rows]
    figure.update_xaxes(tickvals=list(range(len(rows))), ticktext=labels, range=(-0.5, len(rows) - 0.5))
    return figure.update_layout(yaxis_title=result["metric"])


def _add_marks(
    figure: go.Figure, status: Status, trials: Sequence[ShownTrial], places: Sequence[tuple[float, float]]
) -> None:
    x, y = zip(*places, strict=True)
    figure.add_scatter(
        x=x,
        y=y,
        text=[
            "<br>".join(
                [f"trial {one.number}: {_values(one)}, {one.status}"]
                + [format_params(one.params, [name]) for name in one.params]
            )
            for one in trials
        ],
        mode="markers",
        marker={"color": COLOURS[status], "symbol": MARKERS[status], "size": 7},
        name=f"{status} ({len(trials)})",
        legendgroup=status,
        hovertemplate="%{text}<extra></extra>",
    )


def _values(trial: ShownTrial) -> str:
    return ", ".join([f"{trial.best:.4f}", *map(format_value, trial.point[1:])])


def _with_values(trials: Sequence[ShownTrial]) -> list[ShownTrial]:
    if reported := [trial for trial in trials if trial.best is not None]:
        return reported
    raise NothingToDrawError("no trial has reported a finite value")
