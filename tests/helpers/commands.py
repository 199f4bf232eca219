"""Commands as people type them, in this process and with its Ray: a new process takes ten seconds to start."""

from __future__ import annotations

import contextlib
import io
import runpy
import shlex
import sys

import pytest

from gaudi_tune.cli.commands import main


def run(command: str, expected: int = 0) -> str:
    """Run ``python FILE ...`` or ``gaudi-tune ...`` in the current folder, and return what it prints, errors last.

    Raises:
        AssertionError: It ends with another status than ``expected``.
    """
    program, *arguments = shlex.split(command)
    assert program in ("python", "gaudi-tune"), command
    printed, errors, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors), pytest.MonkeyPatch.context() as patch:
        try:
            if program == "gaudi-tune":
                status = main(arguments)
            else:
                patch.setattr(sys, "argv", arguments)
                runpy.run_path(arguments[0], run_name="__main__")
        except SystemExit as ended:
            status = int(ended.code or 0)
    said = printed.getvalue() + errors.getvalue()
    assert status == expected, f"{command}: {said}"
    return said
