"""``--notify``: a message to a webhook when a sweep has a new best, ends or fails.

The address is a secret: who knows it can write there. It is never printed, logged or kept.

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

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import duration, format_params, format_value
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.result import exit_status
from gaudi_tune.sweep.record.events import Event, SweepBegan, SweepEnded
from gaudi_tune.sweep.record.sweep_state import SweepState

logger = logging.getLogger(__name__)

VARIABLE = "GAUDI_TUNE_NOTIFY"
"""The address, where the option does not give it: other users of a machine see command lines, and not this."""
BEST_EVERY_S = 60.0
"""How often a new best is told at most; what was the best for a moment in between is not."""
ANSWER_WITHIN_S = 5.0
"""How long an address may take for a message."""
WAIT_AT_END_S = 10.0
"""How long the end of a sweep waits for its last message."""


def webhook(given: str | None) -> str | None:
    """Return the address for messages: the one given, else that of the environment, else None.

    One that is none of the web is a SweepError, which does not say it.
    """
    address = given or os.environ.get(VARIABLE) or None
    if address is not None and not address.startswith(("https://", "http://")):
        raise SweepError(
            f"--notify (or ${VARIABLE}): an address begins with https:// or http://; give that of a webhook"
        )
    return address


class Notify:
    """Sends each message in a thread, one after another: nothing here waits, except for the last one."""

    def __init__(self, plan: Plan, address: str) -> None:
        self._plan, self._address = plan, address
        self._sending: threading.Thread | None = None  # the last message
        self._failed = False
        self._told: tuple[float, int] | None = None  # value and number of the best that was told last
        self._told_at = 0.0  # set as the sweep begins

    def show(self, event: Event, state: SweepState) -> None:
        """Begin, or tell how the sweep has ended."""
        if isinstance(event, SweepBegan):
            self._told, self._told_at = state.leader, time.monotonic()
        elif isinstance(event, SweepEnded):
            self._end(event.summary)

    def tick(self, state: SweepState) -> None:
        """Tell of a new best, unless the sweep has just begun, or one was told a moment ago."""
        best = state.leader
        if best is None or best == self._told or time.monotonic() - self._told_at < BEST_EVERY_S:
            return
        self._told, self._told_at = best, time.monotonic()
        assert state.best is not None, "it has a value"
        reached = {"value": best[0], "trial": best[1], "config": state.best.best_config}
        self._tell("best", f"{self._plan.name}: new best", reached)

    def _end(self, summary: Mapping[str, Any]) -> None:
        best, early = summary["best"], summary["ended_early"]
        if early is None and not summary["complete"]:  # an error has ended Tune itself
            early = {"why": "interrupted"}
        how = f"ended early ({early['why']})" if early is not None else "has ended"
        how = f"has failed ({summary['failed']})" if summary["failed"] else how
        failed = exit_status(summary) != 0
        words = f"{self._plan.name} {how} after {duration(summary['wall_s'])}, {'best' if best else 'without a result'}"
        self._tell("failed" if failed else "ended", words, best).join(WAIT_AT_END_S)

    def _tell(self, event: str, words: str, best: Mapping[str, Any] | None) -> threading.Thread:
        """Begin to send a message: ``text`` is what Slack and Teams show, ``content`` what Discord shows."""
        experiment, about = self._plan.experiment, {}
        if best is not None:
            about = {"metric": experiment.metric, **{name: best[name] for name in ("value", "trial", "config")}}
            config = format_params(best["config"], experiment.display_params)
            words += f" {experiment.metric} {format_value(best['value'])} (trial {best['trial']:03d}): {config}"
        of_sweep = {"event": event, "sweep": self._plan.name, "experiment": experiment.name}
        message = json.dumps({"text": words, "content": words, **of_sweep, **about}, default=str).encode()
        self._sending = threading.Thread(target=self._send, args=(message, self._sending), name="notify", daemon=True)
        self._sending.start()
        return self._sending

    def _send(self, message: bytes, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        try:
            asked = urllib.request.Request(self._address, message, {"Content-Type": "application/json"})
            urllib.request.build_opener(_NoRedirect).open(asked, timeout=ANSWER_WITHIN_S).close()
        except Exception as error:  # what goes wrong with a network has many names, and some hold the address
            if not self._failed:
                why = f"it answered {error.code}" if isinstance(error, HTTPError) else type(error).__name__
                logger.warning("--notify: could not post a message (%s); the sweep continues", why)
            self._failed = True


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for an error: urllib would follow it without the message."""

    def redirect_request(self, *_: Any, **more: Any) -> None:
        return None
