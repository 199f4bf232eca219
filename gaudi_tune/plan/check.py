"""Whether a planned sweep can run, or go on: its search space, its train loop, its data and model.

Everything is tried in this process, and nothing written. What cannot work is a SweepError.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from dataclasses import replace
from typing import Any

from ray import cloudpickle
from ray.util import inspect_serializability

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.plan.connect import added_to_sys_path
from gaudi_tune.private.ray_core import CLASS_MAY_HAVE
from gaudi_tune.sweep.record.sweep_file import SweepFile
from gaudi_tune.training.training_config import TrainingConfig, check_batch

SENT_BESIDES = 10**6
"""Bytes for what goes to a trial actor with the train loop: its class, and the settings."""
KEEPS_PARAMETERS = "ray.tune.registry"
"""Has what ``tune.with_parameters`` keeps data in, which is pickled here and in Ray's object store once that runs."""


def check(plan: Plan, own: SweepFile | None) -> list[str]:
    """See that the sweep can run, or go on from what its ``own`` file says, and return what the experiment's own check
    found.
    """
    check_profile(plan)
    if own is not None:
        check_same(plan, own)
    check_sent(plan)
    return check_trials(plan)


def check_same(plan: Plan, own: SweepFile) -> None:
    """See that what a sweep searches is what it was when it began, and that it has as much room; else a SweepError."""
    before, now = own.objectives[0], str(plan.experiment.objective)
    if before != now:
        raise SweepError(
            f"--resume {plan.name}: the sweep's objective is {before}, and the experiment's is {now}; a study has one "
            f"objective: put back what it was, or start a new sweep"
        )
    old, new = own.space, plan.experiment.search_space.describe()
    if changed := sorted(name for name in {*old, *new} if old.get(name) != new.get(name)):
        raise SweepError(
            f"--resume {plan.name}: the search space has changed for {', '.join(changed)}, and a sweep keeps its own; "
            f"put back what it was, or start a new sweep"
        )
    if plan.groups < min(own.groups, plan.num_samples):
        raise SweepError(
            f"--resume {plan.name}: the sweep had {own.groups} trials at a time, and there is room for {plan.groups}; "
            f"resume it where there are as many devices"
        )


def check_sent(plan: Plan) -> None:
    """See that the train loop and its configuration class reach a worker: by name where they are in a module, else by
    value.
    """
    experiment, joined = plan.experiment, plan.cluster is not None
    experiment.config_class.resolve_types()
    for what, sent in (("train_loop", experiment.train_loop), ("config_class", experiment.config_class)):
        try:
            reader = _Reader(io.BytesIO(pickled := cloudpickle.dumps(sent)))
            reader.load()
        except Exception as error:
            _, found = inspect_serializability(sent, name=what, print_file=io.StringIO())
            paths = sorted(f"{' -> '.join(map(str, one.path))} is a {type(one.obj).__name__}" for one in found)
            raise SweepError(
                f"{what} cannot be sent to a worker ({error}){''.join(f'; {path}' for path in paths)}. Make it inside "
                f"the train loop, or in a module of yours that the train loop imports"
            ) from error
        packages = {module.partition(".")[0] for module in reader.modules}
        if lost := sorted(name for name in packages if not _found_by_workers(name, joined=joined)):
            where = "PYTHONPATH before you start Ray" if joined else "sys.path"
            raise SweepError(
                f"{what} uses the module {', '.join(lost)}, and no worker can find it; add its folder to {where}, or "
                f"put it next to your script"
            )
        if len(pickled) > CLASS_MAY_HAVE - SENT_BESIDES and KEEPS_PARAMETERS not in reader.modules:
            raise SweepError(
                f"{what} uses {len(pickled) / 1e6:.0f} MB of data that would be sent with it, and Ray sends at most "
                f"{CLASS_MAY_HAVE / 1e6:.0f} MB; load the data inside the train loop, or give it to the Experiment as "
                f"tune.with_parameters(train_loop, data=...)"
            )


def _found_by_workers(module: str, *, joined: bool) -> bool:
    """Whether a worker, perhaps of a Ray that was joined, can import a module, which this process has, by its name."""
    specs = [finder.find_spec(module, None) for finder in sys.meta_path if hasattr(finder, "find_spec")]
    spec = next((spec for spec in specs if spec is not None), None)
    if spec is None or not joined:  # a Ray that the sweep starts has all of sys.path
        return spec is not None
    places = spec.submodule_search_locations or [spec.origin or ""]
    return os.path.dirname(places[0]) not in added_to_sys_path()


class _Reader(pickle.Unpickler):
    """Notes from which modules something pickled is put together."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.modules: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        """Return an object of a module, and note that."""
        self.modules.add(module)
        return super().find_class(module, name)


def check_profile(plan: Plan) -> None:
    """See that there is a trial to profile, whose steps are known."""
    if (wanted := plan.options.profiled) is None:
        return
    trials, experiment = plan.num_samples + plan.confirmations, plan.experiment
    if wanted[0] > trials:
        raise SweepError(f"--profile {plan.options.profile}: there is no trial {wanted[0]}; give one of 1 to {trials}")
    if not issubclass(experiment.config_class, TrainingConfig):
        raise SweepError(
            f"--profile {plan.options.profile}: only the shared train loop can be traced, and {experiment.name} "
            f"has another; call torch.profiler in it"
        )
    if plan.settings.get("eval_every") == 1:
        raise SweepError(
            f"--profile {plan.options.profile}: a trace has steps before the first report but for the first step, and "
            f"with --eval-every 1 there are none; give --eval-every 2 or more"
        )


def check_trials(plan: Plan) -> list[str]:
    """See that the baseline (else any proposal) can load its data and model, and train on every batch size of the
    space. Returns what the experiment's own check found.
    """
    experiment, workers = plan.experiment, plan.options.workers_per_trial
    config = experiment.config_with(plan.settings)
    try:
        if isinstance(config, TrainingConfig):
            sizes = sorted({config.batch_size, *experiment.search_space.values("batch_size")})
            for size in sizes:
                try:
                    check_batch(replace(config, batch_size=size), workers, samples=size)
                except ValueError as error:  # noqa: PERF203
                    there = ", ".join(map(str, sizes))
                    raise SweepError(
                        f"--workers-per-trial {workers}: {error}; the search space has {there}: take another width, or "
                        f"--set batch_size=N"
                    ) from error
            config = replace(config, batch_size=sizes[-1])
        return experiment.check(config) if experiment.check is not None else []
    except (ValueError, OSError) as error:
        raise SweepError(str(error)) from error
