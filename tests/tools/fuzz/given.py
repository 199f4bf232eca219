"""What the doors share: an input, the experiment that most are for, and how a sweep is planned from it."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from unittest.mock import patch

from ray import tune

from gaudi_tune import Experiment, SweepOptions
from gaudi_tune.cli import command_line, commands
from gaudi_tune.cli.run import dry_run_lines
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.plan_text import plan_lines

DIGITS = "[0-9](_?[0-9])*"
WHOLE = re.compile(rf"\s*[+-]?{DIGITS}(\.0*)?\s*")
"""How people write a whole number."""
DECIMAL = re.compile(rf"\s*[+-]?({DIGITS}(\.({DIGITS})?)?|\.{DIGITS})([eE][+-]?{DIGITS})?\s*")
"""How people write any number."""


def loop(config: dict[str, Any]) -> None:
    """Train nothing: no trial begins here."""


SMALL = Experiment(train_loop=loop, name="small", space={"lr": tune.loguniform(1e-4, 1e-1), "k": 3}, metric="loss")
"""The experiment that most inputs are for."""


Misread: TypeAlias = "Callable[[Any], str]"
"""A function that says what an accepted input was taken for, if that is not what it says; else ""."""


def nothing_wrong(result: Any) -> str:
    """Find nothing wrong with what an input was taken for."""
    return ""


@dataclass(frozen=True)
class Input:
    """Something that a user gives."""

    door: str
    text: str
    """The input, for people."""
    give: Callable[[], Any]
    """A function that gives it, and returns the plan, the exit status, or nothing."""
    wrong: str = ""
    """Why it must not be accepted; "" if it may be."""
    misread: Misread = nothing_wrong
    raises: bool = False
    """Whether a user's own code raises, so that the answer must have that error and its line."""


def made(experiment: Experiment, **options: Any) -> Plan:
    """Plan a sweep in full, as a dry run does: the text of the plan, and the first proposals."""
    plan = make_plan(experiment, SweepOptions(**{"device": "cpu", **options}))
    assert plan_lines(plan) and dry_run_lines(plan)
    return plan


def dry_run(experiment: Experiment, arguments: Sequence[str]) -> Plan | int:
    """Run a script's command line as a dry run, and return the plan, or the exit status if it was refused."""
    plans: list[Plan] = []

    def keep(*args: Any, **kwargs: Any) -> Plan:
        plans.append(make_plan(*args, **kwargs))
        return plans[-1]

    dry = [] if any(argument.startswith("--dry-run") for argument in arguments) else ["--dry-run"]
    with patch("gaudi_tune.plan.planner.make_plan", keep), patch.object(sys, "argv", ["my.py"]):
        try:
            command_line.main(experiment, "Tune.", [*dry, *arguments])
        except SystemExit as end:
            if end.code not in (0, None):
                return int(end.code) if isinstance(end.code, int) else 1
    return plans[0] if plans else 0


def run_command(arguments: Sequence[str]) -> int:
    """Run ``gaudi-tune`` with these arguments, and return the exit status."""
    with kept_process():
        try:
            return commands.main(arguments)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1


@contextmanager
def kept_process() -> Iterator[None]:
    """Put back what loading a script replaces."""
    module, path, arguments = sys.modules["__main__"], sys.path[:], sys.argv[:]
    try:
        yield
    finally:
        sys.modules["__main__"], sys.path[:], sys.argv[:] = module, path, arguments


def number_in(text: str, *, whole: bool) -> float | None:
    """Return the number that a text is for anybody who reads it; None if it is none."""
    if not (WHOLE if whole else DECIMAL).fullmatch(text):
        return None
    value = float(text)
    if not math.isfinite(value) or (value == 0 and re.search("[1-9]", re.split("[eE]", text)[0])):
        return None
    return int(value) if whole else value


def read_as(name: str, text: str, *, whole: bool) -> tuple[str, Misread]:
    """Return why a text is no value of an option, and a function that sees whether it was taken for another."""
    expected = number_in(text, whole=whole)

    def misread(result: Any) -> str:
        value = getattr(result.options, name) if isinstance(result, Plan) else expected
        return "" if value == expected else f"taken for {value!r}"

    return ("" if expected is not None else "not a number"), misread
