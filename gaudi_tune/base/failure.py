"""A failure as a value: its kind, a message, and what it has in common with others."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any


class FailureKind(str, Enum):
    """What kind of failure ended a trial, in the words of MLflow's tag, the study and the log."""

    LOOP_ERROR = "loop error"
    """The train loop raised an error, or ended its process."""
    OUT_OF_MEMORY = "out of memory"
    """The trial needed more memory than the device has."""
    UNUSABLE_REPORT = "unusable report"
    """The train loop reported something that a sweep cannot use, or nothing at all."""
    DIVERGED = "diverged"
    """An objective or a loss was not finite."""
    NO_VALUE = "no value"
    """The trial ended without a finite value of each objective."""
    CONFIG_ERROR = "configuration error"
    """The trial's configuration could not be read where it trains."""
    LOST = "lost"
    """A process of the trial, or its node, is gone."""
    HOST_OUT_OF_MEMORY = "host out of memory"
    """Ray killed a process of the trial because the host's memory was full."""
    START_FAILED = "start failed"
    """The workers did not start, or did not get their devices."""
    GROUP_ERROR = "worker group error"
    """An error outside the train loop: in the code that sets up or ends a worker, or in the trial actor."""
    NOT_CLEAN = "worker not clean"
    """An earlier trial has left something in the process that only its end clears away."""
    INTERRUPTED = "interrupted"
    """The sweep ended before it had saved the trial."""


@dataclass(frozen=True)
class Failure:
    """Why a trial failed. What follows from it depends on its kind and its fingerprint, and never on its text."""

    kind: FailureKind
    text: str
    """What happened, for people. The last line says it in short."""
    fingerprint: str = ""
    """What failures of one kind share if they have the same cause; "" if the kind says it all."""

    @property
    def cause(self) -> tuple[FailureKind, str]:
        """The kind and the fingerprint: they are equal if two failures have the same cause, as far as that is known."""
        return self.kind, self.fingerprint

    def plain(self) -> dict[str, str]:
        """Return it as plain data, for JSON."""
        return {**asdict(self), "kind": self.kind.value}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Failure:
        """Return the failure of :meth:`plain`; what is none raises a ValueError or KeyError."""
        return cls(FailureKind(plain["kind"]), str(plain["text"]), str(plain["fingerprint"]))


def fingerprint_of(error: BaseException) -> str:
    """Return what an error shares with others of the same cause: its type, and a digest of where it was raised.

    The digest leaves out generated code, whose files and names differ from trial to trial, and counts a place once,
    however often a recursion passes it.
    """
    places = [
        f"{Path(frame.f_code.co_filename).name}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not _is_generated(frame.f_code.co_filename)
    ]
    digest = hashlib.sha256("\n".join(dict.fromkeys(places)).encode()).hexdigest()[:8]
    return f"{name_of_type(error)} {digest}"


def message_of(error: BaseException) -> str:
    """Return the message of an error; "" if it cannot be read."""
    try:
        return str(error)
    except BaseException:  # a class of the user's own may raise anything, and even end the process
        return ""


def name_of_type(error: BaseException) -> str:
    """Return the name of an error's type with its module, but for Python's own."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _is_generated(file: str) -> bool:
    """Whether code has no file, such as that of torch.fx, or is in a file that torch.compile has written."""
    return file.startswith("<") or any(part.startswith("torchinductor") for part in Path(file).parts)
