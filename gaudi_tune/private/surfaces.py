"""The private surfaces: what this project uses of libraries below their public API, and what it does without it.

Each surface names what it needs of its library, and is checked when it is first used, also in a version that nobody has
tested. If something is missing, the surface is off and :func:`part` calls what does without it. Where nothing can, a
sweep would lose work, and the plan refuses.

``GAUDI_TUNE_STOCK=1`` turns off all surfaces that can be done without, so that a sweep uses public APIs alone; names
with commas turn off these. ``GAUDI_TUNE_ANY_VERSION=1`` has a sweep begin nevertheless where the plan would refuse.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from configparser import ConfigParser
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

logger = logging.getLogger(__name__)

STOCK = "GAUDI_TUNE_STOCK"
"""Variable: "1", or the names of surfaces that are off."""
ANY_VERSION = "GAUDI_TUNE_ANY_VERSION"
"""Variable: "1" has a sweep use surfaces that it cannot do without, although something of them is missing."""
TESTED = {
    "ray": ("2.53", "2.54", "2.55", "2.56", "2.57", "2.58", "2.59", "2.60"),
    "optuna": ("4.5", "4.6", "4.7", "4.8", "4.9", "5.0"),
    "mlflow": tuple(f"3.{minor}" for minor in range(5, 18)),
    "torch": ("2.7", "2.10", "2.11", "2.15"),
    "dill": ("0.3", "0.4"),
}
"""The minor versions that the tests have run with."""
PACKAGES = ("torch", "torchvision", "habana-torch-plugin", "ray", "optuna", "mlflow", "transformers")
"""The packages on whose versions results depend."""
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Surface:
    """What is used of a library below its public API for one purpose."""

    name: str
    library: str
    gives: str
    """What a sweep has of it."""
    fallback: str
    """What a sweep does without it; "" if it would lose work, so that it needs the surface."""
    needs: str
    """The private names; ``surfaces.ini`` says how they are written."""

    def missing(self, *, all_names: bool = True) -> str:
        """Return the first of the names that the installed library does not have; "" if the contract holds."""
        names = [need for need in self.needs.split() if all_names or not need.startswith("?")]
        return next((need for name in names if not _exists(need := name.removeprefix("?"))), "")


def _exists(need: str) -> bool:
    """Whether a name is there, and has these parameters."""
    place, _, parameters = need.rstrip(")").partition("(")
    module, _, path = place.partition(":")
    try:
        item: Any = importlib.import_module(module)
        for name in path.split(".") if path else ():
            if inspect.isclass(item) and not hasattr(item, name):
                return _sets(item, name)
            item = getattr(item, name)
        accepted = inspect.signature(item).parameters if parameters else {}
    except (ImportError, AttributeError, TypeError):
        return False
    except ValueError:  # compiled code does not tell its parameters
        return True
    return set(filter(None, parameters.split(","))) <= accepted.keys()


@cache
def _source(kind: type) -> str:
    """Return the modules of a class and its bases. Python 3.11 would parse them to find the class in them, which may
    fail in a thread."""
    files = (getattr(sys.modules[base.__module__], "__file__", None) for base in kind.__mro__)
    return "\n".join(Path(file).read_text() for file in filter(None, files))


def _sets(kind: type, name: str) -> bool:
    """Whether a class sets this attribute of its objects."""
    return bool(re.search(rf"\bself\.{name}\b|^    {name}:", _source(kind), re.MULTILINE))


@cache
def reason_off(name: str) -> str:
    """Return why a surface is off: the name that is missing, or the variable that turns it off; "" if it is on."""
    surface, stock = SURFACES[name], os.environ.get(STOCK, "")
    if name in stock.split(",") or (stock == "1" and surface.fallback):
        reason = f"{STOCK}={stock}"
    else:
        missing = surface.missing(all_names=surface.library in untested())
        reason = f"{surface.library} {version_of(surface.library)} lacks {missing}" if missing else ""
    if reason and not surface.fallback and os.environ.get(ANY_VERSION) == "1":
        reason = ""
    if reason and stock != "1":
        logger.warning("off: %s, which %s (%s)", name, surface.gives, reason)
    return reason


def holds(name: str) -> bool:
    """Whether a surface is to be used."""
    return not reason_off(name)


def part(
    name: str, fallback: Callable[..., Any]
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Make a function part of a surface; ``fallback`` is called in its place where the surface is off."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @wraps(function)
        def wrapper(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            target: Callable[..., Result] = function if holds(name) else fallback
            return target(*args, **kwargs)

        return wrapper

    return decorate


def variables_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that say which surfaces are off, for processes that do not inherit them."""
    return {name: environment[name] for name in (STOCK, ANY_VERSION) if name in environment}


def version_of(library: str) -> str:
    """Return the version of a library; "" if it is not installed."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return ""


def installed_versions() -> dict[str, str]:
    """Return the version of each of :data:`PACKAGES` that is installed."""
    return {package: version for package in PACKAGES if (version := version_of(package))}


def tested(library: str) -> str:
    """Return the versions of a library that were tested, in words."""
    return f"{library} {', '.join(TESTED[library])}"


def untested() -> dict[str, str]:
    """Return the version of each installed library that nobody has tested."""
    installed = {library: version_of(library) for library in TESTED}
    return {
        library: version
        for library, version in installed.items()
        if version and not any(re.match(rf"{re.escape(minor)}(\.|$)", version) for minor in TESTED[library])
    }


def surfaces_off() -> Iterator[Surface]:
    """Yield the surfaces that are off: by a variable, or because an untested version lacks something.

    Those of tested versions are not looked at: that would import libraries which a plan does not need.
    """
    libraries, stock = untested(), os.environ.get(STOCK, "")
    for surface in SURFACES.values():
        named = surface.name in stock.split(",") or (stock == "1" and bool(surface.fallback))
        if (named or surface.library in libraries) and reason_off(surface.name):
            yield surface


def _read_table() -> dict[str, Surface]:
    parser = ConfigParser(interpolation=None, delimiters=("=",))
    parser.read_string(Path(__file__).with_name("surfaces.ini").read_text())
    return {name: Surface(name=name, **parser[name]) for name in parser.sections()}


SURFACES = _read_table()
"""The surfaces by their names."""
