"""A trial begins in an empty folder, and with a compiler that compiles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.group.clean.cleaner import TrialFolders


def leave(text: str) -> None:
    """Leave a file, a folder and a link to a folder in the current folder."""
    Path("kept.txt").write_text(text)
    Path("checkpoints/last").mkdir(parents=True)
    Path("results").symlink_to("..")


def test_each_trial_begins_in_an_empty_folder_also_when_it_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # and back after the test
    folders = TrialFolders(tmp_path, may_remove=True)
    places: list[Path] = []
    for trial in ("trial-001", "trial-002", "trial-001"):
        folders.enter_next(trial)
        assert os.listdir() == []
        assert all(place.is_dir() and not any(place.iterdir()) for place in places), "the last one's files only"
        places.append(Path.cwd())
        leave(trial)
    assert len(set(places)) == 3
    folders.empty()  # as each trial ends
    assert os.listdir() == []
    assert {place.parent for place in places} == {tmp_path}


def test_a_trial_may_remove_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = TrialFolders(tmp_path, may_remove=True)
    folders.enter_next("trial-001")
    Path.cwd().rmdir()
    folders.enter_next("trial-002")
    assert os.listdir() == []


def test_new_workers_of_a_group_find_nothing_of_the_lost_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    for _ in range(2):
        TrialFolders(tmp_path, may_remove=True).enter_next("trial-001")
        assert os.listdir() == []
        leave("trial-001")
    assert (tmp_path / "own").is_dir()


def test_only_one_of_the_workers_that_share_a_folder_removes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = TrialFolders(tmp_path, may_remove=True), TrialFolders(tmp_path, may_remove=False)
    first.enter_next("trial-001")
    leave("by rank 0")
    second.enter_next("trial-001")
    assert Path("kept.txt").read_text() == "by rank 0"
    second.enter_next("trial-002")
    assert (tmp_path / "0001-trial-001" / "kept.txt").is_file()
    first.enter_next("trial-002")
    assert os.listdir(tmp_path / "0001-trial-001") == []


COMPILING = """
import sys
from ray import cloudpickle
from gaudi_tune.group.clean.cleaner import Cleaner

def compiling(config):
    import torch
    from torch._dynamo.utils import counters
    before = counters["stats"]["unique_graphs"]
    model = torch.compile(torch.nn.Linear(8, 8), backend="eager")
    for samples in (1, 1 + config["trial"]):
        model(torch.ones(samples, 8))
    print(counters["stats"]["unique_graphs"] - before)

cleaner = Cleaner(cloudpickle.dumps(compiling))
assert "torch._dynamo" not in sys.modules, "the first trial imports it"
for trial in range(1, 51):
    cleaner.run({"trial": trial})
    cleaner.clean()
"""


@pytest.mark.processes
def test_a_librarys_model_is_compiled_in_the_fiftieth_trial_as_in_the_first() -> None:
    """torch's compiler would give a function up after 8 shapes, and say so in a log alone."""
    environment = {**os.environ, "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES": "0"}  # as on an HPU
    command = [sys.executable, "-c", COMPILING]
    ran = subprocess.run(command, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=False)
    graphs = [int(line) for line in ran.stdout.split()]
    assert graphs[0] == 2
    assert len(graphs) == 50
    assert min(graphs) == 1, ran.stderr
    assert sum(graphs) <= 53, "most are kept"
