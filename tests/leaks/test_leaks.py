"""What trials leave behind does not reach the next one, and the documentation says what does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.leaks import ways
from tests.leaks.actor import Actor
from tests.leaks.table import BEGIN, END, PAGE, expected, tables

NOT_TOGETHER = {
    "the current folder, removed", "a closed `sys.stdout`", "warning filters", "a mode that was entered",
    "a library of operators (`torch.library.Library`)",
}  # fmt: skip
"""Ways that would keep others of the same trial from being left, or files from being closed."""
SECTIONS = (ways.PYTHON, ways.LOGGING, ways.TORCH, ways.STARTED)
"""The sections that need no library that takes long to import."""


def test_the_page_has_what_was_found() -> None:
    _, rest = PAGE.read_text().split(BEGIN)
    assert rest.split(END)[0].strip() == tables(expected()).strip()
    assert len(expected()) >= 60


@pytest.mark.usefixtures("ray_here")
def test_a_trial_after_one_that_did_its_worst_finds_a_new_process_and_trains_to_the_same_bits(tmp_path: Path) -> None:
    names = [way.name for members in SECTIONS for way in members if way.name not in NOT_TOGETHER]
    actor = Actor(str(tmp_path))
    new = actor.run([], names)
    worst = actor.run(names, [])
    after = actor.run([], names)
    again = actor.run(["what can be registered once"], [])
    once = actor.run(["what can be registered once"], names)
    actor.end()
    assert {name: after[name] for name in [*names, "trained"]} == {name: new[name] for name in [*names, "trained"]}
    assert new["worker_pid"] == worst["worker_pid"] == after["worker_pid"] == again["worker_pid"], (
        "no new workers were needed"
    )
    assert once["worker_pid"] != again["worker_pid"]
    assert "the name is registered already" in once["new_workers"]
