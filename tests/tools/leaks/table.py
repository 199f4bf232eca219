"""The page that says what becomes of what trials leave behind."""

from __future__ import annotations

from gaudi_tune.define.options import PROJECT_ROOT
from tests.tools.leaks import ways

PAGE = PROJECT_ROOT / "docs" / "what-stays.md"
BEGIN, END = "<!-- begin: python -m tests.tools.leaks --write -->", "<!-- end -->"
WORDS = {ways.CLEAN: "clean", ways.NEW_WORKERS: "the next trial gets new workers", ways.STAYS: "**stays**"}


def tables(outcomes: dict[str, str]) -> str:
    """Return the tables of the page, one for each section."""
    lines = []
    for section, members in ways.SECTIONS.items():
        lines += [f"## {section}", "", "| left behind | what becomes of it |", "|---|---|"]
        lines += [
            f"| {way.name} | {' '.join(filter(None, (WORDS[outcomes[way.name]] + '.', way.note)))} |" for way in members
        ]
        lines.append("")
    return "\n".join(lines)


def expected() -> dict[str, str]:
    """Return what is to become of each way."""
    return {way.name: way.outcome for members in ways.SECTIONS.values() for way in members}
