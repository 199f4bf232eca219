"""The Tuner of a sweep: made from an experiment, it runs Ray's own Tuner."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import ray
from optuna.samplers import BaseSampler
from ray import tune

from gaudi_tune.base.errors import SweepError, shown_plainly, written
from gaudi_tune.base.files import GROUPS_FOLDER, retry_while_disk_is_full
from gaudi_tune.base.kept_in_process import NO_RESTORE
from gaudi_tune.base.process import changed_environment, prepare_terminal, temporary_environment
from gaudi_tune.base.trial_output import note_place
from gaudi_tune.base.words import as_text
from gaudi_tune.define.config_file import with_file
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.options import COMMAND_LINE_ONLY, SweepOptions
from gaudi_tune.define.ranges import plain
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.group.errors import LOSS_ERRORS, LostTooOftenError, WorkerRaisedError, lost_actor
from gaudi_tune.group.last_written_checkpoint import drop_copies
from gaudi_tune.group.trainer import WorkerGroupSpec
from gaudi_tune.group.warm_trainable import warm_trainable
from gaudi_tune.on_ray.assemble import assemble
from gaudi_tune.on_ray.given.arguments import epochs_of, read_arguments, with_notes
from gaudi_tune.on_ray.given.trainable import experiment_of
from gaudi_tune.on_ray.local_ray import TUNE_NEEDS, TUNE_SETTINGS, start_ray
from gaudi_tune.on_ray.moved_sweep import take_over
from gaudi_tune.on_ray.trials import name_of, new_folder_of
from gaudi_tune.on_ray.tune_files import KeptState, put_back, read_kept_state, results_so_far
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.private import ray_tune, tune_state
from gaudi_tune.private.ray_core import logs_folder
from gaudi_tune.private.surfaces import variables_in
from gaudi_tune.show.plan_text import plan_lines
from gaudi_tune.show.summary import reopen_summary, search_of, summarise
from gaudi_tune.show.trackers.store import variables_of_runs
from gaudi_tune.show.trackers.tracker import TRACKERS, Tracker
from gaudi_tune.storage.fetch import fetch_rest
from gaudi_tune.sweep.record.lock import SweepLock
from gaudi_tune.sweep.record.sweep_file import write_sweep_file
from gaudi_tune.sweep.record.sweep_state import SweepState

TRIAL_ACTOR_MEMORY = 300 * 2**20
"""Bytes of memory that a trial actor reserves in a Ray of the sweep's own."""


@shown_plainly
def build_tuner(
    experiment: Experiment | Any,
    options: SweepOptions | None = None,
    *,
    sampler: BaseSampler | None = None,
    search_alg: Any = None,
    callbacks: Sequence[tune.Callback] = (),
    stop: Any = None,
    tune_config: tune.TuneConfig | None = None,
    run_config: tune.RunConfig | None = None,
    **changes: Any,
) -> tune.Tuner:
    """Print the plan, and return a Tuner whose ``fit()`` runs the sweep and returns Ray's ``ResultGrid``.

    Everything is decided and checked here. Only ``fit()`` starts Ray and workers, and writes files. It starts Ray on
    this machine unless this process has joined one; ``ray.shutdown()`` ends it.

    >>> from gaudi_tune import Experiment, build_tuner, report, tune
    >>> def train_loop(config):
    ...     for epoch in range(1, config["epochs"] + 1):
    ...         report({"loss": abs(config["lr"] - 0.01) + 1 / epoch})  # train your epoch here
    >>> experiment = Experiment(train_loop=train_loop, space={"lr": tune.loguniform(1e-4, 1e-1)}, metric="loss")
    >>> tuner = build_tuner(experiment, num_samples=8, device="cpu", name="first")
    sweep   first: 8 trials, ...
    >>> tuner.plan.options.num_samples  # tuner.fit() trains them
    8

    Args:
        experiment: What to tune; or, as for Ray's Tuner, a train function or a class, with its ``param_space``.
        options: What to ask of the sweep; the defaults if None.
        sampler: Proposes the trials instead of the sampler that the option ``search`` names, for example one of
            OptunaHub. Pass it again to resume the sweep; it then loses what it had kept outside the study.
        search_alg: A searcher of Ray Tune, which proposes the trials instead.
        callbacks: Ray Tune's callbacks and loggers. An error in one is logged, and the sweep continues.
        stop: Ray Tune's ``stop``: numbers by metric, a function of a trial's id and its result, or a Stopper. If
            nothing else gives the sweep a budget, ``{"training_iteration": N}`` is its budget, N epochs.
        tune_config: Ray Tune's configuration of the search. What cannot be honoured is an error.
        run_config: Ray Tune's configuration of the run, likewise.
        **changes: Fields of :class:`SweepOptions` that differ, for example ``num_samples=50``. ``scheduler`` may also
            be a scheduler of Ray Tune. Pass Ray's objects again to resume the sweep.

    Raises:
        SweepError: The sweep cannot work. The message names the rule, the value and the fix.
    """
    if not isinstance(experiment, Experiment):
        experiment = experiment_of(experiment, changes)
    if options is not None and not isinstance(options, SweepOptions):
        raise SweepError(
            f"build_tuner(experiment, {written(options)}): the second argument is a SweepOptions; name the argument, "
            f"such as num_samples=8, tune_config=... or scheduler=ASHAScheduler()"
        )
    usual = vars(SweepOptions())
    explicit = {name: value for name, value in vars(options or SweepOptions()).items() if plain(value) != usual[name]}
    arguments = {"sampler": sampler, "search_alg": search_alg, "callbacks": callbacks, "stop": stop}
    arguments |= {"tune_config": tune_config, "run_config": run_config, **explicit, **changes}
    experiment, objects, changes = read_arguments(experiment, arguments)
    options = with_file(changes)
    options = replace(options, epochs=epochs_of(objects, experiment, options))
    prepare_terminal()
    refused = [name for name in COMMAND_LINE_ONLY if getattr(options, name)]
    if refused:
        raise SweepError(
            f"build_tuner() does not take {' and '.join(refused)}, which the command line does; leave that out: "
            f"build_tuner() only plans and checks, and fit() starts the sweep"
        )
    plan = with_notes(make_plan(experiment, options, objects))
    print(as_text(plan_lines(plan)), flush=True)
    return SweepTuner(plan)


class SweepTuner(tune.Tuner):
    """Ray's Tuner of a planned sweep. It writes, starts and patches nothing before ``fit()``."""

    def __init__(
        self, plan: Plan, callbacks: Sequence[tune.Callback] = (), trackers: Sequence[Tracker] | None = None
    ) -> None:
        """Prepare only: nothing is started.

        ``callbacks`` are called after the sweep's own. ``trackers`` replace the usual ones.
        """
        # super().__init__() would write to the sweep's folder. fit() makes the Tuner that does the work.
        self.plan = plan
        self._callbacks = list(callbacks)
        trackers = [make(plan) for make in TRACKERS.values()] if trackers is None else trackers
        self.run = assemble(plan, trackers)
        self._tuner: tune.Tuner | None = None

    @shown_plainly
    def fit(self) -> tune.ResultGrid:
        """Run the sweep, as ``ray.tune.Tuner.fit()`` does.

        Raises a SweepError if this Tuner has run, another sweep of this name has begun, the sweep cannot be resumed, or
        the user's sampler, search algorithm or space has failed and ended it.
        """
        plan = self.plan
        if self._tuner is not None:
            raise SweepError(
                f"{plan.name}: this Tuner has run its sweep; go on with it, or add trials, with another: "
                f"{plan.how_to_resume(with_more_trials=True)}"
            )
        start_ray(plan)
        try:
            plan.folder.mkdir(parents=True, exist_ok=plan.stored_folder == plan.folder and plan.resumed)
        except FileExistsError as error:  # the folder did not exist when the plan was checked
            raise SweepError(
                f"{plan.folder}: another sweep of this name has just begun; give yours a --name"
            ) from error
        lock, mirror = SweepLock(plan.folder), self.run.mirror
        try:
            if mirror is not None:
                mirror.take(plan.owner)
            if plan.fetched_from is not None:
                fetch_rest(*plan.fetched_from)
            # Read the state while holding the lock: another Tuner could add trials before, and put_back() would move
            # them. Read it before writing anything: the sweep stays as it is if its state cannot be read in full.
            state = read_kept_state(plan.stored_folder, self.run.on_disk.restore) if plan.resumed else None
            if state is not None:
                take_over(plan)
                drop_copies(plan.folder)
                put_back(state, plan.folder, plan.options.retries or 0)
                reopen_summary(plan.folder)
            write_sweep_file(plan)
            note_place(plan.folder, logs_folder())
            if mirror is not None:
                mirror.start()
            retry_losses_alone()
            ray_tune.delete_in_thread()
            tune_state.write_state_at_end()
            with temporary_environment(TUNE_SETTINGS), changed_environment(TUNE_NEEDS):
                return self._run_tune(state)
        except BaseException as error:  # whatever ends Tune: the sweep is closed, and the error raised
            self.run.fail(error)
            if isinstance(error, AssertionError):  # Tune asserts that it restored the trials of a restored searcher
                self.run.on_disk.check_restored()
            raise
        finally:
            if mirror is not None:
                mirror.close()
            lock.release()

    def _run_tune(self, state: KeptState | None) -> tune.ResultGrid:
        """Run Ray's own Tuner, which continues from ``state`` if there is one."""
        trainable = self._trainable()
        # A restored Tuner reads its settings from files that this one writes, and the state from those put back.
        self._tuner = tune.Tuner(trainable, tune_config=self._tune_config(), run_config=self._run_config())
        if state is not None:
            self.run.on_disk.expect(state.numbers)
            with ray_tune.no_earlier_results():
                self._tuner = tune.Tuner.restore(str(self.plan.folder), trainable, resume_unfinished=True)
        with ray_tune.quick_trial_starts():
            results = self._tuner.fit()
        if self.run.early_end.search_error is not None and not self.plan.command:  # which prints it as an error
            raise self.run.early_end.search_error
        return results

    def check_resume(self) -> SweepState:
        """Read the state of a sweep that is to be resumed as :meth:`fit` does, but as data, and return it.

        Raises:
            SweepError: The sweep cannot be resumed from it.
            Exception: It is damaged. Each kind of damage raises its own.
        """
        read_kept_state(self.plan.stored_folder, self.run.on_disk.restore, as_data=True)
        summarise(self.plan, self.run.state, {})  # as the end of the sweep does
        search_of(self.plan, self.run.state)
        return self.run.state

    @classmethod
    def restore(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: Tune would make a plain Tuner, which knows only its own part of a sweep."""
        raise SweepError(NO_RESTORE)

    def get_results(self) -> tune.ResultGrid:
        """Return the results of the sweep that ``fit()`` ran, or before that the results so far of a resumed sweep."""
        if self._tuner is not None:
            return self._tuner.get_results()
        if not self.plan.resumed:
            raise RuntimeError("get_results() has nothing to return before fit()")
        objective = self.plan.objectives[0]
        return results_so_far(self.plan.stored_folder, default_metric=objective.name, default_mode=objective.mode)

    def _trainable(self) -> Any:
        plan, experiment, options = self.plan, self.plan.experiment, self.plan.options
        spec = WorkerGroupSpec(
            train_loop=experiment.train_loop,
            num_workers=options.workers_per_trial,
            device=plan.devices.type,
            trials_per_device=plan.trials_per_device,
            storage=str(plan.folder / GROUPS_FOLDER),
            over_nodes=options.workers_per_trial > max(plan.devices.nodes),
            hung_after_s=60 * (options.hang_minutes or 0),
            later_environment={**variables_of_runs(plan), **variables_in(os.environ)},
        )
        return tune.with_resources(
            warm_trainable(
                spec=spec,
                settings=plan.settings,
                environment_of=experiment.config_class.environment_of,
                objectives=[objective.name for objective in plan.objectives],
                retries=options.retries or 0,
                folder=str(plan.folder),
            ),
            tune.PlacementGroupFactory([self._reserved_by_trial_actor()]),
        )

    def _reserved_by_trial_actor(self) -> dict[str, float]:
        """Return what a trial actor reserves in Ray: little, since its workers reserve what they need.

        In a cluster that keeps it on this node, since others may not see the folder of the sweep: Ray gives each node
        1.0 of a resource with its address.
        """
        if self.plan.cluster is None:
            return {"memory": TRIAL_ACTOR_MEMORY}
        return {f"node:{ray.util.get_node_ip_address()}": 0.001}

    def _tune_config(self) -> tune.TuneConfig:
        return tune.TuneConfig(
            metric=self.plan.experiment.metric,
            mode=self.plan.objectives[0].mode,
            search_alg=self.run.searcher,
            scheduler=self.run.scheduler,
            # The searcher counts the trials. If Tune did, it would end worker groups of paused trials after the last.
            num_samples=-1,
            max_concurrent_trials=self.plan.groups,
            reuse_actors=True,
            trial_name_creator=name_of,
            trial_dirname_creator=new_folder_of,
        )

    def _run_config(self) -> tune.RunConfig:
        plan = self.plan
        return tune.RunConfig(
            name=plan.name,
            storage_path=str(plan.folder.parent),
            callbacks=[
                self.run,
                self.run.on_disk,
                ray_tune.json_logger(2 * plan.groups, retry_while_disk_is_full),
                *self.run.user_callbacks,
                *self._callbacks,
            ],
            failure_config=tune.FailureConfig(max_failures=plan.options.retries or 0),
            checkpoint_config=tune.CheckpointConfig(
                # A clone may take over an older checkpoint of another trial.
                num_to_keep=None if self.run.scheduler.policy.clones else 1,
                checkpoint_score_attribute=plan.experiment.metric,
                checkpoint_score_order=plan.objectives[0].mode,
                checkpoint_at_end=False,  # by default Tune would save every trial at its end
            ),
            verbose=0,
            progress_reporter=tune.CLIReporter(),  # Tune's own choice for a notebook clears the output of the cell
        )


def retry_losses_alone() -> None:
    """Have Tune retry a trial whose trial actor or node is lost, whichever error of Ray says so, and no other."""
    ray_tune.never_retry((WorkerRaisedError, LostTooOftenError))
    ray_tune.take_for_lost_actors(LOSS_ERRORS, lost_actor)
