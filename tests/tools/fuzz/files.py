"""``--config`` files in TOML."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from gaudi_tune.define.options import TRAITS
from tests.tools.fuzz.given import SMALL, Input, dry_run
from tests.tools.fuzz.lines import DECIMALS, EVERYTHING, NUMBERS, SWITCHES, TEXTS
from tests.tools.fuzz.values import shown

VALUES = (
    "true", "false", "nan", "inf", "0", "-1", "5", "5.0", "5.5", "1_000", "1e3", "'5'", "''", "'nan'", "[]", "[5]",
    "['a']", "{}", "{a = 1}", "2026-01-01", "[1, 'a']", "'true'", "[true]", "[0.1, 0.2]",
)  # fmt: skip
"""Values of keys."""
NO_NUMBERS = ("true", "false", "nan", "inf", "''", "'nan'", "[]", "[5]", "{}", "2026-01-01", "'true'", "[true]")
WHOLE_FILES = (
    b"\xef\xbb\xbfepochs = 5\n", b"epochs = 5\r\n", b"[space", b"[set]\nlr = 0.1\nlr = 0.2", b"space = 5",
    b"set = 'lr=1'", b"[set]\nepochs = 3", b"[set.lr]\nx = 1", b"epochs = 5\n" * 2, b"", b"#", b"[set]\nlr = nan",
    b"[space]\nlr = {uniform = [0, 1]}", b"[set]\nk = '1_0'", b"[set]\nk = 5.0", b"[set]\nk = ''", b"[set]\n'' = 1",
    b"[set]\n'a=b' = 1",
)  # fmt: skip
"""Odd files."""


def toml_files(random: Random, place: Path) -> Input:
    """Return a ``--config`` file: keys of options with other values, misspelt keys, odd files."""
    kind, wrong = random.randrange(6), ""
    content: bytes | str
    if kind < 3:
        name, value = random.choice([*EVERYTHING, *SWITCHES]), random.choice(VALUES)
        content = f"{random.choice((name, name.replace('_', '-')))} = {value}\n"
        if (name in NUMBERS or name in DECIMALS) and value in NO_NUMBERS:
            wrong = "no number"
        if name in SWITCHES and value not in ("true", "false"):
            wrong = "neither true nor false"
    elif kind == 3:
        name = random.choice([*NUMBERS, *TEXTS])
        key = random.choice((name[:-1], name + "s", name.upper(), f'"{name} "', f"{name}.x", f"sweep.{name}"))
        content, wrong = f"{key} = {NUMBERS.get(name, repr('a'))}\n", "" if key in TRAITS else "there is no such option"
    elif kind == 4:
        name = random.choice([name for name in EVERYTHING if "_" in name])
        content, wrong = f"{name} = 5\n{name.replace('_', '-')} = 6\n", "given twice"
    else:
        content = random.choice(WHOLE_FILES)
    file = place / "fuzz.toml"

    def give() -> Any:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return dry_run(SMALL, ["--config", str(file)])

    return Input("toml", shown(content), give, wrong)
