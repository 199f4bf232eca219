"""``--notify``: a message to a webhook when a sweep has a new best, ends or fails.

The address is a secret, because anybody who knows it can post there. It is never printed, logged or stored.

One JSON message through urllib serves Slack, Teams, Mattermost, Discord and programs. The package apprise (2.3) knows a
hundred services, but would replace only 20 lines here, refuses a plain ``https://`` address that it does not know, and
takes a redirect for success, though the message is lost.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import duration, format_params, format_value
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.result import exit_status
from gaudi_tune.sweep.record.events import Event, SweepBegan, SweepEnded
from gaudi_tune.sweep.record.sweep_state import SweepState

logger = logging.getLogger(__name__)

VARIABLE = "GAUDI_TUNE_NOTIFY"
"""The environment variable with the address, which other users of a machine cannot see, unlike command lines."""
BEST_EVERY_S = 60.0
"""The shortest time between two messages of a new best. A best in between that is beaten soon gets no message."""
ANSWER_WITHIN_S = 5.0
"""How long the server may take to answer a message."""
WAIT_AT_END_S = 10.0
"""How long the end of a sweep waits for its last message."""


def webhook(option: str | None) -> str | None:
    """Return the address for messages: that of the option, else that of the environment, else None.

    Raises a SweepError, which does not show the address, if it is not an http address.
    """
    address = option or os.environ.get(VARIABLE) or None
    if address is None:
        return None
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an end, or a port that is no number
        is_address = False
    if not is_address or not address.isascii() or not address.isprintable() or " " in address:
        raise SweepError(
            f"--notify (or ${VARIABLE}): an address begins with https:// or http:// and a host; give that of a webhook"
        )
    return address


class Notify:
    """Sends messages in threads, one after another. Only the end of the sweep waits, for the last message."""

    def __init__(self, plan: Plan, address: str) -> None:
        self._plan, self._address = plan, address
        self._last_message: threading.Thread | None = None
        self._has_failed = False
        self._sent_best: tuple[float, int] | None = None  # value and number of the best trial in the last message
        self._sent_at = 0.0  # monotonic time of that message, or of the beginning of the sweep

    def show(self, event: Event, state: SweepState) -> None:
        """Note the beginning of the sweep, or send a message about its end."""
        if isinstance(event, SweepBegan):
            self._sent_best, self._sent_at = state.leader, time.monotonic()
        elif isinstance(event, SweepEnded):
            self._end(event.summary)

    def tick(self, state: SweepState) -> None:
        """Send a message about a new best, unless the sweep has just begun or such a message was sent a moment ago."""
        best = state.leader
        if best is None or best == self._sent_best or time.monotonic() - self._sent_at < BEST_EVERY_S:
            return
        self._sent_best, self._sent_at = best, time.monotonic()
        assert state.best is not None, "it has a value"
        best_trial = {"value": best[0], "trial": best[1], "config": state.best.best_config}
        self._post("best", f"{self._plan.name}: new best", best_trial)

    def _end(self, summary: Mapping[str, Any]) -> None:
        best, early_end = summary["best"], summary["ended_early"]
        if summary["failed"]:
            end = f"has failed ({summary['failed']})"
        elif early_end is not None:
            end = f"ended early ({early_end['why']})"
        else:  # an error may have ended Tune itself
            end = "has ended" if summary["complete"] else "ended early (interrupted)"
        text = f"{self._plan.name} {end} after {duration(summary['wall_s'])}, {'best' if best else 'without a result'}"
        self._post("ended" if exit_status(summary) == 0 else "failed", text, best).join(WAIT_AT_END_S)

    def _post(self, event: str, text: str, best: Mapping[str, Any] | None) -> threading.Thread:
        """Begin to send a message, and return its thread. Slack and Teams show ``text``, Discord shows ``content``."""
        experiment = self._plan.experiment
        message = {"event": event, "sweep": self._plan.name, "experiment": experiment.name}
        if best is not None:
            message |= {name: best[name] for name in ("value", "trial", "config")}
            message["metric"] = experiment.metric
            config = format_params(best["config"], experiment.display_params)
            text += f" {experiment.metric} {format_value(best['value'])} (trial {best['trial']:03d}): {config}"
        message |= {"text": text, "content": text}
        body = json.dumps(message, default=str).encode()
        self._last_message = threading.Thread(
            target=self._send, args=(body, self._last_message), name="notify", daemon=True
        )
        self._last_message.start()
        return self._last_message

    def _send(self, body: bytes, previous: threading.Thread | None) -> None:
        if previous is not None:
            previous.join()
        try:
            request = urllib.request.Request(self._address, body, {"Content-Type": "application/json"})
            urllib.request.build_opener(_NoRedirect).open(request, timeout=ANSWER_WITHIN_S).close()
        except Exception as error:  # networks fail with many errors, and the text of some has the address
            if not self._has_failed:
                reason = f"it answered {error.code}" if isinstance(error, HTTPError) else type(error).__name__
                logger.warning("--notify: could not post a message (%s); the sweep continues", reason)
            self._has_failed = True


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as an error: urllib would follow it without the message."""

    def redirect_request(self, *_: Any, **kwargs: Any) -> None:
        return None
