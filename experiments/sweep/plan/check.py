"""Whether a planned sweep can run: its sampler, its train loop, its data and model.

Everything is tried in this process, and nothing written. What cannot work is a SweepError.
"""

from __future__ import annotations

import copy
import io
import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
import ray
from ray import cloudpickle
from ray.util import inspect_serializability

import trainables
from experiments.sweep.decide.schedulers.population import check_changeable
from experiments.sweep.decide.search.samplers import make_sampler, own_sampler
from experiments.sweep.define.errors import SweepError
from experiments.sweep.define.experiment import Experiment
from experiments.sweep.define.options import profiled
from experiments.sweep.define.plan import Plan
from experiments.sweep.plan.connect import added_to_sys_path
from trainables.runtime.training.training_config import TrainingConfig, check_batch

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

OURS = Path(str(trainables.__file__)).parent
"""The package that every worker imports."""


def check(plan: Plan, sampler: BaseSampler | None = None) -> Plan:
    """See that the sweep can run, and return its plan with what was found. A ``sampler`` takes the place of the one
    that the options name.
    """
    check_profile(plan)
    sampler = check_search(plan, sampler)
    check_sent(plan.experiment)
    return replace(plan, sampler=sampler, facts=check_trials(plan))


def check_sent(experiment: Experiment) -> None:
    """See that the train loop and its configuration class reach a worker: by name where they are in a module, else by
    value.
    """
    experiment.config_class.resolve_types()
    there = (Path(folder).absolute() / OURS.name for folder in sys.path)
    found = next((folder for folder in there if (folder / "__init__.py").is_file()), OURS)
    if found.resolve() != OURS.resolve():
        raise SweepError(f"{found} hides the package trainables of gaudi-tune from the workers; give it another name")
    for what, sent in (("train_loop", experiment.train_loop), ("config_class", experiment.config_class)):
        try:
            reader = _Reader(io.BytesIO(cloudpickle.dumps(sent)))
            reader.load()
        except Exception as error:
            _, found = inspect_serializability(sent, name=what, print_file=io.StringIO())
            paths = sorted(f"{' -> '.join(map(str, one.path))} is a {type(one.obj).__name__}" for one in found)
            raise SweepError(
                f"{what} cannot be sent to a worker ({error}){''.join(f'; {path}' for path in paths)}. Make it inside "
                f"the train loop, or in a module of yours that the train loop imports"
            ) from error
        if lost := sorted(name for name in reader.modules if not _found_by_workers(name)):
            where = "PYTHONPATH before you start Ray" if ray.is_initialized() else "sys.path"
            raise SweepError(
                f"{what} uses the module {', '.join(lost)}, and no worker can find it; add its folder to {where}, or "
                f"put it next to your script"
            )


def _found_by_workers(module: str) -> bool:
    """Whether a worker can import a module, which this process has, by its name."""
    specs = [finder.find_spec(module, None) for finder in sys.meta_path if hasattr(finder, "find_spec")]
    spec = next((spec for spec in specs if spec is not None), None)
    if spec is None or not ray.is_initialized():  # a Ray that the sweep starts has all of sys.path
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
        self.modules.add(module.partition(".")[0])
        return super().find_class(module, name)


def check_search(plan: Plan, sampler: BaseSampler | None) -> BaseSampler | None:
    """See that the sampler can be made, and proposes from this space before and after it has a value.

    Returns:
        The one that the user brought, in Python or by the name of a module; None for those that have names.
    """
    search, space = plan.options.search, plan.experiment.search_space
    sampler = sampler or own_sampler(search, plan.options.seed)
    tried = make_sampler(search, plan.options.seed) if sampler is None else copy.deepcopy(sampler)
    study = optuna.create_study(sampler=tried, directions=["minimize"] * len(plan.objectives))
    try:
        for value in range(2):
            _, number = space.propose(study)
            study.tell(number, [float(value)] * len(plan.objectives))
        space.propose(study)
    except SweepError:
        raise
    except Exception as error:
        # Each sampler has its own needs: a package that is not installed, ranges of one kind, one objective.
        raise SweepError(f"--search {search}: this sampler cannot search this space ({error})") from error
    if plan.options.scheduler == "pbt":
        check_changeable(space)
    return sampler


def check_profile(plan: Plan) -> None:
    """See that there is a trial to profile, whose steps are known."""
    if (wanted := profiled(plan.options.profile)) is None:
        return
    trials, experiment = plan.num_samples + plan.confirmations, plan.experiment
    if wanted[0] > trials:
        raise SweepError(f"--profile {plan.options.profile}: the sweep has trials 1 to {trials}; 1 is the baseline")
    if not issubclass(experiment.config_class, TrainingConfig):
        raise SweepError(
            f"--profile {plan.options.profile}: only the shared train loop can be traced, and {experiment.name} "
            f"has another; call torch.profiler in it"
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
                    raise SweepError(f"--workers-per-trial {workers}: {error}; the search space has {there}") from error
            config = replace(config, batch_size=sizes[-1])
        return experiment.check(config) if experiment.check is not None else []
    except (ValueError, OSError) as error:
        raise SweepError(str(error)) from error
