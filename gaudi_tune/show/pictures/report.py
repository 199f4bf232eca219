"""A thread draws a sweep while it runs, into report.html: one page that needs no server and no network."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2

from gaudi_tune.base.writing import atomic_write
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.pictures.catalogue import Picture, draw_pictures
from gaudi_tune.show.pictures.sweep_view import COLOURS, SweepView
from gaudi_tune.sweep.record.events import Event, PicturesDrawn, Reported, SweepEnded
from gaudi_tune.sweep.record.sweep_state import SweepState

logger = logging.getLogger(__name__)

DRAW_EVERY_S = 60.0
"""How often a running sweep is drawn at most."""
SHARE_OF_TIME = 0.05
"""How much of a core drawing takes at most: with a thousand trials the turns are longer."""


class DrawPictures:
    """Draws the sweep every minute in which something was reported, and once more when it ends.

    Tune's event loop only gathers what is to be drawn (milliseconds).
    """

    def __init__(self, plan: Plan, address: Callable[[], str], drawn: Callable[[PicturesDrawn], None]) -> None:
        """Prepare; any thread calls ``drawn`` when pictures have been drawn, ``address`` is as in the report."""
        self._plan, self._address, self._drawn = plan, address, drawn
        self._reported = False
        self._not_before = 0.0  # of the monotonic clock
        self._thread: threading.Thread | None = None

    def show(self, event: Event, state: SweepState) -> None:
        """Note that there is something new; draw how it ended."""
        if isinstance(event, Reported):
            self._reported = True
        elif isinstance(event, SweepEnded):
            if self._thread is not None:
                self._thread.join()
            self._draw(SweepView.of(self._plan, state, self._address()))

    def tick(self, state: SweepState) -> None:
        """Begin to draw, if it is time and the last drawing is done."""
        if self._reported or len(state.trials) >= self._plan.groups:  # all workers start meanwhile
            # Not above: plotly and Optuna's pictures take 2 s and 100 MB, which --help and --dry-run do not need. Not
            # in the thread: if the sampler imported scipy at the same time, each would see half of it.
            from gaudi_tune.show.pictures import figures  # noqa: F401
        drawing = self._thread is not None and self._thread.is_alive()
        if drawing or not self._reported or time.monotonic() < self._not_before:
            return
        self._reported = False
        view = SweepView.of(self._plan, state, self._address())
        self._thread = threading.Thread(target=self._draw, args=(view,), name="pictures", daemon=True)
        self._thread.start()

    def _draw(self, view: SweepView) -> None:
        began, worked = time.monotonic(), time.thread_time()
        try:
            write_report(view, draw_pictures(view), view.plan.report_file)
            self._drawn(PicturesDrawn(files=[view.plan.report_file], last=not view.running))
        except Exception:  # in a thread nobody else would say so
            logger.exception("the sweep could not be drawn")
        worked = time.thread_time() - worked  # and not what other work on these cores took
        self._not_before = began + max(DRAW_EVERY_S, worked / SHARE_OF_TIME)


def write_report(view: SweepView, pictures: Sequence[Picture], path: Path) -> None:
    """Write the page, whole or not at all: about 5 MB, most of it plotly.js, which is in it once."""
    from plotly.offline import get_plotlyjs

    data = {
        "head": view.head(),
        "version": 1,
        "trials": [trial.row() for trial in view.trials],
        "pictures": [picture.as_data() for picture in pictures],
    }
    page = render(view.plan, live=False, data=as_json(data), plotly_js=get_plotlyjs())
    with atomic_write(path) as unfinished:
        unfinished.write_text(page)


def render(plan: Plan, **values: Any) -> str:
    """Return the page; the template needs ``live``, and then ``nonce``, else ``data`` and ``plotly_js``."""
    templates = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True)
    return templates.get_template("report.html").render(name=plan.name, colours=as_json(COLOURS), **values)


def as_json(data: Any) -> str:
    """Return data as JSON that may stand inside a page's script element."""
    return json.dumps(data, default=str).replace("<", "\\u003c")
