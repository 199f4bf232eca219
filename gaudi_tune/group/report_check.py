"""Checks that a sweep can use what a train loop reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from numbers import Real
from reprlib import repr as short_repr
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.devices.device_metrics import PREFIX
from gaudi_tune.group.errors import unusable_report

COUNTED_BY_TUNE = ("episodes_this_iter", "timesteps_this_iter")
"""Entries of a report that Tune sums up over a trial."""
MAX_PROGRESS = 2**53
"""Most epochs or steps that a report may count: databases take no integers of more than 64 bits."""
MAX_SECONDS = 1e10
"""Most seconds in a report: 317 years. Sums of larger numbers may be infinite."""


def check_metrics(metrics: Mapping[str, Any], objectives: Sequence[str], unit: str, progress: float = 0) -> None:
    """Check that schedulers, searcher and device time can calculate with a report.

    A report that they cannot use would end the whole sweep in Tune's process, and end it again at each resume. Here it
    fails only its trial.

    Args:
        metrics: What the train loop reported.
        objectives: The metrics that the report must have, as numbers.
        unit: What the budget counts, "epoch" or "step".
        progress: How many of these the trial has reported before; 0 if none.

    Raises:
        WorkerRaisedError: The message names the entry, its value and the fix.
    """
    for metric in objectives:
        if metric not in metrics:
            reported = [name for name in metrics if name not in names.NOT_OBJECTIVES and not name.startswith(PREFIX)]
            raise unusable_report(_missing(metric, reported))
        if not isinstance(metrics[metric], Real):
            shown = short_repr(metrics[metric])
            raise unusable_report(
                f"{metric!r}, which the experiment asks for, must be a number, but this one has {shown}"
            )
    if unit in metrics:
        _check_progress(unit, metrics[unit], progress)
    for name, value in metrics.items():
        if name == names.OURS or name.startswith(names.PREFIX):
            raise unusable_report(f"{name!r} is a name that the sweep sets itself; report it under another name")
        is_time = name in names.TIME_METRICS
        is_counted = name in (*names.DEVICE_COUNTS, *COUNTED_BY_TUNE) or name.startswith(names.CONSTRAINT_PREFIX)
        is_right = isinstance(value, Real) and not (is_time and not abs(float(value)) <= MAX_SECONDS)
        if (is_time or is_counted) and not is_right:
            raise unusable_report(
                f"{name!r} must be {'a finite number of seconds' if is_time else 'a number'}, but this one has "
                f"{short_repr(value)}; leave it out where it is not known, or rename it"
            )


def _check_progress(unit: str, value: Any, progress: float) -> None:
    """Check how many epochs or steps a report counts, where ``progress`` is the number of the one before it."""
    if not (isinstance(value, Real) and 0 < float(value) <= MAX_PROGRESS):
        raise unusable_report(
            f"{unit!r} must be the {unit}s finished, a finite number above 0, but this one has {short_repr(value)}; "
            f"report {unit} + 1 where the loop counts from 0, or leave {unit!r} out: reports are counted then"
        )
    if float(value) < progress:
        raise unusable_report(
            f"{unit!r} must not fall, but {value} follows {progress}; have a loop count on that continues from a "
            f"checkpoint or begins another round, or leave {unit!r} out: reports are counted then"
        )


def _missing(metric: str, reported: Sequence[str]) -> str:
    """Return a message that a metric is missing, and the name that may have been meant instead."""
    guesses = get_close_matches(metric, reported, n=1, cutoff=0.5) or (reported if len(reported) == 1 else ())
    fix = f"did you mean metric={guesses[0]!r}? Else" if guesses else "give the Experiment the metric that is meant, or"
    return (
        f"the experiment asks for {metric!r}, and the report has {', '.join(reported) or 'nothing'}; {fix} have the "
        f"train loop report {metric!r} each time"
    )


def check_all_report(reports: Sequence[Mapping[str, Any]]) -> None:
    """Check that either all ranks have reported or all have returned: a rank that has returned answers no "continue".

    Raises:
        WorkerRaisedError: Some have reported and others have returned; the message says which.
    """
    reported = [str(rank) for rank, report in enumerate(reports) if report["kind"] == "metrics"]
    returned = [str(rank) for rank, report in enumerate(reports) if report["kind"] == "finished"]
    if reported and returned:
        raise unusable_report(
            f"report() must be called on every rank, equally often, but rank {', '.join(reported)} has reported and "
            f"rank {', '.join(returned)} has returned; call it outside of any condition on the rank"
        )
