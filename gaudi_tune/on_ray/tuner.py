"""From an experiment to Ray's own Tuner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

from optuna.samplers import BaseSampler
from ray import tune

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.kept_in_process import NO_RESTORE
from gaudi_tune.base.variables import temporary_environment
from gaudi_tune.define.config_file import with_file
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.group.errors import LOSS_ERRORS, LostTooOftenError, WorkerRaisedError, text_of
from gaudi_tune.group.warm_trainable import warm_trainable
from gaudi_tune.group.worker_group import WorkerGroupSpec
from gaudi_tune.on_ray.local_ray import OF_TUNE, start_ray
from gaudi_tune.on_ray.scheduler import SweepScheduler
from gaudi_tune.on_ray.sweep_run import SweepRun
from gaudi_tune.on_ray.trials import name_of
from gaudi_tune.on_ray.tune_files import KeptState, kept_state_of, put_back, reports_of, results_so_far
from gaudi_tune.plan.planner import make_plan, make_searcher
from gaudi_tune.private import ray_tune, tune_state
from gaudi_tune.show.plan_text import plan_lines
from gaudi_tune.show.reproduction import compared
from gaudi_tune.show.result import START_AGAIN, is_useless, result_lines
from gaudi_tune.show.summary import reopen_summary
from gaudi_tune.show.trackers.tracker import TRACKERS, Tracker, in_words
from gaudi_tune.sweep.record.lock import SweepLock
from gaudi_tune.sweep.record.sweep_file import write_sweep_file
from gaudi_tune.sweep.record.trial_state import trial_name
from gaudi_tune.training.profiling import TRACE_FILE, Profile

TRIAL_ACTOR_MEMORY = 300 * 2**20
"""Bytes of memory that a trial actor reserves in Ray. It must reserve something, but not what the workers need, which
their TorchTrainer reserves."""
SHARE_OF_TIME = 0.05
"""How much of the event loop's time it may take to keep the state of a sweep. Tune writes each trial that has changed
as JSON, which takes about a millisecond."""
FOR_COMMAND_LINE = ("dry_run", "evaluate", "json")
"""Options that :func:`build_tuner` refuses, because it always returns a Tuner."""


def build_tuner(
    experiment: Experiment, options: SweepOptions | None = None, *, sampler: BaseSampler | None = None, **changes: Any
) -> tune.Tuner:
    """Print the plan, and return a Tuner whose ``fit()`` runs the sweep and returns Ray's ``ResultGrid``.

    Everything is decided and checked here. Only ``fit()`` starts Ray and workers, and writes files. It starts Ray on
    this machine unless this process has joined one; ``ray.shutdown()`` ends it.

    Args:
        experiment: What to tune.
        options: What to ask of the sweep; the defaults if None.
        sampler: Proposes the trials instead of the sampler that the option ``search`` names, for example one of
            OptunaHub. Pass it again to resume the sweep; what it keeps in itself, and not in the study, is lost then.
        **changes: Fields of :class:`SweepOptions` that differ, for example ``num_samples=50``.

    Raises:
        SweepError: The sweep cannot work: names the rule, the value and the fix.
    """
    if sampler is not None:
        if not isinstance(sampler, BaseSampler):
            raise SweepError(
                f"sampler={sampler!r}: give an object, such as optuna.samplers.QMCSampler(); a name is search='tpe'"
            )
        named = changes.get("search", SweepOptions.search if options is None else options.search)
        if named != SweepOptions.search:
            raise SweepError(f"search={named!r} and sampler={sampler!r} both say what proposes the trials; give one")
        changes["search"] = type(sampler).__name__
    options = with_file(options, changes)
    if words := [word for word in FOR_COMMAND_LINE if getattr(options, word)]:
        raise SweepError(
            f"build_tuner() does not take {' and '.join(words)}, which the command line does; leave that out: "
            f"build_tuner() only plans and checks, and fit() starts the sweep"
        )
    plan = make_plan(experiment, options, sampler)
    print("\n".join(plan_lines(plan)), flush=True)
    return SweepTuner(plan)


class SweepTuner(tune.Tuner):
    """Ray's Tuner of a planned sweep. It writes, starts and patches nothing before ``fit()``."""

    def __init__(
        self,
        plan: Plan,
        callbacks: Sequence[tune.Callback] = (),
        trackers: Sequence[Tracker] | None = None,
    ) -> None:
        """Prepare; nothing is started.

        ``callbacks`` are called after the sweep's own; ``trackers`` take the place of the usual ones.
        """
        # Not super().__init__(), which writes to the sweep's folder: fit() makes the Tuner that does the work.
        self.plan = plan
        self._callbacks = list(callbacks)
        trackers = [make(plan) for make in TRACKERS.values()] if trackers is None else trackers
        self.run = SweepRun(plan, make_searcher(plan), trackers)
        self._tuner: tune.Tuner | None = None

    def fit(self) -> tune.ResultGrid:
        """Run the sweep, as ``ray.tune.Tuner.fit()`` does.

        A SweepError if it runs already, has begun under this name, or cannot be resumed.
        """
        plan = self.plan
        if self._tuner is not None:
            raise SweepError(
                f"{plan.name}: this Tuner has run its sweep; go on with it, or add trials, with another: "
                f"{plan.how_to_resume(with_more_trials=True)}"
            )
        start_ray(plan)
        try:
            plan.folder.mkdir(parents=True, exist_ok=plan.resumed)
        except FileExistsError as error:  # it was not there when that was checked
            raise SweepError(
                f"{plan.folder}: another sweep of this name has just begun; give yours a --name"
            ) from error
        lock = SweepLock(plan.folder)
        try:
            # Not before the lock: a Tuner that ends until then leaves newer trials, which put_back() would move. And
            # before anything is written: a state that cannot be read in full is an error.
            kept = kept_state_of(plan.folder, self.run.on_disk.restore) if plan.resumed else None
            if kept is not None:
                put_back(kept, plan.folder, plan.options.retries or 0)
                reopen_summary(plan.folder)
            write_sweep_file(plan)
            retry_losses_alone()
            tune_state.give_state_to_keepers(SHARE_OF_TIME)
            tune_state.keep_what_is_read()
            with temporary_environment(OF_TUNE):
                results = self._run_tune(kept)
        except BaseException as error:
            self.run.fail(error)
            if isinstance(error, AssertionError):  # Tune's, of a searcher that was restored where its trials were not
                self.run.on_disk.check_restored()
            raise
        finally:
            lock.release()
        ending = [] if plan.called else self.ending_lines()  # which the command line prints as errors
        print("\n".join(["", *ending, *self._result_lines()]), flush=True)
        return results

    def _run_tune(self, kept: KeptState | None) -> tune.ResultGrid:
        """Run Ray's own Tuner, which goes on from the state that was put back if there is one."""
        trainable = self._trainable()
        # A resumed Tuner takes its settings from what this one writes, and the sweep's state from what it finds.
        self._tuner = tune.Tuner(trainable, tune_config=self._tune_config(), run_config=self._run_config())
        if kept is not None:
            self.run.on_disk.expect(kept.numbers)
            with ray_tune.no_earlier_results():
                self._tuner = tune.Tuner.restore(str(self.plan.folder), trainable, resume_unfinished=True)
        return self._tuner.fit()

    def ending_lines(self) -> list[str]:
        """Return why the sweep has no result, or ended early and how to go on with it; none if it ran to its end."""
        summary, state = self.run.summary, self.run.state
        assert summary is not None, "the sweep is over"
        if summary["complete"]:
            where = ", ".join([str(self.plan.report_file), *map(in_words, self.run.trackers)])
            return [f"error: {summary['failed']}; see {where}"] if summary["failed"] else []
        counts = Counter(summary["trials"])
        counts["not begun"] = state.expected - counts.total()
        how_many = ", ".join(f"{count} {how}" for how, count in counts.items() if count)
        return [
            f"the sweep ended early: {(summary['ended_early'] or {'why': 'interrupted'})['why']}",
            f"of {state.expected} trials: {how_many}",
            START_AGAIN if is_useless(summary) else f"resume it with: {self.plan.how_to_resume()}",
        ]

    @classmethod
    def restore(cls, *args: Any, **more: Any) -> NoReturn:
        """Refuse: Tune would make a plain Tuner, which knows only its own part of a sweep."""
        raise SweepError(NO_RESTORE)

    def get_results(self) -> tune.ResultGrid:
        """Return the results of the sweep that ``fit()`` ran; before, those of the one that is to go on, so far."""
        if self._tuner is not None:
            return self._tuner.get_results()
        if not self.plan.resumed:
            raise RuntimeError("get_results() has nothing to return before fit()")
        return results_so_far(self.plan.folder)

    def _result_lines(self) -> list[str]:
        plan, summary, trackers = self.plan, self.run.summary, self.run.trackers
        assert summary is not None, "the sweep is over"
        models = [("model", line) for tracker in trackers if (line := tracker.load_line()) is not None]
        addresses = [(tracker.name, in_words(tracker)) for tracker in trackers]
        lines = result_lines(plan.folder, summary, [*models, *addresses])
        published = plan.experiment.published
        if not plan.options.baseline_only or not plan.repeats_published or published is None or not summary["best"]:
            return lines
        return [*compared(reports_of(plan.folder, summary["best"]["trial"]), plan, published), "", *lines]

    def _trainable(self) -> Any:
        plan, experiment, options = self.plan, self.plan.experiment, self.plan.options
        spec = WorkerGroupSpec(
            train_loop=experiment.train_loop,
            num_workers=options.workers_per_trial,
            device=plan.devices.type,
            storage=str(plan.folder / "worker_groups"),
            over_nodes=options.workers_per_trial > max(plan.devices.nodes),
            hung_after_s=60 * (options.hang_minutes or 0),
        )
        profile: tuple[str, Profile] | None = None
        if (wanted := options.profiled) is not None:
            name, steps = trial_name(wanted[0]), wanted[1]
            profile = name, Profile(steps, str(plan.folder / name / TRACE_FILE))
        return tune.with_resources(
            warm_trainable(
                spec=spec,
                settings=plan.settings,
                environment_of=experiment.config_class.environment_of,
                objectives=[objective.name for objective in plan.objectives],
                retries=options.retries or 0,
                profile=profile,
            ),
            tune.PlacementGroupFactory([{"memory": TRIAL_ACTOR_MEMORY}]),
        )

    def _tune_config(self) -> tune.TuneConfig:
        return tune.TuneConfig(
            metric=self.plan.experiment.metric,
            mode=self.plan.experiment.mode,
            search_alg=self.run.searcher,
            scheduler=SweepScheduler(self.run, self.run.scheduler),
            num_samples=-1,  # the searcher counts: Tune ends the group of a paused trial once it has had the last one
            max_concurrent_trials=self.plan.groups,
            reuse_actors=True,
            trial_name_creator=name_of,
            trial_dirname_creator=name_of,
        )

    def _run_config(self) -> tune.RunConfig:
        plan = self.plan
        return tune.RunConfig(
            name=plan.name,
            storage_path=str(plan.folder.parent),
            callbacks=[self.run, self.run.on_disk, ray_tune.JsonLogger(2 * plan.groups), *self._callbacks],
            failure_config=tune.FailureConfig(max_failures=plan.options.retries or 0),
            checkpoint_config=tune.CheckpointConfig(
                # pbt: a trial takes over what another saved a while ago
                num_to_keep=None if plan.options.scheduler == "pbt" else 1,
                checkpoint_score_attribute=plan.experiment.metric,
                checkpoint_score_order=plan.experiment.mode,
                checkpoint_at_end=False,  # Tune's default for a class, which would save every trial
            ),
            verbose=0,
        )


def retry_losses_alone() -> None:
    """Have Tune try a trial again whose trial actor or node is lost, however Ray says so, and no other."""
    ray_tune.never_retry((WorkerRaisedError, LostTooOftenError))
    ray_tune.take_for_lost_actors(LOSS_ERRORS, text_of)
