"""Pictures of what the hyperparameters of a sweep did: parallel coordinates, and how much each of them mattered."""

from __future__ import annotations

import warnings
from itertools import groupby
from typing import Any

import plotly.graph_objects as go
from matplotlib.colors import to_hex
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.visualization import plot_parallel_coordinate
from plotly.colors import sample_colorscale

from experiments.sweep.show.pictures.sweep_view import COLOURS, NothingToDrawError, SweepView, line_width

WORSE_TO_BETTER = ["#c3d3e6", "#6b9fd0", "#08306b"]
SHADES = 20
AMONG_THE_BEST = 0.1
"""The share of trials that the importance of a hyperparameter is about."""

# The picture's caption says it.
warnings.filterwarnings("ignore", message="Some regimes for parameter")


def parallel_coordinates(view: SweepView) -> go.Figure:
    """Return a line for each compared trial, through its value and its hyperparameters."""
    if len(view.compared) < 2:
        raise NothingToDrawError("fewer than two trials have ended with a value")
    figure = plot_parallel_coordinate(view.study, target_name=view.summary["metric"])
    # A line begins at its value, from 0 to 1; behind the lines are a legend of soft constraints and a bar of colours.
    lines = sorted((line for line in figure.data if line.y[0] is not None), key=lambda line: line.y[0])
    lines = lines if view.maximize else lines[::-1]  # the best in front
    legend = [other for other in figure.data if other.y[0] is None and other.mode == "lines"]
    figure.data = []
    # Lines of one shade are one for plotly, with gaps: hundreds would take seconds in Python and in a browser.
    for (shade, dash), alike in groupby(lines, key=lambda line: (round(line.y[0] * SHADES) / SHADES, line.line.dash)):
        points: list[tuple[Any, ...]] = []
        for line in alike:
            points += [*zip(line.x, line.y, line.customdata, strict=True), (None, None, [None, None])]
        x, y, names = zip(*points[:-1], strict=True)
        scale = WORSE_TO_BETTER if view.maximize else WORSE_TO_BETTER[::-1]
        (colour,) = sample_colorscale(scale, [shade], colortype="tuple")
        figure.add_scatter(
            x=x,
            y=y,
            customdata=names,
            mode="lines",
            line={"color": to_hex(colour), "width": line_width(len(lines)), "dash": dash},
            opacity=0.8,
            hovertemplate="%{customdata[0]}: %{customdata[1]}<extra></extra>",
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
