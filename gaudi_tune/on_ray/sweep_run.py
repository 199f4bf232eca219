"""A sweep that runs: events go one way, from Ray to the state, to those who decide, back to Ray, and to the views."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.result import AUTO_RESULT_KEYS, DONE, SHOULD_CHECKPOINT
from ray.tune.schedulers import TrialScheduler

from gaudi_tune.base import names
from gaudi_tune.base.kept_in_process import KeptInProcess
from gaudi_tune.define.budget import REPORTS
from gaudi_tune.define.sweep_plan import STUDY_FILE, Plan
from gaudi_tune.group.warm_trainable import WarmTrainable
from gaudi_tune.on_ray.ending import EarlyEnd
from gaudi_tune.on_ray.state_on_disk import StateOnDisk
from gaudi_tune.on_ray.steering import Steering
from gaudi_tune.on_ray.trials import error_of, number_of
from gaudi_tune.on_ray.tune_files import forget_deleted_checkpoints
from gaudi_tune.private.ray_core import free_orphans, waiting_actors
from gaudi_tune.private.ray_tune import actor_of, call_trainable
from gaudi_tune.show.notify import Notify
from gaudi_tune.show.pictures.page import LivePage, in_notebook
from gaudi_tune.show.pictures.report import DrawPictures
from gaudi_tune.show.progress import ShowProgress
from gaudi_tune.show.summary import summarise, write_summary
from gaudi_tune.show.trackers.tracker import Tracker, in_words
from gaudi_tune.show.view import View
from gaudi_tune.sweep.policies.checkpoints import CheckpointBudget, wants_checkpoint
from gaudi_tune.sweep.policies.growth import Growth
from gaudi_tune.sweep.policies.schedulers.factory import make_scheduler
from gaudi_tune.sweep.policies.schedulers.population import may_be_taken_over
from gaudi_tune.sweep.policies.stopping import StoppingRules, kind_of_error
from gaudi_tune.sweep.record import events
from gaudi_tune.sweep.record.device_time import DeviceTime
from gaudi_tune.sweep.record.outcome import why_diverged
from gaudi_tune.sweep.record.state_log import STATE_LOG
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.search.confirmation_trials import confirmations
from gaudi_tune.sweep.search.searcher import StudySearcher
from gaudi_tune.sweep.search.study_record import in_brief

logger = logging.getLogger(__name__)

NO_METRICS = {*AUTO_RESULT_KEYS, DONE, SHOULD_CHECKPOINT, names.STARTS_OVER, "trial_id"}
"""Entries of a result that are for Tune and for those who decide."""
FREE_EVERY_S = 2.0
"""How often to look for devices that a failed group left booked; one request to Ray, about 1 ms."""


class SweepRun(KeptInProcess, tune.Callback):
    """Everything of one sweep in this process: Tune's callback, which its scheduler asks about each report.

    Its methods are called by Tune's event loop, one at a time.
    """

    def __init__(
        self,
        plan: Plan,
        searcher: StudySearcher,
        trackers: Sequence[Tracker],
    ) -> None:
        """Put the parts together; nothing is opened or started before :meth:`setup`."""
        self.plan, self.searcher, self.trackers = plan, searcher, list(trackers)
        options = plan.options
        self.scheduler = make_scheduler(
            "fifo" if options.baseline_only else options.scheduler,
            plan.budget,
            space=plan.experiment.search_space,
            trials=plan.num_samples,
            groups=plan.groups,
            others=plan.others,
        )
        device_time = DeviceTime(plan.devices, _address_of, options.workers_per_trial)
        self.state = SweepState(
            plan.objectives,
            plan.budget,
            plan.num_samples,
            device_time,
            plan.confirm,
            plan.seeds,
            has_baseline=bool(plan.experiment.baseline),
        )
        self.searcher.after_search = lambda over: confirmations(self.state, options.seed, over=over)
        self._stopping: StoppingRules  # made in setup(): the clock of --time-budget starts with them
        self._growth, self._grows = Growth(plan), plan.grows
        self._checkpoints = CheckpointBudget(plan.folder, options.checkpoint_bytes)
        self.steering = Steering(plan, self.state, searcher, self.scheduler, self.tell)
        """Where wishes of people go, from any thread."""
        self.page = LivePage(plan, self._address, self.steering.ask)
        self.views: list[View] = [self.page, DrawPictures(plan, self._address, self._show)]
        if not in_notebook():  # which shows the page
            self.views.append(ShowProgress(plan))
        if options.notify is not None:
            self.views.append(Notify(plan, options.notify))
        self.on_disk = StateOnDisk(plan.folder, self.state, self.scheduler, resumed=plan.resumed)
        """What is kept of it: another callback of Tune."""
        self.early_end = EarlyEnd(plan, self.state, searcher, self.tell, self.close)
        self._pausing: list[Trial] = []
        self._checkpoints_changed = False
        self._said_begins_anew = False
        self._told = set[str]()  # kinds of errors whose traceback was shown
        self._freed_at = 0.0
        self._closing = threading.Lock()
        self._begun = False
        self.summary: dict[str, Any] | None = None
        """What the sweep came to; None until it is over."""

    def tell(self, event: events.Event) -> None:
        """Apply an event to the state, and show it."""
        self.state.apply(event)
        self._show(event)

    # What Tune says.

    def setup(self, **info: Any) -> None:
        """Take over the signals and begin.

        A SweepError if Tune runs in a thread, where nothing can end it early, and an option wants to; or if it has not
        read the state of a sweep that is resumed.
        """
        logging.getLogger("ray.tune.tune").setLevel(logging.CRITICAL)  # the sweep itself says how it ended
        # A trial that ended before its first report has no file of reports, which is no news.
        logging.getLogger("ray.tune.analysis.experiment_analysis").setLevel(logging.ERROR)
        # That a step took half a second, such as the one that imports what draws, is nothing that a user could change.
        logging.getLogger("ray.tune.utils.util").setLevel(logging.ERROR)
        self.on_disk.check_restored()
        self.early_end.signals.take_over(self.plan.options.limits)
        self._begun = True
        self._stopping = StoppingRules(self.plan.options)
        self.tell(events.SweepBegan())
        self.early_end.watch.start()

    def on_trial_start(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Note that a trial has its worker group, perhaps that of one that a scheduler paused without being asked."""
        for other in trials if self.scheduler.pauses_unasked else ():
            if other.status != Trial.PAUSED:
                continue
            known = self.state.trials.get(number_of(other))
            if known is not None and known.status == "running":
                paused = events.Decision("pause", f"by {self.plan.options.scheduler}")
                self.tell(events.Decided(trial=known.number, decision=paused))
        self._growth.cancel_move(number_of(trial))
        self.tell(events.TrialBegan(trial=number_of(trial), trial_id=trial.trial_id, config=trial.config))

    def reported(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> str:
        """Note a report, decide what follows from it, and return that as Tune's schedulers do."""
        number, metric = number_of(trial), self.state.objective.name
        report = events.Reported(
            trial=number,
            step=self.plan.budget.progress(result),
            value=float(result.get(metric, math.nan)),
            metrics={k: v for k, v in result.items() if k not in NO_METRICS and not k.startswith("config/")},
            config=trial.config,
            count=int(result.get(REPORTS, 0)),
        )
        self.state.apply(report)
        if result.get(names.STARTS_OVER) and not self._said_begins_anew:
            self._said_begins_anew = True
            self._say_that_trials_begin_anew(saves=result.get(SHOULD_CHECKPOINT) is not False)
        decision, answer = self._decide(tune_controller, trial, result)
        decided = events.Decided(trial=number, decision=decision)
        self.state.apply(decided)
        if decision.verdict == "continue" and not result.get(names.STARTS_OVER):
            self._grow(tune_controller, trial)
        self.early_end.ask(self._stopping.after_report(self.state))
        if decision.verdict == "pause":
            self._pausing.append(trial)
            self.early_end.ask(self._stopping.after_trial(self.state))
        self._show(report)
        self._show(decided)
        return TrialScheduler.NOOP if answer == TrialScheduler.CONTINUE and self.early_end.holds_trials else answer

    def _grow(self, tune_controller: Any, trial: Trial) -> None:
        """Have a trial go on with devices that would stay idle, or give back some that others wait for."""
        if not self._grows:
            return
        known = self.state.trials[number_of(trial)]
        self._growth.measure(self.state, known)
        to_begin = self.searcher.proposed < self.state.num_trials and not self._growth.has_grown
        if to_begin or self._pausing:  # those that are being saved have their devices still
            return
        place = self._growth.after_report(self.state, known, self.scheduler.promoted)
        if place is not None:
            call_trainable(tune_controller, trial, WarmTrainable.move_to.__name__, place)
            self.tell(events.PlaceChanged(trial=known.number, workers=place.workers))

    @property
    def devices_are_wanted(self) -> bool:
        """Whether a trial may wait for devices that another has grown to, or is to grow to."""
        running = self.state.running if self._growth.has_ever_grown else []
        return any(
            self._growth.is_moving(trial.number) or not self._growth.width_of(self.state, trial) for trial in running
        )

    def _say_that_trials_begin_anew(self, *, saves: bool) -> None:
        if saves:
            why, fix = "the train loop does not ask for its checkpoint", "begin it with get_checkpoint()"
        else:
            why = "the train loop saves no checkpoint"
            fix = "give its report() save= or checkpoint=, and begin it with get_checkpoint()"
        fix = f"{fix} (docs/own-model.md)"
        if self.plan.options.scheduler == "pbt":
            why = f"--scheduler pbt continues trials with other hyperparameters, but {why}; {fix}, or take another"
            self.early_end.ask(events.Ending(why, status=1, at_once=True))
        else:
            waits = "weak trials end and do not wait, and " if self.plan.options.scheduler == "asha-promote" else ""
            kept = "" if saves else "no model is kept, "
            logger.warning("%s: %s%sa trial that is interrupted begins again. %s", why, kept, waits, fix.capitalize())

    def _decide(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> tuple[events.Decision, str]:
        """Return what follows from a report, and the answer to Tune.

        Asked in this order: has it diverged, has it had its budget, does a person or the scheduler end it?
        """
        known = self.state.trials[number_of(trial)]
        if why := why_diverged(result, *(objective.name for objective in self.state.objectives)):
            return events.Decision("failed", why), TrialScheduler.STOP
        if self.plan.budget.spent(result):
            return events.Decision("finished", f"it has had its {self.plan.budget}"), TrialScheduler.STOP
        if known.to_stop:
            return events.BY_HAND, TrialScheduler.STOP
        ends_with_pbt = self.early_end.holds_trials and self.plan.options.scheduler == "pbt"  # a clone would be lost
        if known.confirms or ends_with_pbt:
            return events.Decision("continue"), TrialScheduler.CONTINUE
        answer = self.scheduler.on_trial_result(tune_controller, trial, result)
        reason = self.scheduler.reasons.pop(trial.trial_id, f"by {self.plan.options.scheduler}")
        verdicts: dict[str, events.Verdict] = {TrialScheduler.STOP: "stopped early", TrialScheduler.PAUSE: "pause"}
        if answer in verdicts:
            return events.Decision(verdicts[answer], reason), answer
        return events.Decision("continue"), answer  # pbt answers differently for a trial that it paused itself

    def on_trial_result(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Ask for a checkpoint if one is wanted, in place, as Tune's own schedulers do."""
        known = self.state.trials[number_of(trial)]
        if result.get(SHOULD_CHECKPOINT) is False:  # the loop gives nothing to save, and nobody waits for it
            self.early_end.saved(known.number)
        elif (
            self._growth.is_moving(known.number)
            or self._stopping.last_in_time(known)
            or wants_checkpoint(self.state, known, 60 * (self.plan.options.checkpoint_minutes or 0))
        ):
            result[SHOULD_CHECKPOINT] = True

    def on_checkpoint(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, checkpoint: tune.Checkpoint, **info: Any
    ) -> None:
        """Note a checkpoint."""
        number, place = number_of(trial), Path(checkpoint.path).relative_to(self.plan.folder)
        self.tell(events.CheckpointSaved(trial=number, place=str(place)))
        self._checkpoints_changed = True
        self.early_end.saved(number)

    def on_trial_recover(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Note that a trial lost its trial actor and will go on."""
        if number_of(trial) in self.state.trials:  # else its trial actor could not be made, and is made again
            self.tell(events.TrialRecovered(trial=number_of(trial)))

    def on_trial_complete(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Note that a trial ended without an error, as was decided, or because its train loop returned."""
        known = self.state.trials.get(number_of(trial))
        if known is None or known.has_ended:
            return
        verdict, reason = known.decision
        if verdict == "continue":
            verdict = "finished" if known.step >= self.plan.budget.total else "stopped early"
            reason = f"its train loop returned after {self.plan.budget.unit} {known.step} of {self.plan.budget.total}"
        if verdict == "pause":
            verdict = "stopped early"
            reason = events.BY_HAND.reason if known.to_stop else f"{reason}, and it was not promoted later"
        self._trial_is_over(events.TrialEnded(trial=known.number, outcome=verdict, reason=reason))
        if known.decision.verdict == "pause" and not known.to_stop:
            self._checkpoints.drop(self.state, known)

    def on_trial_error(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Note that an error ended a trial."""
        if number_of(trial) not in self.state.trials:  # its trial actor could not be made
            self.on_trial_start(iteration, [], trial)
        reason = error_of(trial)
        if "\n" in reason and (kind := kind_of_error(reason)) not in self._told:
            self._told.add(kind)
            logger.error("trial %03d failed with this error (shown once):\n%s", number_of(trial), reason)
        self._trial_is_over(events.TrialEnded(trial=number_of(trial), outcome="failed", reason=reason, raised=True))

    def _trial_is_over(self, ended: events.TrialEnded) -> None:
        self.tell(ended)
        self._checkpoints_changed = True
        self.early_end.ask(self._stopping.after_trial(self.state))

    def on_step_begin(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """Look whether SIGTERM has come, before anything of Ray is called."""
        self.early_end.heed_sigterm()

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """Do what is due."""
        # For a proposal that came before a group is free, Tune would start another trial actor, and end it unused.
        self._pausing = [trial for trial in self._pausing if trial.status == Trial.RUNNING]
        self.searcher.being_saved = {trial.trial_id for trial in self._pausing}
        self.steering.heed()
        for view in [*self.views, *self.trackers]:
            with errors_are_logged():
                view.tick(self.state)
        if self._checkpoints_changed:
            self._checkpoints_changed = False
            self._keep_to_budget(trials)
        if time.monotonic() - self._freed_at >= FREE_EVERY_S:
            free_orphans()
            self._freed_at = time.monotonic()
        to_begin = self.searcher.proposed < self.state.num_trials
        if to_begin and self._stopping.no_more_trials(self.state, self.plan.groups):
            self.steering.cut_search()
        self.early_end.ask(self._stopping.out_of_time())
        self.early_end.heed_signals()
        if self.state.ending is not None:  # this goes through all trials
            self.early_end.interrupt_when_saved(self._may_save(trials))

    def _may_save(self, trials: Sequence[Trial]) -> set[int]:
        """Return the trials that run or are being saved. One that waits for devices that another sweep has, or to which
        a held trial has grown, may wait for ever, and has nothing to save."""
        grown, waiting = self._growth.has_grown, waiting_actors()
        without = {number_of(trial) for trial in trials if actor_of(trial) in waiting} if waiting else set()
        running = {t.number for t in self.state.running if not grown or self._growth.width_of(self.state, t)}
        return running - without | {*map(number_of, self._pausing)}

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Close everything: the sweep is over."""
        free_orphans()
        self.early_end.watch.stop()  # nothing that follows needs Ray
        if self.state.cut and self.state.ending is None:
            self.early_end.ask(self._stopping.cut_short())
        self.state.close()
        self._keep_to_budget(trials)
        for trial in trials:
            forget_deleted_checkpoints(trial)
        self.close()
        self.early_end.signals.give_back(interrupted=self.early_end.interrupted)

    # What the sweep does itself.

    def fail(self, error: BaseException) -> None:
        """Close everything after an error that Tune raises, which may come before it says that the sweep is over.

        The watch would end this process together with Ray. Does nothing if the sweep had not begun.
        """
        if not self._begun:
            return
        self.early_end.watch.stop()
        if self.summary is None:
            self.early_end.ask(events.Ending(f"an error outside the trials: {error!r}", status=1, at_once=True))
        self.close()
        self.early_end.signals.give_back(interrupted=self.early_end.interrupted)

    def close(self) -> None:
        """Write the summary, show the end, and let the trackers deliver. Only the first call does.

        Needs nothing of Ray, so that it can be done when Ray is gone.
        """
        with self._closing:
            if self.summary is not None:
                return
            self.state.close()
            trackers = {tracker.name: tracker.address for tracker in self.trackers}
            self.summary = summarise(self.plan, self.state, trackers)
            with errors_are_logged():  # the study is opened, which may fail, if nothing was proposed yet
                paused = {trial.number for trial in self.state.paused}
                self.summary["search"] = in_brief(self.searcher.trials(), self.plan.experiment.mode, paused)
            write_summary(self.plan.summary_file, self.summary)
            self.tell(events.SweepEnded(summary=self.summary))
            self.steering.heed()  # who asked for something since Tune's last step is told that it is over
            for tracker in self.trackers:
                with errors_are_logged():
                    tracker.close()
            self._say_what_is_missing(self.searcher.close())

    def _say_what_is_missing(self, trials: int) -> None:
        """Say and keep what the log of the sweep and the study's database have not got; ``trials`` are of the study."""
        assert self.summary is not None
        missing = [
            *([f"{STUDY_FILE} does not have {trials} trials in full"] if trials else []),
            *([] if self.on_disk.is_complete else [f"{STATE_LOG} does not have the last state"]),
        ]
        if not missing:
            return
        self.summary["missing"] = missing
        write_summary(self.plan.summary_file, self.summary)
        fix = "" if STATE_LOG in missing[-1] else f"; this writes them: {self.plan.how_to_resume()}"
        logger.error("%s: %s%s", self.plan.folder, " and ".join(missing), fix)

    def _address(self) -> str:
        return in_words(self.trackers[0]) if self.trackers else ""

    def _show(self, event: events.Event) -> None:
        for view in [*self.views, *self.trackers]:  # the trackers get the last pictures before the end
            with errors_are_logged():
                view.show(event, self.state)

    def _keep_to_budget(self, trials: Sequence[Trial]) -> None:
        if self._checkpoints.keep(self.state, self._in_use(trials)):
            for trial in trials:
                forget_deleted_checkpoints(trial)

    def _in_use(self, trials: Sequence[Trial]) -> Iterator[Path]:
        """Yield the checkpoints that an unfinished trial goes on from unless it waits, or another may take over."""
        for trial in trials:
            known = self.state.trials.get(number_of(trial))
            if trial.is_finished() or known is None:
                continue
            waits = known.status == "paused" and self.plan.options.scheduler != "pbt"
            if trial.checkpoint is not None and not waits:  # with pbt another trial's
                yield Path(trial.checkpoint.path)
            for saved in known.checkpoints:
                if may_be_taken_over(self.scheduler, trial, saved.step):
                    yield self.plan.folder / saved.place


@contextmanager
def errors_are_logged() -> Iterator[None]:
    """Log an error instead of raising it: what shows a sweep does not end it."""
    try:
        yield
    except Exception:
        logger.exception("an error while showing the sweep; the sweep continues")


def _address_of(node: str) -> str:
    """Return the address of a node by Ray's id."""
    return next((n["NodeManagerAddress"] for n in ray.nodes() if n["NodeID"] == node), node[:8])
