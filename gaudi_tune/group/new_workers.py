"""When a trial gets new workers, because of what ran before it in the old ones."""

from __future__ import annotations

from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.base.words import last_line


class NewWorkers:
    """Learns which errors of a train loop new workers help against.

    Some things can be done only once in a process, such as registering an operator, and each trial is a new script to
    its author. An error that new workers have raised, too, has another cause.
    """

    def __init__(self) -> None:
        """Begin without any experience."""
        self.reason = ""
        """Why the trial begins on new workers; "" if it does not."""
        self._raised_on_new: set[tuple[FailureKind, str]] = set()
        self._failure: Failure | None = None

    def begin(self) -> None:
        """Begin with the next trial."""
        self.reason, self._failure = "", None

    def may_help(self, failure: Failure, *, used: bool) -> bool:
        """Whether to try a trial that has failed before its first report again, on new workers.

        Args:
            failure: Why it has failed.
            used: Whether its workers had begun other trials before.
        """
        if failure.kind is FailureKind.NOT_CLEAN:
            self.reason = f"it gets new workers: {failure.text}"
            return True
        if failure.kind is not FailureKind.LOOP_ERROR:
            return False
        if not used:
            self._raised_on_new.add(failure.cause)
        if failure.cause in self._raised_on_new:
            self.reason = ""
            return False
        self._failure = failure
        return True

    def note_report(self) -> None:
        """Note that the trial has reported."""
        if self._failure is not None:
            self.reason = (
                f"it failed on workers that had run other trials ({last_line(self._failure.text)}), and not on new "
                f"ones: what it does can be done only once in a process"
            )
            self._failure = None
