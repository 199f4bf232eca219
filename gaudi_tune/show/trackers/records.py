"""The records of the outbox: what MLflow is to be told, a line each."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from gaudi_tune.base.files import from_json

VERSION = 1
"""The version of the records' layout. Raise it with every change that an older line does not fit."""
SWEEP = ""
"""The name of the sweep's own run in records."""

EXPERIMENT = "experiment"
"""The key of the experiment's id among an outbox's ids of runs."""
STATUS, FAILURE, FAILURE_KIND, STOPPED_BECAUSE = "status", "failure", "failure_kind", "stopped_because"
"""Tags of a trial's run that say how the trial ended."""
ENDED_EARLY, CONFIRMED = "ended_early", "confirmed"
"""Tags of a sweep's run that say how the sweep ended, and what its confirmation came to."""
ENDS = {STATUS, FAILURE, FAILURE_KIND, STOPPED_BECAUSE, ENDED_EARLY, CONFIRMED}
"""Tags that a run has no more when it continues."""
ON_FRONT = "pareto_front"
"""The tag of a trial's run in a sweep of several objectives: "true" on the front, "false" once it was on it."""
ATTEMPT = "attempt"
"""The tag of a trial's run that takes the place of one that a killed sweep had begun: "2" or more."""
CONFIGURATION = "configuration"
"""The tag of a trial's run with the sweep and the trial of the search that has its configuration: those that confirm
it have the same, so that MLflow's page groups them."""
OUTBOX = "outbox"
"""The tag of a sweep's run with the time of its outbox, by which it is found: other sweeps may have had its name."""
ORIGIN = "origin"
"""The tag of a run with the name of the sweep that its sweep continues under another name."""
MAX_NAME = 250
"""MLflow's limit for the length of the name of a run or a metric. PostgreSQL enforces it, SQLite does not."""
MAX_TAG = 5000
"""MLflow's limit for the length of a tag."""

RunStatus: TypeAlias = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """Something about one run."""

    run: str
    """:data:`SWEEP`, or the name of a trial's run, as :func:`run_of` writes it."""
    time_ms: int
    """Clock time in milliseconds."""


@dataclass(frozen=True, kw_only=True)
class BeginRun(Record):
    """The run begins, for the first time."""

    name: str
    tags: dict[str, str]
    """These find the run if MLflow has it already."""
    params: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class BeginSweep(BeginRun):
    """The sweep's run begins; the first record of every outbox."""

    tracking_uri: str
    experiment: str
    """The name of the experiment in MLflow, which is made if it does not exist."""
    artifacts: str | None
    """The place for artifacts of a new experiment; None lets the store decide."""
    data: str
    """The training data, as a path or a name on the hub; "" if the experiment has none."""
    facts: list[str]
    """The facts that the check before the sweep found about the data and the model."""
    space: dict[str, str] = field(default_factory=dict)
    """The ranges of the search in words, which become an artifact."""


@dataclass(frozen=True, kw_only=True)
class Update(Record):
    """Metrics, tags and a status of a run."""

    step: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    report: int = 0
    """The number of the trial's report, from 1, that the metrics are from; 0 if they are from none."""
    status: RunStatus | None = None
    """None leaves the status as it is. RUNNING continues the run, and removes the tags that say how it ended."""


@dataclass(frozen=True, kw_only=True)
class LogFiles(Record):
    """Files and folders that become artifacts of a run. They replace earlier ones of the same names."""

    files: list[str]
    """Paths relative to the sweep's folder. Missing files are left out."""
    folder: str = ""
    """The folder among the artifacts."""


@dataclass(frozen=True, kw_only=True)
class LogModel(Record):
    """The best trial's model; the run is the trial's."""

    sweep: str
    checkpoint: str
    loaded_by: str
    """The function that makes a predictor from a checkpoint, as "module:name"."""
    params: dict[str, str]
    metric: str
    value: float
    """The value of the metric at the checkpoint."""
    step: int
    register: str | None
    """The name in the model registry; None if the model is not registered."""


KINDS: dict[str, type[Record]] = {kind.__name__: kind for kind in (BeginRun, BeginSweep, Update, LogFiles, LogModel)}


def run_of(trial: int, attempt: int = 1) -> str:
    """Return the name of a trial's run in records; that of the first attempt is also MLflow's tag ``trial``.

    It is the trial's number and not Tune's id: a trial that began after the last snapshot of an interrupted sweep is
    proposed again with the same number, but another id. With the same configuration it continues its run, and with
    another one it is another attempt, with a run of its own.
    """
    return f"{trial:03d}" if attempt == 1 else f"{trial:03d} {attempt}"


def trial_in(run: str) -> str:
    """Return the tag ``trial`` of a run, from its name in records."""
    return run.partition(" ")[0]


def to_line(record: Record) -> bytes:
    """Return a record as one line."""
    entry = {"version": VERSION, "kind": type(record).__name__, **vars(record)}
    # PostgreSQL refuses the zero character, and HTTP half of a surrogate pair. A record that always fails would block
    # all later ones.
    text = json.dumps(entry, default=str, ensure_ascii=False).encode(errors="replace")
    return text.replace(rb"\u0000", rb"\ufffd") + b"\n"


def from_line(line: bytes) -> Record:
    """Return the record of a line. A line that is no record, or of another version, is a ValueError, TypeError or
    KeyError."""
    entry = dict(from_json(line))
    version = entry.pop("version")
    if version != VERSION:
        raise ValueError(f"it is of version {version}, and this code reads version {VERSION}")
    return KINDS[entry.pop("kind")](**entry)
