"""The user's own code. Each trial loads it again, so that no trial finds what another one has left in its globals.

Own code is the train loop, if it is sent by value, and the modules that are not installed: beside the script, in the
current folder, on PYTHONPATH. Installed are Python's own modules, those of site-packages, those that ``pip install
--target`` has recorded in a folder of any name, and packages in the folders that ``pip install --editable`` adds, such
as this project's checkout.
"""

from __future__ import annotations

import functools
import marshal
import os
import site
import sys
import time
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from ray import cloudpickle

from gaudi_tune.base.module_folders import added_by_pth_files
from gaudi_tune.private.cloudpickle import forget_classes
from gaudi_tune.private.global_state import forget_types

if TYPE_CHECKING:
    from gaudi_tune.training.session import TrainLoop

PACKAGE = Path(__file__).resolve().parents[2]
"""The folder of this project's package."""
STANDARD_LIBRARY = os.path.dirname(os.__file__)
ONCE = {
    "cloudpickle", "filelock", "habana_frameworks", "jinja2", "mlflow", "numpy", "optuna", "packaging", "pandas",
    "plotly", "psutil", "pyarrow", "pydantic", "pynvml", "ray", "requests", "rich", "scipy", "sklearn", "sqlalchemy",
    "threadpoolctl", "tomli", "torch", "typing_extensions", "tyro", "yaml",
}  # fmt: skip
"""Packages that are not the user's own, wherever they are: what this process runs on and has imported itself, and what
makes a device known to torch, which takes that once."""


class OwnCode:
    """A train loop with all that it brings along, as a trial begins with it."""

    def __init__(self, pickled_loop: bytes) -> None:
        """Take a train loop that cloudpickle has pickled. Modules that were imported before will be imported again."""
        self._pickled_loop = pickled_loop
        modules = sys.modules.copy()  # another thread may import something
        self._installed_modules = {name for name, module in modules.items() if _is_stand_in(module)}
        """Modules that stay. Looking at all modules after each trial would take longer than loading the loop."""
        _keep_sources()
        self.forget()

    def load(self) -> TrainLoop:
        """Return the train loop with new globals, and import the modules that it needs."""
        train_loop: TrainLoop = cloudpickle.loads(self._pickled_loop)
        return train_loop

    def forget(self) -> None:
        """Forget what was loaded: the next import of an own module runs it again."""
        forget_classes()
        forget_types()
        for name in list(self._imported_modules()):
            sys.modules.pop(name, None)
            parent, _, attribute = name.rpartition(".")
            if parent in sys.modules and hasattr(sys.modules[parent], attribute):
                delattr(sys.modules[parent], attribute)

    def _imported_modules(self) -> Iterator[str]:
        """Yield the names of the own modules that are imported now."""
        for name in sys.modules.keys() - self._installed_modules:
            if is_own_module(name) or _is_stand_in(sys.modules.get(name)):
                yield name
            else:
                self._installed_modules.add(name)


def _is_stand_in(module: Any) -> bool:
    """Whether it is a mock, or the None that bars a module from being imported."""
    return module is None or type(module).__module__ == "unittest.mock"


def is_own_module(name: str) -> bool:
    """Whether an imported module is the user's own. One that has no source, or none in a file, cannot be run again."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if spec is None or name == "__main__":
        return False
    name = spec.name  # torch also knows the module of a device as torch.hpu
    if name.partition(".")[0] in ONCE:
        return False
    if spec.origin is None and spec.submodule_search_locations:  # a namespace, which may span several folders
        folders = map(str, spec.submodule_search_locations)
        return not any(is_recorded(folder) or _is_installed(folder, name, in_package=True) for folder in folders)
    if not spec.has_location or not isinstance(spec.loader, SourceFileLoader | SourcelessFileLoader):
        return False
    if is_recorded(str(spec.origin)):
        return False
    is_package = spec.submodule_search_locations is not None
    folder = Path(str(spec.origin)).parents[name.count(".") + is_package]
    return not _is_installed(str(folder), name.partition(".")[0], in_package=is_package or "." in name)


def is_own(thing: Any) -> bool:
    """Whether a function, a class or an object is of the user's own code, or wraps a function of it."""
    while isinstance(thing, functools.partial | MethodType):
        thing = thing.func if isinstance(thing, functools.partial) else thing.__func__
    if isinstance(thing, FunctionType):
        wrapped = getattr(thing, "__wrapped__", None)
        return is_own_file(thing.__code__.co_filename) or (wrapped is not None and is_own(wrapped))
    module = (thing if isinstance(thing, type) else type(thing)).__module__
    return module == "__main__" or is_own_module(module)


@cache
def is_own_file(file: str) -> bool:
    """Whether code with this file is the user's own. A cell of a notebook may have a name in angle brackets."""
    if file.startswith("<"):
        return "ipython" in file
    in_package = file.startswith(f"{PACKAGE}{os.sep}")
    return not (in_package or _is_in_site_packages(os.path.dirname(file)) or is_recorded(file))


def _is_installed(folder: str, name: str, *, in_package: bool) -> bool:
    """Whether a module is installed.

    Args:
        folder: The folder in which Python has found the module, or the package that it is in.
        name: The name that it was looked for by.
        in_package: Whether it is a package or in one. A script's folder may have been added for a package in it.
    """
    if _is_in_site_packages(folder):
        return True
    return in_package and (os.path.realpath(folder) in _editable_folders() or name in _editable_names())


def is_recorded(path: str) -> bool:
    """Whether an installer has put a file, or the folder that it is in, into a folder of Python's path."""
    folders = (folder for folder in sys.path if folder and path.startswith(f"{folder}{os.sep}"))
    return any(path[len(folder) + 1 :].partition(os.sep)[0] in _recorded(folder) for folder in folders)


@cache
def _recorded(folder: str) -> set[str]:
    """Return the names in a folder that the records of packages list: pip and uv write one for each that they install.

    Another file there is the user's own: some install libraries into the folder of their script.
    """
    records = Path(folder).glob("*.dist-info/RECORD")
    lines = (line for record in records for line in record.read_text(errors="replace").splitlines())
    return {line.partition("/")[0].partition(",")[0] for line in lines}


@cache
def _is_in_site_packages(folder: str) -> bool:
    if {"site-packages", "dist-packages"} & {*Path(folder).parts}:
        return True
    return any(folder == python or folder.startswith(f"{python}{os.sep}") for python in _python_folders())


@cache
def _python_folders() -> set[str]:
    return {STANDARD_LIBRARY, os.path.realpath(STANDARD_LIBRARY), site.getusersitepackages()}


@cache
def _editable_folders() -> set[str]:
    """Return the folders of packages that are installed where their source is."""
    folders = [folder for folder in sys.path if _is_in_site_packages(folder) and os.path.isdir(folder)]
    added = [os.path.realpath(path) for folder in folders for path in added_by_pth_files(folder)]
    return {str(PACKAGE.parent), *added}


@cache
def _editable_names() -> set[str]:
    """Return the names of packages that setuptools finds for ``pip install --editable`` without adding a folder."""
    finders = [module for name, module in sys.modules.copy().items() if name.startswith("__editable__")]
    return {name for finder in finders for name in getattr(finder, "MAPPING", {})}


@cache
def _keep_sources() -> None:
    """Have each own module run the code that it had when it was first imported, even if its file has changed.

    Otherwise a person who edits a module while a sweep runs would change the trials that are left. Code that is written
    while this process lives is read each time: a trial may have written it for itself.
    """
    start_time, codes = time.time(), dict[str, bytes]()
    read_code = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
        file = loader.path
        if not is_own_file(file):
            return read_code(loader, fullname)
        if file not in codes:
            code = read_code(loader, fullname)
            if code is None or os.path.getmtime(file) >= start_time:
                return code
            codes[file] = marshal.dumps(code)
        # Not the same code object twice: what torch.compile keeps with it refers to the globals of a module.
        loaded: CodeType = marshal.loads(codes[file])  # noqa: S302  (made here)
        return loaded

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]
