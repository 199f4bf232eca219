"""The fields of Ray Tune's TuneConfig and RunConfig in the words of a sweep, or what to write in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import timedelta
from numbers import Real
from typing import Any

from ray import tune

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError, written
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.on_ray.given.resources import take_resources

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
    "max_failures": "give retries=N",
    "fail_fast": "give same_errors=1",
    "local_dir": "give storage=FOLDER",
    "worker_runtime_env": "workers have the environment of this process; leave it out",
}
"""What no sweep can do, with what to write instead."""
NO_EFFECT = ("reuse_actors", "verbose")
"""What a sweep decides itself: its workers stay warm from trial to trial, and it prints its own progress."""


@contextmanager
def noted(refusals: list[str]) -> Iterator[None]:
    """Note a SweepError of the block and go on, so that all refusals of a call are told at once."""
    try:
        yield
    except SweepError as error:
        refusals.append(str(error))


def with_configs(
    arguments: Mapping[str, Any], experiment: Experiment, refusals: list[str], notes: list[str]
) -> dict[str, Any]:
    """Return the arguments of build_tuner() with the fields of Ray's configurations among them, in the sweep's words.

    What cannot be honoured is added to ``refusals``, and what means less here than in Ray to ``notes``.

    Raises:
        SweepError: A field is given twice.
    """
    merged, in_configs = _merged(arguments)
    for name in merged.keys() & REFUSED.keys():
        refusals.append(f"{name}: {REFUSED[name]}")
        del merged[name]
    with noted(refusals):
        take_resources(merged, experiment.train_loop)
    for name in NO_EFFECT:
        merged.pop(name, None)
    if merged.get("resume") is not None:  # a resumed sweep keeps what it began with
        for name in {"name", "num_samples", "metric", "mode"} & in_configs:
            del merged[name]
    if "checkpoint_config" in merged:
        config, metric = merged.pop("checkpoint_config"), merged.get("metric") or experiment.metric
        with noted(refusals):
            merged |= _read_checkpoints(config, metric, notes)
    for name, reader in READERS.items():
        if name in merged:
            with noted(refusals):
                merged |= reader(merged.pop(name))
    with noted(refusals):
        merged |= _objectives(merged.pop("metric", None), merged.pop("mode", None), experiment)
    return merged


def _merged(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Return the arguments with the fields of the configurations, and the names of these fields."""
    merged, in_configs = dict(arguments), dict[str, Any]()
    for word in ("tune_config", "run_config"):
        in_configs |= _fields_in(word, merged.pop(word, None))
    for name, value in in_configs.items():
        if merged.get(name) not in (None, ()):
            raise SweepError(f"{name} is given twice: as an argument, and in Ray's configuration; give it once")
        merged[name] = value
    return merged, set(in_configs)


def _fields_in(word: str, config: Any) -> dict[str, Any]:
    """Return the fields of a configuration that are not as Ray has them by default."""
    if config is None:
        return {}
    if isinstance(config, type) or not is_dataclass(config):
        example = {"tune_config": "TuneConfig", "run_config": "RunConfig"}[word]
        raise SweepError(f"{word}={written(config)}: give an object, such as tune.{example}(...)")
    kind: Any = type(config)
    usual = kind()
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    changed = {name: value for name, value in values.items() if value != getattr(usual, name)}
    # Ray sets its default, ~/ray_results, where nothing is given: the same text that is given is another object.
    if (path := values.get("storage_path")) is not None and path is not usual.storage_path:
        changed["storage_path"] = path
    return changed


def _objectives(metric: str | None, mode: str | None, experiment: Experiment) -> dict[str, Any]:
    if metric is None and mode is None:
        return {}
    if metric not in (None, experiment.metric) and experiment.metric != names.VAL_ACCURACY:
        raise SweepError(f"metric={written(metric)}: the Experiment's is {experiment.metric!r}; leave one of them out")
    if mode is not None and experiment.mode not in (None, mode) and metric in (None, experiment.metric):
        raise SweepError(f"mode={written(mode)}: the Experiment's is {experiment.mode!r}; leave one of them out")
    name = metric or experiment.metric
    return {"objectives": (name if mode is None else f"{name}:{mode}",)}


def _read_time_budget(seconds: Any) -> dict[str, Any]:
    if seconds is None:
        return {}
    number = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if isinstance(number, bool) or not isinstance(number, Real):
        raise SweepError(f"time_budget_s={written(seconds)}: give a number of seconds, such as 3600")
    return {"time_budget": float(number) / 60}


def _read_samples(number: int | None) -> dict[str, Any]:
    if number == -1:
        raise SweepError("num_samples=-1: a sweep has a number of trials; give one, and time_budget_s ends it earlier")
    return {"num_samples": number}


def _check_kind(name: str, config: Any, kind: type[Any]) -> None:
    if not isinstance(config, kind):
        raise SweepError(f"{name}={written(config)}: give an object, such as tune.{kind.__name__}(...)")


def _read_failures(config: Any) -> dict[str, Any]:
    _check_kind("failure_config", config, tune.FailureConfig)
    if config.fail_fast not in (False, True):
        raise SweepError(
            f"fail_fast={written(config.fail_fast)}: a sweep ends in order after an error; give fail_fast=True"
        )
    if config.max_failures < 0:
        raise SweepError("max_failures=-1: a trial that always fails would never end; give a number")
    retries = {"retries": config.max_failures} if config.max_failures else {}
    return {**retries, **({"same_errors": 1} if config.fail_fast else {})}


def _read_checkpoints(config: Any, metric: str, notes: list[str]) -> dict[str, Any]:
    _check_kind("checkpoint_config", config, tune.CheckpointConfig)
    rules = {
        "checkpoint_score_attribute": (
            config.checkpoint_score_attribute in (None, metric),
            "the sweep's metric says which is the best; leave it out",
        ),
        "checkpoint_at_end": (not config.checkpoint_at_end, "each trial that may win is saved; leave it out"),
    }
    refused = {name: instead for name, (is_possible, instead) in rules.items() if not is_possible}
    if refused:
        raise SweepError(
            "; ".join(f"{name}={written(getattr(config, name))}: {instead}" for name, instead in refused.items())
        )
    if config.num_to_keep not in (None, 1):
        notes.append(
            f"num_to_keep={config.num_to_keep} has no effect: a trial keeps its best and its latest checkpoint"
        )
    if config.checkpoint_frequency > 1:
        frequency = f"checkpoint_frequency={config.checkpoint_frequency}"
        notes.append(
            f"{frequency} saves at each report, which is more often; checkpoint_minutes=M in its place saves less"
        )
    return {"checkpoint_minutes": 0.0} if config.checkpoint_frequency else {}


READERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "num_samples": _read_samples,
    "time_budget_s": _read_time_budget,
    "storage_path": lambda path: {"storage": path},
    "failure_config": _read_failures,
}
"""Functions that return the options for a field of Ray's."""
