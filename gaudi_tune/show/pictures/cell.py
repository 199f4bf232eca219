"""A sweep in the cell of a notebook, wherever the browser is: all that it needs of the kernel comes with the notebook.

With anywidget the cell has the live page, which asks through the widget in place of a server. Without it, or where the
notebook shows no widgets, it has a table, replaced from time to time. At the end the table and a picture stay.
"""

from __future__ import annotations

import gzip
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

import jinja2

from gaudi_tune.base.words import format_value
from gaudi_tune.private.ipykernel import WidgetMessages
from gaudi_tune.show.pictures.catalogue import draw_picture
from gaudi_tune.show.pictures.page import WATCHED_FOR_S, LivePage
from gaudi_tune.show.pictures.report import render
from gaudi_tune.show.pictures.sweep_view import COLOURS, SweepView
from gaudi_tune.sweep.record.events import Event, SweepBegan, SweepEnded
from gaudi_tune.sweep.record.sweep_state import SweepState

REPLACE_EVERY_S = 2.0
"""The shortest time between two tables."""
MAX_ROWS = 20
"""The most trials in a table."""
FRAME_HEIGHT = 700
"""The height of the page, in pixels."""
PLOTLY = "application/vnd.plotly.v1+json"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
SCRIPT = """
function render({ model, el }) {
  const frame = document.createElement("iframe");
  const up = ({ source, data }) => { if (source === frame.contentWindow) model.send(data); };
  const down = (answer, [content]) => frame.contentWindow?.postMessage({ ...answer, content }, "*");
  frame.sandbox = "allow-scripts allow-forms allow-downloads allow-popups";  // it can do nothing to the notebook
  frame.style = `width: 100%; height: ${model.get("height")}px; border: 0`;
  frame.srcdoc = model.get("page");
  addEventListener("message", up);
  model.on("msg:custom", down);
  el.append(frame);
  return () => { removeEventListener("message", up); model.off("msg:custom", down); };
}
export default { render };
"""
"""What the browser does with the widget: the page in a frame, and its messages to the kernel and back."""


class ShowInCell:
    """Shows the sweep in the cell that runs it."""

    def __init__(self, page: LivePage) -> None:
        self._page = page
        self._table: Any = None  # the display of the table; IPython has no types
        self._widget: _PageWidget | None = None
        self._replaced_at = 0.0  # monotonic time

    def show(self, event: Event, state: SweepState) -> None:
        """Begin, or leave the final table in the cell."""
        if isinstance(event, SweepBegan):
            from IPython.display import display

            self._table = display(self._content(state), raw=True, display_id=True)
            try:
                self._widget = _PageWidget(self._page)
            except ImportError:
                print("the page in this cell, with which you can steer the sweep, needs: pip install anywidget")
        elif isinstance(event, SweepEnded) and self._table is not None:
            if self._widget is not None:
                self._widget.close()
                self._widget = None
            self._replace_table(state)
            self._show_picture()

    def tick(self, state: SweepState) -> None:
        """Replace the table if it is time."""
        if self._widget is not None:
            self._widget.poll()
        if self._table is not None and time.monotonic() - self._replaced_at > REPLACE_EVERY_S:
            self._replace_table(state)

    def _replace_table(self, state: SweepState) -> None:
        self._replaced_at = time.monotonic()
        self._table.update(self._content(state), raw=True)

    def _show_picture(self) -> None:
        """Show the learning curves below the table, where the notebook knows Plotly's format."""
        from IPython.display import display

        picture = draw_picture("learning_curves", self._page.view) if self._page.view is not None else None
        if picture is not None and picture.figure is not None:
            display({PLOTLY: picture.as_data()["figure"], "text/plain": ""}, raw=True)

    def _content(self, state: SweepState) -> dict[str, str]:
        """Return the table, or nothing while the cell has the page, in the formats that notebooks know."""
        if self._widget is not None and self._widget.is_shown():
            return {"text/html": "", "text/plain": ""}
        self._page.update_view(state)
        assert self._page.view is not None, "it has just been made"
        return {"text/html": render_table(self._page.view), "text/plain": ""}


class _PageWidget:
    """The live page as a widget."""

    def __init__(self, page: LivePage) -> None:
        """Show it. Raises an ImportError without anywidget."""
        from anywidget import AnyWidget
        from IPython import get_ipython
        from IPython.display import display
        from traitlets import Int, Unicode

        html = render(page.plan, live=True, in_cell=True, nonce=page.nonce)
        synced = {"page": Unicode(html).tag(sync=True), "height": Int(FRAME_HEIGHT).tag(sync=True)}
        self._page, self._request_time = page, -WATCHED_FOR_S
        self._widget = type("PageWidget", (AnyWidget,), {"_esm": SCRIPT, **synced})()
        self._widget.on_msg(lambda _, content, buffers: self._take(content))
        kernel = get_ipython().kernel
        self._messages: WidgetMessages | None = None
        if getattr(kernel, "shell_stream", None) is not None:  # else it is not ipykernel
            self._messages = WidgetMessages(kernel, self._widget.comm.comm_id, self._take)
        view = {"version_major": 2, "version_minor": 0, "model_id": self._widget.model_id}
        self._display = display({WIDGET_VIEW: view, "text/plain": ""}, raw=True, display_id=True)

    def is_shown(self) -> bool:
        """Whether a browser shows the page: it asks for news all the time."""
        return time.monotonic() - self._request_time < WATCHED_FOR_S

    def poll(self) -> None:
        """Take the requests that have come."""
        if self._messages is not None:
            self._messages.poll()

    def close(self) -> None:
        """Remove the page from the cell."""
        if self._messages is not None:
            self._messages.stop()
        self._widget.layout.close()
        self._widget.close()
        self._display.update({"text/html": "", "text/plain": ""}, raw=True)

    def _take(self, request: Any) -> None:
        """Answer a request in a thread, as the server does: it may wait for Tune's event loop, or draw a picture."""
        self._request_time = time.monotonic()
        threading.Thread(target=self._answer, args=(request,), name="cell", daemon=True).start()

    def _answer(self, request: Any) -> None:
        body = request["body"]
        status, _, content = self._page.answer(request["path"], None if body is None else body.encode())
        if request["path"] == "plotly.js":  # a Jupyter server passes on about 1 MB a second
            content = gzip.compress(content)
        self._widget.send({"id": request["id"], "ok": status == HTTPStatus.OK}, buffers=[content])


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
