"""A report of a trial, as it crosses the border to Ray Tune and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ray.tune.result import SHOULD_CHECKPOINT
from ray.tune.utils.util import flatten_dict

from gaudi_tune.base import names

FLAGS = ("behind", "starts_over", "ends_itself", "new_workers")
"""The fields that a result has by the same names, where they say something."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a train loop has reported, and what the sweep knows of that report.

    In a result of Tune's, the metrics stand beside what Tune adds, for Ray's schedulers, loggers and callbacks. All
    else is in one entry, :data:`names.OURS`.

        >>> Report(metrics={"loss": 0.5}, timing={names.STEP_SECONDS: 2.0}, behind=1).as_result()
        {'loss': 0.5, 'gaudi_tune': {'step_s': 2.0, 'behind': 1}}
    """

    metrics: Mapping[str, Any]
    """What the train loop reported, without what it may not set."""
    timing: Mapping[str, Any] = field(default_factory=dict)
    """On which devices the trial trained and how long, by names that begin with :data:`names.OURS`."""
    behind: int | None = 0
    """How many reports earlier the train loop wrote what a checkpoint of this report would have; None if it has given
    nothing to save so far."""
    starts_over: bool = False
    """Whether the trial could not be continued: the train loop saves nothing, or did not load its checkpoint."""
    ends_itself: bool = False
    """Whether the train loop has said that it is done, which Tune would obey before the sweep has seen the report."""
    new_workers: str = ""
    """Why the trial began on new workers, where its group had others; only its first report has it."""

    def as_result(self) -> dict[str, Any]:
        """Return the result that Tune gets."""
        timing = {name.removeprefix(names.PREFIX): value for name, value in self.timing.items()}
        flags = {name: value for name in FLAGS if (value := getattr(self, name))}
        result = {**self.metrics, names.OURS: {**timing, **flags}}
        if self.behind is None:  # the loop gives nothing to save, so Tune must not ask for a checkpoint
            result[SHOULD_CHECKPOINT] = False
        return result

    @classmethod
    def in_result(cls, result: Mapping[str, Any]) -> Report:
        """Return the report in a result of Tune's, flat or not."""
        flat = flatten_dict(dict(result))
        ours = {name: value for name, value in flat.items() if name.startswith(names.PREFIX)}
        flags = {name: ours.pop(names.PREFIX + name) for name in FLAGS if names.PREFIX + name in ours}
        if flat.get(SHOULD_CHECKPOINT) is False:
            flags["behind"] = None
        return cls(
            metrics={name: value for name, value in flat.items() if names.is_reported(name)}, timing=ours, **flags
        )
