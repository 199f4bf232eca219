"""docs/tutorial.md as what it tells people to do: the files, and the commands in their order.

In an empty folder, with the checkout as PYTHONPATH::

    python -c "from tests.helpers import tutorial; tutorial.main(2)"
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
import ray

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.on_ray.local_ray import ENVIRONMENT
from gaudi_tune.private.ray_core import lean_ray
from tests.helpers.commands import run

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
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in ENVIRONMENT.items():
            patch.setenv(variable, value)
        with lean_ray():
            ray.init(
                "local",
                num_cpus=trials_at_a_time,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        Path("printed.json").write_text(json.dumps({command: run(command) for command in commands()}))
        ray.shutdown()
