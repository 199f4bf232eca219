"""Numbers and hyperparameters as people read them, wherever a sweep shows them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters with which a text could command a terminal, or turn its words around; not tabs and ends of lines."""
MAX_LINE = 1_000
"""Most characters of an error's last line, which is shown in lists."""
MAX_CHOICE = 200
"""Most characters of a hyperparameter's value, which is shown in lines with others."""


def format_value(value: object, digits: int = 4) -> str:
    """Return a value for people: floats with this many significant digits, None as nothing, a pair as a range."""
    if isinstance(value, tuple):
        return " to ".join(format_value(bound, digits) for bound in value)
    return "" if value is None else f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def format_score(value: float) -> str:
    """Return a value of the metric for people: with four decimals, four digits below 0.01, or seven from 100,000."""
    if value != 0 and abs(value) < 0.01:
        return f"{value:.4g}"
    return f"{value:.4f}" if abs(value) < 100_000 else f"{value:.7g}"


def format_params(config: Mapping[str, Any], names: Iterable[str] | None = None, digits: int = 4) -> str:
    """Return hyperparameters as ``name=value name=value``.

    Args:
        config: The values by name.
        names: The names to show, in this order; those that ``config`` lacks are left out. None: all.
        digits: The number of significant digits of floats.
    """
    shown = config if names is None else [name for name in names if name in config]
    return " ".join(f"{name}={format_choice(config[name], digits)}" for name in shown)


def format_choice(value: object, digits: int = 4) -> str:
    """Return the value of a hyperparameter for people, cut if it is long. Unlike in :func:`format_value`, None is a
    choice with a name."""
    return "None" if value is None else shortened(format_value(value, digits), MAX_CHOICE)


def last_line(error: str) -> str:
    """Return the last line of an error's text, cut if it is very long.

    If it is indented, the line above that it belongs to comes first.
    """
    lines = [line for line in error.strip().splitlines() if line.strip()] or [""]
    message = next(line for line in reversed(lines) if not line[:1].isspace())
    return shortened(message if message is lines[-1] else f"{message} {lines[-1].strip()}", MAX_LINE)


def shortened(text: str, length: int) -> str:
    """Return a text of at most about so many characters: its beginning and its end."""
    half = length // 2
    return text if len(text) <= length else f"{text[:half]} ... ({len(text)} characters) ... {text[-half:]}"


def harmless(text: str) -> str:
    """Return a text that any terminal shows and no terminal obeys."""
    text = text.encode(errors="backslashreplace").decode()  # which replaces half of a surrogate pair
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def as_text(lines: Iterable[str]) -> str:
    """Return lines as one text for a terminal, which neither obeys it nor takes a part of a line for another one."""
    return "\n".join(harmless(line).replace("\n", "\\n").replace("\t", "\\t") for line in lines)


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def is_digits(text: str) -> bool:
    """Whether a text is a number in one to fifteen of the digits 0 to 9; Python also takes those of other scripts."""
    return re.fullmatch("[0-9]{1,15}", text) is not None


def did_you_mean(name: str, candidates: Sequence[str]) -> str:
    """Return " (did you mean X?)" with the candidate that resembles the name most, or "" if none does. Dashes at the
    beginning of both do not count."""
    by_word = {candidate.lstrip("-"): candidate for candidate in candidates}
    return "".join(f" (did you mean {by_word[match]}?)" for match in get_close_matches(name.lstrip("-"), by_word, n=1))


def shown(text: str, longest: int = 500) -> str:
    """Return a text as one line that any terminal prints, cut to a length."""
    line = text if text.isprintable() else ascii(text)
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def counted(number: int, noun: str) -> str:
    """Return a number of things in words: "1 worker", "2 workers"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a length of time in words, to the second below an hour and to the minute above."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} m" if hours else f"{minutes} m {rest:02d} s" if minutes else f"{rest} s"
