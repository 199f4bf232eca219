"""The fields of Ray Tune's configurations in the words of a sweep, or what to write in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError, written
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.ranges import plain

CONFIGS = {
    "tune_config": "TuneConfig",
    "run_config": "RunConfig",
    "failure_config": "FailureConfig",
    "checkpoint_config": "CheckpointConfig",
}
"""Ray's configurations and their classes. The last two are in a RunConfig, too, so they come after it."""
REFUSED = {
    "param_space": "the space belongs to the Experiment; give it as Experiment(space=...)",
    "trainable": "the train loop belongs to the Experiment; give it as Experiment(train_loop=...)",
    "scaling_config": "a worker has one device; give workers_per_trial=N",
    "trial_name_creator": "trials are trial-001 and so on, by which a resume finds them; leave it out",
    "trial_dirname_creator": "trials are in trial-001 and so on, where a resume finds them; leave it out",
    "chdir_to_trial_dir": "each trial runs in an empty folder, which is not kept; write by full paths",
    "storage_filesystem": "give the address of a storage, such as s3://bucket/prefix, as storage_path",
    "sync_config": "a storage gets everything by itself; give its address, such as s3://bucket/prefix, as storage_path",
    "progress_reporter": "the terminal and the live page show the progress; leave it out, or give a callback",
    "log_to_file": "what workers print is in the logs of Ray's session; leave it out",
    "logging_config": "workers log as Ray's do; leave it out",
    "checkpoint_at_end": "each trial that may win is saved; leave it out",
    "local_dir": "give storage=FOLDER",
    "worker_runtime_env": "workers have the environment of this process; leave it out",
}
"""What no sweep can do, with what to write instead."""
NO_EFFECT = ("reuse_actors", "verbose", "num_to_keep", "checkpoint_score_order")
"""What a sweep decides itself: its workers stay warm from trial to trial, it prints its own progress, a trial keeps its
best and its latest checkpoint, and the sweep knows whether more of its metric is better."""
KEPT_ON_RESUME = {"name", "num_samples", "metric", "mode"}
"""Fields that a resumed sweep keeps as it began with them."""


def with_configs(arguments: Mapping[str, Any], experiment: Experiment) -> tuple[dict[str, Any], list[str]]:
    """Read the fields of Ray's configurations among the arguments of build_tuner().

    Returns:
        The arguments in the words of a sweep, and remarks on what means less here than in Ray.

    Raises:
        SweepError: A field is given twice, or cannot be honoured.
    """
    merged = {name: plain(value) for name, value in arguments.items()}
    for word in CONFIGS:
        for name, value in _fields_in(word, merged.pop(word, None)).items():
            if merged.get("resume") is not None and name in KEPT_ON_RESUME:
                continue
            if merged.get(name) not in (None, ()):
                raise SweepError(f"{name} is given twice: as an argument, and in Ray's configuration; give it once")
            merged[name] = value
    if merged.get("checkpoint_at_end") is False:
        del merged["checkpoint_at_end"]  # it asks for nothing
    if refusals := [f"{name}: {REFUSED[name]}" for name in merged if name in REFUSED]:
        raise SweepError("; ".join(refusals))
    score = merged.pop("checkpoint_score_attribute", None)
    if score not in (None, merged.get("metric") or experiment.metric):
        raise SweepError(
            f"checkpoint_score_attribute={written(score)}: the sweep's metric says which is the best; leave it out"
        )
    notes = _notes_on_checkpoints(merged.get("num_to_keep"), merged.get("checkpoint_frequency") or 0)
    readings = [(name, reader(merged.pop(name))) for name, reader in READERS.items() if name in merged]
    readings.append(("metric, mode", _objectives(merged.pop("metric", None), merged.pop("mode", None), experiment)))
    for name, options in readings:
        if twice := [option for option in options if option in merged and merged[option] != options[option]]:
            raise SweepError(f"{name} says what {twice[0]} says, too; give one of them")
        merged |= options
    return merged, notes


def _fields_in(word: str, config: Any) -> dict[str, Any]:
    """Return the fields of a configuration that are not as Ray has them by default."""
    if config is None:
        return {}
    if isinstance(config, type) or not is_dataclass(config):
        raise SweepError(f"{word}={written(config)}: give an object, such as tune.{CONFIGS[word]}(...)")
    usual: Any = type(config)()  # type: ignore[misc]
    values = {field.name: plain(getattr(config, field.name)) for field in fields(config)}
    changed = {name: value for name, value in values.items() if value != getattr(usual, name)}
    # Ray sets its default, ~/ray_results, where nothing is given: the same text that is given is another object.
    if (path := values.get("storage_path")) is not None and path is not usual.storage_path:
        changed["storage_path"] = path
    return changed


def _objectives(metric: str | None, mode: str | None, experiment: Experiment) -> dict[str, Any]:
    if metric is None and mode is None:
        return {}
    if isinstance(metric, list | tuple) or isinstance(mode, list | tuple):
        raise SweepError(
            f"metric={written(metric)}, mode={written(mode)}: several metrics are "
            f"objectives=['val_accuracy:max', 'loss:min'], an argument of build_tuner()"
        )
    if metric not in (None, experiment.metric) and experiment.metric != names.VAL_ACCURACY:
        raise SweepError(f"metric={written(metric)}: the Experiment's is {experiment.metric!r}; leave one of them out")
    if mode is not None and experiment.mode not in (None, mode) and metric in (None, experiment.metric):
        raise SweepError(f"mode={written(mode)}: the Experiment's is {experiment.mode!r}; leave one of them out")
    name = experiment.metric if metric is None else metric
    return {"objectives": (name if mode is None else f"{name}:{mode}",)}


def _notes_on_checkpoints(number_to_keep: int | None, frequency: int) -> list[str]:
    notes = []
    if number_to_keep not in (None, 1):
        notes.append(f"num_to_keep={number_to_keep} has no effect: a trial keeps its best and its latest checkpoint")
    if frequency > 1:
        notes.append(
            f"checkpoint_frequency={frequency} saves at each report, which is more often; checkpoint_minutes=M in its "
            f"place saves less"
        )
    return notes


def _read_time_budget(seconds: Any) -> dict[str, Any]:
    total = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    return {} if total is None else {"time_budget": float(total) / 60}


def _read_max_concurrent(number: Any) -> dict[str, Any]:
    if number is not None and (type(number) is not int or number < 0):
        raise SweepError(f"max_concurrent_trials={written(number)}: give a whole number, such as 2; 0 is no limit")
    return {"max_concurrent_trials": number}


def _read_fail_fast(fails_fast: Any) -> dict[str, Any]:
    if fails_fast not in (False, True):
        raise SweepError(f"fail_fast={written(fails_fast)}: a sweep ends in order after an error; give fail_fast=True")
    return {"same_errors": 1} if fails_fast else {}


READERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "time_budget_s": _read_time_budget,
    "max_concurrent_trials": _read_max_concurrent,
    "storage_path": lambda path: {"storage": path},
    "max_failures": lambda number: {"retries": number},
    "fail_fast": _read_fail_fast,
    **dict.fromkeys(NO_EFFECT, lambda _: {}),
    "checkpoint_frequency": lambda frequency: {"checkpoint_minutes": 0.0} if frequency else {},
}
"""Functions that return the options for a field of Ray's. ``num_samples`` is an option by the same name."""
