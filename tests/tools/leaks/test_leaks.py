"""What trials leave behind does not reach the next one, and the documentation says what does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gaudi_tune.define.options import PROJECT_ROOT
from tests.tools.leaks import ways
from tests.tools.leaks.__main__ import BEGIN, END, PAGE, tables
from tests.tools.leaks.actor import PAIRS, Actor

NOT_TOGETHER = {"the current folder, removed", "warning filters"}
"""Ways that would keep others of the same trial from being left."""
SECTIONS = (ways.PYTHON, ways.LOGGING, ways.TORCH, ways.STARTED)
"""The sections that need no library that takes long to import."""
EACH_IN_A_COPY = """
import json, os, sys
from ray import cloudpickle
from gaudi_tune.group.clean.cleaner import Cleaner
from tests.tools.leaks.actor import PAIRS, script_loop

cleaner = Cleaner(cloudpickle.dumps(script_loop()))
cleaner.run({"leave": [], "look": {}})  # it imports what the others need
cleaner.clean()
for name in json.loads(sys.argv[1]):
    sys.stdout.flush()
    if os.fork() == 0:
        printed = os.dup(1)
        cleaner.run({"leave": [PAIRS[name].leave], "look": {}})
        cleaner.clean()
        os.write(printed, json.dumps([name, cleaner.problems]).encode() + b"\\n")
        os._exit(0)
    os.wait()
"""


def test_the_page_has_every_outcome() -> None:
    _, rest = PAGE.read_text().split(BEGIN)
    assert rest.split(END)[0].strip() == tables().strip()
    assert len(PAIRS) >= 60


@pytest.mark.processes
def test_a_worker_knows_after_each_trial_whether_it_is_clean(tmp_path: Path) -> None:
    names = [way.name for members in SECTIONS for way in members]
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", EACH_IN_A_COPY, json.dumps(names)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    problems = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    found = {name: ways.NEW_WORKERS if problems.get(name) else ways.CLEAN for name in names}
    assert found == {name: PAIRS[name].outcome for name in names}, problems


@pytest.mark.usefixtures("ray_here")
def test_a_trial_after_many_changes_trains_to_the_same_bits_on_the_same_workers(tmp_path: Path) -> None:
    clean_ways = [way.name for members in SECTIONS for way in members if way.outcome == ways.CLEAN]
    names = [name for name in clean_ways if name not in NOT_TOGETHER]
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
    assert "the name is registered already" in once["gaudi_tune/new_workers"]
