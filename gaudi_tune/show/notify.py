"""``--notify``: a message to a webhook when a sweep has ended or failed.

The address is a secret, because anybody who knows it can post there. It is never printed, logged or stored. One JSON
message serves Slack, Teams, Mattermost, Discord and programs.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from typing import Any

import requests

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import duration, format_params, format_value
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.result import exit_status
from gaudi_tune.sweep.record.events import Event, SweepEnded
from gaudi_tune.sweep.record.sweep_state import SweepState

logger = logging.getLogger(__name__)

VARIABLE = "GAUDI_TUNE_NOTIFY"
"""The environment variable with the address, which other users of a machine cannot see, unlike command lines."""
ANSWER_WITHIN_S = 5.0
"""How long the server may take to take the message, and to answer."""


def webhook(option: str | None) -> str | None:
    """Return the address for the message: that of the option, else that of the environment, else None.

    Raises a SweepError, which does not show the address, if it is not an http address.
    """
    address = option or os.environ.get(VARIABLE) or None
    if address is not None and not re.fullmatch(r"https?://[^\s/?#]\S*", address):
        raise SweepError(f"--notify (or ${VARIABLE}): a webhook's address begins with https:// or http:// and a host")
    return address


class Notify:
    """Posts one message when the sweep has ended."""

    def __init__(self, plan: Plan, address: str) -> None:
        self._plan, self._address = plan, address

    def show(self, event: Event, state: SweepState) -> None:
        """Post the end of the sweep."""
        if isinstance(event, SweepEnded):
            self._post(json.dumps(self._message(event.summary), default=str))

    def tick(self, state: SweepState) -> None:
        """Do nothing: only the end is posted."""

    def _message(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Return the message. Slack, Teams and Mattermost show its ``text``, Discord its ``content``."""
        experiment, best, early_end = self._plan.experiment, summary["best"], summary["ended_early"]
        event = "ended" if exit_status(summary) == 0 else "failed"
        reason = summary["failed"] or (early_end and early_end["why"])
        text = f"{self._plan.name} {event} after {duration(summary['wall_s'])}" + (f" ({reason})" if reason else "")
        message = {"event": event, "sweep": self._plan.name, "experiment": experiment.name, "metric": experiment.metric}
        if best is not None:
            message |= {name: best[name] for name in ("value", "trial", "config")}
            config = format_params(best["config"], experiment.display_params)
            text += f", best {experiment.metric} {format_value(best['value'])} (trial {best['trial']:03d}): {config}"
        return {**message, "text": text, "content": text}

    def _post(self, body: str) -> None:
        headers = {"Content-Type": "application/json"}
        try:  # a redirect is an error: the server that it leads to would get no message
            answer = requests.post(self._address, body, headers=headers, timeout=ANSWER_WITHIN_S, allow_redirects=False)
            problem = "" if answer.status_code < 300 else f"it answered {answer.status_code}"
        except requests.RequestException as error:  # its text may have the address
            problem = type(error).__name__
        if problem:
            logger.warning("--notify: could not post the end of the sweep (%s)", problem)
