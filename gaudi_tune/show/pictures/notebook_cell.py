"""A sweep in the cell of a notebook, wherever the browser is: a table without scripts, replaced from time to time.

At the end the table and a picture stay, and are saved with the notebook.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jinja2

from gaudi_tune.base.words import format_value
from gaudi_tune.show.pictures.catalogue import draw_picture
from gaudi_tune.show.pictures.page import LivePage
from gaudi_tune.show.pictures.sweep_view import COLOURS, SweepView
from gaudi_tune.sweep.record.events import Event, SweepBegan, SweepEnded
from gaudi_tune.sweep.record.sweep_state import SweepState

REPLACE_EVERY_S = 2.0
"""The shortest time between two tables."""
MAX_ROWS = 20
"""The most trials in a table."""
PLOTLY = "application/vnd.plotly.v1+json"


class ShowInCell:
    """Shows the sweep in the cell that runs it."""

    def __init__(self, page: LivePage) -> None:
        self._page = page
        self._table: Any = None  # the display of the table; IPython has no types
        self._replaced_at = 0.0  # monotonic time

    def show(self, event: Event, state: SweepState) -> None:
        """Begin, or leave the final table in the cell, with the learning curves below it."""
        from IPython.display import display

        if isinstance(event, SweepBegan):
            self._table = display(self._content(state), raw=True, display_id=True)
        elif isinstance(event, SweepEnded) and self._table is not None:
            self._replace_table(state)
            picture = draw_picture("learning_curves", self._page.view) if self._page.view is not None else None
            if picture is not None and picture.figure is not None:  # shown where the notebook knows Plotly's format
                display({PLOTLY: picture.as_data()["figure"], "text/plain": ""}, raw=True)

    def tick(self, state: SweepState) -> None:
        """Replace the table if it is time."""
        if self._table is not None and time.monotonic() - self._replaced_at > REPLACE_EVERY_S:
            self._replace_table(state)

    def _replace_table(self, state: SweepState) -> None:
        self._replaced_at = time.monotonic()
        self._table.update(self._content(state), raw=True)

    def _content(self, state: SweepState) -> dict[str, str]:
        """Return the table in the formats that notebooks know."""
        self._page.update_view(state)
        assert self._page.view is not None, "it has just been made"
        return {"text/html": render_table(self._page.view), "text/plain": ""}


def render_table(view: SweepView) -> str:
    """Return how a sweep stands, in HTML without scripts, which any notebook shows and keeps."""
    trials = sorted(view.searched, key=lambda trial: (trial.best is None, -view.objective.score(trial.best or 0.0)))
    templates = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True)
    templates.filters["short"] = lambda value: "" if isinstance(value, jinja2.Undefined) else format_value(value)
    return templates.get_template("cell.html").render(
        name=view.plan.name,
        head=view.head(),
        trials=[trial.row() for trial in trials[:MAX_ROWS]],
        left_out=len(trials[MAX_ROWS:]),
        colours=COLOURS,
    )
