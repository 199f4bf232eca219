"""A sweep whose driver is killed goes on where it was; nothing is lost, nothing is there twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import mlflow
import optuna
import psutil
import pytest
from mlflow.entities import Run
from optuna.trial import TrialState

from experiments.sweep.errors import SweepError
from experiments.sweep.options import PROJECT_ROOT, SweepOptions
from experiments.sweep.outbox import RECORDS_FILE, Outbox
from experiments.sweep.resume import SNAPSHOTS, STATE_FILES, make_ready, whole_state
from experiments.sweep.sweep_file import check_resumable, options_of_sweep
from experiments.sweep.tuner import STUDY_FILE
from tests.experiments.sweep.sleeping import EPOCHS

TRIALS = 6
SCRIPT = """
from experiments import main
from tests.experiments.sweep.sleeping import SLEEPING

main(SLEEPING)
"""


class Sweep:
    """A sweep of the command line, in processes of its own."""

    def __init__(self, folder: Path) -> None:
        self.storage, self.folder = folder, folder / "sweep"
        self.uri = f"sqlite:///{folder}/mlflow.db"
        self.script = folder / "tune_sleeping.py"
        self.script.write_text(SCRIPT)

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            str(self.script),
            "--storage",
            str(self.storage),
            "--tracking-uri",
            self.uri,
            *options,
        ]
        return subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for(self, process: subprocess.Popen[str], reports: int) -> None:
        """Wait until so many reports are written down."""
        until = time.monotonic() + 300
        while self.reported() < reports:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < until
            time.sleep(0.1)

    def reported(self) -> int:
        """How many reports are written down."""
        file = self.folder / RECORDS_FILE
        return file.read_text().count('"what": "metrics"') if file.is_file() else 0

    def runs(self) -> tuple[Run, list[Run]]:
        client = mlflow.MlflowClient(self.uri)
        known = client.get_experiment_by_name("sleeping")
        assert known is not None
        runs = client.search_runs([known.experiment_id])
        (parent,) = [run for run in runs if run.data.tags["kind"] == "sweep"]
        return parent, [run for run in runs if run.data.tags["kind"] == "trial"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A sweep whose driver is killed, resumed with one trial more."""
    sweep = Sweep(tmp_path_factory.mktemp("resume"))
    options = ["--name", "sweep", "--num-samples", str(TRIALS), "--scheduler", "fifo", "--checkpoint-minutes", "0"]
    options += ["--checkpoint-budget", "1B"]  # no checkpoint fits: each goes as soon as it is not needed any more
    process = sweep.start(*options, "--search", "random", "--set", "epoch_s=0.4")
    sweep.wait_for(process, reports=25)
    # Ray's own agents notice a raylet's end after minutes; everything else ends with it.
    below = [p for p in psutil.Process(process.pid).children(recursive=True) if not p.name().endswith("Agent")]
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(below, timeout=30)
    assert not alive, "the processes of a killed driver stay"
    resumed = sweep.start("--resume", "sweep", "--add-trials", "1")
    printed = resumed.communicate(timeout=400)[0]
    assert resumed.returncode == 0, printed
    assert "sweep goes on: 7 trials" in printed
    return sweep


@pytest.fixture(scope="module")
def summary(sweep: Sweep) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((sweep.folder / "summary.json").read_text())
    return told


def test_every_trial_is_accounted_for_once(sweep: Sweep, summary: dict[str, Any]) -> None:
    assert summary["trials"] == {"finished": TRIALS + 1}
    assert summary["complete"] is True
    assert sorted(map(int, summary["ledger"]["trials"])) == list(range(1, TRIALS + 2))
    for seconds in summary["ledger"]["devices"].values():
        assert sum(seconds.values()) == pytest.approx(summary["wall_s"], abs=0.2)
        assert min(seconds.values()) >= 0
    assert len(list(sweep.folder.glob("trial-*"))) == TRIALS + 1


def test_of_the_checkpoints_the_best_is_left(sweep: Sweep, summary: dict[str, Any]) -> None:
    assert [str(place) for place in sweep.folder.glob("trial-*/checkpoint_*")] == [summary["best"]["checkpoint"]]
    assert (Path(summary["best"]["checkpoint"]) / "epoch.txt").read_text() == str(EPOCHS)


def test_mlflow_has_every_value_once_in_the_runs_that_were_begun(sweep: Sweep) -> None:
    parent, children = sweep.runs()
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["trials_finished"] == TRIALS + 1
    assert sorted(run.data.tags["trial"] for run in children) == [f"{n:03d}" for n in range(1, TRIALS + 2)]
    for run in children:
        assert (run.info.status, run.data.tags["status"]) == ("FINISHED", "finished")
        told = mlflow.MlflowClient(sweep.uri).get_metric_history(run.info.run_id, "score")
        x = float(run.data.params["x"])
        assert [value.step for value in told] == list(range(1, EPOCHS + 1))
        assert [value.value for value in told] == pytest.approx([1 - x**2 - 1 / e for e in range(1, EPOCHS + 1)])


def test_the_study_has_every_trial_and_leaves_none_running(sweep: Sweep) -> None:
    study = optuna.load_study(study_name="sweep", storage=f"sqlite:///{sweep.folder / STUDY_FILE}")
    states = [trial.state for trial in study.trials]
    assert states.count(TrialState.COMPLETE) == TRIALS + 1
    assert TrialState.RUNNING not in states
    complete = {trial.params["x"] for trial in study.trials if trial.state == TrialState.COMPLETE}
    assert len(complete) == TRIALS + 1  # nothing was proposed twice


def test_torn_state_is_found_and_repaired_from_a_snapshot(sweep: Sweep) -> None:
    for pattern in STATE_FILES:
        newest = max(sweep.folder.glob(pattern))
        newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
        assert whole_state(sweep.folder) == []
    make_ready(sweep.folder)
    assert len(whole_state(sweep.folder)) == len(STATE_FILES)


def test_without_any_whole_state_it_is_a_clear_error_and_no_new_sweep(tmp_path: Path) -> None:
    folder = tmp_path / "torn"
    (folder / SNAPSHOTS / "1").mkdir(parents=True)
    (folder / SNAPSHOTS / "1" / "experiment_state-1.json").write_text('{"trial_data": [')
    with pytest.raises(SweepError, match=r"--resume torn: Tune's state in .* is missing or torn.*start a new sweep"):
        make_ready(folder)


@pytest.mark.parametrize(
    ("changes", "experiment", "says"),
    [
        ({"resume": "other"}, "sleeping", r"--resume other: no such sweep in .*; there: sweep"),
        ({"resume": "sweep"}, "bert", "that is a sweep of sleeping, not of bert"),
        ({"resume": "sweep", "num_samples": 9, "seed": 2}, "sleeping", "leave out --num-samples, --seed"),
        ({"resume": "sweep", "add_trials": -1}, "sleeping", "--add-trials must be at least 0, but got -1"),
    ],
)
def test_what_cannot_be_resumed_is_said(sweep: Sweep, changes: dict[str, Any], experiment: str, says: str) -> None:
    with pytest.raises(SweepError, match=says):
        options_of_sweep(experiment, SweepOptions(storage=sweep.storage, **changes))


def test_fewer_devices_or_another_tracking_store_are_said_before_anything_starts(sweep: Sweep) -> None:
    here: dict[str, Any] = {"groups": 2, "num_samples": 9, "tracking_uri": sweep.uri}
    check_resumable(sweep.folder, **here)
    with pytest.raises(SweepError, match="had 2 trials at a time, and there is room for 1"):
        check_resumable(sweep.folder, **{**here, "groups": 1})
    with pytest.raises(SweepError, match=r"its runs are in another tracking store than sqlite:///elsewhere\.db"):
        check_resumable(sweep.folder, **{**here, "tracking_uri": "sqlite:///elsewhere.db"})


def test_a_sweep_that_runs_is_not_resumed(sweep: Sweep) -> None:
    with closing(Outbox(sweep.folder)) as running:
        assert running.take()
        with pytest.raises(SweepError, match="this sweep is running"):
            options_of_sweep("sleeping", SweepOptions(storage=sweep.storage, resume="sweep"))
    options = options_of_sweep("sleeping", SweepOptions(storage=sweep.storage, resume="sweep", add_trials=3))
    assert (options.name, options.scheduler, options.search) == ("sweep", "fifo", "random")
    assert options.settings == ("epoch_s=0.4",)
