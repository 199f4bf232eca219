"""A webhook on this machine, which keeps what is posted to it."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

SECRET = "T00/B00/very-secret"


class Webhook:
    """A server that keeps what is posted to it."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.status = 200
        self.answers = Event()
        self.answers.set()
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == f"/{SECRET}" and self.headers["Content-Type"] == "application/json"
                webhook.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                webhook.answers.wait(20)
                self.send_response(webhook.status)
                if webhook.status == 301:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def do_GET(self) -> None:
                """What a redirect leads to answers everybody."""
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/{SECRET}"
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.answers.set()
        self.server.shutdown()
        self.server.server_close()
