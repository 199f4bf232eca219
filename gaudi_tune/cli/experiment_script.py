"""The experiment in a script: of this project or of a user, with or without a call of ``main()``."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from pathlib import Path

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.experiment import Experiment

wanted = False
"""Whether a script runs for its experiment alone: ``main()`` then raises :class:`MainCalled`."""


class MainCalled(BaseException):
    """A script that runs for its experiment alone has called ``main()``; no ``except Exception`` of it stops this."""

    def __init__(self, experiment: Experiment, description: str | None) -> None:
        self.experiment, self.description = experiment, description


def load_experiment(script: str, arguments: Sequence[str] = (), named: str | None = None) -> tuple[Experiment, str]:
    """Run a script until it calls ``main()`` or ends, and return its experiment and what it says of itself.

    This process becomes that script, as with ``python my.py``: its folder is the first to look for modules in, and what
    it defines is sent to workers by value. A SweepError if there is not exactly one experiment.

    Args:
        script: Its file, and perhaps a colon and the variable with the experiment.
        arguments: The command line that the script sees.
        named: The name of the experiment, to choose among several.
    """
    place, colon, variable = script.rpartition(":")
    if not variable.isidentifier():  # a folder may have a colon in its name
        place, colon, variable = script, "", ""
    file = Path(place).expanduser()
    if not file.is_file():
        raise SweepError(f"{script}: there is no file {file}; give a script, or my.py:EXPERIMENT")
    module = types.ModuleType("__main__")
    module.__file__ = str(file)
    sys.modules["__main__"] = module
    sys.path.insert(0, str(file.resolve().parent))
    sys.argv = [str(file), *arguments]
    called = _run(file, module)
    found = {name: value for name, value in vars(module).items() if isinstance(value, Experiment)}
    if colon:
        chosen = [found[variable]] if variable in found else []
    elif called is not None:
        chosen = [called.experiment]
    else:
        chosen = [experiment for experiment in found.values() if named in (None, experiment.name)]
    if len(chosen) != 1:
        if not found:
            raise SweepError(f"{script}: it has no Experiment and does not call main(); add main(Experiment(...))")
        there = ", ".join(found)
        raise SweepError(f"{script}: name one of its experiments ({there}), as in {file}:{next(iter(found))}")
    description = called.description if called is not None else None
    return chosen[0], description or module.__doc__ or ""


def _run(file: Path, module: types.ModuleType) -> MainCalled | None:
    global wanted
    wanted = True
    try:
        exec(compile(file.read_bytes(), str(file), "exec"), vars(module))  # noqa: S102  (what the user asked to run)
    except MainCalled as called:
        return called
    finally:
        wanted = False
    return None
