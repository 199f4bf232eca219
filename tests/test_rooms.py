"""The folders of the package: imports lead down, no folder imports one beside it, and each keeps to a size."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gaudi_tune.define.options import PROJECT_ROOT

PACKAGE = PROJECT_ROOT / "gaudi_tune"
FLOORS = (
    ("cli",),
    ("on_ray",),
    ("plan",),
    ("sweep.policies", "sweep.search", "show"),
    ("sweep.record",),
    ("define",),
    ("group", "integrations", "data"),
    ("storage", "recipes"),
    ("training",),
    ("devices",),
    ("base", "private"),
)
"""From the top down. Folders of one floor do not know each other."""
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
BUDGETS = {
    "cli": 890,
    "on_ray": 2685,
    "plan": 1024,
    "sweep.policies": 720,
    "sweep.search": 1131,
    "show": 3288,
    "sweep.record": 1295,
    "define": 1410,
    "group": 1842,
    "integrations": 165,
    "data": 1751,
    "storage": 438,
    "recipes": 1224,
    "training": 658,
    "devices": 1005,
    "base": 543,
    "private": 1274,
}
"""The most code lines of each folder: those that are neither blank nor comment nor docstring. Who needs more makes room
first, by a simpler way to do what is there, or says in the commit why the folder may grow."""
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
"""Tokens that make no line a code line."""


def room_of(module: str) -> str:
    """The folder of a module: ``sweep`` has three."""
    parts = module.split(".")[1:]
    return ".".join(parts[:2] if parts[0] == "sweep" else parts[:1])


def imports_of(file: Path) -> Iterator[str]:
    """The modules that a file imports anywhere, also inside functions and for types alone."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources() -> Iterator[tuple[str, Path]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        if file.parent != PACKAGE:
            yield room_of(".".join(file.relative_to(PROJECT_ROOT).with_suffix("").parts)), file


def code_lines(source: str) -> int:
    """The number of its lines that are neither blank nor comment nor docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


SOURCE = '''"""Text
of two lines."""

# why
NAMES = (
    "a",
)
"""What it is."""


def f():
    """Text."""
    return 1  # why
'''


def test_code_lines_are_neither_blank_nor_comment_nor_docstring() -> None:
    assert code_lines(SOURCE) == 5


def test_every_folder_keeps_to_its_budget() -> None:
    sizes: Counter[str] = Counter()
    for room, file in sources():
        sizes[room] += code_lines(file.read_text())
    assert {room: size for room, size in sizes.items() if size > BUDGETS.get(room, 0)} == {}


def test_imports_lead_down() -> None:
    wrong = [
        f"{file.relative_to(PROJECT_ROOT)} imports {name}"
        for room, file in sources()
        if room in FLOOR
        for name in imports_of(file)
        if name.startswith("gaudi_tune.") and room_of(name) in FLOOR
        if room_of(name) != room and FLOOR[room_of(name)] <= FLOOR[room]
    ]
    assert wrong == []


def test_the_engine_never_imports_what_the_recipes_share() -> None:
    wrong = [
        f"{file.relative_to(PROJECT_ROOT)} imports {name}"
        for file in sorted(PACKAGE.rglob("*.py"))
        if not {PACKAGE / "recipes", PACKAGE / "data"} & {*file.parents}
        for name in imports_of(file)
        if name.startswith(("gaudi_tune.recipes", "gaudi_tune.data"))
    ]
    assert wrong == []


def test_every_folder_has_a_floor_and_says_what_it_is_for() -> None:
    folders = {room for room, _ in sources() if room != "sweep.__init__"}
    assert folders == set(FLOOR)
    for init in PACKAGE.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(init.read_text())), init


def test_the_sweep_knows_no_ray() -> None:
    with_ray = {
        file.name
        for room, file in sources()
        if room.startswith("sweep.")
        for name in imports_of(file)
        if name.split(".")[0] == "ray" or name.startswith("gaudi_tune.private.ray")
    }
    assert with_ray == set()


def test_the_package_knows_none_of_the_models() -> None:
    models = ("experiments", "search_spaces", "trainables", "tests")
    wrong = [f"{file}: {name}" for _, file in sources() for name in imports_of(file) if name.split(".")[0] in models]
    assert wrong == []
