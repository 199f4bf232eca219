"""The error for wrong input, and what people read of values and of the errors of their own code."""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from gaudi_tune.base.failure import message_of

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)

USER_CODE_ERRORS = (Exception, SystemExit)
"""What code that a user gives may raise, wherever the sweep goes on after it or says whose fault it was: anything, also
SystemExit, by which a parser of command lines answers a wrong value. A KeyboardInterrupt is a person's, and passes."""
LONGEST_WORD = 300
"""Characters of a value that are shown in an error."""
LONGEST_TEXT = 2500
"""Characters of the longest error; the middle of a longer one is left out."""
_LIBRARIES = (Path(__file__).parents[1], Path(os.__file__).parent, Path(sys.prefix, "lib"))
"""Folders of code that is not the user's."""
_AS_PEOPLE_WRITE: tuple[tuple[str, str], ...] = (
    (r"<ray\.tune\.search\.sample\.\w+ object at 0x\w+>", "a range of Ray Tune"),
    (r"<(?:[\w.]+\.)?(\w+) object at 0x\w+>", r"an object of the class \1"),
    (r"<(?:function|bound method|built-in method) (?:\w+\.|<locals>\.)*(\w+|<lambda>)[^<>]*>", r"the function \1"),
    (r"\bnp\.\w+\(([^()]*)\)", r"\1"),
    (r"\bDecimal\('([^']*)'\)", r"\1"),
)
"""Patterns of what Python writes and people do not, and what stands in their place."""


class SweepError(ValueError):
    """A sweep cannot do what the user asked for. The text names the rule, the value and the fix."""

    status = 2
    """The exit status of a command that this ends: something that it was given cannot be used."""

    def __init__(self, text: str) -> None:
        super().__init__(readable(text))


@contextmanager
def errors_are_logged(text: str) -> Iterator[None]:
    """Log what the block raises, with a text that says what it means, and go on: for what may fail without harm to the
    sweep, such as a view of it, and for threads, whose errors nobody else would report.

    >>> with errors_are_logged("the picture is missing; the sweep continues"):
    ...     raise OSError("no space left")
    """
    try:
        yield
    except Exception:
        logger.exception("%s", text)


@contextmanager
def damage_is_an_error(subject: str) -> Iterator[None]:
    """Turn whatever the content of damaged files raises inside the block into a SweepError."""
    try:
        yield
    except SweepError:
        raise
    except Exception as error:  # files of any content: each kind of damage raises its own
        raise SweepError(
            f"{subject}: a file in the sweep's folder is damaged ({first_line(error)}); put it back from a backup"
        ) from error


def shown_plainly(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Have Python print a SweepError of this function as a line, without a traceback, if it ends the user's script."""

    @wraps(function)
    def with_hook(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except SweepError:
            hook = sys.excepthook
            # Not a debugger's hook.
            if hook is sys.__excepthook__ or getattr(hook, "__module__", "") == "ray._private.worker":
                sys.excepthook = partial(_print_error, hook)
            raise

    return with_hook


def _print_error(
    hook: Callable[..., object], kind: type[BaseException], error: BaseException, frames: TracebackType | None
) -> None:
    """Print a SweepError as a line, and leave any other error to the hook that was there before."""
    if not isinstance(error, SweepError):
        hook(kind, error, frames)
        return
    place = place_of(error)
    print(f"error: {error}{f' ({place})' if place else ''}", file=sys.stderr)


def readable(text: str) -> str:
    """Return a text without what nobody can read: endless values, addresses of objects, the types of numbers."""
    for pattern, words in _AS_PEOPLE_WRITE:
        text = re.sub(pattern, words, text)
    text = re.sub(rf"(\S{{{LONGEST_WORD}}})\S{{20,}}", r"\1...", text)
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT // 2]} ... {text[-LONGEST_TEXT // 3 :]}"


def written(value: object) -> str:
    """Return a value as Python writes it, not too long."""
    text = repr(value)
    return text if len(text) <= LONGEST_WORD else f"{text[:LONGEST_WORD]}..."


def first_line(error: BaseException) -> str:
    """Return the type and the first line of an error."""
    message = message_of(error).strip() or "no message"
    return f"{type(error).__name__}: {message.splitlines()[0]}"


def users_error(error: BaseException) -> str:
    """Return an error of a user's own code in words, with the line of that code that it comes from."""
    message, place = message_of(error), place_of(error)
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"{text} ({place})" if place else text


def place_of(error: BaseException) -> str:
    """Return the file and line of a user's own code from which an error comes; "" if it has none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        is_generated = frame.filename == "<string>" or frame.filename.startswith("<frozen ")  # a dataclass's; Python's
        if (
            frame.lineno
            and not is_generated
            and not any(Path(frame.filename).is_relative_to(folder) for folder in _LIBRARIES)
        ):
            return f"{frame.filename}, line {frame.lineno}"
    return ""
