"""The pictures of a sweep: its trials, coloured by their status, its hyperparameters and its devices.

Each public function draws the picture of its name, or returns None if the picture does not apply to the sweep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import plotly.graph_objects as go
from optuna.distributions import CategoricalDistribution
from plotly.colors import qualitative
from plotly.subplots import make_subplots

from gaudi_tune.base.words import format_params, format_score, format_value
from gaudi_tune.define.objective import Objective, bounds_of
from gaudi_tune.show.confirmation import PLUS_MINUS
from gaudi_tune.show.early_order import early_order
from gaudi_tune.show.pictures.shown_trial import ShownTrial
from gaudi_tune.show.pictures.surrogate import NothingToDrawError, range_of
from gaudi_tune.show.pictures.sweep_view import COLOURS, INK, SweepView
from gaudi_tune.sweep.record.events import Status

MARKERS: dict[Status, str] = {
    "finished": "circle",
    "stopped early": "diamond",
    "failed": "x",
    "running": "circle-open",
    "paused": "diamond-open",
    "interrupted": "square",
}
"""The marker of a trial by its status, in plotly's names."""
MAX_MARKS = 1000
"""The most trials that are drawn over each hyperparameter: the first. A browser takes seconds for more."""
MISSING = object()
"""The value of a hyperparameter that a trial does not have."""
LANE_COLOURS = qualitative.D3
"""The colours of trials on the lanes of devices, in turn, so that neighbours differ."""
PANELS, PANEL_PX = 4, 260
"""How many hyperparameters stand side by side, and the height of each in pixels."""
PALEST = 0.3
"""How opaque the mark of a trial is that has hardly trained."""
OUTLIER = 3.0
"""How many times the distance of the quartiles a value is worse than the worse of them to be left out of a picture."""
LANE_PX, MARGIN_PX = 30, 70
"""The heights of a lane, and of the space above and below the lanes together."""


def optimization_history(view: SweepView) -> go.Figure:
    """Return the best value of each trial, in the order of the trials, and the best so far.

    Optuna's own picture leaves out trials that were stopped early.
    """
    trials, figure = _trials_with_values(view), go.Figure()
    numbers, values = [trial.number for trial in trials], [trial.point[0] for trial in trials]
    best_values = list(accumulate(values, view.objective.better_of))
    _add_line(figure, numbers, best_values, "best so far", shape="hv")
    baseline = view.summary["baseline"]
    if baseline is not None:
        name = f"baseline {view.summary['baseline_note']}".strip()
        _add_line(figure, [numbers[0], numbers[-1]], [baseline] * 2, name, width=1, dash="dot")
    _add_marks(figure, trials, lambda trial: (trial.number, trial.point[0]))
    _leave_out_outliers(figure, values, view.objective)
    return figure.update_layout(xaxis_title="trial", yaxis_title=view.summary["metric"])


def front(view: SweepView, x_index: int = 0, y_index: int = 1) -> go.Figure | None:
    """Return the trials by two of the objectives, with rings around those on the front; None if there are too few."""
    objectives = view.plan.objectives
    if y_index >= len(objectives):
        return None
    trials, figure = _trials_with_values(view), go.Figure()

    def position(trial: ShownTrial) -> tuple[float, float]:
        return trial.point[x_index], trial.point[y_index]

    front_points = [position(trial) for trial in trials if trial.number in view.front]
    if len(objectives) == 2:  # with three objectives the border is a surface
        x, y = zip(*sorted(front_points), strict=True)
        _add_line(figure, x, y, "border", shape="vh" if objectives[0].maximizes else "hv")
    _add_marks(figure, trials, position)
    _add_points(figure, front_points, f"on the front ({len(front_points)})", color=INK, symbol="circle-open", size=14)
    if view.plan.experiment.baseline and trials[0].number == 1:
        _add_points(figure, [position(trials[0])], "baseline", color=INK, symbol="star", size=13)
    x_title, y_title = (
        f"{objective.name} ({objective.rule})" for objective in (objectives[x_index], objectives[y_index])
    )
    return figure.update_layout(xaxis_title=x_title, yaxis_title=y_title)


front_1_3, front_2_3 = partial(front, y_index=2), partial(front, x_index=1, y_index=2)


def confirmation(view: SweepView) -> go.Figure | None:
    """Return the confirmation's scores by configuration, and their means with intervals; None without results."""
    result = view.summary["confirmation"]
    if result is None:
        return None
    rows = [row for row in (result["baseline"], *result["rivals"]) if row is not None]
    figure, marker = go.Figure(), {"color": COLOURS["finished"], "size": 7}
    scores = [(position, score) for position, row in enumerate(rows) for score in row["scores"]]
    _add_points(figure, scores, "one seed", symbol="circle-open", **marker)
    _add_points(figure, enumerate(row["mean"] for row in rows), PLUS_MINUS, symbol="diamond", **marker)
    # No bar ends where the metric cannot be: over few seeds, an accuracy's interval may reach beyond 1.
    low, high = bounds_of(result["metric"], [score for _, score in scores])
    upper_halves = [min(row["interval"][1], high) - row["mean"] if row["interval"] else None for row in rows]
    lower_halves = [row["mean"] - max(row["interval"][0], low) if row["interval"] else None for row in rows]
    figure.data[-1].error_y = {"array": upper_halves, "arrayminus": lower_halves, "color": INK}
    labels = ["baseline" if row is result["baseline"] else f"trial {row['trial']}" for row in rows]
    figure.update_xaxes(tickvals=list(range(len(rows))), ticktext=labels, range=(-0.5, len(rows) - 0.5))
    return figure.update_layout(yaxis_title=result["metric"])


def learning_curves(view: SweepView) -> go.Figure:
    """Return the metric of each trial by epoch or step."""
    figure, unit, trials = go.Figure(), view.plan.budget.unit, _trials_with_values(view)
    for status, group in _by_status(trials):
        points: list[tuple[Any, ...]] = []
        for trial in group:  # one line with gaps: hundreds of lines would take plotly seconds, also in a browser
            # Six digits keep the page small.
            points += [(step, float(f"{value:.6g}"), trial.number) for step, value in trial.curve.items()]
            points.append((None, None, None))
        steps, values, numbers = zip(*points, strict=True)
        figure.add_scatter(
            x=steps,
            y=values,
            customdata=numbers,
            mode="lines",
            line={"color": COLOURS[status], "width": 1.4 if len(trials) <= 100 else 0.7},
            opacity=0.75,
            legendgroup=status,
            showlegend=False,
            hovertemplate=f"trial %{{customdata}}, {unit} %{{x}}: %{{y:.6g}}<extra></extra>",
        )
    _add_marks(figure, trials, lambda trial: next(reversed(trial.curve.items())))
    _leave_out_outliers(figure, [value for trial in trials for value in trial.curve.values()], view.objective)
    return figure.update_layout(xaxis_title=unit, yaxis_title=view.summary["metric"])


def slices(view: SweepView) -> go.Figure:
    """Return the value of each trial over each hyperparameter; pale marks have trained less.

    Optuna's own picture has one row of panels, which is wider than a page.
    """
    trials = [trial for trial in view.searched if trial.best is not None and trial.ranges][:MAX_MARKS]
    if len(trials) < 2:
        raise NothingToDrawError("fewer than two trials have reported a value")
    panels, total = list(dict.fromkeys(name for trial in trials for name in trial.params)), view.plan.budget.total
    rows, columns = math.ceil(len(panels) / PANELS), min(PANELS, len(panels))
    specs: Any = [[{} if row * columns + col < len(panels) else None for col in range(columns)] for row in range(rows)]
    figure = make_subplots(rows, columns, specs=specs, shared_yaxes=True)
    for place, name in enumerate(panels):
        cell = {"row": 1 + place // columns, "col": 1 + place % columns}
        shown, range_ = [trial for trial in trials if name in trial.params], range_of(name, trials)
        values, kind = [trial.params[name] for trial in shown], "log" if getattr(range_, "log", False) else None
        if isinstance(range_, CategoricalDistribution):
            values, kind = list(map(str, values)), "category"
        marker = {
            "color": [COLOURS[trial.status] for trial in shown],
            "opacity": [PALEST + (1 - PALEST) * min(1.0, trial.step / total) for trial in shown],
            "symbol": [MARKERS[trial.status] for trial in shown],
        }
        y, text = [trial.point[0] for trial in shown], list(map(_description, shown))
        figure.add_scatter(x=values, y=y, text=text, marker=marker, **cell)
        figure.update_xaxes(title=name, type=kind, categoryarray=getattr(range_, "choices", None), **cell)
    figure.update_traces(mode="markers", marker_size=8, hovertemplate="%{text}<extra></extra>")
    figure.update_xaxes(exponentformat="e")
    figure.update_yaxes(title=view.objective.name, col=1)
    _leave_out_outliers(figure, [trial.point[0] for trial in trials], view.objective)
    return figure.update_layout(height=MARGIN_PX + PANEL_PX * rows, showlegend=False)


def importance(view: SweepView) -> go.Figure:
    """Return a bar for each hyperparameter: how much a forest's splits by it explain.

    Optuna's evaluators know no trial that was stopped or has diverged, and draw bars for noise as well. Of them, fANOVA
    takes time that doubles with each value of a choice: of a grid of 40 values it had not ended after 11 minutes.
    """
    surrogate, figure = view.surrogate, go.Figure()
    bars = sorted(surrogate.importances.items(), key=lambda bar: bar[1])
    labels = []
    for name, _ in bars:
        count = sum(name in trial.params for trial in surrogate.trials)
        labels.append(name if count == len(surrogate.trials) else f"{name} (only {count} have it)")
    shares = [share for _, share in bars]
    figure.add_bar(x=shares, y=labels, orientation="h", marker_color=COLOURS["finished"], hoverinfo="skip")
    figure.update_traces(text=[f"{share:.2f}" for share in shares], textposition="outside", cliponaxis=False)
    explained = f"It explains {surrogate.explained:.0%} of the differences between trials that it has not seen. "
    return figure.update_layout(xaxis_title="share of the importance", meta=explained)


def rungs(view: SweepView) -> go.Figure | None:
    """Return how far the order of the trials at each report agrees with their later order; None of too few trials."""
    order = early_order(view.searched, view.objective)
    if order is None:
        return None
    figure, steps, unit = go.Figure(), list(order.kept), view.plan.budget.unit
    kept = [count / order.best for count in order.kept.values()]
    _add_line(figure, steps, kept, f"later best {order.best} that lead here")
    figure.update_traces(mode="lines+markers")
    for rung in view.plan.rungs:
        if rung in order.kept:
            figure.add_vline(rung, line={"color": COLOURS["paused"], "dash": "dot"}, annotation_text="rung")
    figure.update_xaxes(title=unit, rangemode="tozero")
    words = order.in_words(unit, view.plan.rungs) or f"later is {unit} {order.until}, of {order.trials} trials"
    meta = f"{words[0].upper()}{words[1:]}. "
    return figure.update_layout(yaxis={"range": [-0.05, 1.08], "tickformat": ".0%"}, meta=meta)


def path(view: SweepView) -> go.Figure | None:
    """Return what the forest predicts on the way from the baseline to the winner, one hyperparameter after another;
    None without these two, or of too few trials.

    Each step makes the change that the forest expects most of. Hyperparameters that only one of the two has change
    with the choices that differ, one of which decides about them.
    """
    if not view.plan.experiment.baseline or view.winner is None or view.winner.number == 1:
        return None
    try:
        surrogate = view.surrogate
    except NothingToDrawError:
        return None
    params, goal, ranges = view.trials[0].params, view.winner.params, view.winner.ranges
    differing = [n for n in dict.fromkeys((*params, *goal)) if params.get(n, MISSING) != goal.get(n, MISSING)]
    in_one = [name for name in differing if name not in params or name not in goal]
    choices = [name for name in differing if in_one and isinstance(ranges.get(name), CategoricalDistribution)]
    branch = [name for name in differing if name in {*in_one, *choices}]
    changes = [[name] for name in differing if name not in branch] + ([branch] if branch else [])
    labels, predictions = ["baseline"], [surrogate.predict(params)]
    while changes:
        names = max(changes, key=lambda names: surrogate.predict(_changed(params, goal, names))[0])
        changes.remove(names)
        params = _changed(params, goal, names)
        labels.append(", ".join(format_params(goal, [n]) if n in goal else f"no {n}" for n in names))
        predictions.append(surrogate.predict(params))
    means, lows, highs = zip(*predictions, strict=True)
    figure = go.Figure()
    bars = {"array": np.subtract(highs, means), "arrayminus": np.subtract(means, lows), "color": COLOURS["paused"]}
    _add_line(figure, means, labels, "predicted", color=COLOURS["finished"])
    figure.update_traces(mode="lines+markers", error_x=bars, marker_size=9)
    figure.update_xaxes(title="trials that it beats", range=[-0.02, 1.02], tickformat=".0%")
    big = max(range(1, len(labels)), key=lambda place: means[place] - means[place - 1])
    meta = f"The largest step is {labels[big]}. "
    return figure.update_layout(yaxis_autorange="reversed", height=MARGIN_PX + 40 * len(labels), meta=meta)


def _changed(params: Mapping[str, Any], goal: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    kept = {name: value for name, value in params.items() if name not in names}
    return kept | {name: goal[name] for name in names if name in goal}


def timeline(view: SweepView) -> go.Figure:
    """Return the trials on each device from the beginning of the sweep to its end, or up to now."""
    device_time = view.device_time
    intervals = device_time.intervals
    if not intervals:
        raise NothingToDrawError("no trial has reported")
    wall = max(1e-3, device_time.ended - device_time.began)
    unit, scale = ("minutes", 60.0) if wall >= 180 else ("seconds", 1.0)
    figure = go.Figure()
    for part, opacity in (("starts", 0.35), ("trains", 1.0)):
        starts = part == "starts"
        spans = [(i.began, i.trained_from) if starts else (i.trained_from, i.ended) for i in intervals]
        durations = [end - start for start, end in spans]
        figure.add_bar(
            orientation="h",
            y=[interval.device for interval in intervals],
            base=[(start - device_time.began) / scale for start, _ in spans],
            x=[seconds / scale for seconds in durations],
            marker={
                "color": [LANE_COLOURS[(interval.trial - 1) % len(LANE_COLOURS)] for interval in intervals],
                "opacity": opacity,
                "line": {"color": "white", "width": 0.5},
            },
            text=["" if starts else str(interval.trial) for interval in intervals],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            customdata=list(zip((interval.trial for interval in intervals), durations, strict=True)),
            hovertemplate=f"trial %{{customdata[0]}} {part}: %{{customdata[1]:.1f}} s<extra></extra>",
            showlegend=False,
        )
    lanes = device_time.devices
    return figure.update_layout(
        barmode="overlay",
        height=MARGIN_PX + LANE_PX * len(lanes),
        xaxis={"title": unit, "range": [0, wall / scale]},
        yaxis={"categoryorder": "array", "categoryarray": lanes, "range": [len(lanes) - 0.5, -0.5]},
        uniformtext={"minsize": 8, "mode": "hide"},
    )


def _trials_with_values(view: SweepView) -> list[ShownTrial]:
    """Return the trials of the search that reported a finite value, of which there is at least one."""
    trials = [trial for trial in view.searched if trial.best is not None]
    if not trials:
        raise NothingToDrawError("no trial has reported a finite value")
    return trials


def _by_status(trials: Sequence[ShownTrial]) -> Iterator[tuple[Status, list[ShownTrial]]]:
    """Yield each status that some trials have, and these trials."""
    for status in COLOURS:
        group = [trial for trial in trials if trial.status == status]
        if group:
            yield status, group


def _add_marks(
    figure: go.Figure, trials: Sequence[ShownTrial], position: Callable[[ShownTrial], tuple[float, float]]
) -> None:
    """Add a mark for each trial, with its description when one points at it."""
    for status, group in _by_status(trials):
        x, y = zip(*map(position, group), strict=True)
        figure.add_scatter(
            x=x,
            y=y,
            text=[_description(trial) for trial in group],
            mode="markers",
            marker={"color": COLOURS[status], "symbol": MARKERS[status], "size": 7},
            name=f"{status} ({len(group)})",
            legendgroup=status,
            hovertemplate="%{text}<extra></extra>",
        )


def _leave_out_outliers(figure: go.Figure, values: Sequence[float], objective: Objective) -> None:
    """Let the axis of the values end where those far worse than the others would squash these, and let
    the caption say how many do."""
    scores = np.array([objective.score(value) for value in values])
    low, high = np.quantile(scores, [0.25, 0.75])
    inside = scores[scores >= low - OUTLIER * (high - low)]
    outside = len(scores) - len(inside)
    if low == high or not outside:
        return
    margin = 0.1 * np.ptp(inside)
    figure.update_yaxes(range=sorted(map(objective.score, (min(inside) - margin, max(inside) + margin))))
    figure.update_layout(meta=f"Out of view because far worse: {outside} of {len(scores)}; a double-click shows all. ")


def _description(trial: ShownTrial) -> str:
    values = ", ".join([format_score(trial.point[0]), *map(format_value, trial.point[1:])])
    params = [format_params(trial.params, [name]) for name in trial.params]
    return "<br>".join([f"trial {trial.number}: {values}, {trial.status}", *params])


def _add_points(figure: go.Figure, points: Iterable[tuple[float, float]], name: str, **marker: Any) -> None:
    x, y = zip(*points, strict=True)
    figure.add_scatter(x=x, y=y, mode="markers", marker=marker, name=name, hoverinfo="skip")


def _add_line(figure: go.Figure, x: Sequence[Any], y: Sequence[Any], name: str, **style: Any) -> None:
    line = {"color": INK, "width": 1.5, **style}
    figure.add_scatter(x=x, y=y, mode="lines", line=line, name=name, hoverinfo="skip")
