"""What was changed in an example: how many lines, and whether they are imports or build the sweep."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator


class OtherTextError(Exception):
    """An example has another text than the one that the changes were written for."""


def changed(text: str, changes: tuple[tuple[str, str], ...]) -> str:
    """Return the text of an example with the changes made, each wherever its old text stands."""
    for old, new in changes:
        if old not in text:
            raise OtherTextError(f"the text has no {old.strip()!r}")
        text = text.replace(old, new)
    return text


def count_lines(before: str, after: str) -> tuple[int, int]:
    """Return how many lines differ, and how many of these neither import nor build the sweep."""
    allowed = set(_lines_that_may_change(before))
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    number = elsewhere = 0
    for kind, first, end, first_after, end_after in matcher.get_opcodes():
        if kind != "equal":
            lines = max(end - first, end_after - first_after)
            number += lines
            touched = range(first + 1, end + 1) if end > first else range(first, first + 1)
            elsewhere += 0 if allowed.issuperset(touched) else lines
    return number, elsewhere


def _lines_that_may_change(text: str) -> Iterator[int]:
    """Yield the lines of imports and of calls of ``Tuner()``."""
    for node in ast.walk(ast.parse(text)):
        builds = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "Tuner"
        if builds or isinstance(node, ast.Import | ast.ImportFrom):
            assert isinstance(node, ast.stmt | ast.expr)
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)
