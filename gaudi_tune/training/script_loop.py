"""Runs a script as a train loop: every trial runs it from its first line, as Python would."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from gaudi_tune.base.names import CONFIRMS

_config: dict[str, Any] | None = None


def run_script(config: dict[str, Any], path: str, source: bytes | str, package: str | None = None) -> None:
    """Run a script for one trial, without arguments on its command line.

    Args:
        config: What :func:`config_of_trial` returns to the script, which may hand all of it to a parser or to
            Hydra: so without ``confirms`` where that is 0.
        path: Its path, for ``__file__`` and tracebacks.
        source: Its text or bytes, so that all trials of a sweep run the same code on any node.
        package: The package that it is in, for its relative imports; None for a script that is in none.
    """
    global _config
    module, main, arguments = ModuleType("__main__"), sys.modules["__main__"], sys.argv
    module.__file__, module.__package__ = path, package
    if not config.get(CONFIRMS):
        config.pop(CONFIRMS, None)
    sys.modules["__main__"], sys.argv, _config = module, [path], config
    try:
        exec(compile(source, path, "exec", dont_inherit=True), vars(module))  # noqa: S102  (the user's own script)
    except SystemExit as end:
        if end.code not in (None, 0):  # else it has ended well, as by sys.exit(main())
            raise
    finally:
        sys.modules["__main__"], sys.argv, _config = main, arguments, None


def config_of_trial() -> dict[str, Any] | None:
    """Return the configuration of the trial that runs the calling script; None outside a trial."""
    return _config
