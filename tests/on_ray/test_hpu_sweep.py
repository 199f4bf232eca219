"""The main job as a user runs it, python experiments/tune_bert.py, on the stand-in for Gaudis: end to end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from gaudi_tune.define.options import PROJECT_ROOT
from tests.helpers.stand_in_hpu import Ownership, double_owners, environment, lay_out_nodes, ownerships

pytestmark = [pytest.mark.workers, pytest.mark.own_ray]


class Sweep:
    """A finished sweep of 2 trials on a group of two HPUs."""

    def __init__(self, folder: Path) -> None:
        script, given = PROJECT_ROOT / "experiments" / "tune_bert.py", "--num-samples 2 --epochs 2 --seed 7 --confirm 0"
        options = [*given.split(), "--workers-per-trial", "2", "--recipe", "sample"]
        options += ["--set", "batch_size=32", "train_samples=320", "val_samples=101"]  # as long for a small batch
        self.cores = sorted(os.sched_getaffinity(0))
        lay_out_nodes(folder / "modules", [",".join(map(str, self.cores)), str(self.cores[-1])])
        with subprocess.Popen(
            [sys.executable, str(script), "--name", "hpu", "--storage", str(folder), *options],
            cwd=folder,  # where MLflow puts the artifacts of a database
            env=environment(folder / "modules", HABANA_STAND_IN_MODULES="2"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            self.pid, self.printed = process.pid, ""
            assert process.stdout is not None
            for line in process.stdout:
                self.printed += line
                if "trial 001 " in line:
                    tree = psutil.Process(process.pid).children(recursive=True)
                    of_trial = [each for each in tree if re.match("ray::(Resource|Warm)", " ".join(each.cmdline()))]
                    self.parents = [" ".join(each.parent().cmdline()) for each in of_trial]
        assert process.returncode == 0, self.printed
        self.folder = folder
        self.summary = json.loads((folder / "hpu" / "summary.json").read_text())
        self.owned: list[Ownership] = ownerships(folder / "modules")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return Sweep(tmp_path_factory.mktemp("hpu"))


def test_it_finds_the_hpus_and_trains_on_them(sweep: Sweep) -> None:
    assert "device  hpu: the best of what is here (2 hpu, 0 cuda, " in sweep.printed
    assert sum(sweep.summary["counts"].values()) == 2
    assert "failed" not in sweep.summary["counts"]
    assert sweep.summary["cpu_fallbacks"] == 0
    of_trials = sweep.summary["device_counts"]
    assert sweep.summary["graph_compilations"] == sum(one["graph_compilations"] for one in of_trials.values())
    assert list(of_trials) == ["1", "2"]
    assert all(one["peak_memory_gb"] > 0 and 0 < one["device_utilization"] <= 100 for one in of_trials.values())
    devices = sweep.summary["device_time"]["devices"]
    assert list(devices) == ["hpu 0", "hpu 1"]
    assert all(seconds["training"] > 0 for seconds in devices.values())


def test_the_trial_actor_and_the_workers_are_copies_of_the_fork_server(sweep: Sweep) -> None:
    assert len(sweep.parents) >= 3
    assert all("fork_server" in parent for parent in sweep.parents), sweep.parents


def test_every_hpu_has_one_owner_on_cores_near_it_and_is_given_back(sweep: Sweep) -> None:
    assert sorted(ownership.module for ownership in sweep.owned) == [0, 1]
    assert double_owners(sweep.owned) == 0
    near = {0: tuple(sweep.cores), 1: (sweep.cores[-1],)}
    assert all(ownership.cores == near[ownership.module] for ownership in sweep.owned)
    assert all(ownership.until is not None for ownership in sweep.owned)
    assert sweep.pid not in {ownership.pid for ownership in sweep.owned}


def test_it_prints_progress_and_says_how_to_use_the_best_checkpoint(sweep: Sweep) -> None:
    best = sweep.summary["best"]
    assert best["value"] >= sweep.summary["baseline"]
    assert re.search(r"^\[.*\] trial 001 .* val_accuracy 0\.\d+", sweep.printed, re.MULTILINE)  # it is a pipe
    assert f"checkpoint  {best['checkpoint']}" in sweep.printed
    assert sweep.summary["mlflow"] in sweep.printed
    model = r'^model +import mlflow; .* mlflow\.pyfunc\.load_model\("models:/m-\w+"\)$'
    assert re.search(model, sweep.printed, re.MULTILINE)
    load_it = re.search(r"^load it +(.*)$", sweep.printed, re.MULTILINE)
    assert load_it is not None
    loaded: dict[str, Any] = {}
    exec(load_it[1], loaded)
    assert sorted(loaded["model"].config.id2label.values()) == [
        "matplotlib", "networkx", "pandas", "sklearn", "sqlalchemy",
    ]  # fmt: skip


def test_it_leaves_no_process_behind(sweep: Sweep) -> None:
    others = (process for process in psutil.process_iter() if process.pid != os.getpid())
    left = [process for process in others if str(sweep.folder) in command_of(process)]
    assert not psutil.wait_procs(left, timeout=60)[1]


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
