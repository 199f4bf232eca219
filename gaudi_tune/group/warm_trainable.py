"""The tune.Trainable whose trials pass through a warm worker group."""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from numbers import Real
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.result import DONE, RESULT_DUPLICATE, SHOULD_CHECKPOINT, TRAINING_ITERATION

from gaudi_tune.base import names
from gaudi_tune.base.place import Place
from gaudi_tune.base.writing import retry_while_disk_is_full
from gaudi_tune.devices.device_metrics import PREFIX
from gaudi_tune.group.errors import (
    CANNOT_USE,
    DevicesNotReadyError,
    LostTooOftenError,
    WorkerGroupError,
    WorkerRaisedError,
    WorkersLostError,
)
from gaudi_tune.group.worker_group import WorkerGroup, WorkerGroupSpec
from gaudi_tune.private.ray_tune import Saved, checkpoint_folder, set_iteration
from gaudi_tune.training.checkpoint import last_whole, seal
from gaudi_tune.training.profiling import Profile

logger = logging.getLogger(__name__)

PAUSES_S = (2.0, 4.0, 8.0, 16.0, 32.0)
"""How long to wait before each retry to get devices that are being released. In all more than the 60 s that habana may
take to close one; it also waits so long for one before it says that it is busy."""


TUNES_OWN = {DONE, SHOULD_CHECKPOINT, RESULT_DUPLICATE, TRAINING_ITERATION}
"""Entries of a report by which Tune would end or save a trial past the sweep, or count it differently."""
NOT_THE_LOOPS = {names.EPOCH, names.STEP, *names.TIME_METRICS, *names.DEVICE_COUNTS}
"""Entries of a report that are no metric of a train loop's own."""


class WarmTrainable(tune.Trainable):
    """A trial actor. It owns a worker group, and Tune reuses both for trial after trial.

    One report of the train loop is one Tune result. Between two results the workers wait, so a trial that is stopped
    has not trained a step too many, and a checkpoint is written only when Tune asks for one.
    """

    _started: bool
    """Whether the workers have the trial."""
    _losses: int
    """How often the trial has lost its workers since this actor has had it."""
    _checkpoint: str | None
    """Folder of the trial's last checkpoint."""
    _saved_at: int
    """Iteration at which it was written."""
    _trained_s: float
    """Seconds that it has trained, without starts, compilations and what was lost with workers."""
    _from_0: bool
    """Whether the loop counts epochs or steps from 0, as many do: its first report says so, and so do checkpoints."""
    _place: Place
    """What the trial trains on."""
    _next_place: Place | None
    """What it is to go on with from its next checkpoint; None: what it trains on."""

    def setup(
        self,
        config: dict[str, Any],
        spec: WorkerGroupSpec,
        settings: dict[str, Any],
        environment_of: Callable[[Mapping[str, Any]], Mapping[str, str]],
        objectives: Sequence[str] = (),
        retries: int = 0,
        profile: tuple[str, Profile] | None = None,
    ) -> None:
        """Take the first trial.

        Args:
            config: The hyperparameters of the first trial.
            spec: What it takes to start the group.
            settings: What the train loop gets in every trial besides its hyperparameters.
            environment_of: Returns the variables with which the workers of a configuration must have been started.
            objectives: Numbers that every report must have.
            retries: How often a trial that loses its workers goes on from its last checkpoint, in a new group.
            profile: The name of a trial, and what is wanted of it.
        """
        self.spec, self.settings, self.environment_of = spec, settings, environment_of
        self.objectives, self.retries, self.profile = objectives, retries, profile
        self._usual = Place(spec.num_workers)
        self.group: WorkerGroup | None = None
        self._begin(config)

    def step(self) -> dict[str, Any]:
        """Let the trial train to its next report, and return that.

        Raises:
            WorkerRaisedError: The train loop raised, returned without a report, or reported what no sweep can use; or
                its configuration cannot be read here.
            LostTooOftenError: The workers were lost once more than the retries allow.
            DevicesNotReadyError: Another process has the devices, and does not release them.
            StartHungError: New workers do not start.
        """
        ordered_at, lost_s = time.monotonic(), 0.0
        if self._next_place is not None and self._saved_at == self.iteration:
            self._place, self._next_place, self._started = self._next_place, None, False
        while (report := self._report_unless_lost()) is None:
            lost_s = time.monotonic() - ordered_at
        if report["kind"] == "finished":
            # The loop returned without another report: for Tune, the last one then ends the trial.
            return {RESULT_DUPLICATE: True, DONE: True}
        reported = {name: value for name, value in report["metrics"].items() if name not in TUNES_OWN}
        if lost_s:
            reported[names.LOST_SECONDS] = reported.get(names.LOST_SECONDS, 0.0) + lost_s
        assert self.group is not None, "it has just reported"
        took = time.monotonic() - ordered_at
        self._trained_s += max(0.0, took - sum(reported.get(name, 0.0) for name in names.NOT_TRAINED))
        booked: dict[str, Any] = {
            names.STEP_SECONDS: took,
            names.SECOND: self._trained_s,
            names.DEVICES: self.group.devices,
        }
        if self._place.workers != self._usual.workers:
            booked[names.WORKERS] = self._place.workers
        if not (report["saves"] and report["asked"]):
            booked[names.STARTS_OVER] = True
        # A loop that gives nothing to save is not asked for a checkpoint.
        return {**reported, **booked, **({} if report["saves"] else {SHOULD_CHECKPOINT: False})}

    def _report_unless_lost(self) -> dict[str, Any] | None:
        """Return the next report; None if the workers were lost and the trial may go on in a new group."""
        try:
            if self.group is None or not self._started:
                return self._first_report()
            return self._checked(self.group.next_report())
        except (WorkerRaisedError, DevicesNotReadyError) as error:
            if self._place == self._usual:
                raise
            self._lose_group(error)
            return None
        except WorkersLostError as error:
            self._losses += 1
            if self._losses > self.retries:
                raise LostTooOftenError(f"{error} (lost {self._losses} times, --retries {self.retries})") from error
            self._lose_group(error)
            return None

    def _lose_group(self, error: WorkerGroupError) -> None:
        """Have the trial go on from its last checkpoint in a new group, as wide as it began."""
        why = str(error).strip().splitlines()[-1]
        logger.warning("workers lost, continuing from report %d (%s)", self._saved_at, why)
        self._end_group()
        self._started, self._place, self._next_place = False, self._usual, None

    def _first_report(self) -> dict[str, Any]:
        """Start the trial, from its last checkpoint if there is one, and return its first report that is new."""
        began, clock = time.monotonic(), time.time()
        if self._checkpoint is not None:
            self._go_on_from(Path(self._checkpoint), self._saved_at)
        config = {**self.settings, **self.trial_config, **self._place.settings}
        try:
            environment = dict(self.environment_of(config))
        except Exception as error:
            # Tune would take any other error of this actor for a lost actor, and retry the trial.
            raise WorkerRaisedError(
                f"the trial actor cannot read the configuration of the trial: {type(error).__name__}: {error}"
            ) from error
        group = self._group_with(environment)
        ready_s = time.monotonic() - began
        profiled, profile = self.profile or ("", None)
        report = group.start(config, self._checkpoint, profile if self.trial_name == profiled else None)
        if report["kind"] == "finished":
            if self.iteration:  # it had trained all that it wants to when it last saved
                return report
            raise WorkerRaisedError(
                f"{CANNOT_USE}: the loop returned without a report; call ray.train.report() or "
                f"gaudi_tune.report() once an epoch (ray.tune.report() does nothing here)"
            )
        if not report["asked"]:
            self._saved_at = 0  # it has begun again, whatever there is
        if not self._saved_at:
            self._from_0 = report["metrics"].get(self._unit) == 0
        self._checked(report)
        again_s = time.monotonic() - began
        first_step_s = report["metrics"].get(names.FIRST_STEP_AT, clock + ready_s) - clock
        start_s = min(max(0.0, first_step_s), again_s)  # the clocks of two processes, which may have been set meanwhile
        known = self.iteration - self._saved_at  # reported before the workers were lost; each report is one iteration
        for _ in range(known):
            again_s = time.monotonic() - began
            report = self._checked(group.next_report())
            if report["kind"] == "finished":  # sooner than before its workers were lost: a time limit, or other numbers
                return report
        self._started = True
        report.setdefault("metrics", {})[names.START_SECONDS] = start_s
        if known:
            report["metrics"][names.LOST_SECONDS] = again_s - start_s
        return report

    def _checked(self, report: dict[str, Any]) -> dict[str, Any]:
        """Return the report, unless the sweep cannot go on with what is in it."""
        if report["kind"] == "metrics":
            metrics = report["metrics"]
            if self._from_0 and _is_finite(metrics.get(self._unit)):
                metrics[self._unit] += 1
            check_metrics(metrics, self.objectives, self._unit)
        return report

    @property
    def _unit(self) -> str:
        """What the budget counts."""
        return names.STEP if self.settings.get("steps") else names.EPOCH

    def _group_with(self, environment: dict[str, str]) -> WorkerGroup:
        """Return the group; start a new one if it is not as wide, or its processes lack these variables or memory."""
        # Not in setup(): an error there fails the actor's creation, and Tune would wait for it for ever.
        spec = replace(self.spec, environment=environment, num_workers=self._place.workers, numbers=self._place.numbers)
        if self.group is not None and (self.spec != spec or self.group.outgrown):
            self._end_group()
        if self.group is None:
            self.spec = spec
            self.group = self._new_group()
        return self.group

    def _new_group(self) -> WorkerGroup:
        """Start a group, and wait for devices that another process is still releasing."""
        name = f"workers-of-{self.trial_id}"
        for pause_s in PAUSES_S if self._place == self._usual else ():  # it can do without more devices
            try:
                return WorkerGroup(self.spec, name)
            except DevicesNotReadyError as error:  # noqa: PERF203  (each attempt takes seconds)
                reason = str(error).strip().splitlines()[-1]
                logger.warning("%s: trying again in %.0f s (%s)", name, pause_s, reason)
                time.sleep(pause_s)
        return WorkerGroup(self.spec, name)

    def go_on_with(self, place: Place) -> None:
        """Have the trial train on something else from its next checkpoint on. Tune's event loop calls this, between two
        steps."""
        self._next_place = None if place == self._place else place

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial; the previous one ends when this one starts."""
        self._begin(new_config)
        return True

    def save(self, checkpoint_dir: str | None = None) -> Saved:
        """Save as Tune does, and remember the folder, to go on from there if the workers are lost."""
        saved = retry_while_disk_is_full(lambda: self._save_in(checkpoint_dir), f"a checkpoint of {self.trial_id}")
        self._checkpoint, self._saved_at = saved.checkpoint.path, self.iteration
        return saved

    def _save_in(self, directory: str | None) -> Saved:
        with tempfile.TemporaryDirectory() as temporary:  # each try has an empty one
            try:
                return super().save(directory or temporary)
            except OSError:
                if (folder := checkpoint_folder(self)) is not None:  # a partial copy would fill the disk further
                    shutil.rmtree(folder, ignore_errors=True)
                raise

    def restore(self, checkpoint_path: Saved) -> None:
        """Restore as Tune does, even if the checkpoint is gone.

        Tune's snapshot of a killed sweep may name a checkpoint that a newer one has replaced.
        """
        checkpoint = Path(checkpoint_path.checkpoint.path)
        if checkpoint.is_dir():
            super().restore(checkpoint_path)
        else:
            set_iteration(self, checkpoint_path.metrics[TRAINING_ITERATION])
            self.load_checkpoint(str(checkpoint))
        self._trained_s = float(checkpoint_path.metrics.get(names.SECOND, 0.0))

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Have rank 0 write the state of the trial."""
        assert self.group is not None, "Tune saves a trial after its first step"
        self.group.save(checkpoint_dir)
        seal(Path(checkpoint_dir), self.iteration, from_0=self._from_0)

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Start the trial from a checkpoint, at its next step; what Tune already knows is not reported again."""
        self._begin(self.trial_config)
        self._go_on_from(Path(checkpoint_dir), self.iteration)

    def _go_on_from(self, checkpoint: Path, report: int) -> None:
        """Choose the checkpoint to start from: this one, an older one if this one is torn, or none."""
        whole, (self._saved_at, self._from_0) = last_whole(checkpoint, report)
        self._checkpoint = None if whole is None else str(whole)
        if whole != checkpoint:
            logger.warning("%s is gone or torn: continuing from %s", checkpoint, whole or "the beginning")

    def cleanup(self) -> None:
        """End the workers."""
        self._end_group()

    def _end_group(self) -> None:
        if self.group is not None:
            self.group.exit()
            self.group = None

    def _begin(self, config: dict[str, Any]) -> None:
        self.trial_config, self._started, self._losses, self._from_0 = config, False, 0, False
        self._checkpoint, self._saved_at, self._trained_s = None, 0, 0.0
        self._place, self._next_place = self._usual, None


def check_metrics(metrics: Mapping[str, Any], objectives: Sequence[str], unit: str) -> None:
    """Check that schedulers, searcher and device time can calculate with a report. One that they cannot would end the
    whole sweep from within Tune's process, and each resume of it again.

    Args:
        metrics: What the train loop reported.
        objectives: What must be in it, numbers.
        unit: What the budget counts, "epoch" or "step".

    Raises:
        WorkerRaisedError: Names the entry, its value and the fix.
    """
    wrong = _what_is_wrong(metrics, objectives, unit)
    if wrong is not None:
        raise WorkerRaisedError(f"{CANNOT_USE}: {wrong}")


def _what_is_wrong(metrics: Mapping[str, Any], objectives: Sequence[str], unit: str) -> str | None:
    for metric in objectives:
        if metric not in metrics:
            by_loop = [name for name in metrics if name not in NOT_THE_LOOPS and not name.startswith(PREFIX)]
            return _missing(metric, by_loop)
        if not isinstance(metrics[metric], Real):
            return f"{metric!r}, which the experiment asks for, must be a number, but this one has {metrics[metric]!r}"
    if unit in metrics and not (_is_finite(metrics[unit]) and metrics[unit] > 0):
        return (
            f"{unit!r} must be the {unit}s finished, a finite number above 0, but this one has {metrics[unit]!r}; "
            f"report {unit} + 1 where the loop counts from 0, or leave {unit!r} out: reports are counted then"
        )
    for name, value in metrics.items():
        if name.startswith(names.CONSTRAINT_PREFIX) and not isinstance(value, Real):
            return (
                f"{name!r} must be a number, above 0 where it is violated, but this one has {value!r}; leave it out "
                f"where it is not known"
            )
        if name in names.TIME_METRICS and not _is_finite(value):
            return (
                f"{name!r} is read as a time, and must be a finite number of seconds, but this one has {value!r}; "
                f"leave it out where it is not known, or give it another name"
            )
    return None


def _missing(metric: str, reported: Sequence[str]) -> str:
    """Say what a report has in place of the metric."""
    near = get_close_matches(metric, reported, n=1, cutoff=0.5) or (reported if len(reported) == 1 else [])
    fix = f"did you mean metric={near[0]!r}? Else" if near else "give the Experiment the metric that is meant, or"
    return (
        f"the experiment asks for {metric!r}, and the report has {', '.join(reported) or 'nothing'}; {fix} have the "
        f"train loop report {metric!r} each time"
    )


def _is_finite(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def warm_trainable(**parameters: Any) -> type[WarmTrainable]:
    """Return the trainable with these arguments of :meth:`WarmTrainable.setup`.

    ``tune.with_parameters`` would put them into Ray's object store, and when its node goes down Ray ends a driver that
    has anything there, at once and without a word (Ray 2.60): there would be no time to close the sweep.
    """

    class Prepared(WarmTrainable):
        # Not in a closure: of each method Ray sends the one that it has wrapped, too, and with it all that it carries.
        _parameters = parameters

        def setup(self, config: dict[str, Any]) -> None:  # type: ignore[override]
            super().setup(config, **self._parameters)

    Prepared.__name__ = WarmTrainable.__name__
    return Prepared
