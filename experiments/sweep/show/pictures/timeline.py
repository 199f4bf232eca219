"""The timeline of a sweep: a lane per device, coloured by trial."""

from __future__ import annotations

import matplotlib
import plotly.graph_objects as go
from matplotlib.colors import to_hex

from experiments.sweep.show.pictures.sweep_view import NothingToDrawError
from experiments.sweep.state.device_time import DeviceTime

COLOURS = [to_hex(colour) for colour in matplotlib.colormaps["tab20"].colors]  # type: ignore[attr-defined]
"""Of trials, in turn; neighbours differ."""
LANE_PX, AROUND_LANES_PX = 30, 70
"""Heights of a lane and of what is around the lanes."""


def timeline(device_time: DeviceTime) -> go.Figure:
    """Return what each device did from the beginning of the sweep to its end, or up to now."""
    intervals = device_time.intervals
    if not intervals:
        raise NothingToDrawError("no trial has reported")
    lanes, wall = device_time.devices, max(1e-3, device_time.ended - device_time.began)
    unit, scale = ("minutes", 60.0) if wall >= 180 else ("seconds", 1.0)
    colours = [COLOURS[(interval.trial - 1) % len(COLOURS)] for interval in intervals]
    hatched = {"color": "white", "pattern": {"shape": "/", "fgcolor": colours, "size": 6}}
    filled = {"color": colours, "line": {"color": "white", "width": 0.5}}
    numbers = [str(interval.trial) for interval in intervals]
    figure = go.Figure()
    for part, spans, marker, text in (
        ("starts", [(interval.began, interval.trained_from) for interval in intervals], hatched, None),
        ("trains", [(interval.trained_from, interval.ended) for interval in intervals], filled, numbers),
    ):
        figure.add_bar(
            orientation="h",
            y=[interval.device for interval in intervals],
            base=[(began - device_time.began) / scale for began, _ in spans],
            x=[(ended - began) / scale for began, ended in spans],
            marker=marker,
            text=text,
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            customdata=[(number, ended - began) for number, (began, ended) in zip(numbers, spans, strict=True)],
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
