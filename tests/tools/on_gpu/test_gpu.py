"""A sweep on one GPU. Without a GPU these tests are skipped; ``ON_GPU_AS=cpu`` runs what of them a CPU can."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import pytest
import torch

from gaudi_tune.define.options import PROJECT_ROOT
from tests.tools.on_gpu.probing import KILLED, LARGEST

pytestmark = [pytest.mark.cuda, pytest.mark.workers, pytest.mark.own_ray]

TRIALS = 16
CODE = "from gaudi_tune import main; from tests.tools.on_gpu.probing import PROBING; main(PROBING)"


class Sweep:
    """A finished sweep."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder / "probe"
        options = (
            f"--device {kind} --num-samples {TRIALS} --seed 5 --confirm 0 --scheduler fifo --grow off --name probe"
        )
        self.tracking_uri = f"sqlite:///{folder}/mlflow.db"
        places = ["--storage", str(folder), "--tracking-uri", self.tracking_uri, "--set", f"orders={folder}"]
        finished = subprocess.run(
            [sys.executable, "-c", CODE, *options.split(), *places],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{PROJECT_ROOT}:{os.environ.get('PYTHONPATH', '')}"},
            capture_output=True,
            text=True,
            timeout=400,
        )
        self.printed = finished.stdout + finished.stderr
        assert finished.returncode == 0, self.printed
        self.summary: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        self.reports = self._reports()

    def _reports(self) -> list[dict[str, Any]]:
        files = self.folder.glob("*/result.json")
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def runs(self) -> list[Any]:
        client = mlflow.MlflowClient(self.tracking_uri)
        return [run for run in client.search_runs(["1"]) if "mlflow.parentRunId" in run.data.tags]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    kind = os.environ.get("ON_GPU_AS") or ("cuda" if torch.cuda.is_available() else "")
    if not kind:
        pytest.skip("there is no GPU; ON_GPU_AS=cpu runs what a CPU can")
    return Sweep(kind, tmp_path_factory.mktemp("gpu"))


def test_a_trial_leaves_no_memory_behind(sweep: Sweep) -> None:
    assert {report["memory_before"] for report in sweep.reports} == {0.0}
    workers = {report["pid"] for report in sweep.reports}
    assert len(workers) < len({report["trial_id"] for report in sweep.reports})  # they are warm


def test_trials_that_run_out_of_memory_fail_and_teach_the_search(sweep: Sweep) -> None:
    """Two thirds of the space need too much. What the search proposes after it has seen a few has memory enough."""
    too_large = [int(run.data.params["width"]) > LARGEST for run in sweep.runs()]
    assert sweep.summary["counts"] == {"failed": sum(too_large), "finished": TRIALS - sum(too_large)}
    assert 1 <= sum(too_large) <= TRIALS // 4
    assert "out of memory on the device" in sweep.printed


def test_a_killed_worker_costs_no_trial(sweep: Sweep) -> None:
    assert (sweep.folder.parent / KILLED).exists()
    assert "lost its workers, continues on new ones" in sweep.printed


def test_a_worker_has_a_process_group_and_its_device(sweep: Sweep) -> None:
    backend, device = {"cuda": ("nccl", "cuda:0"), "cpu": ("gloo", "cpu")}[sweep.kind]
    assert {(report["backend"], report["device"], report["sum"]) for report in sweep.reports} == {
        (backend, device, 1.0)
    }


def test_workers_are_copies_of_one_process_only_where_no_gpu_is_used(sweep: Sweep) -> None:
    assert {report["is_copy"] for report in sweep.reports} == {sweep.kind == "cpu"}


def test_the_device_is_named_and_measured(sweep: Sweep) -> None:
    (run, *_) = sweep.runs()
    measured = "gpu_0" if sweep.kind == "cuda" else "cpu"
    assert f"system/{measured}_utilization_percentage" in run.data.metrics
    assert all(device.startswith(sweep.kind) for device in sweep.summary["device_time"]["devices"])
    if sweep.kind == "cuda":
        counts = sweep.summary["device_counts"].values()
        assert all(one["peak_memory_gb"] > 0 for one in counts)
        assert any("device_utilization" in one for one in counts)
