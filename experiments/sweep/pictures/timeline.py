"""The timeline of a sweep, a picture: a lane per device, coloured by trial."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import plotly.graph_objects as go
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from experiments.sweep.ledger import STARTING, Ledger, Stretch, shares_of
from trainables.runtime.writing import written_whole

COLOURS = matplotlib.colormaps["tab20"].colors  # type: ignore[attr-defined]
"""Of trials, in turn; neighbours differ."""
ROOM_FOR_START = 0.001
"""A start shorter than this share of the sweep is not to be seen."""
WIDTH_IN = 12.0
LANE_IN = 0.45
"""Height of a lane, inches."""
LANE_FILLED = 0.8
"""The share of it that is drawn on."""
LANE_PX, AROUND_LANES_PX = 30, 70
"""Heights of a lane and of what is around the lanes, in a browser."""
ROOM_FOR_NUMBER = 0.015
"""A stretch shorter than this share of the sweep has no room for the number of its trial."""


def draw_timeline(ledger: Ledger, name: str, path: Path) -> None:
    """Draw what each device did from the beginning of the sweep to its end.

    Args:
        ledger: Of a sweep that has ended, or of one that runs, up to now.
        name: Of the sweep.
        path: Where the picture goes; the ending says the format.
    """
    wall, unit, scale = _time_axis(ledger)
    figure = Figure(figsize=(WIDTH_IN, 1.5 + LANE_IN * len(ledger.devices)), layout="constrained")
    axes = figure.add_subplot()
    lanes = {device: lane for lane, device in enumerate(ledger.devices)}
    for device, lane in lanes.items():
        own = [stretch for stretch in ledger.stretches if stretch.device == device]
        _draw(axes, own, lane, ledger.began, wall, scale)
    axes.barh([0], [0], color="white", edgecolor="dimgrey", hatch="////", label=STARTING)
    axes.set(yticks=list(lanes.values()), yticklabels=list(lanes), xlim=(0, wall / scale), xlabel=unit)
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_title(f"{name}: {shares_of(ledger.in_all())}", loc="left", fontsize=10)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    with written_whole(path) as partial:
        figure.savefig(partial, dpi=120)


def timeline_figure(ledger: Ledger) -> go.Figure:
    """Return the same picture for a browser."""
    wall, unit, scale = _time_axis(ledger)
    stretches, lanes = ledger.stretches, ledger.devices
    colours = [to_hex(COLOURS[(stretch.trial - 1) % len(COLOURS)]) for stretch in stretches]
    parts = {
        "starts": [(stretch.began, stretch.trained_from) for stretch in stretches],
        "trains": [(stretch.trained_from, stretch.ended) for stretch in stretches],
    }
    hatched = {"color": "white", "pattern": {"shape": "/", "fgcolor": colours, "size": 6}}
    figure = go.Figure()
    for part, spans in parts.items():
        figure.add_bar(
            orientation="h",
            y=[stretch.device for stretch in stretches],
            base=[(began - ledger.began) / scale for began, _ in spans],
            x=[(ended - began) / scale for began, ended in spans],
            marker=hatched if part == "starts" else {"color": colours, "line": {"color": "white", "width": 0.5}},
            text=[str(stretch.trial) if part == "trains" else "" for stretch in stretches],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            customdata=[
                (stretch.trial, ended - began) for stretch, (began, ended) in zip(stretches, spans, strict=True)
            ],
            hovertemplate=f"trial %{{customdata[0]}} {part}: %{{customdata[1]:.1f}} s<extra></extra>",
            showlegend=False,
        )
    return figure.update_layout(
        barmode="overlay",
        height=AROUND_LANES_PX + LANE_PX * len(lanes),
        xaxis={"title": unit, "range": [0, wall / scale]},
        yaxis={"categoryorder": "array", "categoryarray": lanes, "range": [len(lanes) - 0.5, -0.5]},
        uniformtext={"minsize": 8, "mode": "hide"},
    )


def _time_axis(ledger: Ledger) -> tuple[float, str, float]:
    """Return the length of the sweep in seconds, the unit of the axis, and its seconds."""
    wall = max(1e-3, ledger.ended - ledger.began)
    return (wall, "minutes", 60.0) if wall >= 180 else (wall, "seconds", 1.0)


def _draw(axes: Axes, stretches: list[Stretch], lane: int, began: float, wall: float, scale: float) -> None:
    """Draw the stretches of a lane: the start hatched, the rest filled, with the trial's number where there is room."""
    colours = [COLOURS[(stretch.trial - 1) % len(COLOURS)] for stretch in stretches]
    place = (lane - LANE_FILLED / 2, LANE_FILLED)
    trained = [((s.trained_from - began) / scale, (s.ended - s.trained_from) / scale) for s in stretches]
    axes.broken_barh(trained, place, facecolors=colours, edgecolor="white", linewidth=0.5)
    for stretch, colour in zip(stretches, colours, strict=True):
        start, length = stretch.trained_from - stretch.began, stretch.ended - stretch.trained_from
        if start >= ROOM_FOR_START * wall:
            span = ((stretch.began - began) / scale, start / scale)
            axes.broken_barh([span], place, facecolor="white", edgecolor=colour, hatch="////", linewidth=0)
        if length >= ROOM_FOR_NUMBER * wall:
            middle = (stretch.trained_from + length / 2 - began) / scale
            axes.text(middle, lane, str(stretch.trial), ha="center", va="center", fontsize=7, in_layout=False)
