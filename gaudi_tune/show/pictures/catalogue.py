"""The catalogue of pictures of a sweep, for a browser, with captions that say how to read them."""

from __future__ import annotations

import html
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gaudi_tune.show.pictures.surrogate import NothingToDrawError
from gaudi_tune.show.pictures.sweep_view import GRID, INK, SweepView
from gaudi_tune.sweep.record.device_time import shares_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

logger = logging.getLogger(__name__)

FRONT = (
    "A mark is a trial, at the report in which its {metric} was the best; a ring: no other trial is better in one "
    "objective and as good in all. With two objectives the line is the border of what was reached."
)
PICTURES = {
    "front": ("The front", FRONT),
    "front_1_3": ("The front: first and third objective", FRONT),
    "front_2_3": ("The front: second and third objective", FRONT),
    "optimization_history": (
        "Optimization history",
        "A mark is a trial at the best {metric} it reached, in the order in which they began. {remark}Trials that "
        "reported no value are in the table alone.",
    ),
    "confirmation": (
        "Confirmation, seed by seed",
        "The best configurations and the baseline, trained again in full with other seeds. A ring is one "
        "training run: its score at its best epoch, on test data where there is some.",
    ),
    "learning_curves": (
        "Learning curves",
        "A line is a trial, from report to report; the mark at its end says how it ended. {remark}",
    ),
    "slices": (
        "Each hyperparameter",
        "A mark is a trial at the best {metric} it reached, over its value of each hyperparameter; the paler, the less "
        "it has trained. Blue: finished; amber: stopped early; grey: paused. {remark}",
    ),
    "importance": (
        "Importance of the hyperparameters",
        "How much of the trials' ranking each explains, by a random forest; the shares add up to 1. {remark}A trial "
        "that was stopped is compared where it stopped, and one that diverged ranks last.",
    ),
    "path": (
        "From the baseline to the winner",
        "One change after another, the most promising first, as the forest predicts it; nothing was trained for this. "
        "{remark}The bars span eight in ten of its trees.",
    ),
    "rungs": (
        "Early and later order",
        "How well the order of the trials at an early report predicts their later order. {remark}By chance it would "
        "keep a third of the best.",
    ),
    "timeline": (
        "What each device did",
        "A lane is a device, a block a trial with its number; pale while workers start. {shares}.",
    ),
}
"""The title and the caption of each picture by its name, which is that of its function in ``figures``, in the order of
the report."""
AXIS = {"gridcolor": GRID, "linecolor": GRID, "zeroline": False, "automargin": True}
LAYOUT = {
    "plot_bgcolor": "white",
    "xaxis": AXIS,
    "yaxis": AXIS,
    "margin": {"l": 10, "r": 20, "t": 10, "b": 10},
    "font": {"family": "system-ui, sans-serif", "size": 13, "color": INK},
    "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
    "hoverlabel": {"bgcolor": "white", "align": "left"},
}
HEIGHT = 420  # pixels
"""The height of a picture that sets none itself."""


LINE_END = html.escape("<br>")


@dataclass(frozen=True)
class Picture:
    """One of the pictures, whether it could be drawn or not."""

    name: str
    """The name of the function in ``figures``, and of the file in which the page saves the picture."""
    title: str
    caption: str
    """How to read the picture, or why it is missing."""
    figure: go.Figure | None
    """The drawing; None if there is none."""

    def as_data(self) -> dict[str, Any]:
        """Return the picture as plain data, with the figure in the format of plotly.js, to which its texts are text."""
        figure = None if self.figure is None else _without_markup(json.loads(self.figure.to_json()))
        return {**vars(self), "figure": figure}


def _without_markup(part: Any, key: str = "") -> Any:
    """Return a part of a figure whose texts plotly.js does not take for HTML, apart from the ends of lines.

    It would make a link of a hyperparameter's value that looks like one. Templates are our own.
    """
    if isinstance(part, Mapping):
        return {name: _without_markup(value, name) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return [_without_markup(value, key) for value in part]
    if isinstance(part, str) and key != "hovertemplate":
        return html.escape(part, quote=False).replace(LINE_END, "<br>")
    return part


def draw_pictures(view: SweepView) -> list[Picture]:
    """Draw the pictures that apply to a sweep. An error in one leaves the others alone."""
    pictures = [draw_picture(name, view) for name in PICTURES]
    return [picture for picture in pictures if picture is not None]


def draw_picture(name: str, view: SweepView) -> Picture | None:
    """Draw one of the pictures; None if it does not apply to this sweep."""
    from gaudi_tune.show.pictures import figures  # this imports plotly

    (title, caption), figure = PICTURES[name], None
    try:
        figure = getattr(figures, name)(view)
        if figure is None:
            return None
        summary, remark = view.summary, figure.layout.meta or ""
        caption = caption.format(metric=summary["metric"], shares=shares_of(summary["device_seconds"]), remark=remark)
        figure.update_layout(template={"layout": LAYOUT}, title=None, height=figure.layout.height or HEIGHT)
    except NothingToDrawError as reason:
        caption = f"Not drawn: {reason}."
    except Exception as error:  # Optuna or plotly may fail in an unusual space
        logger.warning("the picture %s could not be drawn", name, exc_info=True)
        caption = f"Could not be drawn: {error}"
    return Picture(name, title, caption, figure)
