"""A picture as a PNG file, for MLflow's page and for slides.

plotly makes images with a browser that few machines of a cluster have; the lines, marks and bars of these pictures are
quickly drawn with matplotlib from the same data.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

from gaudi_tune.base.writing import atomic_write
from gaudi_tune.show.pictures.sweep_view import GRID, INK

WIDTH_IN = 11.0
PIXELS_PER_INCH = 66
"""Of a picture's height in a browser."""
DOTS_PER_INCH = 110
CAPTION_CHARACTERS = 145
"""Of a line of the caption."""
BAR_HEIGHT = 0.75
"""Of the distance between two bars."""
ROOM_FOR_NUMBER = 0.015
"""A bar shorter than this share of the axis has no room for a number inside."""
SYMBOLS = {"circle": "o", "diamond": "D", "x": "X", "circle-open": "o", "square": "s", "diamond-open": "D", "star": "*"}
DASHES = {"dot": ":", "dash": "--", "solid": "-", None: "-"}


def write_png(picture: go.Figure, title: str, caption: str, path: Path) -> None:
    """Write a picture, whole or not at all."""
    figure = Figure(figsize=(WIDTH_IN, picture.layout.height / PIXELS_PER_INCH), layout="constrained")
    axes = figure.add_subplot()
    for trace in picture.data:
        if trace.type == "bar":
            _add_bars(axes, trace, picture.layout)
        elif trace.mode == "markers":
            filled = "none" if trace.marker.symbol.endswith("open") else trace.marker.color
            axes.scatter(
                trace.x, trace.y, s=4 * trace.marker.size, marker=SYMBOLS[trace.marker.symbol], facecolor=filled,
                edgecolor=trace.marker.color, linewidth=1, label=trace.name, zorder=3,
            )  # fmt: skip
        else:
            x, y = (np.array(values, dtype=float) for values in (trace.x, trace.y))  # None, a gap, is NaN there
            axes.plot(
                x, y, color=trace.line.color, lw=trace.line.width, ls=DASHES[trace.line.dash], alpha=trace.opacity,
                drawstyle="steps-post" if trace.line.shape == "hv" else "default", label=trace.name,
            )  # fmt: skip
    _add_scales(axes, picture.layout)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.1), ncols=6, frameon=False, fontsize=9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, color=INK)
    axes.set_title(textwrap.fill(caption, CAPTION_CHARACTERS), loc="left", fontsize=8.5, color="dimgrey")
    for text in figure.findobj(Text):  # a choice may hold dollars, and is no formula
        text.set_parse_math(False)
    with atomic_write(path) as partial:
        figure.savefig(partial, dpi=DOTS_PER_INCH)


def _add_bars(axes: Axes, trace: Any, layout: Any) -> None:
    lanes, marker, end = list(layout.yaxis.categoryarray or trace.y), trace.marker, layout.xaxis.range[1]
    places, lengths = np.array([lanes.index(lane) for lane in trace.y]), np.array(trace.x)
    left = np.zeros(len(lengths)) if trace.base is None else np.array(trace.base)
    right, low, high = left + lengths, places - BAR_HEIGHT / 2, places + BAR_HEIGHT / 2
    corners = np.stack([left, low, right, low, right, high, left, high], axis=1).reshape(-1, 4, 2)
    edges = {"edgecolors": marker.line.color or "none", "linewidths": marker.line.width}
    # At once: a patch for each of thousands is slow.
    axes.add_collection(PolyCollection(list(corners), facecolors=marker.color, alpha=marker.opacity, **edges))
    axes.autoscale_view()
    axes.set_yticks(range(len(lanes)), lanes)
    for place, start, length, text in zip(places, left, lengths, trace.text, strict=True):
        if trace.textposition == "outside":
            axes.text(start + length, place, f" {text}", va="center", fontsize=9, color=INK)
        elif text and length >= ROOM_FOR_NUMBER * end:
            axes.text(start + length / 2, place, text, va="center", ha="center", fontsize=7, in_layout=False)


def _add_scales(axes: Axes, layout: Any) -> None:
    axes.set(xlabel=layout.xaxis.title.text or "", ylabel=layout.yaxis.title.text or "")
    if layout.xaxis.range is not None:
        axes.set_xlim(layout.xaxis.range)
    if layout.yaxis.categoryarray:
        axes.set_ylim(layout.yaxis.range)
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=INK, length=0, labelsize=9)
    axes.set_axisbelow(True)
    if layout.xaxis.tickvals:
        axes.set_xticks(layout.xaxis.tickvals, layout.xaxis.ticktext)
    if layout.yaxis.visible is not False:
        axes.grid(color=GRID)
        return
    axes.set_yticks([])  # parallel coordinates: each axis has its own numbers
    for place in layout.xaxis.tickvals:
        axes.axvline(place, color="darkgrey", lw=1, zorder=0)
    for said in layout.annotations:
        axes.annotate(
            said.text, (said.x, said.y), xytext=(-4, 0), textcoords="offset points", ha="right", va="center",
            fontsize=7.5, color=INK, bbox={"color": "white", "alpha": 0.75, "pad": 0.5},
        )  # fmt: skip
