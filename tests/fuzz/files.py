"""Files: ``--config`` in TOML, and what earlier sweeps left in their folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

from gaudi_tune.define.options import TRAITS, flag
from tests.fuzz.given import SMALL, Input, dry_run, run_command
from tests.fuzz.lines import DECIMALS, EVERYTHING, NUMBERS, SWITCHES, TEXTS
from tests.fuzz.values import shown

VALUES = (
    "true", "false", "nan", "inf", "-inf", "0", "-1", "5", "5.0", "5.5", "1_000", "0x10", "0o7", "1e3",
    "1e400", "'5'", "''", "'nan'", "[]", "[5]", "['a']", "[[1]]", "{}", "{a = 1}", "2026-01-01", "07:32:00",
    "'''a\nb'''", "'\u0663'", "999999999999999999999", "[1, 'a']", "'true'", "1979-05-27T07:32:00Z", "[true]",
    "{uniform = [0, 1]}", "[0.1, 0.2]",
)  # fmt: skip
"""Values of keys."""
NO_NUMBERS = (
    "true", "false", "nan", "inf", "-inf", "1e400", "''", "'nan'", "[]", "[5]", "{}", "2026-01-01", "'\u0663'",
    "'true'", "[true]",
)  # fmt: skip
RANGES = (
    "{uniform = [0.0, 0.5]}", "{loguniform = [1e-5, 1e-2]}", "{quniform = [0.0, 0.5, 0.1]}", "{randint = [1, 10]}",
    "{choice = [8, 16, 32]}",
)  # fmt: skip
BOUNDS = (
    "0", "-1", "1e-5", "0.5", "1e308", "1e-320", "nan", "inf", "true", "'1'", "10", "10.0", "[1]", "{}",
    "1e-300", "-0.0", "2026-01-01", "1", "2", "3",
)  # fmt: skip
"""Bounds, steps and priors of ranges."""
WHOLE_FILES = (
    b"\xef\xbb\xbfepochs = 5\n", b"\xff\xfe\x00", b"epochs = 5\r\n", b"epochs = 5\0", b"[space",
    b"a = " + b"[" * 3000, b"[set]\nlr = 0.1\nlr = 0.2", b"a." * 2000 + b"b = 1", b"[[space]]\nlr = 1",
    b"space = 5", b"set = 'lr=1'", b"[set]\nepochs = 3", b"[set.lr]\nx = 1", b"epochs = 5\n" * 2, b"", b"#",
    b"[space]\nlr = {choice = [" + b"1," * 50_000 + b"]}", b"[set]\nlr = nan",
    b"[set]\nlr = 0.1\n[space]\nlr = {uniform = [0, 1]}", b"[space]\nk = true",
    b"[space.lr]\nuniform = [0, 1]", b"[set]\nk = '1_0'", b"[set]\nk = 5.0", b"[set]\nk = ''",
    b"[set]\nlr = 1e400", b"[set]\n'' = 1", b"[set]\n'a=b' = 1",
)  # fmt: skip
"""Odd files."""


def toml_files(random: Random, place: Path) -> Input:
    """Return a ``--config`` file: keys of options with other values, misspelt keys, odd ranges, odd bytes."""
    kind, wrong = random.randrange(8), ""
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
        key = random.choice(
            (name[:-1], name + "s", name.upper(), name.title(), f'"{name} "', f"{name}.x", f"sweep.{name}")
        )
        content, wrong = f"{key} = {NUMBERS.get(name, repr('a'))}\n", "" if key in TRAITS else "there is no such option"
    elif kind == 4:
        name = random.choice([name for name in EVERYTHING if "_" in name])
        content, wrong = f"{name} = 5\n{name.replace('_', '-')} = 6\n", "given twice"
    elif kind < 7:
        content, wrong = range_in_toml(random)
    else:
        content = random.choice(WHOLE_FILES)
    file = place / "fuzz.toml"

    def give() -> Any:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return dry_run(SMALL, ["--config", str(file)])

    return Input("toml", shown(content), give, wrong)


def range_in_toml(random: Random) -> tuple[str, str]:
    """Return a range of a file, and why it must not be accepted."""
    form = random.choice(RANGES)
    start = form.partition("[")[0]
    bounds = [random.choice(BOUNDS) for _ in range(random.choice((0, 1, 2, 2, 2, 3, 3)))]
    extra = random.choice((f", baseline = {random.choice(BOUNDS)}}}", f", prior = {random.choice(BOUNDS)}}}"))
    other = f"{start}[{', '.join(bounds)}]}}"
    form = random.choice((form, other, other, form.replace("}", extra), form.replace("uniform", "unifrom")))
    key = random.choice(("lr", "lr", "lr", "k", "x", "epochs", "seed", "sgd.lr", '""', '"a b"', "lambda"))
    return f"[space]\n{key} = {form}\n", "there is no such range" if "unifrom" in form else ""


def damaged_sweeps(random: Random, place: Path) -> Input:
    """Return an earlier sweep with another value in one of its files, and a command or option that reads it."""
    folder, copy = place / "results" / "earlier", place / "copies" / "earlier"
    name = random.choice(("sweep.json", "sweep.json", "summary.json"))
    document = json.loads((folder / name).read_text())
    holder: Any = document
    while random.random() < 0.6 and (parts := [part for part in holder.values() if isinstance(part, dict) and part]):
        holder = random.choice(parts)
    key = random.choice(list(holder))
    value: Any = random.choice((None, True, 5, -1, 1.5, "x", "", [], {}, [1], {"a": 1}, 10**400, "\u0663", [[]], 1e308))
    holder[key] = value
    text = json.dumps(document)
    if random.random() < 0.1:
        text = text[: random.randrange(len(text))]
    action = random.choice(("ls", "show", "compare", "rerun", "learn_from", "baseline", "resume"))

    def give() -> Any:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        (copy / name).write_text(text)
        if action in ("learn_from", "baseline", "resume"):
            return dry_run(SMALL, [flag(action), "earlier", "--storage", str(copy.parent)])
        subjects = {"ls": [str(copy.parent)], "compare": [str(copy), str(folder)]}.get(action, [str(copy)])
        again = ["--dry-run", "--script", str(place / "my.py")] if action == "rerun" else []
        return run_command([action, *subjects, *again])

    return Input("damaged", f"{action} {name} {key}={shown(value)}", give)
