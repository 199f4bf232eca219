"""``--config``: a TOML file with the options of a sweep, and ranges and fixed values in place of the experiment's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from gaudi_tune.base.errors import SweepError
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
"""What a range may have besides its bounds: the value of the first trial, and one that is likely to be good."""
RANGES: dict[str, tuple[str, Callable[..., BaseDistribution]]] = {
    "uniform": ("[0.0, 0.5]", FloatDistribution),
    "loguniform": ("[1e-5, 1e-2]", lambda low, high: FloatDistribution(low, high, log=True)),
    "quniform": ("[0.0, 0.5, 0.1]", lambda low, high, step: FloatDistribution(low, high, step=step)),
    "randint": ("[1, 10]", lambda low, high: IntDistribution(low, high - 1)),
    "choice": ("[8, 16, 32]", lambda *choices: CategoricalDistribution(choices)),
}
"""By Ray Tune's name, an example and the range of Optuna; as there, ``randint`` leaves its upper bound out."""
HOW = "; ".join(f"{{{kind} = {example}}}" for kind, (example, _) in RANGES.items())


def read_config(file: Path) -> dict[str, Any]:
    """Return the options that a file gives, by field of :class:`SweepOptions`; a SweepError names the file."""
    try:
        written = tomllib.loads(file.expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SweepError(f"--config {file}: cannot be read ({error}); give a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise SweepError(
            f'--config {file}: is not TOML ({error}); strings need quotes, as in search = "tpe"'
        ) from error
    try:
        return _options_of(written)
    except SweepError as error:
        raise SweepError(f"--config {file}: {error}") from error


def _options_of(written: Mapping[str, Any]) -> dict[str, Any]:
    tables = {name: written.get(name, {}) for name in (SPACE, SET)}
    if wrong := [name for name, table in tables.items() if not isinstance(table, Mapping)]:
        raise SweepError(f"{wrong[0]} must be a table; write [{wrong[0]}] and a line for each key below it")
    known = [name for name, traits in TRAITS.items() if traits.in_config_file]
    options = {name.replace("-", "_"): value for name, value in written.items() if name not in tables}
    for name in options:
        if name not in known:
            near, options_are = did_you_mean(name, known), f"{', '.join(known)}, [set] and [space]"
            raise SweepError(f"there is no option {name!r}{near}; the options are {options_are}")
    ranges = {name: value for name, value in tables[SPACE].items() if isinstance(value, Mapping)}
    for name, range_ in ranges.items():
        range_of(name, range_)
    fixed = {**tables[SET], **{name: value for name, value in tables[SPACE].items() if name not in ranges}}
    for name, value in fixed.items():
        if not isinstance(value, str | int | float):
            raise SweepError(f"{name} = {value!r} must be a number, a string or a bool; a range is one of {HOW}")
    settings = tuple(f"{name}={value}" for name, value in fixed.items())
    options = {**options, **({"settings": settings} if settings else {}), **({"space": ranges} if ranges else {})}
    valid = checked(options)
    return {name: getattr(valid, name) for name in options}


def with_file(options: SweepOptions | None, changes: Mapping[str, Any]) -> SweepOptions:
    """Return options with these changes; the file that they name says the rest, where they are the defaults."""
    usual = vars(SweepOptions())
    given = {name: value for name, value in vars(options or SweepOptions()).items() if value != usual[name]}
    given.update(changes)
    if given.get("config") is None:
        return checked(given)
    in_file = read_config(Path(given["config"]))
    settings = merged(in_file.get("settings", ()), tuple(given.get("settings", ())))
    return checked({**in_file, **given, "settings": settings})


def merged(settings: tuple[str, ...], over: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``KEY=VALUE`` entries, those of ``over`` in the place of others of their keys."""
    keys = {entry.partition("=")[0] for entry in over}
    return (*(entry for entry in settings if entry.partition("=")[0] not in keys), *over)


def range_of(name: str, written: Mapping[str, Any]) -> BaseDistribution | WithPrior:
    """Return the range that a file gives for a hyperparameter, with its prior if it gives one."""
    kinds = [kind for kind in written if kind not in (BASELINE, PRIOR)]
    if len(kinds) != 1 or kinds[0] not in RANGES:
        raise SweepError(f"[space] {name}: {dict(written)} is not a range; write one of {HOW}")
    (kind,) = kinds
    example, make = RANGES[kind]
    values = written[kind]
    numbers = (int,) if kind == "randint" else (int, float)
    try:
        if not isinstance(values, list | tuple) or not values:
            raise ValueError("it takes a list")
        if kind != "choice" and (len(values) != len(example.split(",")) or {*map(type, values)} - {*numbers}):
            raise ValueError(f"it takes {len(example.split(','))} {'whole ' if kind == 'randint' else ''}numbers")
        range_ = make(*values)
    except ValueError as error:
        raise SweepError(
            f"[space] {name}: {kind} = {values} is no range ({error}); write for example {{{kind} = {example}}}"
        ) from error
    return WithPrior(range_, prior=written[PRIOR]) if PRIOR in written else range_
