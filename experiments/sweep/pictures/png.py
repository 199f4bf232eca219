"""A picture as a PNG file, for MLflow's page and for slides.

plotly makes images with a browser that few machines of a cluster have; the lines, marks and bars of these pictures are
quickly drawn with matplotlib from the same data.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray
from plotly.colors import unlabel_rgb

from experiments.sweep.pictures.catalogue import Picture
from experiments.sweep.pictures.sweep_view import GRID, INK
from trainables.runtime.writing import written_whole

SIZE_IN = (9.5, 5.5)
DOTS_PER_INCH = 110
CAPTION_CHARACTERS = 125
"""Of a line of the caption."""
SYMBOLS = {"circle": "o", "diamond": "D", "x": "X", "circle-open": "o", "square": "s"}
"""matplotlib's names of the marks."""
DASHES = {"dot": ":", "dash": "--", "solid": "-", None: "-"}


def write_png(picture: Picture, path: Path) -> None:
    """Write a picture that was drawn, whole or not at all."""
    assert picture.figure is not None
    figure = Figure(figsize=SIZE_IN, layout="constrained")
    axes = figure.add_subplot()
    bars, marks, lines = (
        list(picture.figure.select_traces(kind)) for kind in ({"type": "bar"}, {"mode": "markers"}, {"mode": "lines"})
    )
    for trace in bars:
        _bars(axes, trace)
    for trace in marks:
        _marks(axes, trace)
    for trace in lines:
        if trace.name:
            _named_line(axes, trace)
    _lines_of_trials(axes, [trace for trace in lines if not trace.name])
    _scales(axes, picture.figure.layout)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.1), ncols=6, frameon=False, fontsize=9)
    figure.suptitle(picture.title, x=0.01, ha="left", fontsize=13, color=INK)
    caption = textwrap.fill(picture.caption, CAPTION_CHARACTERS)
    axes.set_title(caption, loc="left", fontsize=8.5, color="dimgrey")
    with written_whole(path) as partial:
        figure.savefig(partial, dpi=DOTS_PER_INCH)


def _marks(axes: Axes, trace: Any) -> None:
    filled = "none" if trace.marker.symbol.endswith("open") else trace.marker.color
    axes.scatter(
        trace.x, trace.y, s=4 * trace.marker.size, marker=SYMBOLS[trace.marker.symbol], facecolor=filled,
        edgecolor=trace.marker.color, linewidth=1, label=trace.name, zorder=3,
    )  # fmt: skip


def _named_line(axes: Axes, trace: Any) -> None:
    style = "steps-post" if trace.line.shape == "hv" else "default"
    look = {"color": _colour(trace.line.color), "lw": trace.line.width, "ls": DASHES[trace.line.dash]}
    axes.plot(_floats(trace.x), _floats(trace.y), drawstyle=style, label=trace.name, **look)


def _lines_of_trials(axes: Axes, traces: list[Any]) -> None:
    """Draw all of them at once: there are hundreds."""
    lines = LineCollection(
        [np.column_stack([_floats(trace.x), _floats(trace.y)]) for trace in traces],
        colors=[_colour(trace.line.color) for trace in traces],
        linewidths=[trace.line.width for trace in traces],
        linestyles=[DASHES[trace.line.dash] for trace in traces],
        alpha=0.8,
    )
    axes.add_collection(lines)
    axes.autoscale_view()


def _floats(values: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array(values, dtype=float)  # None, a gap, is NaN there


def _bars(axes: Axes, trace: Any) -> None:
    bars = axes.barh(list(trace.y), list(trace.x), color=trace.marker.color, height=0.6)
    axes.bar_label(bars, labels=list(trace.text), padding=4, fontsize=9, color=INK)


def _scales(axes: Axes, layout: Any) -> None:
    axes.set(xlabel=layout.xaxis.title.text or "", ylabel=layout.yaxis.title.text or "")
    if layout.xaxis.range is not None:
        axes.set_xlim(layout.xaxis.range)
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=INK, length=0, labelsize=9)
    axes.set_axisbelow(True)
    if layout.yaxis.visible is False:  # parallel coordinates, each axis with numbers of its own
        axes.set_yticks([])
        axes.set_xticks(layout.xaxis.tickvals, layout.xaxis.ticktext)
        for place in layout.xaxis.tickvals:
            axes.axvline(place, color="darkgrey", lw=1, zorder=0)
        for said in layout.annotations:
            axes.annotate(
                said.text, (said.x, said.y), xytext=(-4, 0), textcoords="offset points", ha="right", va="center",
                fontsize=7.5, color=INK, bbox={"color": "white", "alpha": 0.75, "pad": 0.5},
            )  # fmt: skip
    else:
        axes.grid(color=GRID)


def _colour(colour: str) -> tuple[float, float, float]:
    if not colour.startswith("rgb"):
        return to_rgb(colour)
    red, green, blue = unlabel_rgb(colour)
    return red / 255, green / 255, blue / 255
