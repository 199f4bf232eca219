"""The live page of a sweep: report.html, which follows the sweep and takes wishes, from a server in this process.

The server is for this machine alone, and for those who know the token in its address. Its threads read the last
:class:`~gaudi_tune.show.pictures.sweep_view.SweepView`, which Tune's event loop makes while somebody watches,
and never the state itself.
"""

from __future__ import annotations

import json
import logging
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerError
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.pictures.catalogue import PICTURES, draw_picture
from gaudi_tune.show.pictures.report import render
from gaudi_tune.show.pictures.sweep_view import SweepView
from gaudi_tune.sweep.record.events import Event, SweepBegan, SweepEnded
from gaudi_tune.sweep.record.sweep_state import SweepState

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
LOOK_EVERY_S = 0.3
"""How often the event loop makes a new view at most, while somebody watches."""
SHARE_OF_TIME = 0.05
"""How much of the event loop's time views take at most, and of a core each picture: with a thousand trials they take
longer."""
WATCHED_FOR_S = 5.0
"""How long after its last question a page counts as open; it asks about every second."""
LAST_LOOK_S = 1.0
"""How long the end of a sweep waits for open pages to see it; after SIGTERM there are seconds."""
LINGERS_S = 10.0
"""How long the server answers after the sweep, where its process goes on."""
ANSWER_WITHIN_S = 20.0
"""How long a wish waits for Tune's event loop."""
LARGEST_WISH = 64 * 2**10
"""Bytes."""
FRAME_HEIGHT = 900
"""Of the page in a notebook, in pixels."""
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the address has the token
    "X-Content-Type-Options": "nosniff",
}
POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors http://localhost:* http://127.0.0.1:*"
)
"""What the page may load: its own scripts. plotly writes styles, and its camera makes blobs.
Notebooks of this machine may frame it."""


class LivePage:
    """Serves the page from the beginning of a sweep to its end."""

    def __init__(self, plan: Plan, address: Callable[[], str], ask: Callable[[Mapping[str, Any]], Future[str]]) -> None:
        """Prepare; ``address`` returns where the tracker shows the sweep, ``ask`` takes a wish from any thread."""
        self.plan, self.ask = plan, ask
        self._tracker = address
        self.token, self.nonce = secrets.token_urlsafe(24), secrets.token_urlsafe(16)
        self.address: str | None = None
        """Where the page is; None while the server does not run."""
        self._server: _Server | None = None
        self._view: SweepView | None = None
        self._changed = False
        self._not_before = self._watched_at = 0.0  # of the monotonic clock
        self._version = 0
        self._head: dict[str, Any] = {}
        self._rows: dict[int, tuple[int, dict[str, Any]]] = {}
        """Each trial, and the version in which it was new."""
        self._lock = threading.Lock()
        """Of the last four."""
        self._end_was_seen = threading.Event()
        self._drawn: dict[str, tuple[int, float, dict[str, Any]]] = {}
        """Of each picture the version, from when on another may be drawn, and the picture as data."""
        self._drawing = threading.Lock()

    # What Tune's event loop calls.

    def show(self, event: Event, state: SweepState) -> None:
        """Start the server, note that there is something new, or show the end."""
        self._changed = True
        if isinstance(event, SweepBegan):
            self._look(state)
            self._start()
        elif isinstance(event, SweepEnded) and self._server is not None:
            self._look(state)
            if self._watched():
                self._end_was_seen.wait(LAST_LOOK_S)
            timer = threading.Timer(LINGERS_S, self._server.close)
            timer.daemon = True
            timer.start()

    def tick(self, state: SweepState) -> None:
        """Make a new view if there is something new and somebody watches."""
        if self._changed and self._watched() and time.monotonic() >= self._not_before:
            self._look(state)

    def _watched(self) -> bool:
        return time.monotonic() - self._watched_at < WATCHED_FOR_S

    def _look(self, state: SweepState) -> None:
        began, self._changed = time.monotonic(), False
        view = SweepView.of(self.plan, state, self._tracker(), self._view)
        head, rows = view.head(), {trial.number: trial.row() for trial in view.trials}
        with self._lock:
            self._version += 1
            self._view, self._head = view, {**head, "pictures": list(PICTURES)}
            for number, shown in rows.items():
                if number not in self._rows or self._rows[number][1] != shown:
                    self._rows[number] = (self._version, shown)
        now = time.monotonic()
        self._not_before = now + max(LOOK_EVERY_S, (now - began) / SHARE_OF_TIME)

    def _start(self) -> None:
        try:
            self._server = _Server(self)
        except OSError as error:
            logger.warning("the sweep has no page: cannot listen on any port of %s (%s)", HOST, error)
            return
        self.address = f"http://{HOST}:{self._server.server_port}/{self.token}/"
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="page", daemon=True).start()
        print(f"page    {self.address}", flush=True)
        if in_notebook():
            from IPython.display import IFrame, display

            display(IFrame(self.address, "100%", FRAME_HEIGHT))

    # What the server's threads call.

    def news(self, since: int) -> dict[str, Any]:
        """Return what changed after a version: nothing but the version, if nothing did."""
        self._watched_at = time.monotonic()
        with self._lock:
            version, head = self._version, self._head
            changed = [shown for at, shown in self._rows.values() if at > since]
        if not head["running"]:
            self._end_was_seen.set()
        return {"version": version} if version == since else {"version": version, "head": head, "trials": changed}

    def picture(self, name: str, since: int) -> dict[str, Any]:
        """Return a picture as data, drawn again if it is old; its version alone, if that is ``since``."""
        with self._drawing:
            version, not_before, data = self._drawn.get(name, (0, 0.0, {}))
            with self._lock:
                now, view = self._version, self._view
            assert view is not None, "the server starts after the first view"
            if version != now and (time.monotonic() >= not_before or not view.running):
                began = time.thread_time()
                picture = draw_picture(name, view)
                data = picture.as_data() if picture is not None else {}
                not_before = time.monotonic() + (time.thread_time() - began) / SHARE_OF_TIME
                version = now
                self._drawn[name] = version, not_before, data
        return {"version": version} if version == since else {**data, "version": version}


class _Server(ThreadingHTTPServer):
    """At a free port of this machine."""

    daemon_threads = True

    def __init__(self, page: LivePage) -> None:
        super().__init__((HOST, 0), _Handler)
        self.page = page

    def close(self) -> None:
        """Answer no more."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what went wrong, unless a browser has hung up."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            logger.exception("the page could not answer")


class _Handler(BaseHTTPRequestHandler):
    """Answers ``/TOKEN/`` (the page), ``plotly.js``, ``sweep``, ``picture/NAME`` and ``ask`` below it, and refuses the
    rest."""

    server: _Server
    timeout = 30
    server_version, sys_version = "sweep", ""

    def do_GET(self) -> None:
        page, path = self.server.page, self._allowed()
        if path is None:
            return
        place, _, name = path.partition("/")
        if path == "":
            body = render(page.plan, live=True, nonce=page.nonce).encode()
            self._send(body, "text/html", {"Content-Security-Policy": POLICY.format(nonce=page.nonce)})
        elif path == "plotly.js":
            self._send(_plotly(), "text/javascript")
        elif path == "sweep":
            self._send_json(page.news(self._since()))
        elif place == "picture" and name in PICTURES:
            self._send_json(page.picture(name, self._since()))
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        path = self._allowed()
        if path is None:
            return
        if path != "ask":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > LARGEST_WISH:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        try:
            wish = json.loads(self.rfile.read(int(length)))
            if not isinstance(wish, dict):
                raise SweepError('a request must be a JSON object, such as {"do": "stop", "trial": 7}')
            self._send_json({"done": self.server.page.ask(wish).result(ANSWER_WITHIN_S)})
        except (NoAnswerError, TimeoutError):
            busy = f"the sweep is busy for more than {ANSWER_WITHIN_S:g} s; it will do it later"
            self._send_json({"error": busy}, HTTPStatus.SERVICE_UNAVAILABLE)
        except json.JSONDecodeError as error:
            self._send_json({"error": f"the request is not JSON: {error}"}, HTTPStatus.BAD_REQUEST)
        except ValueError as error:
            self._send_json({"error": str(error)}, HTTPStatus.BAD_REQUEST)

    def _allowed(self) -> str | None:
        """Return the path below the token; None, having refused, if the token or the name of the host is another."""
        try:
            host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
            token, slash, path = urlsplit(self.path).path.removeprefix("/").partition("/")
        except ValueError:  # there is no such address
            host, token, slash, path = None, "", "", ""
        right = secrets.compare_digest(token.encode(errors="replace"), self.server.page.token.encode())
        if host not in (HOST, "localhost") or not right or not slash:  # a page elsewhere may have a name for this host
            self.send_error(HTTPStatus.FORBIDDEN)
            return None
        return path

    def _since(self) -> int:
        since = parse_qs(urlsplit(self.path).query).get("since", ["0"])[0]
        return int(since) if since.isdigit() else 0

    def _send_json(self, data: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(json.dumps(data, default=str).encode(), "application/json", status=status)

    def _send(
        self, body: bytes, kind: str, headers: Mapping[str, str] | None = None, status: HTTPStatus = HTTPStatus.OK
    ) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a page asks every second."""


@cache
def _plotly() -> bytes:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).encode()


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, and what it prints is a cell's."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")
