"""``--config``: a TOML file with the options of a sweep."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import did_you_mean
from gaudi_tune.define.options import TRAITS, SweepOptions, checked

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SET = "set"
"""The table of the file with settings and fixed hyperparameters, as ``--set`` has them."""


def read_config(file: Path) -> dict[str, Any]:
    """Return the options that a file gives, by field of :class:`SweepOptions`; a SweepError names the file."""
    try:
        return _read_options(tomllib.loads(file.expanduser().read_text(encoding="utf-8-sig")))
    except tomllib.TOMLDecodeError as error:
        raise SweepError(
            f'--config {file}: is not TOML ({error}); strings need quotes, as in search = "tpe"'
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise SweepError(f"--config {file}: cannot be read ({error}); give a TOML file") from error
    except SweepError as error:
        raise SweepError(f"--config {file}: {error}") from error


def _read_options(content: Mapping[str, Any]) -> dict[str, Any]:
    file_options = [name for name, traits in TRAITS.items() if traits.in_config_file]
    options: dict[str, Any] = {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name in options:
            raise SweepError(f"{key} and {name} are the same option; give it once")
        if name not in (*file_options, SET):
            fix = (
                "; ranges are in the Experiment of the script" if name == "space" else did_you_mean(name, file_options)
            )
            raise SweepError(f"there is no option {name!r}{fix}; the options are {', '.join(file_options)} and [{SET}]")
        options[name] = value
    fixed = options.pop(SET, {})
    if not isinstance(fixed, Mapping):
        raise SweepError(f"{SET} must be a table; write [{SET}] and a line for each key below it")
    for name, value in fixed.items():
        if not isinstance(value, str | int | float):
            raise SweepError(f"{name} = {value!r} must be a number, a string or a bool")
    if fixed:
        options["settings"] = tuple(f"{name}={value}" for name, value in fixed.items())
    valid = checked(options)
    return {name: getattr(valid, name) for name in options}


def with_file(given: Mapping[str, Any]) -> SweepOptions:
    """Return the options with these values. What is not among them, the ``config`` file may give."""
    options = checked(given)
    if options.config is None:
        return options
    file_options = read_config(options.config)
    settings = merged(file_options.get("settings", ()), options.settings)
    return checked({**file_options, **given, "settings": settings})


def merged(settings: tuple[str, ...], overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Return two lists of ``KEY=VALUE`` entries as one. Where both have a key, the entry of ``overrides`` stays."""
    keys = {entry.partition("=")[0] for entry in overrides}
    return (*(entry for entry in settings if entry.partition("=")[0] not in keys), *overrides)
