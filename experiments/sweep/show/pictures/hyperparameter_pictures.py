"""Pictures of what the hyperparameters of a sweep did: parallel coordinates, and how much each of them mattered."""

from __future__ import annotations

import warnings

import plotly.graph_objects as go
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.visualization import plot_parallel_coordinate
from plotly.colors import sample_colorscale

from experiments.sweep.show.pictures.sweep_view import COLOURS, NothingToDrawError, SweepView, line_width

WORSE_TO_BETTER = ["#c3d3e6", "#6b9fd0", "#08306b"]
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
    shares = [line.y[0] for line in lines]
    scale = WORSE_TO_BETTER if view.maximize else WORSE_TO_BETTER[::-1]
    for line, colour in zip(lines, sample_colorscale(scale, shares), strict=True):
        # All at once: plotly takes a while over each change, and there are hundreds of lines.
        look = {"color": colour, "width": line_width(len(lines)), "dash": line.line.dash}
        line.update(line=look, opacity=0.8, overwrite=True)
    legend = [other for other in figure.data if other.y[0] is None and other.mode == "lines"]
    figure.data = [*(lines if view.maximize else reversed(lines)), *legend]  # the best in front
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
