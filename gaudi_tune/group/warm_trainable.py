"""A tune.Trainable that runs trial after trial in a warm worker group."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.result import DONE, RESULT_DUPLICATE, TRAINING_ITERATION
from typing_extensions import override

from gaudi_tune.base import names
from gaudi_tune.base.awaited import Awaited, note_awaited
from gaudi_tune.base.errors import USER_CODE_ERRORS
from gaudi_tune.base.failure import Failure, FailureKind, fingerprint_of
from gaudi_tune.base.files import retry_while_disk_is_full
from gaudi_tune.base.trial_place import Place
from gaudi_tune.group.errors import (
    DevicesNotReadyError,
    LostTooOftenError,
    WorkerGroupError,
    WorkerRaisedError,
    WorkersLostError,
    unusable_report,
)
from gaudi_tune.group.last_written_checkpoint import drop_copies
from gaudi_tune.group.new_workers import NewWorkers
from gaudi_tune.group.report import Report
from gaudi_tune.group.report_check import check_metrics
from gaudi_tune.group.trainer import WorkerGroupSpec
from gaudi_tune.group.worker_group import WorkerGroup
from gaudi_tune.private import surfaces
from gaudi_tune.private.ray_tune import Saved, name_checkpoint, set_iteration
from gaudi_tune.training.checkpoint import Seal, last_whole_checkpoint, seal
from gaudi_tune.training.end_notice import drop_between, last_between

logger = logging.getLogger(__name__)


class WarmTrainable(tune.Trainable):
    """A trial actor. It owns a worker group, and Tune reuses both for trial after trial.

    One report of the train loop is one Tune result. Between two results the workers wait, so a trial that is stopped
    has not trained a step too many, and a checkpoint is written only when Tune asks for one.
    """

    def setup(
        self,
        config: dict[str, Any],
        spec: WorkerGroupSpec,
        settings: dict[str, Any],
        environment_of: Callable[[Mapping[str, Any]], Mapping[str, str]],
        objectives: Sequence[str] = (),
        retries: int = 0,
        folder: str = "",
    ) -> None:
        """Take the first trial.

        Args:
            config: The hyperparameters of the first trial.
            spec: How to start the group.
            settings: Entries of every trial's configuration besides its hyperparameters.
            environment_of: Returns the variables that the workers for a configuration must have been started with.
            objectives: Metrics that every report must have, as numbers.
            retries: How often a trial that loses its workers continues from its last checkpoint, in a new group.
            folder: The folder of the sweep on this node.
        """
        os.environ.update(surfaces.variables_in(spec.later_environment))
        self.spec, self.settings, self.environment_of = spec, settings, environment_of
        self.objectives, self.retries, self.folder = objectives, retries, folder
        self._usual_place = Place(spec.num_workers)
        self.group: WorkerGroup | None = None
        self._new_workers = NewWorkers()
        self._begin(config)

    def _begin(self, config: dict[str, Any]) -> None:
        self.trial_config = config
        self._started = False
        """Whether the workers have begun the trial."""
        self._losses = 0
        """How often the trial has lost its workers since this actor has had it."""
        self._checkpoint: str | None = None
        """Folder of the trial's last checkpoint, None before the first."""
        self._saved_at = 0
        """Iteration at which the last checkpoint was written."""
        self._saved_behind = 0
        """How many reports earlier the loop had written what that checkpoint has."""
        self._behind = 0
        """How many reports earlier the loop had written what a checkpoint would have now."""
        self._progress = 0.0
        """The epoch or step that the loop has reported last; 0 if it reports none."""
        self._written_progress = 0
        """The epoch or step of the report that came with what a checkpoint would have now; likewise."""
        self._written_metrics: Mapping[str, Any] = {}
        """What that report had; empty if another process had it."""
        self._trained_s = 0.0
        """Seconds that the trial has trained, without starts, compilations and what was lost with workers."""
        self._from_0 = False
        """Whether the loop counts epochs or steps from 0. Its first report shows it, and checkpoints keep it."""
        self._place = self._usual_place
        """What the trial trains on."""
        self._workers_used = False
        """Whether the trial's workers had begun other trials before."""
        self._next_place: Place | None = None
        """The place to which the trial moves after its next checkpoint; None if it stays."""

    def step(self) -> dict[str, Any]:
        """Let the trial train to its next report, and return that.

        Raises:
            WorkerRaisedError: The train loop raised, returned without a report, or reported what no sweep can use; or
                its configuration cannot be read here.
            LostTooOftenError: The workers were lost more often than the retries allow.
            DevicesNotReadyError: Another process has the devices and does not release them.
            StartHungError: New workers do not start.
        """
        ordered_at, lost_s = time.monotonic(), 0.0
        self._new_workers.begin()
        if self._next_place is not None and self._saved_at == self.iteration:
            self._place, self._next_place, self._started = self._next_place, None, False
        while (report := self._report_unless_lost()) is None:
            lost_s = time.monotonic() - ordered_at
        if report["kind"] == "finished":
            # The loop returned without another report, so Tune gets the last one again, and it ends the trial.
            return {RESULT_DUPLICATE: True, DONE: True}
        metrics = {name: value for name, value in report["metrics"].items() if names.is_reported(name)}
        timing: dict[str, Any] = report.get("timing", {})
        if lost_s:
            purpose = names.START_SECONDS if self._new_workers.reason else names.LOST_SECONDS
            timing[purpose] = timing.get(purpose, 0.0) + lost_s
        assert self.group is not None, "it has just reported"
        if not self._behind:
            self._written_progress, self._written_metrics = int(self._progress), metrics
        step_s = time.monotonic() - ordered_at
        untrained_s = sum({**metrics, **timing}.get(name, 0.0) for name in names.NOT_TRAINED)
        self._trained_s += max(0.0, step_s - untrained_s)
        timing |= {names.STEP_SECONDS: step_s, names.SECOND: self._trained_s, names.DEVICES: self.group.devices}
        if self._place.workers != self._usual_place.workers:
            timing[names.WORKERS] = self._place.workers
        if unread := report.get("unread"):
            timing[names.UNREAD] = "\n".join(unread)
        return Report(
            metrics=metrics,
            timing=timing,
            behind=self._behind if report["saves"] else None,
            starts_over=not (report["saves"] and report["reads_checkpoint"]),
            ends_itself=bool(report["metrics"].get(names.DONE)),
            new_workers=self._new_workers.reason,
        ).as_result()

    def _report_unless_lost(self) -> dict[str, Any] | None:
        """Return the next report, or None if the workers were lost and the trial may continue in a new group."""
        try:
            if self.group is None or not self._started:
                return self._first_report()
            return self._check_report(self.group.next_report())
        except (WorkerRaisedError, DevicesNotReadyError) as error:
            if not self._started and self._new_workers.may_help(error.failure, used=self._workers_used):
                logger.warning("trying again on new workers: %s", error.failure.text)
                self._end_group()
                return None
            if self._place == self._usual_place:
                raise
            self._lose_group(error)
            return None
        except WorkersLostError as error:
            self._losses += 1
            if self._losses > self.retries:
                text = f"{error} (lost {self._losses} times, --retries {self.retries})"
                raise LostTooOftenError(replace(error.failure, text=text)) from error
            self._lose_group(error)
            return None

    def _lose_group(self, error: WorkerGroupError) -> None:
        """Have the trial continue from its last checkpoint in a new group, on as many devices as it began with."""
        reason = str(error).strip().splitlines()[-1]
        logger.warning("workers lost, continuing from report %d (%s)", self._saved_at, reason)
        self._end_group()
        self._started, self._place, self._next_place = False, self._usual_place, None

    def _first_report(self) -> dict[str, Any]:
        """Start the trial, from its last checkpoint if there is one, and return its first report that is new.

        A trial that lost its workers repeats the reports after its last checkpoint; Tune has them already.
        """
        ordered_at, ordered_at_clock = time.monotonic(), time.time()
        if self._checkpoint is not None:
            self._choose_checkpoint(Path(self._checkpoint), self._saved_at)
        self._prefer_what_was_saved_between_reports()
        config = {names.CONFIRMS: 0, **self.settings, **self.trial_config, **self._place.settings}
        try:
            environment = dict(self.environment_of(config))
        except USER_CODE_ERRORS as error:
            # Tune would take any other error of this actor for a lost actor, and would retry the trial.
            text = f"the trial actor cannot read the configuration of the trial: {type(error).__name__}: {error}"
            raise WorkerRaisedError(Failure(FailureKind.CONFIG_ERROR, text, fingerprint_of(error))) from error
        group = self._group_with(environment)
        ready_s = time.monotonic() - ordered_at
        report = self._start_on(group, config)
        self._new_workers.note_report()
        if report["kind"] == "finished":
            if self.iteration:  # the last checkpoint was written at the end of the training
                return report
            raise unusable_report(
                "the loop returned without a report; call report() of gaudi_tune, ray.train or ray.tune once an epoch"
            )
        if not report["reads_checkpoint"]:
            self._saved_at = self._saved_behind = 0  # the loop has ignored its checkpoint and begun again
        if not self._saved_at:
            self._from_0 = report["metrics"].get(self._unit) == 0
        self._progress = self._written_progress if self._saved_at else 0
        self._check_report(report)
        repeated_s = time.monotonic() - ordered_at
        first_step_s = report["metrics"].get(names.FIRST_STEP_AT, ordered_at_clock + ready_s) - ordered_at_clock
        # The first step is timed by the worker's clock, which may differ from this one or have been set.
        start_s = min(max(0.0, first_step_s), repeated_s)
        repeats = self.iteration - self._saved_at + self._saved_behind  # each report is one iteration
        for _ in range(repeats):
            repeated_s = time.monotonic() - ordered_at
            report = self._check_report(group.next_report())
            if report["kind"] == "finished":  # earlier than the first time: the loop has a time limit, for example
                return report
        self._started = True
        timing = {names.START_SECONDS: start_s, **({names.LOST_SECONDS: repeated_s - start_s} if repeats else {})}
        return {**report, "timing": timing}

    def _prefer_what_was_saved_between_reports(self) -> None:
        """Start from the checkpoint that the trial wrote when its machine was about to go, unless it has a newer one.

        A resumed sweep may not have asked Tune for a checkpoint after all reports that it has kept.
        """
        between = last_between(self._trial_folder)
        if between is not None and between.reports >= self._saved_at:
            self._checkpoint, self._saved_at, self._saved_behind = str(between.folder), between.reports, 0
            if between.reports > self.iteration:
                set_iteration(self, between.reports)

    @property
    def _trial_folder(self) -> Path:
        return Path(self.folder, self.trial_name)

    def _start_on(self, group: WorkerGroup, config: dict[str, Any]) -> dict[str, Any]:
        """Start the trial on a group, and return the first report."""
        self._workers_used = group.used
        if not group.used:
            self._note_awaited("report")
        report = group.start_trial(config, self._checkpoint, str(self._trial_folder), self._saved_at)
        if not self._workers_used:
            self._note_awaited(None)
        return report

    def _check_report(self, report: dict[str, Any]) -> dict[str, Any]:
        """Return the report, counted from 1, if the sweep can use it. One that does not say its epoch has the last one.

        Raises:
            WorkerRaisedError: The sweep cannot use it.
        """
        if report["kind"] == "metrics":
            metrics, self._behind = report["metrics"], report.get("behind", 0)
            if self._from_0 and isinstance(metrics.get(self._unit), Real):
                metrics[self._unit] += 1
            check_metrics(metrics, self.objectives, self._unit, self._progress)
            if progress := metrics.get(self._unit, self._progress):
                self._progress = metrics[self._unit] = progress
        return report

    @property
    def _unit(self) -> str:
        return names.STEP if self.settings.get("steps") else names.EPOCH

    def _group_with(self, environment: dict[str, str]) -> WorkerGroup:
        """Return the group; replace it if its size or variables do not fit, or its devices have little memory left.

        The first group is not started in setup(): an error there fails the actor's creation, and Tune would wait for
        the actor for ever.
        """
        spec = replace(self.spec, environment=environment, num_workers=self._place.workers, numbers=self._place.numbers)
        if self.group is not None and (self.spec != spec or self.group.outgrown):
            self._end_group()
        if self.group is None:
            self.spec = spec
            self.group = self._new_group()
        return self.group

    def _new_group(self) -> WorkerGroup:
        waits = self._place == self._usual_place  # one that was to move is better off on its usual devices
        return WorkerGroup.start_when_free(self.spec, f"workers-of-{self.trial_id}", self._note_awaited, waits=waits)

    def _note_awaited(self, awaited: Awaited | None) -> None:
        if self.folder:
            note_awaited(Path(self.folder), self.trial_name, awaited)

    def move_to(self, place: Place) -> None:
        """Move the trial to another place after its next checkpoint. Tune's event loop calls this between two steps."""
        self._next_place = None if place == self._place else place

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial; the previous one ends when this one starts."""
        self._begin(new_config)
        return True

    def save(self, checkpoint_dir: str | None = None) -> Saved:
        """Save as Tune does, and remember the folder, to continue from it if the workers are lost."""
        saved = retry_while_disk_is_full(lambda: self._save_in(checkpoint_dir), f"a checkpoint of {self.trial_id}")
        self._checkpoint, self._saved_at, self._saved_behind = saved.checkpoint.path, self.iteration, self._behind
        saved.metrics = {**saved.metrics, **self._written_metrics}  # of the report that came with it, perhaps earlier
        drop_between(self._trial_folder)
        return saved

    def _save_in(self, directory: str | None) -> Saved:
        counted = (self.iteration - self._behind) * (self.settings.get("eval_every") or 1)
        folder = name_checkpoint(self, f"checkpoint_{self._written_progress or counted:06d}")
        if folder is None:  # outside Tune
            return super().save(directory)
        with ExitStack() as if_it_fails:
            # A part of a checkpoint would fill the disk further, and keep its name from the next attempt.
            if_it_fails.callback(shutil.rmtree, folder, ignore_errors=True)
            saved = super().save(str(folder))
            if_it_fails.pop_all()
        return saved

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
        self._trained_s = float(Report.in_result(checkpoint_path.metrics).timing.get(names.SECOND, 0.0))

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Have rank 0 write the state of the trial."""
        assert self.group is not None, "Tune saves a trial after its first step"
        self.group.save(checkpoint_dir)
        seal(Path(checkpoint_dir), Seal(self.iteration, self._from_0, self._behind, self._written_progress))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Start the trial from a checkpoint at its next step; reports that Tune already has are not repeated."""
        self._begin(self.trial_config)
        self._choose_checkpoint(Path(checkpoint_dir), self.iteration)
        if Path(checkpoint_dir).parent.name != self.trial_name:
            # It goes on as a clone of another one, whose reports after this checkpoint it makes again.
            drop_between(self._trial_folder)
            set_iteration(self, self._saved_at - self._saved_behind)

    def _choose_checkpoint(self, checkpoint: Path, report: int) -> None:
        """Choose the checkpoint to start from: this one, an older one if this one is torn, or none."""
        folder, seal_ = last_whole_checkpoint(checkpoint, report)
        self._saved_at, self._from_0, self._saved_behind, self._written_progress = seal_
        self._written_metrics = {}
        self._checkpoint = None if folder is None else str(folder)
        if folder != checkpoint:
            logger.warning("%s is gone or torn: continuing from %s", checkpoint, folder or "the beginning")

    def cleanup(self) -> None:
        """End the workers."""
        self._end_group()

    def _end_group(self) -> None:
        if self.group is not None:
            self.group.exit()
            self.group = None
            drop_copies(Path(self.folder), self.trial_name)


def warm_trainable(**parameters: Any) -> type[WarmTrainable]:
    """Return the trainable with these arguments of :meth:`WarmTrainable.setup`.

    ``tune.with_parameters`` would put them into Ray's object store. When its node goes down, Ray (2.60) ends a driver
    that has an object there, at once and without a message, so the sweep could not be closed.
    """

    class Prepared(WarmTrainable):
        # Not a closure: Ray sends each method twice, as it is and wrapped, and each time with all that it closes over.
        _parameters = parameters

        @override
        def setup(self, config: dict[str, Any]) -> None:  # type: ignore[override]
            super().setup(config, **self._parameters)

    Prepared.__name__ = WarmTrainable.__name__
    return Prepared
