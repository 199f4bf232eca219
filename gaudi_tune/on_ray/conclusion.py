"""The conclusion of a sweep: its summary, its last event, and what its files lack. It needs nothing of Ray."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import Any

from gaudi_tune.base.files import STATE_LOG
from gaudi_tune.base.words import as_text
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.announcer import Announcer
from gaudi_tune.on_ray.state_on_disk import StateOnDisk
from gaudi_tune.on_ray.steering import Steering
from gaudi_tune.show.confirmation import confirming
from gaudi_tune.show.result import START_AGAIN, is_useless, result_lines
from gaudi_tune.show.summary import search_of, summarise, write_summary
from gaudi_tune.show.trackers.tracker import in_words
from gaudi_tune.storage.mirror import Mirror
from gaudi_tune.sweep.record.events import SweepEnded

logger = logging.getLogger(__name__)

NO_LAST_STATE = f"{STATE_LOG} does not have the last state"


class Conclusion:
    """Writes and shows the end of a sweep, once, from any thread."""

    def __init__(
        self, plan: Plan, announcer: Announcer, steering: Steering, on_disk: StateOnDisk, mirror: Mirror | None = None
    ) -> None:
        self._plan, self._announcer = plan, announcer
        self._steering, self._on_disk, self._mirror = steering, on_disk, mirror
        self._lock = threading.Lock()
        self.summary: dict[str, Any] | None = None
        """The content of summary.json; None until the sweep is over."""
        self.is_complete = False
        """Whether everything was written and delivered, or what is missing was said."""

    def write(self) -> dict[str, Any]:
        """Write the summary, show the end, and let the trackers deliver. Later calls only return the summary."""
        with self._lock:
            if self.summary is not None:
                return self.summary
            state = self._announcer.state
            state.close()
            self.summary = {**summarise(self._plan, state, self._addresses()), "trials": search_of(self._plan, state)}
            write_summary(self._plan.summary_file, self.summary)
            self._announcer.tell(SweepEnded(summary=self.summary))
            self._steering.grant_all()  # requests that came after Tune's last step are answered that the sweep is over
            log_is_complete = self._on_disk.is_complete
            in_trackers = self._announcer.close_trackers()
            if not log_is_complete:
                logger.error("%s: %s", self._plan.folder, NO_LAST_STATE)
            missing = [*([] if log_is_complete else [NO_LAST_STATE]), *in_trackers]
            # The addresses again: a short sweep ends before the first delivery, which creates its run.
            self.summary |= self._addresses() | ({"missing": missing} if missing else {})
            write_summary(self._plan.summary_file, self.summary)  # after the log: who reads both takes the later one
            in_storage = self._mirror.close() if self._mirror is not None else ""
            if in_storage:
                logger.error("%s; this sends the rest: %s", in_storage, self._plan.how_to_resume())
                self.summary["missing"] = [*self.summary.get("missing", ()), in_storage]
                write_summary(self._plan.summary_file, self.summary)
            self.is_complete = True
            return self.summary

    def show(self) -> None:
        """Print the result. A command line prints the lines of the ending itself, as an error."""
        trackers, ending = self._announcer.trackers, [] if self._plan.command else self.ending_lines()
        models = [("model", line) for tracker in trackers if (line := tracker.load_line()) is not None]
        addresses = [(tracker.name, in_words(tracker)) for tracker in trackers]
        lines = result_lines(self._plan.folder, self.summary or {}, [*models, *addresses])
        print(as_text(["", *ending, *lines]), flush=True)

    def ending_lines(self) -> list[str]:
        """Return lines that say why the sweep failed, or why it ended early and how to continue it.

        Returns none if the sweep ran to its end.
        """
        summary, state, plan = self.summary, self._announcer.state, self._plan
        assert summary is not None, "the sweep is over"
        if summary["complete"]:
            if not summary["failed"]:
                return []
            places = [str(plan.report_file), *map(in_words, self._announcer.trackers)]
            return [f"error: {summary['failed']}; see {', '.join(places)}"]
        counts = Counter(summary["counts"])
        counts["not begun"] = state.expected - counts.total()
        counts_text = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        reason = summary["ended_early"]["why"] if summary["ended_early"] else "interrupted"
        return [
            f"the sweep ended early: {reason}",
            f"of {state.expected} trials{confirming(state.confirmations)}: {counts_text}",
            START_AGAIN if is_useless(summary) else f"resume it with: {plan.how_to_resume()}",
        ]

    def _addresses(self) -> dict[str, Any]:
        return {tracker.name: tracker.address for tracker in self._announcer.trackers}
