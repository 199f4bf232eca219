"""The report of a sweep, report.html, which needs no server and no network. A thread draws it while the sweep runs."""

from __future__ import annotations

import importlib
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2

from gaudi_tune.base.errors import errors_are_logged
from gaudi_tune.base.files import atomic_write
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.pictures.catalogue import Picture, draw_pictures
from gaudi_tune.show.pictures.surrogate import MIN_TRIALS
from gaudi_tune.show.pictures.sweep_view import COLOURS, SweepView
from gaudi_tune.sweep.record.events import Event, Reported, SweepEnded
from gaudi_tune.sweep.record.sweep_state import SweepState

logger = logging.getLogger(__name__)

DRAW_EVERY_S = 60.0
"""The shortest time between two drawings of a running sweep."""
MAX_CORE_SHARE = 0.05
"""The largest share of a core that drawing takes: with a thousand trials it draws less often."""


class DrawPictures:
    """Draws the sweep every minute in which something was reported, and once more when it ends.

    Tune's event loop only gathers the data, which takes milliseconds.
    """

    def __init__(self, plan: Plan, address: Callable[[], str]) -> None:
        """Prepare only. ``address`` returns the tracker's address."""
        self._plan, self._address = plan, address
        self._has_new_reports = False
        self._next_draw_at = 0.0  # monotonic time
        self._thread: threading.Thread | None = None

    def show(self, event: Event, state: SweepState) -> None:
        """Note that there are new reports, or draw the end."""
        if isinstance(event, Reported):
            self._has_new_reports = True
        elif isinstance(event, SweepEnded):
            if self._thread is not None:
                self._thread.join()
            self._draw(SweepView.take(self._plan, state, self._address()))

    def tick(self, state: SweepState) -> None:
        """Begin to draw, if it is time and the last drawing is done."""
        is_drawing = self._thread is not None and self._thread.is_alive()
        if is_drawing or not self._has_new_reports or time.monotonic() < self._next_draw_at:
            return
        self._has_new_reports = False
        view = SweepView.take(self._plan, state, self._address())
        self._thread = threading.Thread(target=self._draw, args=(view,), name="pictures", daemon=True)
        self._thread.start()

    def _draw(self, view: SweepView) -> None:
        start, thread_start = time.monotonic(), time.thread_time()
        with errors_are_logged("the sweep could not be drawn"):
            write_report(view, draw_pictures(view), view.plan.report_file)
            if view.running and view.plan.num_samples >= MIN_TRIALS:
                importlib.import_module("sklearn.ensemble")  # for the last drawing, for which the result waits
        cpu_s = time.thread_time() - thread_start  # without the time of other work on these cores
        self._next_draw_at = start + max(DRAW_EVERY_S, cpu_s / MAX_CORE_SHARE)


def write_report(view: SweepView, pictures: Sequence[Picture], path: Path) -> None:
    """Write the page, whole or not at all. It has about 5 MB, most of it plotly.js."""
    from plotly.offline import get_plotlyjs

    data = {
        "head": view.head(),
        "version": 1,
        "trials": [trial.row() for trial in view.trials],
        "pictures": [picture.as_data() for picture in pictures],
    }
    page = render(view.plan, live=False, data=as_json(data), plotly_js=get_plotlyjs())
    with atomic_write(path) as unfinished:
        unfinished.write_text(page, encoding="utf-8")


def render(plan: Plan, **values: Any) -> str:
    """Return the page. The template needs ``live``: with True also ``nonce``, with False ``data`` and ``plotly_js``."""
    templates = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True)
    return templates.get_template("report.html").render(name=plan.name, colours=as_json(COLOURS), **values)


def as_json(data: Any) -> str:
    """Return data as JSON that may stand inside a page's script element."""
    return json.dumps(data, default=str).replace("<", "\\u003c")
