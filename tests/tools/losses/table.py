"""The table of private surfaces in the documentation.

python -m tests.tools.losses.table    # writes it
"""

from __future__ import annotations

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.private.surfaces import SURFACES

PAGE = PROJECT_ROOT / "docs" / "private-parts.md"
BEGIN, END = "<!-- begin: python -m tests.tools.losses.table -->", "<!-- end -->"


def table() -> str:
    """Return the table, as it is between the marks."""
    lines = ["| surface | of | what it gives a sweep: it ... | without it |", "|---|---|---|---|"]
    for surface in SURFACES.values():
        without = surface.fallback or "**the plan refuses**"
        lines.append(f"| `{surface.name}` | {surface.library} | {surface.gives} | {without} |")
    return "\n".join(["", "", *lines, "", ""])


def main() -> None:
    """Write the table."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{table()}{END}{after}")


if __name__ == "__main__":
    main()
