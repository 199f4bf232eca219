"""The live page of a sweep: report.html, which follows the sweep and takes requests, from a server in this process.

Only this machine reaches the server, and only people with the token in its address. Threads that answer never read the
state, but the last :class:`~gaudi_tune.show.pictures.sweep_view.SweepView`, which Tune's event loop makes while
somebody watches.
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

from typing_extensions import override

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import is_digits
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.pictures.catalogue import PICTURES, draw_picture
from gaudi_tune.show.pictures.report import render
from gaudi_tune.show.pictures.sweep_view import SweepView
from gaudi_tune.sweep.record.events import Event, SweepBegan, SweepEnded
from gaudi_tune.sweep.record.sweep_state import SweepState

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
LOOK_EVERY_S = 0.3
"""The shortest time between two views of the event loop, while somebody watches."""
LOOK_AGAIN_EVERY_S = 2.0
"""The time between two views without news: the time left, and what trials wait for."""
MAX_TIME_SHARE = 0.05
"""The largest share of the event loop's time that views take, and of a core that a picture takes. With a thousand
trials they take longer, and are made less often."""
WATCHED_FOR_S = 5.0
"""How long after its last request a page counts as open; it sends about one a second."""
LAST_LOOK_S = 1.0
"""How long the end of a sweep waits for open pages to see it. After SIGTERM the process has only seconds."""
LINGERS_S = 10.0
"""How long the server answers after the sweep, if the process goes on."""
ANSWER_WITHIN_S = 20.0
"""How long a request of a person waits for Tune's event loop."""
MAX_REQUEST_BYTES = 64 * 2**10
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the address has the token
    "X-Content-Type-Options": "nosniff",
}
POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page's Content-Security-Policy. It allows the page's own scripts, the styles that plotly writes, and the blobs of
plotly's camera."""


class LivePage:
    """Serves the page from the beginning of a sweep to its end."""

    def __init__(self, plan: Plan, address: Callable[[], str], ask: Callable[[Mapping[str, Any]], Future[str]]) -> None:
        """Prepare only. ``address`` returns the tracker's address, and ``ask`` takes a request from any thread."""
        self.plan, self.ask = plan, ask
        self._tracker_address = address
        self.token, self.nonce = secrets.token_urlsafe(24), secrets.token_urlsafe(16)
        self.address: str | None = None
        """The address of the page; None while the server does not run."""
        self._server: _Server | None = None
        self.view: SweepView | None = None
        self._has_news = False
        self._next_view_at = self._viewed_at = self._requested_at = 0.0  # monotonic time
        self._version = 0
        self._head: dict[str, Any] = {}
        self._rows: dict[int, tuple[int, dict[str, Any]]] = {}
        """The row of each trial, and the version in which it changed last."""
        self._lock = threading.Lock()
        """Protects the view, its version, the head and the rows."""
        self._end_was_seen = threading.Event()
        self._pictures: dict[str, tuple[int, float, dict[str, Any]]] = {}
        """Each picture as data, after its version and the time from which on it may be drawn again."""
        self._drawing = threading.Lock()

    # Tune's event loop calls these.

    def show(self, event: Event, state: SweepState) -> None:
        """Start the server, note that there are news, or show the end."""
        self._has_news = True
        if isinstance(event, SweepBegan):
            self.update_view(state)
            self._start()
        elif isinstance(event, SweepEnded) and self._server is not None:
            self.update_view(state)
            if self.is_watched():
                self._end_was_seen.wait(LAST_LOOK_S)
            timer = threading.Timer(LINGERS_S, self._server.close)
            timer.daemon = True
            timer.start()

    def tick(self, state: SweepState) -> None:
        """Make a new view if somebody watches, and there are news or time has passed."""
        moment = time.monotonic()
        is_due = self._has_news or moment >= self._viewed_at + LOOK_AGAIN_EVERY_S
        if is_due and self.is_watched() and moment >= self._next_view_at:
            self.update_view(state)

    def is_watched(self) -> bool:
        """Whether somebody looks."""
        return time.monotonic() - self._requested_at < WATCHED_FOR_S

    def update_view(self, state: SweepState) -> None:
        """Make a new view."""
        start, self._has_news = time.monotonic(), False
        view = SweepView.take(self.plan, state, self._tracker_address())
        head, rows = view.head(), {trial.number: trial.row() for trial in view.trials}
        with self._lock:
            self._version += 1
            self.view, self._head = view, {**head, "pictures": list(PICTURES)}
            for number, row in rows.items():
                if number not in self._rows or self._rows[number][1] != row:
                    self._rows[number] = (self._version, row)
        end = self._viewed_at = time.monotonic()
        self._next_view_at = end + max(LOOK_EVERY_S, (end - start) / MAX_TIME_SHARE)

    def _start(self) -> None:
        try:
            self._server = _Server(self)
        except OSError as error:
            logger.warning("the sweep has no page: cannot listen on any port of %s (%s)", HOST, error)
            return
        self.address = f"http://{HOST}:{self._server.server_port}/{self.token}/"
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="page", daemon=True).start()
        print(f"page    {self.address}", flush=True)

    # Threads of the server call these.

    def answer(self, address: str, body: bytes | None) -> tuple[HTTPStatus, str, bytes]:
        """Return status, kind and content of the answer to a GET, or to a POST with a body.

        The address, below the page's own, is ``plotly.js``, ``sweep``, ``picture/NAME`` or ``ask``, and may have the
        version that the page knows.
        """
        parts = urlsplit(address)
        folder, _, name = parts.path.partition("/")
        since = parse_qs(parts.query).get("since", ["0"])[0]
        known_version = int(since) if is_digits(since) else 0
        status = HTTPStatus.OK
        if body is not None and parts.path == "ask":
            status, data = self._grant(body)
        elif body is None and parts.path == "plotly.js":
            return status, "text/javascript", _plotly()
        elif body is None and parts.path == "sweep":
            data = self.news(known_version)
        elif body is None and folder == "picture" and name in PICTURES:
            data = self.picture(name, known_version)
        else:
            status, data = HTTPStatus.NOT_FOUND, {"error": f"there is no {parts.path}"}
        return status, "application/json", json.dumps(data, default=str).encode()

    def _grant(self, body: bytes) -> tuple[HTTPStatus, dict[str, Any]]:
        """Pass on a request, and return status and content of its answer."""
        try:
            request = json.loads(body)
            if not isinstance(request, dict):
                raise SweepError('a request must be a JSON object, such as {"do": "stop", "trial": 7}')
            return HTTPStatus.OK, {"done": self.ask(request).result(ANSWER_WITHIN_S)}
        except (NoAnswerError, TimeoutError):
            message = f"the sweep is busy for more than {ANSWER_WITHIN_S:g} s; it will do it later"
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": message}
        except (json.JSONDecodeError, RecursionError) as error:
            return HTTPStatus.BAD_REQUEST, {"error": f"the request is not JSON: {error}"}
        except ValueError as error:
            return HTTPStatus.BAD_REQUEST, {"error": str(error)}

    def news(self, known_version: int) -> dict[str, Any]:
        """Return what has changed since the version that the page knows. The current version alone means nothing."""
        self._requested_at = time.monotonic()
        with self._lock:
            version, head = self._version, self._head
            changed_rows = [row for row_version, row in self._rows.values() if row_version > known_version]
        if not head["running"]:
            self._end_was_seen.set()
        if version == known_version:
            return {"version": version}
        return {"version": version, "head": head, "trials": changed_rows}

    def picture(self, name: str, known_version: int) -> dict[str, Any]:
        """Return a picture as data, drawn again if it is old; its version alone if the page knows that version."""
        with self._drawing:
            version, next_draw_at, data = self._pictures.get(name, (0, 0.0, {}))
            with self._lock:
                view_version, view = self._version, self.view
            assert view is not None, "the server starts after the first view"
            if version != view_version and (time.monotonic() >= next_draw_at or not view.running):
                start = time.thread_time()
                picture = draw_picture(name, view)
                data = picture.as_data() if picture is not None else {}
                next_draw_at = time.monotonic() + (time.thread_time() - start) / MAX_TIME_SHARE
                version = view_version
                self._pictures[name] = version, next_draw_at, data
        return {"version": version} if version == known_version else {**data, "version": version}


class _Server(ThreadingHTTPServer):
    """A server at a free port of this machine."""

    daemon_threads = True

    def __init__(self, page: LivePage) -> None:
        super().__init__((HOST, 0), _Handler)
        self.page = page

    def close(self) -> None:
        """Stop answering."""
        self.shutdown()
        self.server_close()

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error, unless the browser has closed the connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            logger.exception("the page could not answer")


class _Handler(BaseHTTPRequestHandler):
    """Answers requests for ``/TOKEN/``, which is the page, and for what is below it. It refuses all others."""

    server: _Server
    timeout = 30
    server_version, sys_version = "sweep", ""

    def do_GET(self) -> None:
        page, path = self.server.page, self._allowed_path()
        if path == "":
            body = render(page.plan, live=True, nonce=page.nonce).encode()
            policy = {"Content-Security-Policy": POLICY.format(nonce=page.nonce)}
            self._send(HTTPStatus.OK, "text/html", body, policy)
        elif path is not None:
            self._send(*page.answer(f"{path}?{urlsplit(self.path).query}", None))

    def do_POST(self) -> None:
        path, length = self._allowed_path(), self.headers.get("Content-Length", "")
        if path is None:
            return
        if not is_digits(length) or int(length) > MAX_REQUEST_BYTES:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        self._send(*self.server.page.answer(path, self.rfile.read(int(length))))

    def _allowed_path(self) -> str | None:
        """Return the path below the token, or refuse the request and return None if the token or the host is wrong."""
        try:
            host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
            token, slash, path = urlsplit(self.path).path.removeprefix("/").partition("/")
        except ValueError:  # the address is malformed
            host, token, slash, path = None, "", "", ""
        has_token = secrets.compare_digest(token.encode(errors="replace"), self.server.page.token.encode())
        # A page elsewhere may reach this host under its own name, so the name is checked, too.
        if host not in (HOST, "localhost") or not has_token or not slash:
            self.send_error(HTTPStatus.FORBIDDEN)
            return None
        return path

    def _send(self, status: HTTPStatus, kind: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a page sends a request every second."""


@cache
def _plotly() -> bytes:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).encode()
