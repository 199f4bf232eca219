"""Watches Ray, and ends a sweep in good order when Ray is gone: Tune's event loop would wait for it for ever."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import ray

from gaudi_tune.on_ray.signals import Signals
from gaudi_tune.private.ray_core import draining_nodes
from gaudi_tune.sweep.record.events import Ending

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

LOOK_EVERY_S = 1.0
GONE_AFTER_S = 15.0
"""How long Ray's control service may fail to answer. Ray itself ends the process after 60 s, and does not say how to
continue the sweep."""
END_WITHIN_S = 2.0
"""How long Ray's control service may fail to answer after SIGTERM. A signal to the whole process group also ends Ray's
own processes, and Ray then ends this one after some seconds. The sender (timeout, a job queue, a container) kills what
is left after 10 s or more."""


class RayWatch:
    """A thread that checks whether Ray answers, and ends the sweep in good order once it no longer does.

    Without this machine's raylet no trial can run, and Tune waits for ever: Ray does not end a process that has nothing
    in the raylet's object store.
    """

    def __init__(
        self, signals: Signals, leave: Callable[[Ending], None], give_notice: Callable[[Iterable[str]], object]
    ) -> None:
        self._signals, self._leave, self._give_notice = signals, leave, give_notice
        self._draining = set[str]()  # ids of the nodes that Ray will take away
        self._stopped = threading.Event()
        self._address = self._node = ""

    def start(self) -> None:
        """Begin to watch."""
        context = ray.get_runtime_context()
        self._address, self._node = context.gcs_address, context.get_node_id()
        threading.Thread(target=self._watch, name="ray-watch", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()

    def _watch(self) -> None:
        answered_at = time.monotonic()
        while not self._stopped.wait(LOOK_EVERY_S):
            answers = self._answers()
            if answers:
                answered_at = time.monotonic()
            silent_s = time.monotonic() - answered_at
            requested = self._signals.ending
            if requested is not None and requested.at_once and silent_s > END_WITHIN_S:
                self._leave(requested)
            elif silent_s > GONE_AFTER_S:
                self._leave(Ending("Ray's control service (GCS) is gone", status=1, at_once=True))
            elif answers and self._node_is_gone():
                self._leave(Ending("Ray's process on this machine (raylet) is gone", status=1, at_once=True))
            elif answers:
                self._warn_of_drains()

    def _warn_of_drains(self) -> None:
        """Ask the trials on nodes that are about to be taken away to save. They go on elsewhere once a node is gone."""
        draining = _answer_of_ray(draining_nodes, self._draining)
        if draining - self._draining:
            logger.warning("Ray takes %d nodes away: the trials there save after their next step", len(draining))
            self._give_notice(draining)
        self._draining = draining

    def _node_is_gone(self) -> bool:
        nodes: list[dict[str, Any]] = _answer_of_ray(ray.nodes, [])
        return any(node["NodeID"] == self._node and not node["Alive"] for node in nodes)

    def _answers(self) -> bool:
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=LOOK_EVERY_S).close()
        except (OSError, ValueError):
            return False
        return True


def _answer_of_ray(ask: Callable[[], Answer], unknown: Answer) -> Answer:
    """Return what Ray answers, or ``unknown`` if its control service has just gone, which the next look finds."""
    try:
        return ask()
    except Exception:  # Ray raises its own, of several kinds, while its control service goes
        return unknown
