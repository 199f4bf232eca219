"""What the live page's script does, without a browser."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

WITHIN_S = 300.0


class PageClient:
    """Follows a sweep at the address of its page, and asks for things."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.trials: dict[int, dict[str, Any]] = {}
        self.head: dict[str, Any] = {}
        self._version = 0

    def look(self) -> None:
        with urllib.request.urlopen(f"{self.address}sweep?since={self._version}") as answer:
            news = json.load(answer)
        self._version, self.head = news["version"], news.get("head", self.head)
        self.trials.update({trial["number"]: trial for trial in news.get("trials", [])})

    def until(self, shown: Callable[[PageClient], Any]) -> Any:
        """Look until something is shown, and return it."""
        until = time.monotonic() + WITHIN_S
        while time.monotonic() < until:
            self.look()
            if found := shown(self):
                return found
            time.sleep(0.1)
        raise AssertionError(f"not within {WITHIN_S} s: {self.head} {self.trials}")

    def ask(self, **wish: Any) -> dict[str, str]:
        """Return what the sweep answers to a wish."""
        body, kind = json.dumps(wish).encode(), {"Content-Type": "application/json"}
        try:
            answer = urllib.request.urlopen(urllib.request.Request(f"{self.address}ask", body, kind))
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            told: dict[str, str] = json.load(answer)
        assert ("error" in told) == (answer.status != HTTPStatus.OK)
        return told

    def with_status(self, status: str) -> list[int]:
        return [number for number, trial in self.trials.items() if trial["status"] == status]
