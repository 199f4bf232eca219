"""The pictures of a sweep: its trials, each in the colour of what became of it, its hyperparameters and its devices.

Each public function draws the picture of its name; None: the sweep has no use for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import Any

import plotly.graph_objects as go
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.visualization import plot_parallel_coordinate
from plotly.colors import qualitative, sample_colorscale

from gaudi_tune.base.words import format_params, format_score, format_value
from gaudi_tune.define.objective import Objective
from gaudi_tune.show.pictures.sweep_view import COLOURS, INK, ShownTrial, SweepView
from gaudi_tune.sweep.record.events import Status

MARKERS: dict[Status, str] = {
    "finished": "circle",
    "stopped early": "diamond",
    "failed": "x",
    "running": "circle-open",
    "paused": "diamond-open",
    "interrupted": "square",
}
"""Of a trial, beside its colour, by plotly's names."""
WORSE_TO_BETTER = ["#c3d3e6", "#6b9fd0", "#08306b"]
SHADES = 20
AMONG_THE_BEST = 0.1
"""The share of trials that the importance of a hyperparameter is about."""
LANE_COLOURS = qualitative.D3
"""Of trials on the lanes of devices, in turn; neighbours differ."""
LANE_PX, AROUND_LANES_PX = 30, 70
"""Heights of a lane and of what is around the lanes."""

# The picture's caption says it.
warnings.filterwarnings("ignore", message="Some regimes for parameter")


class NothingToDrawError(Exception):
    """A picture cannot be drawn (yet); the message says what is missing."""


def optimization_history(view: SweepView) -> go.Figure:
    """Return the best value of each trial, in their order, and the best so far.

    Optuna's own picture leaves out trials that were stopped early.
    """
    trials, figure = _with_values(view), go.Figure()
    numbers, values = [trial.number for trial in trials], [trial.point[0] for trial in trials]
    so_far = list(accumulate(values, view.objective.better_of))
    _add_line(figure, numbers, so_far, "best so far", shape="hv")
    if (baseline := view.summary["baseline"]) is not None:
        name = f"baseline {view.summary['baseline_note']}".strip()
        _add_line(figure, [numbers[0], numbers[-1]], [baseline] * 2, name, width=1, dash="dot")
    _add_marks(figure, trials, lambda trial: (trial.number, trial.point[0]))
    return figure.update_layout(xaxis_title="trial", yaxis_title=view.summary["metric"])


def front(view: SweepView, one: int = 0, other: int = 1) -> go.Figure | None:
    """Return the trials by two of the objectives, those on the front in rings; None where there are not as many."""
    objectives = view.plan.objectives
    if other >= len(objectives):
        return None
    trials, figure = _with_values(view), go.Figure()

    def place(trial: ShownTrial) -> tuple[float, float]:
        return trial.point[one], trial.point[other]

    best = [trial for trial in trials if trial.number in view.front]
    if len(objectives) == 2:  # of three, the border is a surface
        x, y = _border(sorted(map(place, best)), objectives[0])
        _add_line(figure, x, y, "border")
    _add_marks(figure, trials, place)
    _add_points(figure, map(place, best), f"on the front ({len(best)})", color=INK, symbol="circle-open", size=14)
    if view.plan.experiment.baseline and trials[0].number == 1:
        _add_points(figure, [place(trials[0])], "baseline", color=INK, symbol="star", size=13)
    titles = [f"{objectives[at].name} ({objectives[at].rule})" for at in (one, other)]
    return figure.update_layout(xaxis_title=titles[0], yaxis_title=titles[1])


front_1_3, front_2_3 = partial(front, other=2), partial(front, one=1, other=2)


def _border(points: Sequence[tuple[float, float]], of_x: Objective) -> Iterable[tuple[float, ...]]:
    """Return x and y of the corners of what points of a front reach, from the left to the right."""
    corners = [points[0]]
    for (x, y), (next_x, next_y) in pairwise(points):
        corners += [(x, next_y) if of_x.maximizes else (next_x, y), (next_x, next_y)]
    return zip(*corners, strict=True)


def confirmation(view: SweepView) -> go.Figure | None:
    """Return the scores of the confirmation by configuration, and their means with intervals; None if there is none."""
    result = view.summary["confirmation"]
    if result is None:
        return None
    rows = [row for row in (result["baseline"], *result["rivals"]) if row is not None]
    figure = go.Figure()
    intervals = [[(at, end, None) for end in row["interval"]] for at, row in enumerate(rows) if row["interval"]]
    x, y, _ = _in_one_line(intervals)
    _add_line(figure, x, y, "95 % interval of the mean")
    marker = {"color": COLOURS["finished"], "size": 7}
    scores = [(at, score) for at, row in enumerate(rows) for score in row["scores"]]
    _add_points(figure, scores, "one seed", symbol="circle-open", **marker)
    _add_points(figure, [(at, row["mean"]) for at, row in enumerate(rows)], "mean", symbol="diamond", **marker)
    labels = ["baseline" if row is result["baseline"] else f"trial {row['trial']}" for row in rows]
    figure.update_xaxes(tickvals=list(range(len(rows))), ticktext=labels, range=(-0.5, len(rows) - 0.5))
    return figure.update_layout(yaxis_title=result["metric"])


def learning_curves(view: SweepView) -> go.Figure:
    """Return the metric by epoch (or step) of each trial."""
    figure, unit, trials = go.Figure(), view.plan.budget.unit, _with_values(view)
    for status, group in _by_status(trials):
        # Six digits, for a file of sane size.
        lines = [[(at, float(f"{v:.6g}"), trial.number) for at, v in trial.curve.items()] for trial in group]
        steps, values, numbers = _in_one_line(lines)
        figure.add_scatter(
            x=steps,
            y=values,
            customdata=numbers,
            mode="lines",
            line={"color": COLOURS[status], "width": _width(trials)},
            opacity=0.75,
            legendgroup=status,
            showlegend=False,
            hovertemplate=f"trial %{{customdata}}, {unit} %{{x}}: %{{y:.6g}}<extra></extra>",
        )
    _add_marks(figure, trials, lambda trial: next(reversed(trial.curve.items())))
    return figure.update_layout(xaxis_title=unit, yaxis_title=view.summary["metric"])


def parallel_coordinates(view: SweepView) -> go.Figure:
    """Return a line for each compared trial, through its value and its hyperparameters."""
    if len(view.compared) < 2:
        raise NothingToDrawError("fewer than two trials have ended with a value")
    figure = plot_parallel_coordinate(view.study, target_name=view.summary["metric"])
    # A line begins at its value, from 0 to 1; behind the lines are a legend of soft constraints and a bar of colours.
    lines = sorted((line for line in figure.data if line.y[0] is not None), key=lambda line: line.y[0])
    lines = lines if view.objective.maximizes else lines[::-1]  # the best in front
    legend = [other for other in figure.data if other.y[0] is None and other.mode == "lines"]
    scale = WORSE_TO_BETTER if view.objective.maximizes else WORSE_TO_BETTER[::-1]
    figure.data = []
    for (shade, dash), alike in groupby(lines, key=lambda line: (round(line.y[0] * SHADES) / SHADES, line.line.dash)):
        x, y, said = _in_one_line(
            [(x, y, f"{name}: {value}") for x, y, (name, value) in zip(line.x, line.y, line.customdata, strict=True)]
            for line in alike
        )
        (colour,) = sample_colorscale(scale, [shade], colortype="rgb")
        figure.add_scatter(
            x=x,
            y=y,
            customdata=said,
            mode="lines",
            line={"color": colour, "width": _width(lines), "dash": dash},
            opacity=0.8,
            hovertemplate="%{customdata}<extra></extra>",
            showlegend=False,
        )
    figure.add_traces(legend)
    figure.update_annotations(bgcolor="rgba(255, 255, 255, 0.75)")
    return figure.update_layout(xaxis={"ticklabeloverflow": "allow"}, margin={"l": 50, "r": 40})


def importance(view: SweepView) -> go.Figure:
    """Return a bar for each hyperparameter: its share in whether a trial is among the best.

    By PED-ANOVA, which takes a second where fANOVA takes a minute, and goes by ranks, so that stopped trials can count.
    """
    if len({trial.best for trial in view.compared}) < 2:
        raise NothingToDrawError("fewer than two trials have ended with different values")
    evaluator = PedAnovaImportanceEvaluator(target_quantile=AMONG_THE_BEST)
    # Optuna's own picture copies the study for each hyperparameter.
    shares = dict(reversed(get_param_importances(view.study, evaluator=evaluator).items()))
    figure = go.Figure()
    figure.add_bar(
        orientation="h",
        x=list(shares.values()),
        y=list(shares),
        text=[f"{share:.2f}" for share in shares.values()],
        textposition="outside",
        cliponaxis=False,
        marker={"color": COLOURS["finished"]},
        hoverinfo="skip",
    )
    room_for_numbers = 1.15 * max(shares.values())
    return figure.update_layout(xaxis={"title": "share of the importance", "range": [0, room_for_numbers]})


def timeline(view: SweepView) -> go.Figure:
    """Return what each device did from the beginning of the sweep to its end, or up to now."""
    time = view.device_time
    if not time.intervals:
        raise NothingToDrawError("no trial has reported")
    wall = max(1e-3, time.ended - time.began)
    unit, scale = ("minutes", 60.0) if wall >= 180 else ("seconds", 1.0)
    figure = go.Figure()
    for part, opacity in (("starts", 0.35), ("trains", 1.0)):
        ends = [
            (one.began, one.trained_from) if part == "starts" else (one.trained_from, one.ended)
            for one in time.intervals
        ]
        figure.add_bar(
            orientation="h",
            y=[one.device for one in time.intervals],
            base=[(began - time.began) / scale for began, _ in ends],
            x=[(ended - began) / scale for began, ended in ends],
            marker={
                "color": [LANE_COLOURS[(one.trial - 1) % len(LANE_COLOURS)] for one in time.intervals],
                "opacity": opacity,
                "line": {"color": "white", "width": 0.5},
            },
            text=[str(one.trial) if part == "trains" else "" for one in time.intervals],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            customdata=[(one.trial, ended - began) for one, (began, ended) in zip(time.intervals, ends, strict=True)],
            hovertemplate=f"trial %{{customdata[0]}} {part}: %{{customdata[1]:.1f}} s<extra></extra>",
            showlegend=False,
        )
    lanes = time.devices
    return figure.update_layout(
        barmode="overlay",
        height=AROUND_LANES_PX + LANE_PX * len(lanes),
        xaxis={"title": unit, "range": [0, wall / scale]},
        yaxis={"categoryorder": "array", "categoryarray": lanes, "range": [len(lanes) - 0.5, -0.5]},
        uniformtext={"minsize": 8, "mode": "hide"},
    )


def _with_values(view: SweepView) -> list[ShownTrial]:
    """Return the trials of the search that reported a finite value."""
    if reported := [trial for trial in view.searched if trial.best is not None]:
        return reported
    raise NothingToDrawError("no trial has reported a finite value")


def _by_status(trials: Sequence[ShownTrial]) -> Iterator[tuple[Status, list[ShownTrial]]]:
    """Yield the trials of each status that there is."""
    for status in COLOURS:
        if group := [trial for trial in trials if trial.status == status]:
            yield status, group


def _add_marks(
    figure: go.Figure, trials: Sequence[ShownTrial], place: Callable[[ShownTrial], tuple[float, float]]
) -> None:
    """Add a mark for each trial, which says what trial that is."""
    for status, group in _by_status(trials):
        x, y = zip(*map(place, group), strict=True)
        figure.add_scatter(
            x=x,
            y=y,
            text=[_about(trial) for trial in group],
            mode="markers",
            marker={"color": COLOURS[status], "symbol": MARKERS[status], "size": 7},
            name=f"{status} ({len(group)})",
            legendgroup=status,
            hovertemplate="%{text}<extra></extra>",
        )


def _about(trial: ShownTrial) -> str:
    values = ", ".join([format_score(trial.point[0]), *map(format_value, trial.point[1:])])
    params = [format_params(trial.params, [name]) for name in trial.params]
    return "<br>".join([f"trial {trial.number}: {values}, {trial.status}", *params])


def _add_points(figure: go.Figure, places: Iterable[tuple[float, float]], name: str, **marker: Any) -> None:
    x, y = zip(*places, strict=True)
    figure.add_scatter(x=x, y=y, mode="markers", marker=marker, name=name, hoverinfo="skip")


def _add_line(figure: go.Figure, x: Sequence[Any], y: Sequence[Any], name: str, **style: Any) -> None:
    line = {"color": INK, "width": 1.5, **style}
    figure.add_scatter(x=x, y=y, mode="lines", line=line, name=name, hoverinfo="skip")


def _in_one_line(lines: Iterable[Iterable[tuple[Any, Any, Any]]]) -> Iterable[tuple[Any, ...]]:
    """Return x, y and data of lines that are one for plotly, with gaps: hundreds would take seconds, in Python and in a
    browser."""
    points = [point for line in lines for point in (*line, (None, None, None))]
    return zip(*points, strict=True) if points else ((), (), ())


def _width(lines: Sequence[Any]) -> float:
    """Return how thick to draw so many lines, in pixels."""
    return 1.4 if len(lines) <= 100 else 0.7
