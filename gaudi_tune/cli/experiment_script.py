"""Loading the experiment of a script, whether the script calls ``main()`` or not.

(A script that is tuned itself, line by line, is another thing: ``tune_script.py`` and ``training/script_loop.py``.)
"""

from __future__ import annotations

import sys
import traceback
import types
from collections.abc import Sequence
from pathlib import Path

from gaudi_tune.base.errors import USER_CODE_ERRORS, SweepError, place_of, users_error
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.reading import read_path

is_loading = False
"""Whether a script runs only to load its experiment: ``main()`` then raises :class:`MainCalled`."""


class MainCalled(BaseException):
    """A script that runs only to load its experiment has called ``main()``; ``except Exception`` does not catch it."""

    def __init__(self, experiment: Experiment, description: str | None) -> None:
        self.experiment, self.description = experiment, description


def load_experiment(
    script: str, arguments: Sequence[str] = (), experiment_name: str | None = None
) -> tuple[Experiment, str]:
    """Run a script until it calls ``main()`` or ends, and return its experiment and its description.

    This process becomes that script, as with ``python my.py``: modules are looked for in its folder first, and what it
    defines is sent to workers by value.

    Args:
        script: The file, and perhaps a colon and the variable with the experiment.
        arguments: The command line that the script sees.
        experiment_name: The name of the experiment, to choose among several.

    Raises:
        SweepError: There is no such file, or not exactly one experiment in it.
    """
    path, colon, variable = script.rpartition(":")
    if not variable.isidentifier():  # a folder may have a colon in its name
        path, colon, variable = script, "", ""
    try:
        file = read_path(path).expanduser()
    except ValueError as error:
        raise SweepError(f"{script or repr(script)}: {error}; give a script, or my.py:EXPERIMENT") from error
    if not file.is_file():
        raise SweepError(f"{script}: there is no file {file}; give a script, or my.py:EXPERIMENT")
    module = types.ModuleType("__main__")
    module.__file__ = str(file.absolute())  # as for Python, so that the script may change the current folder
    sys.modules["__main__"] = module
    sys.path.insert(0, str(file.resolve().parent))
    sys.argv = [str(file), *arguments]
    main_call = _run_until_main(file, module)
    experiments = {name: value for name, value in vars(module).items() if isinstance(value, Experiment)}
    if colon:
        candidates = [experiments[variable]] if variable in experiments else []
    elif main_call is not None:
        candidates = [main_call.experiment]
    else:
        candidates = [value for value in experiments.values() if experiment_name in (None, value.name)]
    if len(candidates) != 1:
        if not experiments:
            raise SweepError(f"{script}: it has no Experiment and does not call main(); add main(Experiment(...))")
        variables = ", ".join(experiments)
        raise SweepError(f"{script}: name one of its experiments ({variables}), as in {file}:{next(iter(experiments))}")
    description = main_call.description if main_call is not None else None
    return candidates[0], description or module.__doc__ or ""


def _run_until_main(file: Path, module: types.ModuleType) -> MainCalled | None:
    """Run a script, and return its call of ``main()``, or None if it ends without one."""
    global is_loading
    is_loading = True
    try:
        code = compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102  (the user asked to run it)
    except MainCalled as main_call:
        return main_call
    except SystemExit as end:
        raise SweepError(
            f"{file}: it ends itself (sys.exit({end.code!r})) before it calls main(); have it define an Experiment"
        ) from end
    except USER_CODE_ERRORS as error:
        reason = f"{error} ({place_of(error)})" if isinstance(error, SweepError) else users_error(error)
        # A range of Ray's that cannot be made does not know its hyperparameter, but its line does.
        lines = [frame.line for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        raise SweepError(f"{file} failed: {reason}{f' in {lines[-1]!r}' if lines else ''}; fix it there") from error
    finally:
        is_loading = False
    return None
