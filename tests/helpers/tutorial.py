"""docs/tutorial.md as what it tells people to do: the files, and the commands in their order.

In an empty folder, with the checkout as PYTHONPATH::

    python -c "from tests.helpers import tutorial; tutorial.main(2)"
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from gaudi_tune.define.options import PROJECT_ROOT
from tests.helpers.commands import run
from tests.helpers.forking_ray import forking_ray

PAGE = PROJECT_ROOT / "docs" / "tutorial.md"
FILE = re.compile(r"`([\w.]+)`:\n\n```(?:python|toml)\n(.*?)```", re.DOTALL)
"""A file, named before its block."""
COMMANDS = re.compile(r"```\n((?:python|gaudi-tune) .*?)```", re.DOTALL)


def write_files(folder: Path) -> None:
    """Write the files of the page into a folder."""
    for name, text in FILE.findall(PAGE.read_text()):
        (folder / name).write_text(text)


def commands() -> list[str]:
    """Return the commands of the page."""
    lines = [line for block in COMMANDS.findall(PAGE.read_text()) for line in block.splitlines()]
    return [line.partition("  #")[0] for line in lines]


def main(trials_at_a_time: int) -> None:
    """Do all that the page says in the current folder, with one Ray; printed.json has what each command printed."""
    write_files(Path())
    with forking_ray(trials_at_a_time, ["sklearn.datasets"]):
        Path("printed.json").write_text(json.dumps({command: run(command) for command in commands()}))
