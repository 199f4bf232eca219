"""Checking that a planned sweep can run or be resumed: its search space, its train loop, its data and model.

Everything is tried in this process, and nothing is written. What cannot work raises a SweepError.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from ray import cloudpickle
from ray.util import inspect_serializability
from typing_extensions import override

from gaudi_tune.base.errors import USER_CODE_ERRORS, SweepError, users_error
from gaudi_tune.base.module_folders import folders_unknown_to_workers
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.private.cloudpickle import forget_classes
from gaudi_tune.private.ray_core import MAX_CLASS_BYTES
from gaudi_tune.sweep.record.sweep_file import SweepFile

RESERVED_BYTES = 10**6
"""Bytes of Ray's limit that are kept for what goes to a trial actor besides the train loop: its class, and settings."""
PARAMETERS_MODULE = "ray.tune.registry"
"""The module of the class that holds the data of ``tune.with_parameters``. It is pickled here, before Ray runs; later
Ray puts that data into its object store, so that its size does not matter."""


def check(plan: Plan, sweep_file: SweepFile | None) -> list[str]:
    """Check that the sweep can run, and return the facts that the experiment's own check reports.

    ``sweep_file`` is the file of a sweep that is resumed, else None.
    """
    if sweep_file is not None:
        check_unchanged(plan, sweep_file)
    check_pickled(plan)
    for module in plan.experiment.imports:
        if not module or not _found_by_workers(module.partition(".")[0], joined=plan.cluster is not None):
            raise SweepError(f"imports: no worker can find the module {module!r}; install it, or leave it out")
    return check_trials(plan)


def check_unchanged(plan: Plan, sweep_file: SweepFile) -> None:
    """Check that a resumed sweep has the objective and the search space with which it began, and as much room."""
    objectives = [str(plan.experiment.objective), *map(str, plan.objectives[1:])]
    if sweep_file.objectives != objectives:
        raise SweepError(
            f"--resume {plan.name}: the sweep's objective is {', '.join(sweep_file.objectives)}, and the experiment's "
            f"is {', '.join(objectives)}, and a sweep keeps its own; put back what it was, or start a new sweep"
        )
    old_space, new_space = sweep_file.space, plan.experiment.search_space.describe()
    changed = sorted(name for name in {*old_space, *new_space} if old_space.get(name) != new_space.get(name))
    if changed:
        raise SweepError(
            f"--resume {plan.name}: the search space has changed for {', '.join(changed)}, and a sweep keeps its own; "
            f"put back what it was, or start a new sweep"
        )
    if plan.groups < min(sweep_file.groups, plan.num_samples):
        raise SweepError(
            f"--resume {plan.name}: the sweep had {sweep_file.groups} trials at a time, and there is room for "
            f"{plan.groups}; resume it where there are as many devices"
        )


def check_pickled(plan: Plan) -> None:
    """Check that the train loop and its configuration class can be sent to a worker.

    What is defined in a module is sent by its name, so the worker must find the module; all else is sent by value.
    """
    experiment, joined = plan.experiment, plan.cluster is not None
    experiment.config_class.resolve_types()
    for field, value in (("train_loop", experiment.train_loop), ("config_class", experiment.config_class)):
        # Each call of Ray's wraps both streams once more, until after some hundred plans nothing can be printed.
        with redirect_stdout(sys.stdout), redirect_stderr(sys.stderr):
            can_be_sent, failures = inspect_serializability(value, name=field, print_file=io.StringIO())
        if not can_be_sent:
            # Ray 2.53 names the last step of a path alone.
            ways = [(getattr(part, "path", None) or (field, part.name), part.obj) for part in failures]
            paths = sorted(f"{' -> '.join(map(str, way))} is a {type(object_).__name__}" for way, object_ in ways)
            raise SweepError(
                f"{field} cannot be sent to a worker: {'; '.join(paths)}. Make it inside the train loop, or in a "
                f"module of yours that the train loop imports"
            )
        pickled = cloudpickle.dumps(value)
        # Else a class of the script gets copies of its methods, which do not find the data of tune.with_parameters.
        forget_classes()
        unpickler = _ModuleRecorder(io.BytesIO(pickled))
        unpickler.load()
        packages = {module.partition(".")[0] for module in unpickler.modules}
        unknown = sorted(name for name in packages if not _found_by_workers(name, joined=joined))
        if unknown:
            variable = "PYTHONPATH before you start Ray" if joined else "sys.path"
            raise SweepError(
                f"{field} uses the module {', '.join(unknown)}, and no worker can find it; add its folder to "
                f"{variable}, or put it next to your script"
            )
        if len(pickled) > MAX_CLASS_BYTES - RESERVED_BYTES and PARAMETERS_MODULE not in unpickler.modules:
            raise SweepError(
                f"{field} uses {len(pickled) / 1e6:.0f} MB of data that would be sent with it, and Ray sends at most "
                f"{MAX_CLASS_BYTES / 1e6:.0f} MB; load the data inside the train loop, or give it to the Experiment as "
                f"tune.with_parameters(train_loop, data=...)"
            )


def _found_by_workers(module: str, *, joined: bool) -> bool:
    """Whether workers can import a module that this process has. ``joined``: their Ray was not started by the sweep."""
    specs = [finder.find_spec(module, None) for finder in sys.meta_path if hasattr(finder, "find_spec")]
    spec = next((spec for spec in specs if spec is not None), None)
    if spec is None or not joined:  # a Ray that the sweep starts gets all of sys.path
        return spec is not None
    locations = spec.submodule_search_locations or [spec.origin or ""]
    return os.path.dirname(locations[0]) not in folders_unknown_to_workers()


class _ModuleRecorder(pickle.Unpickler):
    """An unpickler that records which modules the pickled object needs."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.modules: set[str] = set()

    @override
    def find_class(self, module: str, name: str) -> Any:
        """Record a module, and return its object of this name."""
        self.modules.add(module)
        return super().find_class(module, name)


def check_trials(plan: Plan) -> list[str]:
    """Check that the baseline, or any proposal if there is none, can load its data and model and train with every batch
    size of the space. Return the facts that the experiment's own check reports.
    """
    experiment, workers = plan.experiment, plan.options.workers_per_trial
    sources = {"data": plan.options.data, "model": plan.options.model}  # which only the train loop understands
    reason = "not checked, since the experiment has no check"
    unchecked = [
        f"{name} {source}: {'' if os.path.exists(os.path.expanduser(source)) else 'no file or folder here; '}{reason}"
        for name, source in sources.items()
        if source
    ]
    config = experiment.config_with(plan.settings)
    try:
        config = config.largest(experiment.search_space.values, workers)
        facts = experiment.check(config) if experiment.check is not None else unchecked
    except (ValueError, OSError) as error:
        raise SweepError(str(error)) from error
    except USER_CODE_ERRORS as error:
        raise SweepError(f"check raised {users_error(error)}; a ValueError tells the user what to correct") from error
    if not (isinstance(facts, list | tuple) and all(isinstance(fact, str) for fact in facts)):
        raise SweepError(f"check must return a list of texts for the plan, which may be empty, but returned {facts!r}")
    return list(facts)
