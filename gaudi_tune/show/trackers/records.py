"""What MLflow is to have, as records: each is one line of a sweep's outbox."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

VERSION = 1
"""Of the records' layout; raise it with every change that an older line does not fit."""
SWEEP = ""
"""What a record calls the sweep's own run."""

RunStatus: TypeAlias = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """Something about one run."""

    run: str
    """:data:`SWEEP`, or a trial's number as :func:`run_of` writes it."""
    time_ms: int
    """Clock time in milliseconds."""


@dataclass(frozen=True, kw_only=True)
class BeginRun(Record):
    """The run begins, for the first time."""

    name: str
    tags: dict[str, str]
    """By these the run is found if it is there already."""
    params: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class BeginSweep(BeginRun):
    """The sweep's run begins; the first record of every outbox."""

    tracking_uri: str
    experiment: str
    """Name of the experiment in MLflow, which is made if it is not there."""
    artifacts: str | None
    """Where a new experiment has its artifacts; None: where the store puts them."""
    data: str
    """Where the training data is, a path or a name on the hub; "" if the experiment has none."""
    facts: list[str]
    """What the check before the sweep found in the data and the model."""


@dataclass(frozen=True, kw_only=True)
class Update(Record):
    """Metrics, tags and a status of a run."""

    step: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    status: RunStatus | None = None
    """None: as before. RUNNING: the run goes on, and the tags that say how it ended are removed."""


@dataclass(frozen=True, kw_only=True)
class LogFiles(Record):
    """Files and folders that become artifacts of a run, in the place of earlier ones of their names."""

    files: list[str]
    """Paths from the sweep's folder on; those that are not there are left out."""
    folder: str = ""
    """Of the artifacts."""
    may_be_skipped: bool = False
    """Whether others will follow, so that a slow line or a full server need not take these."""


@dataclass(frozen=True, kw_only=True)
class LogDocument(Record):
    """A JSON document that becomes an artifact of a run."""

    name: str
    content: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class LogModel(Record):
    """The best trial's model; the run is the trial's."""

    sweep: str
    checkpoint: str
    loaded_by: str
    """The function that makes a predictor of a checkpoint, as "module:name"."""
    params: dict[str, str]
    metric: str
    value: float
    """Of the metric, at the checkpoint."""
    step: int
    register: str | None
    """Name in the model registry; None: it is not registered."""


KINDS: dict[str, type[Record]] = {
    kind.__name__: kind for kind in (BeginRun, BeginSweep, Update, LogFiles, LogDocument, LogModel)
}


def run_of(trial: int) -> str:
    """Return what records, and MLflow's tag ``trial``, call a trial.

    Its number, and not Tune's id: a trial that began after the last snapshot of an interrupted sweep is proposed again
    with the same number and configuration and another id, and goes on in its run.
    """
    return f"{trial:03d}"


def to_line(record: Record) -> bytes:
    """Return a record as one line."""
    entry = {"version": VERSION, "kind": type(record).__name__, **vars(record)}
    # PostgreSQL takes no zero character, and HTTP no half of a surrogate pair; a record that always fails would block
    # all that follow.
    text = json.dumps(entry, default=str, ensure_ascii=False).encode(errors="replace")
    return text.replace(rb"\u0000", rb"\ufffd") + b"\n"


def from_line(line: bytes) -> Record:
    """Return the record of a line; a ValueError, TypeError or KeyError if it is none, or of another version."""
    entry = dict(json.loads(line))
    if (version := entry.pop("version")) != VERSION:
        raise ValueError(f"it is of version {version}, and this code reads version {VERSION}")
    return KINDS[entry.pop("kind")](**entry)
