"""What a user may ask of a sweep: the fields are the options of every script and the arguments of build_tuner()."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import tyro
from pydantic import ByteSize, TypeAdapter, ValidationError

from experiments.sweep.errors import SweepError

PROJECT_ROOT = Path(__file__).resolve().parents[2]
DEFAULT_STORAGE = PROJECT_ROOT / "results"
SchedulerName: TypeAlias = Literal["asha", "asha-promote", "hyperband", "median", "pbt", "fifo"]


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Options of a sweep."""

    num_samples: int | None = None
    """Trials in the sweep, the baseline included. None: as the recipe says."""
    workers_per_trial: int = 1
    """Devices that train one trial together. As many trials run at a time as there are devices for."""
    recipe: Literal["full", "sample"] | None = None
    """full: the published recipe. sample: small, offline, minutes on a laptop. None: full where there is an
    accelerator, else sample."""
    device: Literal["auto", "hpu", "cuda", "cpu"] = "auto"
    """What to train on. auto: the first of hpu, cuda and cpu that is there."""
    data: str | None = None
    """Local file or folder, or name on the hub. None: as the recipe says."""
    model: str | None = None
    """Local folder with pretrained weights, or name on the hub. None: as the recipe says."""
    skip_bad_images: bool = False
    """Leave out image files that cannot be read. Otherwise they are an error."""
    epochs: int | None = None
    """Epochs of a trial that is not stopped early. None: as the recipe says."""
    steps: int | None = None
    """Optimizer steps of a trial that is not stopped early, in place of epochs. None: as the recipe says."""
    eval_every: int | None = None
    """Steps between two evaluations, where the budget is in steps. None: as the recipe says, else a tenth of it."""
    name: str | None = None
    """Name of the sweep. None: the experiment and the time."""
    resume: str | None = None
    """Name of a sweep in the storage that was interrupted, to go on with; it keeps the options that it began with."""
    add_trials: int = 0
    """With --resume: trials to add to the sweep, which may have finished."""
    storage: Path = DEFAULT_STORAGE
    """Folder for results and checkpoints; every node must see it at this path."""
    tracking_uri: str | None = None
    """MLflow tracking address. None: $MLFLOW_TRACKING_URI, else a local store under mlflow/store."""
    address: str | None = None
    """A running Ray cluster to join, for example auto. None: a Ray of this sweep's own on this machine."""
    seed: int = 0
    """Seeds the search and every trial."""
    search: str = "tpe"
    """Optuna sampler: tpe, random, gp, qmc, nsgaii or any other by its class name."""
    scheduler: SchedulerName = "asha"
    """asha ends a trial that is not in the best third of those that got as far, after 1, 3, 9, ... reports; in sweeps
    of 40 trials and more only after 3 as long as the order after 1 is seen to be another (the first 8 trials show it).
    asha-promote pauses it instead (with a checkpoint each time) and resumes it when it is. hyperband is asha in which
    some trials are first compared later, and some never. median ends what is worse than the middle of the others.
    pbt lets weak trials go on from the weights of strong ones with changed hyperparameters; its population are the
    trials that run at a time. fifo lets every trial finish."""
    retries: int = 3
    """How often a trial goes on from its last checkpoint after it lost workers. As often it does so in a new trial
    actor, where lost workers count anew: after the actor was lost, with its node or alone, got no workers, or lost them
    while they wrote a checkpoint. An error of the train loop is never tried again: it would come again."""
    checkpoint_minutes: float = 10.0
    """Minutes between two checkpoints of a trial, from which it goes on if something is lost; the best trials have
    theirs in any case. 0: after every report."""
    hang_minutes: float = 120.0
    """Minutes without a report after which a trial's workers are taken for hung, killed and replaced: longer than any
    epoch, compilation included. New workers have 10 minutes more to come. 0: never."""
    same_errors: int = 5
    """The sweep ends when so many trials in a row have failed with the same error, paths and numbers in it aside. A
    device out of memory does not count as such: that comes of a trial's configuration. 0: never."""
    time_budget: Annotated[float | None, tyro.conf.arg(metavar="MINUTES")] = None
    """Minutes after which the sweep ends, to be resumed or not. As with target, patience, same-errors and Ctrl-C,
    running trials write a checkpoint at their next report first."""
    target: float | None = None
    """Value of the metric at which the sweep ends, because it is good enough."""
    patience: int | None = None
    """The sweep ends when so many trials have ended without a better value."""
    checkpoint_budget: str | None = None
    """What all checkpoints of the sweep may take on disk, for example 10GB. Those of ended trials that are not the best
    are deleted when there is more, the worst first. None: no limit. A resumed sweep keeps it unless given another."""
    register: str | None = None
    """Name in MLflow's model registry under which the best trial's model becomes a new version with the alias best.
    None: the model is in MLflow, and not in its registry. A resumed sweep keeps the name unless given another."""
    baseline_only: bool = False
    """Train the published hyperparameters, and nothing else."""
    dry_run: bool = False
    """Check everything, print the plan and the first proposals, and stop before a worker starts."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="KEY=VALUE")] = ()
    """Other settings of the train loop, for example text_column=review, and hyperparameters not to be searched, for
    example batch_size=16; --dry-run lists them all."""

    @property
    def limits(self) -> list[str]:
        """The options given that may end the sweep before its last trial."""
        return [name for name in ("time_budget", "target", "patience") if getattr(self, name) is not None]


def bytes_of(given: str | None) -> int | None:
    """Return the number of bytes that the option ``--checkpoint-budget`` means; None for no limit.

    Raises:
        SweepError: It means none.
    """
    if given is None:
        return None
    try:
        limit = int(TypeAdapter(ByteSize).validate_python(given))
    except ValidationError:
        limit = 0
    if limit < 1:
        raise SweepError(
            f"--checkpoint-budget {given}: give a number of bytes above 0 with its unit, such as 10GB, 500MB or 2TiB"
        )
    return limit
