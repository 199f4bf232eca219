"""The timeline of a sweep, a picture: a lane per device, coloured by trial."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.sweep.ledger import STARTING, Ledger, Stretch, shares_of

COLOURS = matplotlib.colormaps["tab20"].colors  # type: ignore[attr-defined]
"""Of trials, in turn; neighbours differ."""
WIDTH_IN = 12.0
LANE_IN = 0.45
"""Height of a lane, inches."""
ROOM_FOR_NUMBER = 0.015
"""A stretch shorter than this share of the sweep has no room for the number of its trial."""


def draw_timeline(ledger: Ledger, name: str, path: Path) -> None:
    """Draw what each device did from the beginning of the sweep to its end.

    Args:
        ledger: Of a sweep that has ended, or of one that runs, up to now.
        name: Of the sweep.
        path: Where the picture goes; the ending says the format.
    """
    wall = max(1e-3, ledger.ended - ledger.began)
    unit, scale = ("minutes", 60.0) if wall >= 180 else ("seconds", 1.0)
    figure = Figure(figsize=(WIDTH_IN, 1.5 + LANE_IN * len(ledger.devices)), layout="constrained")
    axes = figure.add_subplot()
    lanes = {device: lane for lane, device in enumerate(ledger.devices)}
    for stretch in ledger.stretches:
        _draw(axes, stretch, lanes[stretch.device], ledger.began, wall, scale)
    axes.barh([0], [0], color="white", edgecolor="dimgrey", hatch="////", label=STARTING)
    axes.set(yticks=list(lanes.values()), yticklabels=list(lanes), xlim=(0, wall / scale), xlabel=unit)
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_title(f"{name}: {shares_of(ledger.in_all())}", loc="left", fontsize=10)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    partial = path.with_name(f"{path.stem}.partial{path.suffix}")
    figure.savefig(partial, dpi=120)
    partial.replace(path)


def _draw(axes: Axes, stretch: Stretch, lane: int, began: float, wall: float, scale: float) -> None:
    """Draw one stretch: its start hatched, the rest filled, with the trial's number where there is room."""
    colour = COLOURS[(stretch.trial - 1) % len(COLOURS)]
    left, trained = (stretch.began - began) / scale, (stretch.trained_from - began) / scale
    right = (stretch.ended - began) / scale
    axes.barh(lane, trained - left, left=left, color="white", edgecolor=colour, hatch="////", linewidth=0)
    axes.barh(lane, right - trained, left=trained, color=colour, edgecolor="white", linewidth=0.5)
    if stretch.ended - stretch.trained_from >= ROOM_FOR_NUMBER * wall:
        axes.text((trained + right) / 2, lane, str(stretch.trial), ha="center", va="center", fontsize=7)
