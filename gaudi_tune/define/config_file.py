"""``--config``: a TOML file with the options of a sweep, and ranges and fixed values in place of the experiment's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from gaudi_tune.base.errors import SweepError, written
from gaudi_tune.base.reading import read_regular_file
from gaudi_tune.base.words import did_you_mean
from gaudi_tune.define.options import TRAITS, SweepOptions, checked
from gaudi_tune.define.search_space import WithPrior

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SPACE, SET = "space", "set"
"""The tables of the file."""
BASELINE, PRIOR = "baseline", "prior"
"""Keys that a range may have besides its bounds: the value of the first trial, and one that is likely to be good."""
RANGES: dict[str, tuple[str, Callable[..., BaseDistribution]]] = {
    "uniform": ("[0.0, 0.5]", FloatDistribution),
    "loguniform": ("[1e-5, 1e-2]", lambda low, high: FloatDistribution(low, high, log=True)),
    "quniform": ("[0.0, 0.5, 0.1]", lambda low, high, step: FloatDistribution(low, high, step=step)),
    "randint": ("[1, 10]", lambda low, high: IntDistribution(low, high - 1)),
    "choice": ("[8, 16, 32]", lambda *choices: CategoricalDistribution(choices)),
}
"""An example and Optuna's range for each of Ray Tune's names. As in Ray Tune, ``randint`` excludes its upper bound."""
RANGE_FORMS = "; ".join(f"{{{kind} = {example}}}" for kind, (example, _) in RANGES.items())


def read_config(file: Path) -> dict[str, Any]:
    """Return the options that a file gives, by field of :class:`SweepOptions`; a SweepError names the file."""
    try:
        content = tomllib.loads(read_regular_file(file.expanduser()).decode("utf-8-sig"))
    except RecursionError:
        raise SweepError(f"--config {file}: its values are nested too deep; a value is at most a list") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SweepError(f"--config {file}: cannot be read ({error}); give a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise SweepError(
            f'--config {file}: is not TOML ({error}); strings need quotes, as in search = "tpe"'
        ) from error
    try:
        return _read_options(content)
    except SweepError as error:
        raise SweepError(f"--config {file}: {error}") from error


def _read_options(content: Mapping[str, Any]) -> dict[str, Any]:
    tables = {name: content.get(name, {}) for name in (SPACE, SET)}
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise SweepError(f"{name} must be a table; write [{name}] and a line for each key below it")
    file_options = [name for name, traits in TRAITS.items() if traits.in_config_file]
    options = {name.replace("-", "_"): value for name, value in content.items() if name not in tables}
    _check_spelled_once(content)
    for name in options:
        if name not in file_options:
            raise SweepError(
                f"there is no option {name!r}{did_you_mean(name, file_options)}; the options are "
                f"{', '.join(file_options)}, [set] and [space]"
            )
    ranges = {name: value for name, value in tables[SPACE].items() if isinstance(value, Mapping)}
    for name, range_ in ranges.items():
        range_of(name, range_)  # raises a SweepError if it is not a range
    fixed = {**tables[SET], **{name: value for name, value in tables[SPACE].items() if name not in ranges}}
    for name, value in fixed.items():
        if not isinstance(value, str | int | float):
            raise SweepError(
                f"{name} = {value!r} must be a number, a string or a bool; a range is one of {RANGE_FORMS}"
            )
    if fixed:
        options["settings"] = tuple(f"{name}={value}" for name, value in fixed.items())
    if ranges:
        options["space"] = ranges
    valid = checked(options)
    return {name: getattr(valid, name) for name in options}


def _check_spelled_once(content: Mapping[str, Any]) -> None:
    """Check that no option is there with a dash and with an underscore."""
    for name in content:
        if "-" in name and name.replace("-", "_") in content:
            raise SweepError(f"{name} and {name.replace('-', '_')} are the same option; give it once")


def with_file(options: SweepOptions | None, changes: Mapping[str, Any]) -> SweepOptions:
    """Return options with these changes. Where an option has its default, the ``config`` file may give its value."""
    defaults = vars(SweepOptions())
    explicit = {name: value for name, value in vars(options or SweepOptions()).items() if value != defaults[name]}
    explicit.update(changes)
    if explicit.get("config") is None:
        return checked(explicit)
    explicit_options = checked(explicit)
    assert explicit_options.config is not None, "it was given"
    file_options = read_config(explicit_options.config)
    settings = merged(file_options.get("settings", ()), explicit_options.settings)
    return checked({**file_options, **explicit, "settings": settings})


def merged(settings: tuple[str, ...], overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Return two lists of ``KEY=VALUE`` entries as one. Where both have a key, the entry of ``overrides`` stays."""
    keys = {entry.partition("=")[0] for entry in overrides}
    return (*(entry for entry in settings if entry.partition("=")[0] not in keys), *overrides)


def range_of(name: str, entry: Mapping[str, Any]) -> BaseDistribution | WithPrior:
    """Return the range that a file gives for a hyperparameter, with its prior if it gives one."""
    if not isinstance(entry, Mapping):
        raise SweepError(f"[space] {name}: {written(entry)} is not a range; write one of {RANGE_FORMS}")
    kinds = [kind for kind in entry if kind not in (BASELINE, PRIOR)]
    if len(kinds) != 1 or kinds[0] not in RANGES:
        raise SweepError(f"[space] {name}: {dict(entry)} is not a range; write one of {RANGE_FORMS}")
    (kind,) = kinds
    example, make_range = RANGES[kind]
    values = entry[kind]
    length, number = len(example.split(",")), "whole numbers" if kind == "randint" else "numbers"
    types = {int} if kind == "randint" else {int, float}
    try:
        if not isinstance(values, list | tuple) or not values:
            raise ValueError("it takes a list")
        if kind != "choice" and (len(values) != length or {*map(type, values)} - types):
            raise ValueError(f"it takes {length} {number}")
        range_ = make_range(*values)
    except ValueError as error:
        raise SweepError(
            f"[space] {name}: {kind} = {values} is no range ({error}); write for example {{{kind} = {example}}}"
        ) from error
    return WithPrior(range_, prior=entry[PRIOR]) if PRIOR in entry else range_
