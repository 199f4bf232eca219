"""A running sweep. Each event goes one way: from Ray to the state, to the policies, back to Ray, and to the views."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.result import AUTO_RESULT_KEYS, DONE, SHOULD_CHECKPOINT
from ray.tune.schedulers import TrialScheduler

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError, place_of, users_error
from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.base.kept_in_process import KeptInProcess
from gaudi_tune.base.process import in_notebook
from gaudi_tune.define.budget import REPORTS
from gaudi_tune.define.objective import point_in
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.announcer import Announcer
from gaudi_tune.on_ray.checkpoint_cleanup import CheckpointCleanup
from gaudi_tune.on_ray.conclusion import Conclusion
from gaudi_tune.on_ray.device_moves import DeviceMoves
from gaudi_tune.on_ray.ending import EarlyEnd
from gaudi_tune.on_ray.given.rays_scheduler import RaysScheduler
from gaudi_tune.on_ray.given.users_callback import UsersCallback
from gaudi_tune.on_ray.given.users_stop import UsersStop
from gaudi_tune.on_ray.scheduler import SweepScheduler
from gaudi_tune.on_ray.signals import INTERRUPTED
from gaudi_tune.on_ray.state_on_disk import StateOnDisk
from gaudi_tune.on_ray.steering import Steering
from gaudi_tune.on_ray.trials import last_failure, number_of
from gaudi_tune.private.ray_core import free_orphans, waiting_actors
from gaudi_tune.private.ray_tune import actor_of
from gaudi_tune.show.notify import Notify
from gaudi_tune.show.pictures.cell import ShowInCell
from gaudi_tune.show.pictures.page import LivePage
from gaudi_tune.show.pictures.report import DrawPictures
from gaudi_tune.show.progress import ShowProgress
from gaudi_tune.show.trackers.tracker import Tracker
from gaudi_tune.storage.mirror import Mirror
from gaudi_tune.storage.remote import address_below
from gaudi_tune.sweep.policies.checkpoints import wants_checkpoint
from gaudi_tune.sweep.policies.schedulers.factory import scheduler_kind
from gaudi_tune.sweep.policies.schedulers.fifo import Fifo
from gaudi_tune.sweep.policies.schedulers.given import GivenScheduler
from gaudi_tune.sweep.policies.schedulers.population import Population
from gaudi_tune.sweep.policies.schedulers.scheduler import Scheduler
from gaudi_tune.sweep.policies.stopping import StoppingRules
from gaudi_tune.sweep.record import events
from gaudi_tune.sweep.record.device_time import DeviceTime
from gaudi_tune.sweep.record.outcome import why_diverged
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState
from gaudi_tune.sweep.search.confirmation_trials import confirmation_configs
from gaudi_tune.sweep.search.searcher import StudySearcher
from gaudi_tune.training.notice import withdraw_notice

logger = logging.getLogger(__name__)

NOT_METRICS = {
    *AUTO_RESULT_KEYS,
    DONE,
    SHOULD_CHECKPOINT,
    names.STARTS_OVER,
    names.ENDS_ITSELF,
    names.BEHIND,
    names.NEW_WORKERS,
    "trial_id",
}
"""Entries of a result that are meant for Tune and the scheduler."""
FREE_EVERY_S = 2.0
"""Seconds between two looks for devices that a failed group left booked. Each is one request to Ray, of about 1 ms."""


class SweepRun(KeptInProcess, tune.Callback):
    """Everything of one sweep in this process. It is Tune's callback, and decides on each report for Tune's scheduler.

    Tune's event loop calls its methods, one at a time.
    """

    def __init__(self, plan: Plan, searcher: StudySearcher, trackers: Sequence[Tracker]) -> None:
        """Put the parts together. Nothing is opened or started before :meth:`setup`."""
        self.plan, self.searcher = plan, searcher
        options = plan.options
        self.policy = policy = _make_policy(plan)
        """The scheduler that the user chose."""
        self.scheduler = (
            RaysScheduler(self, policy)
            if isinstance(policy, Population | GivenScheduler)
            else SweepScheduler(self, policy)
        )
        """The scheduler that Tune calls."""
        self.state = state = _make_state(plan)
        searcher.count_waiting = self.scheduler.count_waiting
        searcher.configs_after_search = lambda search_is_over: confirmation_configs(
            state, options.seed, search_is_over=search_is_over
        )
        self.users_callbacks = [
            UsersCallback(
                callback,
                stop={} if plan.objects.stop is None else plan.objects.stop,
                num_samples=state.num_trials,
                total_num_samples=state.num_trials,
            )
            for callback in plan.objects.callbacks
        ]
        announcer = self._announcer = Announcer(state, trackers)
        self.on_disk = StateOnDisk(
            plan.folder,
            state,
            self.scheduler,
            searcher,
            self.users_callbacks,
            announcer.flush_trackers,
            resumed=plan.resumed,
        )
        """What keeps the state on disk; Tune calls it as another callback."""

        self.trackers, self.views = announcer.trackers, announcer.views
        self.steering = Steering(plan, state, searcher, announcer.tell)
        """Takes requests of people, from any thread."""
        searcher.source_is_exhausted = self.steering.end_search
        searcher.heed_error = self._heed_error_of_search
        self.search_error: SweepError | None = None
        """The error with which what the user brought for the search has ended the sweep."""
        self.page = LivePage(plan, announcer.tracker_address, self.steering.ask)
        self.views += [self.page, DrawPictures(plan, announcer.tracker_address, announcer.show), ShowProgress(plan)]
        if in_notebook():
            self.views.append(ShowInCell(self.page))
        if options.notify is not None:
            self.views.append(Notify(plan, options.notify))

        self.mirror = _make_mirror(plan) if plan.address else None
        """Brings the sweep's folder to its storage; None if it has none."""
        self.conclusion = Conclusion(plan, announcer, searcher, self.steering, self.on_disk, self.mirror)
        self.early_end = EarlyEnd(plan, state, searcher, announcer.tell, self.conclusion.write)
        self._users_stop = UsersStop(plan.objects.stop)
        self._stopping: StoppingRules  # made in setup(), because it starts the clock of --time-budget
        self._device_moves = DeviceMoves(plan, state, searcher, policy, announcer.tell)
        self._cleanup = CheckpointCleanup(plan, state, self.scheduler)

        self._pausing: list[Trial] = []  # trials that are being saved before they pause
        self._warned_of_starting_over = False
        self._warned_of_new_workers: set[str] = set()
        self._shown_errors = set[tuple[FailureKind, str]]()  # causes of errors whose traceback was shown
        self._freed_at = 0.0
        self._is_set_up = False

    @property
    def summary(self) -> dict[str, Any] | None:
        """The content of summary.json; None until the sweep is over."""
        return self.conclusion.summary

    @property
    def trials_wait_for_devices(self) -> bool:
        """Whether a trial may wait for devices to which another has grown, or is to grow."""
        return self._device_moves.trials_wait_for_devices

    # Tune calls these.

    def setup(self, **info: Any) -> None:
        """Take over the signals and begin.

        Raises a SweepError if Tune runs in a thread, where nothing can end it early, and an option may need that; or
        if Tune has not read the state of a resumed sweep.
        """
        logging.getLogger("ray.tune.tune").setLevel(logging.CRITICAL)  # the sweep itself says how it ended
        # Tune would warn of each trial without a file of reports, such as one that ended before its first report.
        logging.getLogger("ray.tune.analysis.experiment_analysis").setLevel(logging.ERROR)
        # Tune would warn of each step of half a second. A user cannot avoid them: one imports the drawing libraries.
        logging.getLogger("ray.tune.utils.util").setLevel(logging.ERROR)
        self.on_disk.check_restored()
        self.early_end.signals.take_over(self.plan.options.limits)
        withdraw_notice(self.plan.folder)
        self._is_set_up = True
        self._stopping = StoppingRules(self.plan.options)
        self._announcer.tell(events.SweepBegan())
        self.early_end.watch.start()

    def on_trial_start(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Note that a trial has its worker group, perhaps the one of a trial that the scheduler has just paused."""
        if self.policy.clones:
            self._note_unasked_pauses(trials)
        number = number_of(trial)
        self._device_moves.trial_began(number)
        self._announcer.tell(events.TrialBegan(trial=number, trial_id=trial.trial_id, config=trial.config))

    def _note_unasked_pauses(self, trials: Sequence[Trial]) -> None:
        """Note the trials that the scheduler has paused otherwise than by its answer to their report."""
        for trial in trials:
            if trial.status != Trial.PAUSED:
                continue
            trial_state = self.state.trials.get(number_of(trial))
            if trial_state is not None and trial_state.status == "running":
                pause = events.Decision("pause", f"by {self.plan.options.scheduler}")
                self._announcer.tell(events.Decided(trial=trial_state.number, decision=pause))

    def reported(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Handle a report, and return what follows from it as Tune's schedulers do.

        Tune calls this first of all for a report. What happens is in this order:

        1. the state takes note of the report;
        2. what becomes of the trial is decided, and the state takes note of that;
        3. the study is told, from the state;
        4. devices that are free move to the trial, or from it;
        5. rules that end the sweep are asked;
        6. page, pictures and trackers are shown both events.

        Then Tune calls :meth:`on_trial_result`, which asks for a checkpoint, and does what this returns. If the trial
        ends, :meth:`on_trial_complete` follows, where the same order holds: state, study, views, rules.
        """
        number = number_of(trial)
        report = self._report_event(trial, result)
        self.state.apply(report)
        self._explain_new_workers(number, result.get(names.NEW_WORKERS, ""))
        if result.get(names.STARTS_OVER):
            self._heed_starting_over(trial, result)
        decision, answer = self._decide(tune_controller, trial, result, report)
        decided = events.Decided(trial=number, decision=decision)
        self.state.apply(decided)
        self.searcher.reported(self.state.trials[number])
        if decision.verdict == "continue" and not result.get(names.STARTS_OVER):
            self._device_moves.after_report(tune_controller, trial, others_pause=bool(self._pausing))
        self.early_end.ask(self._stopping.after_report(self.state))
        self.early_end.ask(self._users_stop.why_sweep_ends())
        if decision.verdict == "pause":
            self._pausing.append(trial)
            self.early_end.ask(self._stopping.after_trial(self.state))
        self._announcer.show(report)
        self._announcer.show(decided)
        if answer == TrialScheduler.CONTINUE and self.early_end.holds_trials:
            return TrialScheduler.NOOP
        return answer

    def _report_event(self, trial: Trial, result: Mapping[str, Any]) -> events.Reported:
        metrics = {
            name: value for name, value in result.items() if name not in NOT_METRICS and not name.startswith("config/")
        }
        return events.Reported(
            trial=number_of(trial),
            step=self.plan.budget.progress(result),
            point=point_in(self.state.objectives, result),
            metrics=metrics,
            config=trial.config,
            count=int(result.get(REPORTS, 0)),
            starts_over=bool(result.get(names.STARTS_OVER)),
            behind=None if result.get(SHOULD_CHECKPOINT) is False else int(result.get(names.BEHIND, 0)),
        )

    def _heed_starting_over(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """Warn once, or end a sweep that cannot do without, when a train loop does not begin with its checkpoint."""
        saves = result.get(SHOULD_CHECKPOINT) is not False
        is_early = self.scheduler.needs_checkpoints and not saves and not self.scheduler.pauses_now(trial, result)
        if self._warned_of_starting_over or is_early:
            return
        self._warned_of_starting_over = True
        if saves:
            problem, fix = "the train loop does not ask for its checkpoint", "begin it with get_checkpoint()"
        else:
            problem = "the train loop has saved no checkpoint yet"
            fix = "give its report() save= or checkpoint=, and begin it with get_checkpoint()"
        fix = f"{fix} (docs/own-model.md)"
        if self.scheduler.needs_checkpoints:
            needs = "continues trials with other hyperparameters" if self.policy.clones else "pauses trials"
            reason = f"--scheduler {self.plan.options.scheduler} {needs}, but {problem}; {fix}, or take another"
            self.early_end.ask(events.Ending(reason, status=1, at_once=True))
            return
        pauses = "weak trials end and do not wait, and " if self.policy.pauses else ""
        model = "" if saves else "no model is kept, "
        logger.warning("%s: %s%sa trial that is interrupted begins again. %s", problem, model, pauses, fix.capitalize())

    def _explain_new_workers(self, number: int, reason: str) -> None:
        """Say once for each reason why a trial has begun on new workers."""
        if reason and reason not in self._warned_of_new_workers:
            self._warned_of_new_workers.add(reason)
            logger.warning("trial %03d: %s (docs/what-stays.md)", number, reason)

    def _decide(
        self, tune_controller: Any, trial: Trial, result: dict[str, Any], report: events.Reported
    ) -> tuple[events.Decision, str]:
        """Return what follows from a report, and the answer to Tune.

        Divergence counts first, then the budget and the train loop's own end, then a person who stops the trial, then
        the user's ``stop``, and at last the scheduler.
        """
        trial_state = self.state.trials[number_of(trial)]
        divergence = why_diverged(result, *(objective.name for objective in self.state.objectives))
        if divergence:
            return events.Decision("failed", divergence.text, divergence), TrialScheduler.STOP
        if self.plan.budget.spent(result):
            return events.Decision("finished", f"it has had its {self.plan.budget}"), TrialScheduler.STOP
        if result.get(names.ENDS_ITSELF):
            return events.Decision("finished", "its train loop reported done"), TrialScheduler.STOP
        if trial_state.to_stop:
            return events.BY_HAND, TrialScheduler.STOP
        if reason := self._users_stop.why_trial_ends(trial.trial_id, result):
            return events.Decision("stopped early", reason), TrialScheduler.STOP
        would_lose_clone = self.early_end.holds_trials and self.policy.clones  # the sweep ends
        if trial_state.confirms or would_lose_clone:
            return events.Decision("continue"), TrialScheduler.CONTINUE
        return self.scheduler.decide(tune_controller, trial, result, report)

    def on_trial_result(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Ask for a checkpoint by an entry in the result if one is wanted, as Tune's own schedulers do."""
        trial_state = self.state.trials[number_of(trial)]
        if result.get(SHOULD_CHECKPOINT) is False:  # the loop has nothing to save, so nobody waits for it
            self.early_end.saved(trial_state.number)
        elif self._wants_checkpoint(trial_state):
            result[SHOULD_CHECKPOINT] = True

    def _wants_checkpoint(self, trial_state: TrialState) -> bool:
        return (
            self._device_moves.is_moving(trial_state.number)
            or self._stopping.is_last_report(trial_state)
            or wants_checkpoint(self.state, trial_state, 60 * (self.plan.options.checkpoint_minutes or 0))
        )

    def on_checkpoint(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, checkpoint: tune.Checkpoint, **info: Any
    ) -> None:
        """Note a checkpoint."""
        number, place = number_of(trial), Path(checkpoint.path).relative_to(self.plan.folder)
        self._announcer.tell(events.CheckpointSaved(trial=number, place=str(place)))
        self._cleanup.request()
        self.early_end.saved(number)

    def on_trial_recover(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Note that a trial lost its trial actor and will go on."""
        # A trial that is not in the state has not begun: its actor could not be made, and is made again.
        if number_of(trial) in self.state.trials:
            self._announcer.tell(events.TrialRecovered(trial=number_of(trial)))

    def on_trial_complete(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Note that a trial ended without an error: as decided, or because its train loop returned."""
        trial_state = self.state.trials.get(number_of(trial))
        if trial_state is None or trial_state.has_ended:
            return
        verdict, reason, failure = trial_state.decision
        waited_in_vain = verdict == "pause" and not trial_state.to_stop
        if verdict == "continue":
            budget = self.plan.budget
            verdict = "finished" if trial_state.step >= budget.total else "stopped early"
            reason = f"its train loop returned after {budget.unit} {trial_state.step} of {budget.total}"
        elif verdict == "pause":
            verdict = "stopped early"
            reason = events.BY_HAND.reason if trial_state.to_stop else f"{reason}, and it was not promoted later"
        self._end_trial(events.TrialEnded(trial=trial_state.number, outcome=verdict, reason=reason, failure=failure))
        if waited_in_vain:
            self._cleanup.drop(trial_state)

    def on_trial_error(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Note that an error ended a trial."""
        number = number_of(trial)
        if number not in self.state.trials:  # its trial actor could not be made, so it has not begun
            self.on_trial_start(iteration, [], trial)
        failure = last_failure(trial) or Failure(FailureKind.GROUP_ERROR, "an error ended it")
        if "\n" in failure.text and failure.cause not in self._shown_errors:
            self._shown_errors.add(failure.cause)
            logger.error("trial %03d failed with this error (shown once):\n%s", number, failure.text)
        self._end_trial(events.TrialEnded(trial=number, outcome="failed", reason=failure.text, failure=failure))

    def _end_trial(self, event: events.TrialEnded) -> None:
        self.state.apply(event)
        self.searcher.ended(self.state.trials[event.trial])
        self._announcer.show(event)
        self._cleanup.request()
        self.early_end.ask(self._stopping.after_trial(self.state))

    def on_step_begin(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """Look whether this process will be gone soon, before any call of Ray."""
        self.early_end.heed_notice()

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """Do what is due."""
        self._pausing = [trial for trial in self._pausing if trial.status == Trial.RUNNING]
        # The searcher proposes nothing for the group of such a trial until it is free: Tune would start another trial
        # actor for the proposal, and end it unused.
        self.scheduler.being_saved = {number_of(trial) for trial in self._pausing}
        self.steering.heed()
        self._announcer.tick()
        self._cleanup.run_if_due(trials)
        if time.monotonic() - self._freed_at >= FREE_EVERY_S:
            free_orphans()
            self._freed_at = time.monotonic()
        has_trials_to_begin = self.searcher.proposed < self.state.num_trials
        if has_trials_to_begin and self._stopping.no_more_trials(self.state, self.plan.groups):
            self.steering.cut_search()
        if self.mirror is not None and self.mirror.rival_host:
            self.early_end.ask(events.Ending(f"{self.mirror.rival_host} has taken it", status=1, at_once=True))
        self.early_end.ask(self._stopping.out_of_time() or self._users_stop.why_sweep_ends())
        self.early_end.heed_signals()
        if self.state.ending is not None:  # only then: this goes through all trials
            self.early_end.interrupt_when_saved(self._trials_that_may_save(trials))

    def _trials_that_may_save(self, trials: Sequence[Trial]) -> set[int]:
        """Return the numbers of the trials that run or are being saved.

        Leaves out trials that have nothing to save and may wait for ever for their devices, because another sweep has
        these, or a held trial has grown to them.
        """
        waiting, without_devices = waiting_actors(), set[int]()
        if waiting:
            without_devices = {number_of(trial) for trial in trials if actor_of(trial) in waiting}
        running = self._device_moves.trials_with_devices()
        pausing = {number_of(trial) for trial in self._pausing}
        return (running - without_devices) | pausing

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Close everything: the sweep is over."""
        free_orphans()
        self.early_end.watch.stop()  # nothing that follows needs Ray
        if self.state.cut and self.state.ending is None:
            self.early_end.ask(self._stopping.cut_short())
        self.state.close()
        self._cleanup.finish(trials)
        self._close()

    # The searcher calls this.

    def _heed_error_of_search(self, error: Exception) -> None:
        """End the sweep for an error of the user's sampler, search algorithm or space, and raise any other."""
        objects = self.plan.objects
        for word, given in (("search_alg", objects.search_alg), ("sampler", objects.sampler)):
            if given is not None:
                name = f"{word}={type(given).__name__}"
                break
        else:
            if not place_of(error):
                raise error
            name = "the function of the search space"
        why = f"{name} failed: {users_error(error)}; correct it and resume the sweep, which has lost nothing"
        self.search_error = SweepError(why)
        self.search_error.__cause__ = error
        self.early_end.ask(events.Ending(why, status=1))

    # The tuner calls this.

    def fail(self, error: BaseException) -> None:
        """Close everything after an error that Tune raised, perhaps before it said that the sweep is over.

        Does nothing if the sweep had not begun.
        """
        if not self._is_set_up:
            return
        self.early_end.watch.stop()  # it would end this process when Ray ends
        if self.summary is None:
            is_ctrl_c = isinstance(error, KeyboardInterrupt)  # Tune no longer handles it once it has begun to end
            other_ending = events.Ending(f"an error outside the trials: {error!r}", status=1, at_once=True)
            self.early_end.ask(INTERRUPTED if is_ctrl_c else other_ending)
        self._close()

    def _close(self) -> None:
        self.conclusion.write()
        self.early_end.signals.give_back(interrupted=self.early_end.interrupted)


def _make_policy(plan: Plan) -> Scheduler:
    kind = Fifo if plan.options.baseline_only else scheduler_kind(plan.options.scheduler)
    return kind(plan.budget, plan.objectives, plan.experiment.search_space)


def _make_mirror(plan: Plan) -> Mirror:
    return Mirror(plan.folder, address_below(plan.address, plan.name))


def _make_state(plan: Plan) -> SweepState:
    return SweepState(
        plan.objectives,
        plan.budget,
        plan.num_samples,
        DeviceTime(plan.devices, _node_address, plan.options.workers_per_trial, plan.trials_per_device),
        plan.confirm,
        plan.seeds,
        has_baseline=bool(plan.experiment.baseline),
    )


def _node_address(node_id: str) -> str:
    """Return the address of the node with Ray's id ``node_id``, or the beginning of the id if Ray does not know it."""
    addresses = {node["NodeID"]: str(node["NodeManagerAddress"]) for node in ray.nodes()}
    return addresses.get(node_id, node_id[:8])
