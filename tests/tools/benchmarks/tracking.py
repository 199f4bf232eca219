"""What it costs Tune's event loop to track a report: this project's tracker against Ray's MLflowLoggerCallback.

Both get the same reports, one after another: six metrics, of trials that take turns, as Tune hands them to a callback
and as this project's own callback hands them to a tracker. MLflow is an SQLite file, and then the team's server
(PostgreSQL, passwords), 100 ms away: a proxy holds every byte back for 50 ms each way. This project's thread delivers
meanwhile, and everything must have arrived. Prints a table and, last, one JSON object:

    {"loop_ms": ..., "ratio_sqlite": ..., "ratio_server": ...}

``loop_ms`` is this project's median for one report with the server, in milliseconds; a ratio is Ray's median divided by
this project's. Takes 2 minutes on 2 cores.

    python tests/tools/benchmarks/tracking.py [--results 400] [--results-of-ray 20]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.tune import Callback
from ray.tune.experiment import Trial
from rich.console import Console
from rich.table import Table

from gaudi_tune.define.options import PROJECT_ROOT, SweepOptions
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.trackers.mlflow_tracker import MlflowTracker
from gaudi_tune.show.trackers.outbox import Outbox
from gaudi_tune.sweep.record.device_time import DeviceTime
from gaudi_tune.sweep.record.events import Event, Reported, SweepBegan, TrialBegan
from gaudi_tune.sweep.record.sweep_state import SweepState

sys.path[0] = str(PROJECT_ROOT)  # the tests are no package that is installed
from tests.helpers.quadratic import STEADY
from tests.helpers.team_server import PASSWORDS, sign_in, team_server

PROXY = f"""
import sys, time
sys.path[0] = {str(PROJECT_ROOT)!r}
from tests.helpers.faulty_proxy import FaultyProxy

proxy = FaultyProxy(int(sys.argv[1]))
proxy.delay_s = 0.05
print(proxy.address, flush=True)
time.sleep(10**6)
"""
METRICS = ("score", "train_loss", "val_loss", "val_accuracy", "lr", "samples_per_second")
TRIALS_AT_A_TIME, EPOCHS = 4, 9
EVERY_S = 0.02
"""How often this project gets a report: slowly enough for its thread to be at work all the while."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, default=400, help="that this project is handed")
    parser.add_argument("--results-of-ray", type=int, default=20, help="that Ray's callback is handed")
    asked = parser.parse_args()
    medians: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        medians["sqlite"] = both(f"sqlite:///{folder}/mlflow.db", Path(folder) / "sqlite", asked)
        with team_server() as server, far_away(server.port) as uri:
            sign_in(patch, "ada", PASSWORDS["ada"])
            medians["server"] = both(uri, Path(folder) / "server", asked)
    table = Table("MLflow", "this project", "Ray's callback", "times", box=None, pad_edge=False)
    for where, (ours, rays) in medians.items():
        table.add_row(where, f"{ours:.3f} ms", f"{rays:.1f} ms", f"{rays / ours:.0f}")
    Console().print(table)
    ratios = {f"ratio_{where}": round(rays / ours) for where, (ours, rays) in medians.items()}
    print(json.dumps({"loop_ms": round(medians["server"][0], 4), **ratios}))


def both(uri: str, folder: Path, asked: argparse.Namespace) -> tuple[float, float]:
    """Return the medians of this project and of Ray's callback, in milliseconds."""
    ours = this_project(uri, folder, asked.results)
    print(f"this project, {asked.results} results: {in_words(ours)}", flush=True)
    rays = of_ray(MLflowLoggerCallback(tracking_uri=uri, experiment_name="rays"), asked.results_of_ray)
    print(f"Ray's callback, {asked.results_of_ray} results: {in_words(rays)}", flush=True)
    return statistics.median(ours), statistics.median(rays)


def in_words(milliseconds: list[float]) -> str:
    ordered = sorted(milliseconds)
    late = ordered[int(0.99 * len(ordered))]
    return f"median {statistics.median(ordered):.3f} ms, 99 % in {late:.3f} ms, longest {ordered[-1]:.3f} ms"


def this_project(uri: str, folder: Path, results: int) -> list[float]:
    """Show reports to this project's tracker, see that all of them arrive, and return its times."""
    options = SweepOptions(storage=folder, name="sweep", epochs=EPOCHS, device="cpu", tracking_uri=uri)
    plan = make_plan(STEADY, options)
    plan.folder.mkdir(parents=True)
    tracker = MlflowTracker(plan)
    state = SweepState(plan.objectives, plan.budget, results, DeviceTime(plan.devices))
    times: list[float] = []

    def show(event: Event) -> None:
        state.apply(event)
        began = time.perf_counter()
        tracker.show(event, state)
        if isinstance(event, Reported):
            times.append((time.perf_counter() - began) * 1000)

    show(SweepBegan())
    for trial, result in results_of(results):
        number, epoch = int(trial.experiment_tag.split("_")[0]), result["epoch"]
        if epoch == 1:
            show(TrialBegan(trial=number, trial_id=trial.trial_id, config=trial.config))
        time.sleep(EVERY_S)
        metrics = {name: result[name] for name in (*METRICS, "epoch")}
        point, config = (result["score"],), trial.config
        show(Reported(trial=number, step=epoch, point=point, metrics=metrics, config=config, count=epoch))
    tracker.close()
    with closing(Outbox(plan.folder)) as outbox:
        assert not outbox.waiting, f"{outbox.waiting} bytes were not delivered"
        runs = [run for trial, run in outbox.ids.items() if trial.isdigit()]
    client = MlflowClient(uri)
    arrived = sum(len(client.get_metric_history(run, metric)) for run in runs for metric in METRICS)
    assert arrived == results * len(METRICS), f"{arrived} values arrived"
    return times


def of_ray(callback: Callback, count: int) -> list[float]:
    """Hand ``count`` results to a callback of Ray, and return for how many milliseconds it kept each."""
    callback.setup()
    times = []
    for number, (trial, result) in enumerate(results_of(count)):
        if result["training_iteration"] == 1:
            callback.on_trial_start(number, [], trial)
        began = time.perf_counter()
        callback.on_trial_result(number, [], trial, result)
        times.append((time.perf_counter() - began) * 1000)
    return times


def results_of(count: int) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield results of trials that take turns, as many at a time as there are groups."""
    trials: list[Trial] = []
    for number in range(count):
        turn, place = divmod(number, TRIALS_AT_A_TIME)
        epoch = turn % EPOCHS
        if epoch == 0:
            trials[place : place + 1] = [trial_of(turn // EPOCHS * TRIALS_AT_A_TIME + place + 1)]
        yield trials[place], result_of(trials[place], epoch + 1)


def trial_of(number: int) -> Trial:
    config = {"x": number / 1000, "epochs": EPOCHS}
    return Trial(STEADY.name, config=config, experiment_tag=f"{number}_x={config['x']}", stub=True)


def result_of(trial: Trial, epoch: int) -> dict[str, Any]:
    """Return what Tune hands over after an epoch: what was reported, and what Tune adds."""
    now = time.time()
    return {
        **{name: 1 / (place + epoch) for place, name in enumerate(METRICS)},
        "epoch": epoch, "training_iteration": epoch, "trial_id": trial.trial_id, "done": False,
        "time_this_iter_s": 0.5, "time_total_s": 0.5 * epoch, "time_since_restore": 0.5 * epoch,
        "iterations_since_restore": epoch, "timestamp": int(now), "date": time.strftime("%Y-%m-%d_%H-%M-%S"),
        "pid": os.getpid(), "hostname": "node", "node_ip": "127.0.0.1", "config": trial.config,
    }  # fmt: skip


@contextmanager
def far_away(port: int) -> Iterator[str]:
    """The address under which a server of this machine is 100 ms away."""
    with subprocess.Popen([sys.executable, "-c", PROXY, str(port)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


if __name__ == "__main__":
    main()
