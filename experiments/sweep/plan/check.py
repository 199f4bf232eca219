"""Whether a sweep can work: its space, its data and model, its folder and its tracking store.

Everything is read, and nothing written. What cannot work is a SweepError.
"""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import shutil
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray import cloudpickle
from ray.util import inspect_serializability

import trainables
from experiments.sweep.define.errors import SweepError
from experiments.sweep.define.experiment import Experiment
from experiments.sweep.define.options import SweepOptions, profiled, trial_of_sweep
from experiments.sweep.define.plan import SUMMARY_FILE
from experiments.sweep.define.ranges import middle
from experiments.sweep.define.search_space import hyperparameter
from experiments.sweep.define.words import format_value
from experiments.sweep.plan.connect import added_to_sys_path
from experiments.sweep.plan.decide import BY_OPTION, typed
from experiments.sweep.show.trackers.store import STORE_URI, database_file
from experiments.sweep.state.sweep_file import SWEEP_FILE, find_sweep, read_sweep_file
from trainables.runtime import TrialConfig, names
from trainables.runtime.trial_config import PlainConfig

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from trainables.runtime.devices.device import DeviceType
    from trainables.runtime.training.training_config import ExecutionMode, TrainingConfig

OURS = Path(str(trainables.__file__)).parent
"""The package that every worker imports."""
LEAST_FREE = 10 * 2**20
"""Bytes that must be free in the storage and in a local tracking store: the first minutes of a sweep take that much."""
LOCKED_FOR_S = 5.0
"""How long a check waits for a database that another process writes to."""


def check_baseline(experiment: Experiment, options: SweepOptions) -> None:
    """See that there is a baseline where it alone is to be trained."""
    if options.baseline_only and not experiment.baseline:
        raise SweepError(
            f"--baseline-only: the experiment {experiment.name} has no baseline; give it one "
            f"(Experiment(baseline={{...}})), or leave the option out"
        )


def read_config(experiment: Experiment, settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration of the search space from what a person gave: values by hyperparameter, numbers perhaps as
    text; an empty text is none.
    """
    space, words = experiment.search_space, experiment.search_space.in_words()
    given = {name: value for name, value in given.items() if value != ""}
    if unknown := sorted(set(given) - set(words)):
        raise SweepError(f"{', '.join(unknown)}: no such hyperparameter is searched; there are {', '.join(words)}")
    if missing := sorted(space.asked_always - set(given)):
        raise SweepError(f"{missing[0]}: every trial needs a value; give one in its range, {words[missing[0]]}")
    config: dict[str, Any] = {}
    for name, value in given.items():
        same = [choice for choice in space.values(name) if str(choice) == str(value)]  # a choice may be None
        try:
            config[name] = same[0] if same else typed(experiment.config_class, name, value)
        except ValueError as error:
            raise SweepError(f"{error}; its range is {words[name]}") from error
    for name in space.outside(config):
        near = format_value(middle(space.ranges[name][0]))
        raise SweepError(
            f"{name}={config[name]} is not in its range, {words[name]}; give a value inside, such as {near}"
        )
    asked = space.at(config)
    if useless := sorted(set(config) - set(asked.ranges)):
        raise SweepError(f"{useless[0]}: the space asks for none beside the other values; leave it empty")
    try:
        experiment.config_class.from_dict({**settings, **asked.config})
    except ValueError as error:
        raise SweepError(str(error)) from error
    return config


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
                f"{what} uses the module {', '.join(lost)}, and no worker finds it; add its folder to {where}, or put "
                f"it next to your script"
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


def check_space(experiment: Experiment) -> None:
    """Compare the search space and the baseline with the fields of the train loop's configuration; the error names
    everything that is wrong at once.
    """
    space, baseline = experiment.search_space, experiment.baseline
    if not space.ranges:
        raise SweepError(
            f"experiment {experiment.name}: the search space has no range, so that there is nothing to search; give it "
            f"one, such as space={{'lr': tune.loguniform(1e-4, 1e-1)}}"
        )
    known, needed = set(experiment.config_class.field_names()), set(experiment.config_class.required_names())
    outside = set(space.outside(baseline))
    differs = {name for name, value in space.constants.items() if baseline.get(name, value) != value}
    lacking = space.asked_always - set(baseline) if baseline else set()
    there, possible, always = {*baseline, *space.constants}, space.names, space.always
    if baseline and not outside and not lacking:  # it may take a branch of the space that no draw took
        there = set(space.at(baseline).config)
        possible, always = possible | there, always & there
    wrong = [
        ("the search space has keys that the train loop does not know", possible - known),
        ("the search space has keys that are set by options such as --epochs and --seed", possible & BY_OPTION),
        ("the search space lacks keys that the train loop needs", needed - possible),
        (
            "the search space does not always have keys that the train loop needs (have it return a value for them "
            "where it asks for none, or give them a default)",
            (needed & possible) - always,
        ),
        ("the baseline has keys that the search space lacks", set(baseline) - (possible & there)),
        ("the baseline lacks keys that the search space asks for", lacking),
        ("the baseline lacks keys that the train loop needs", needed - there if baseline else set()),
        ("the baseline lies outside the search space in", outside),
        ("the baseline differs from the constants of the search space in", differs),
    ]
    said = [f"{what}: {', '.join(sorted(keys))}" for what, keys in wrong if keys]
    for name in sorted(space.names & known):
        of_another_type: dict[str, Any] = {}  # the first of each kind
        for value in space.values(name):
            try:
                typed(experiment.config_class, name, value)
            except ValueError as error:  # noqa: PERF203
                of_another_type.setdefault(str(error).partition(", but got")[0], value)
        said += [f"in the search space {error}, but it may be {value!r}" for error, value in of_another_type.items()]
    if said:
        fields = ", ".join(sorted(known))
        raise SweepError(f"experiment {experiment.name}: {'; '.join(said)}. The train loop knows: {fields}.")


def earlier_config(sweep: str, storage: Path, experiment: Experiment) -> dict[str, Any]:
    """Return the hyperparameters that won an earlier sweep, in its confirmation if it had one, else in its search; or
    those of one of its trials. ``sweep`` is its name or its folder, and perhaps a colon and the number of a trial.
    """
    name, number = trial_of_sweep(sweep)
    try:
        folder = find_sweep(name, storage)
        began_with = read_sweep_file(folder)
    except SweepError as error:
        raise SweepError(f"--baseline {error}") from error
    if began_with.experiment != experiment.name:
        raise SweepError(f"--baseline {sweep}: that is a sweep of {began_with.experiment}, not of {experiment.name}")
    config = _winner_of(folder) if number is None else _config_of(folder, number)
    return {name: value for name, value in config.items() if name in experiment.search_space.names}


def _winner_of(folder: Path) -> Mapping[str, Any]:
    file = folder / SUMMARY_FILE
    try:
        summary = json.loads(file.read_text())
        confirmed = (summary.get("confirmation") or {}).get("rivals") or [summary["best"]]
        return dict(confirmed[0]["config"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise SweepError(
            f"--baseline {folder.name}: {file} has no winner ({error!r}); give the name or the folder of a sweep that "
            f"has one, or NAME:NUMBER for one of its trials"
        ) from error


def _config_of(folder: Path, number: int) -> Mapping[str, Any]:
    from experiments.sweep.decide.search.study_record import stored_trials

    trials = stored_trials(folder)
    if not 1 <= number <= len(trials):
        raise SweepError(
            f"--baseline {folder.name}:{number}: its search has no such trial; it has "
            f"{f'1 to {len(trials)}' if trials else 'none'}"
        )
    return {hyperparameter(name): value for name, value in trials[number - 1].params.items()}


def check_search(
    experiment: Experiment, search: str, options: SweepOptions, sampler: BaseSampler | None, objectives: int = 1
) -> BaseSampler | None:
    """See that the sampler can be made, and proposes from this space before and after it has a value, for so many
    objectives.

    Returns:
        The one that the user brought, in Python or by the name of a module; None for those that have names.
    """
    import optuna

    from experiments.sweep.decide.search.samplers import make_sampler, own_sampler

    sampler = sampler or own_sampler(search, options.seed)
    tried = make_sampler(search, options.seed) if sampler is None else copy.deepcopy(sampler)
    study = optuna.create_study(sampler=tried, directions=["minimize"] * objectives)
    try:
        for value in range(2):
            _, number = experiment.search_space.propose(study)
            study.tell(number, [float(value)] * objectives)
        experiment.search_space.propose(study)
    except SweepError:
        raise
    except Exception as error:
        # Each sampler has its own needs: a package that is not installed, ranges of one kind, one objective.
        raise SweepError(f"--search {search}: this sampler cannot search this space ({error})") from error
    if options.scheduler == "pbt":
        from experiments.sweep.decide.schedulers.population import check_changeable

        check_changeable(experiment.search_space)
    return sampler


def check_target(experiment: Experiment, target: float | None) -> None:
    """See that an accuracy can reach the target."""
    from trainables.runtime.training.training_config import TrainingConfig

    ours = experiment.metric == names.VAL_ACCURACY and issubclass(experiment.config_class, TrainingConfig)
    if target is not None and ours and not 0 < target <= 1:
        raise SweepError(
            f"--target {target}: {experiment.metric} is a share from 0 to 1; give 0.92 for 92 %, or leave it out"
        )


def check_profile(experiment: Experiment, profile: str | None, trials: int) -> None:
    """See that there is a trial to profile, whose steps are known."""
    from trainables.runtime.training.training_config import TrainingConfig

    if (wanted := profiled(profile)) is None:
        return
    if wanted[0] > trials:
        raise SweepError(f"--profile {profile}: the sweep has trials 1 to {trials}; 1 is the baseline")
    if not issubclass(experiment.config_class, TrainingConfig):
        raise SweepError(
            f"--profile {profile}: the train loop of {experiment.name} is its own, and nobody else knows its steps; "
            f"call torch.profiler in it"
        )


def check_trials(
    experiment: Experiment, settings: Mapping[str, Any], workers: int, device: DeviceType
) -> tuple[TrialConfig, dict[str, Any], ExecutionMode | None, list[str]]:
    """Check what the baseline (else any proposal) and every batch size of the space would load and train on.

    Returns:
        Its configuration; the settings in full, defaults included; how models are run, None where the train loop is not
        the shared one; and what the check of data and model found.
    """
    from trainables.runtime.training.training_config import TrainingConfig, check_batch

    space = experiment.search_space
    try:
        baseline = space.at(experiment.baseline).config if experiment.baseline else space.example
        config: TrialConfig = experiment.config_class.from_dict({**settings, **baseline})
        # Workers have another current folder.
        config = replace(config, data=absolute(config.data), model=absolute(config.model))
        largest, mode = config, None
        if isinstance(config, TrainingConfig):
            config, mode = _in_mode(config, device)
            sizes = sorted({config.batch_size, *space.values("batch_size")})
            for size in sizes:
                try:
                    check_batch(replace(config, batch_size=size), workers, samples=size)
                except ValueError as error:  # noqa: PERF203
                    there = ", ".join(map(str, sizes))
                    raise SweepError(f"--workers-per-trial {workers}: {error}; the search space has {there}") from error
            largest = replace(config, batch_size=sizes[-1])
        facts = experiment.check(largest) if experiment.check is not None else []
    except (ValueError, OSError) as error:
        raise SweepError(str(error)) from error
    own = {"seed", names.CONFIRMS}
    in_full = {name: value for name, value in asdict(config).items() if name not in {*space.names, *baseline, *own}}
    if isinstance(config, PlainConfig):  # nothing that the train loop may not know
        in_full = {name: value for name, value in in_full.items() if name in settings}
    # What only some proposals have, the others have as the recipe has it, not as the baseline.
    sometimes = {*space.names, *baseline} - (space.always & set(baseline))
    in_common = {**in_full, **{name: settings[name] for name in sorted(sometimes) if name in settings}}
    return config, in_common, mode, facts


def _in_mode(config: TrainingConfig, device: DeviceType) -> tuple[TrainingConfig, ExecutionMode]:
    """Return how models are run, and the configuration that says so on other nodes, too, if a variable here does."""
    config.check_on(device)
    mode = config.mode_on(device)
    return (replace(config, lazy_mode=True) if mode.name == "lazy" else config), mode


def absolute(source: str) -> str:
    """Return a local path as every worker can read it, whatever its current folder; a name on the hub as it is."""
    path = Path(source).expanduser()
    return str(path.resolve()) if source and path.exists() else source


def check_folder(storage: Path, name: str, *, resumed: bool) -> None:
    """See that the sweep's folder can be written, and, unless the sweep goes on, is not there yet."""
    _check_writable(storage, f"--storage {storage}")
    folder = storage / name
    if resumed or not folder.exists():
        return
    try:
        finished = json.loads((folder / SUMMARY_FILE).read_text())["complete"]
    except (OSError, ValueError, LookupError, TypeError):  # there is none, or it is torn
        finished = False
    go_on = f"go on with it (--resume {name})" if (folder / SWEEP_FILE).is_file() else "remove the folder"
    raise SweepError(
        f"--name {name}: {'a finished' if finished else 'an unfinished'} sweep has this name ({folder}); take another, "
        f"or {go_on}"
    )


def _check_writable(folder: Path, option: str) -> None:
    """See that files can be made in a folder, or that it can be made itself, and that there is room."""
    place = folder
    while not os.path.lexists(place):
        place = place.parent
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        why = "does not let you" if place.is_dir() else "is not a folder"
        raise SweepError(f"{option}: cannot be written, since {place} {why}; give a folder of yours")
    free = shutil.disk_usage(place).free
    if free < LEAST_FREE:
        raise SweepError(
            f"{option}: has {free / 2**20:.1f} MB of free space, and a sweep needs at least "
            f"{LEAST_FREE / 2**20:.0f} MB to begin; make room, or give another folder"
        )


def check_store(uri: str, experiment: str) -> None:
    """See that the tracking store answers within 10 s and takes runs of the experiment.

    A local database is read without MLflow.
    """
    file, option = database_file(uri), f"--tracking-uri {uri}"
    if file is None:
        from experiments.sweep.show.trackers.store import check_tracking

        check_tracking(uri, experiment)
        return
    _check_writable(file.parent, option)
    if not file.parent.exists() and uri != STORE_URI:  # that one the sweep makes itself
        raise SweepError(f"{option}: {file.parent} is no folder; make it, or give another address")
    if not file.exists():  # MLflow makes it
        return
    if not (file.is_file() and os.access(file, os.R_OK | os.W_OK)):
        raise SweepError(f"{option}: {file} is no file that you can read and write; give another address")
    try:
        # Not mode=ro: who reads first after a writer was killed takes back what that left half done.
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=rw", uri=True, timeout=LOCKED_FOR_S)) as database:
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            query = "SELECT experiment_id FROM experiments WHERE name = ? AND lifecycle_stage = 'deleted'"
            deleted = database.execute(query, (experiment,)).fetchone() if "experiments" in tables else None
    except sqlite3.Error as error:
        raise SweepError(
            f"{option}: {file} cannot be read as a database of MLflow ({error}); correct the address, or move the file "
            f"away"
        ) from error
    if deleted is not None:
        raise SweepError(
            f"{option}: the MLflow experiment {experiment!r} was deleted there; bring it back with: "
            f"mlflow experiments restore --experiment-id {deleted[0]}"
        )


def check_register(experiment: Experiment, name: str, uri: str) -> None:
    """See that there will be a model to register, and that the registry takes it."""
    from experiments.sweep.show.trackers.store import check_registry

    if experiment.predictor is None:
        raise SweepError(
            f"--register {name}: the experiment {experiment.name} has no model to register, since it does not say how "
            f"one predicts; give it a predictor (CONTRIBUTING.md), or leave the option out"
        )
    check_registry(uri, name)
