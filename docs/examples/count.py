"""Count the lines that each example was changed in.

``python docs/examples/count.py`` prints a line for each example, and the changed lines with ``--diff``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from difflib import SequenceMatcher, unified_diff
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in (HERE / "found").glob("*.py"))


def lines(file: Path) -> list[str]:
    """Return the lines of a script, without blank ones."""
    return [line for line in file.read_text().splitlines() if line.strip()]


def changed(before: list[str], after: list[str]) -> int:
    """Return how many lines were rewritten, added or deleted; one that is only indented otherwise counts, too."""
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in blocks if kind != "equal")


def of(name: str, way: str) -> int | None:
    """Return how many lines of an example were changed for one way to tune it; None where that is not shown."""
    file = HERE / way / f"{name}.py"
    return changed(lines(HERE / "found" / f"{name}.py"), lines(file)) if file.exists() else None


def table() -> Iterator[str]:
    """Yield a row for each example, and the median."""
    ways = ("tuned", "ray_tune", "optuna")
    counts = {name: [of(name, way) for way in ways] for name in NAMES}
    yield f"{'':24}{''.join(f'{way:>10}' for way in ways)}"
    for name, row in counts.items():
        yield f"{name:24}{''.join('         -' if count is None else f'{count:10}' for count in row)}"
    yield f"{'median':24}{median(row[0] for row in counts.values()):10g}"


if __name__ == "__main__":
    print("\n".join(table()))
    if "--diff" in sys.argv:
        for name in NAMES:
            pair = [lines(HERE / way / f"{name}.py") for way in ("found", "tuned")]
            print("\n".join(unified_diff(*pair, f"found/{name}.py", f"tuned/{name}.py", n=0, lineterm="")))
