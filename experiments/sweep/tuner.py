"""From an experiment to Ray's own Tuner."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import ray
from optuna.storages import BaseStorage
from pydantic import TypeAdapter, ValidationError
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback
from ray.tune.schedulers import TrialScheduler

from experiments.sweep.checkpoint_budget import KeepToBudget
from experiments.sweep.checkpoints import ChooseCheckpoints
from experiments.sweep.errors import SweepError
from experiments.sweep.experiment import Experiment
from experiments.sweep.ledger import Ledger
from experiments.sweep.options import SweepOptions
from experiments.sweep.orphans import FreeOrphans
from experiments.sweep.outcome import number_of, trial_name
from experiments.sweep.pictures.drawing import DrawPictures
from experiments.sweep.plan import Plan, make_plan
from experiments.sweep.progress import ShowProgress
from experiments.sweep.resume import KeepSnapshots, make_ready
from experiments.sweep.retries import leave_errors_of_workers, take_killed_actors_for_lost
from experiments.sweep.schedulers.by_name import KeepState, TrialEnds, make_scheduler
from experiments.sweep.search.searcher import StudySearcher
from experiments.sweep.search.study_record import study_address
from experiments.sweep.stopping import StopSweep
from experiments.sweep.summary import WriteSummary
from experiments.sweep.sweep_file import write_sweep_file
from experiments.sweep.tracking.mlflow_callback import MlflowTracking
from trainables.runtime.device import CPUS_PER_WORKER
from trainables.runtime.warm_trainable import WarmTrainable
from trainables.runtime.worker_group import WorkerGroupSpec

RAY_TOKEN = Path.home() / ".ray" / "auth_token"
"""What Ray asks of everyone who comes to its ports."""
TRIAL_ACTOR_MEMORY = 300 * 2**20
"""Bytes of memory that a trial actor books at Ray. It must book something, and must not book what the workers need:
their own TorchTrainer books that."""
ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",  # with verbose=0, leaves the terminal to our own progress
    # Each checkpoint that replaces another makes Tune write its state, which is what makes a crash harmless.
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    # Seconds between two snapshots of the sweep's state: what a crash costs besides the work since a checkpoint.
    "TUNE_GLOBAL_CHECKPOINT_S": "5",
    # Tune's own loggers are named below, without TensorBoard's, which takes 5 ms of the event loop per report.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
}
"""Settings of Ray in this process, unless the user has set them."""


def build_tuner(experiment: Experiment, options: SweepOptions | None = None, **changes: Any) -> tune.Tuner:
    """Return a Tuner whose ``fit()`` runs the sweep and returns Ray's ``ResultGrid``.

    Starts Ray on this machine unless it runs already (``ray.shutdown()`` ends it); starts no worker.

    Args:
        experiment: What to tune.
        options: What to ask of the sweep; the defaults if None.
        **changes: Fields of :class:`SweepOptions` that differ, for example ``num_samples=50``.

    Raises:
        SweepError: The sweep cannot work, with rule, value and mend.
    """
    known = [field.name for field in fields(SweepOptions)]
    unknown = sorted(set(changes) - set(known))
    if unknown:
        raise SweepError(f"build_tuner() has no option {', '.join(unknown)}; its options: {', '.join(known)}")
    try:
        given = TypeAdapter(SweepOptions).validate_python(asdict(replace(options or SweepOptions(), **changes)))
    except ValidationError as error:
        wrong = "; ".join(f"{e['loc'][0]}={e['input']!r}: {e['msg']}" for e in error.errors())
        raise SweepError(f"build_tuner(): {wrong}") from error
    return tuner_of(make_plan(experiment, given))


def tuner_of(
    plan: Plan, scheduler: TrialScheduler | None = None, callbacks: Sequence[tune.Callback] = ()
) -> tune.Tuner:
    """Return the Tuner of a plan.

    Args:
        plan: What was decided and checked.
        scheduler: Takes the place of the scheduler that the plan names.
        callbacks: Called beside the sweep's own.
    """
    start_ray(plan)
    if plan.resumed:
        make_ready(plan.folder, plan.options.retries)
    try:
        plan.folder.mkdir(parents=True, exist_ok=plan.resumed)
    except FileExistsError as error:  # it was not there when that was checked
        raise SweepError(f"{plan.folder}: another sweep of this name began just now; give yours a --name") from error
    write_sweep_file(plan.folder, plan.experiment, plan.groups, plan.decided())
    experiment, options, ledger = plan.experiment, plan.options, Ledger(plan)
    tracking = MlflowTracking(plan, ledger)
    checkpoints = ChooseCheckpoints(experiment, options.checkpoint_minutes * 60)
    searcher = make_searcher(plan)
    stopping = StopSweep(plan, searcher)
    summary, progress = WriteSummary(plan, ledger, tracking, stopping), ShowProgress(plan, stopping)
    pictures = DrawPictures(plan, searcher, ledger, summary, tracking)
    scheduler = scheduler or scheduler_of(plan)
    # The budget before the summary, which names no checkpoint that is gone.
    own = [KeepSnapshots(plan.folder, resumed=plan.resumed)]
    own += [stopping, checkpoints, KeepToBudget(plan, scheduler), ledger, summary, progress, pictures, tracking]
    own += [FreeOrphans(), KeepState(scheduler)]
    leave_errors_of_workers()
    take_killed_actors_for_lost()
    spec = WorkerGroupSpec(
        train_loop=experiment.train_loop,
        num_workers=options.workers_per_trial,
        device=plan.devices.type,
        storage=str(plan.folder / "worker_groups"),
        over_nodes=options.workers_per_trial > max(plan.devices.nodes),
        hung_after_s=60 * options.hang_minutes,
    )
    trainable = tune.with_resources(
        tune.with_parameters(
            WarmTrainable,
            spec=spec,
            settings=plan.settings,
            environment_of=experiment.worker_environment,
            metric=experiment.metric,
            retries=options.retries,
        ),
        tune.PlacementGroupFactory([{"memory": TRIAL_ACTOR_MEMORY}]),
    )
    tuner = tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            metric=experiment.metric,
            mode=experiment.mode,
            search_alg=searcher,
            scheduler=scheduler,
            num_samples=-1,  # the searcher counts: Tune ends the group of a paused trial once it has had the last one
            max_concurrent_trials=plan.groups,
            reuse_actors=True,
            trial_name_creator=name_of,
            trial_dirname_creator=name_of,
        ),
        run_config=tune.RunConfig(
            name=plan.name,
            storage_path=str(plan.folder.parent),
            stop=TrialEnds(experiment.metric, plan.budget),
            callbacks=[*own, JsonLoggerCallback(), CSVLoggerCallback(), *callbacks],
            failure_config=tune.FailureConfig(max_failures=options.retries),
            checkpoint_config=tune.CheckpointConfig(
                # pbt: a trial takes over what another saved a while ago
                num_to_keep=None if options.scheduler == "pbt" else 1,
                checkpoint_score_attribute=experiment.metric,
                checkpoint_score_order=experiment.mode,
                checkpoint_at_end=False,  # Tune's default for a class, which would save every trial
            ),
            verbose=0,
        ),
    )
    # What Tune keeps of its settings is written anew above; of the sweep's state it reads what it finds.
    return tune.Tuner.restore(str(plan.folder), trainable, resume_unfinished=True) if plan.resumed else tuner


def make_searcher(plan: Plan, storage: BaseStorage | None = None) -> StudySearcher:
    """Return the searcher of a plan, its study in the sweep's folder unless it is to be in ``storage``."""
    return StudySearcher(
        plan.experiment.space,
        metric=plan.experiment.metric,
        mode=plan.experiment.mode,
        baseline=plan.experiment.baseline,
        sampler=plan.options.search,
        seed=plan.options.seed,
        study_name=plan.name,
        storage=storage or study_address(plan.folder),
        budget=plan.budget,
        num_trials=plan.num_samples,
    )


def scheduler_of(plan: Plan) -> TrialScheduler:
    """Return the scheduler of a plan."""
    return make_scheduler(
        "fifo" if plan.options.baseline_only else plan.options.scheduler,
        plan.budget,
        space=plan.experiment.space,
        trials=plan.num_samples,
        groups=plan.groups,
    )


def start_ray(plan: Plan) -> None:
    """Start a Ray of this sweep's own on this machine, unless one is joined already."""
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    if ray.is_initialized():
        return
    # Every device has a worker that books cores; a host with fewer cores than that is slow, and still right.
    needed = plan.devices.count * CPUS_PER_WORKER
    cores = needed if plan.devices.type.kind == "cpu" else max(needed, os.cpu_count() or 1)
    # Ray turns its token authentication on and warns that it did.
    logging.getLogger("ray._private.authentication.authentication_token_setup").setLevel(logging.ERROR)
    # Without the dashboard Ray Train never gives back the devices of a group whose trial actor is gone (ray#54305).
    ray.init("local", num_cpus=cores, include_dashboard=True, log_to_driver=False, logging_level="warning")
    with suppress(OSError):  # there is none, or it is another's
        RAY_TOKEN.chmod(0o600)  # Ray writes it for all users of the machine to read


def name_of(trial: Trial) -> str:
    """Return the name that Tune gives a trial and its folder."""
    return trial_name(number_of(trial))
