"""What telling MLflow of a report costs Tune's event loop: this project's tracking against Ray's MLflowLoggerCallback.

Both are handed the same results, one after another, as Tune does it: six metrics and Tune's own entries, of trials that
take turns. MLflow is an SQLite file, and then the team's server (PostgreSQL, passwords), 100 ms away: a proxy holds
every byte back for 50 ms each way. This project's thread delivers meanwhile, and all that it was told must have
arrived. Prints a table and, last, one JSON object:

    {"loop_ms": ..., "ratio_sqlite": ..., "ratio_server": ...}

``loop_ms`` is this project's median for one result with the server, in milliseconds; a ratio is Ray's median divided by
this project's. Takes 2 minutes on 2 cores.

    python tests/benchmarks/tracking.py [--results 400] [--results-of-ray 20]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.tune import Callback
from ray.tune.experiment import Trial
from rich.console import Console
from rich.table import Table

from experiments.sweep.ledger import Ledger
from experiments.sweep.options import PROJECT_ROOT, SweepOptions
from experiments.sweep.plan import make_plan
from experiments.sweep.tracking.mlflow_callback import MlflowTracking

sys.path[0] = str(PROJECT_ROOT)  # the tests are no package that is installed
from tests.deliveries import free_port
from tests.experiments.sweep.sleeping import EPOCHS, SLEEPING
from tests.team_server import PASSWORDS, Bucket, sign_in, team_server, wait_until

ONE_WAY_S = 0.05
METRICS = ("score", "train_loss", "val_loss", "val_accuracy", "lr", "samples_per_second")
TRIALS_AT_A_TIME = 4
EVERY_S = 0.02
"""How often this project is handed a result: slowly enough for its thread to be at work all the while."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, default=400, help="that this project is handed")
    parser.add_argument("--results-of-ray", type=int, default=20, help="that Ray's callback is handed")
    parser.add_argument(
        "--proxy", type=int, nargs=2, help="hold back what goes from one port to another (used by the benchmark)"
    )
    asked = parser.parse_args()
    if asked.proxy:
        asyncio.run(proxy(*asked.proxy))
        return
    medians: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        medians["sqlite"] = both(f"sqlite:///{folder}/mlflow.db", Path(folder) / "sqlite", asked)
        bucket = Bucket()
        try:
            with team_server(bucket) as server, far_away(server.port) as uri:
                sign_in(patch, "ada", PASSWORDS["ada"])
                medians["server"] = both(uri, Path(folder) / "server", asked)
        finally:
            bucket.close()
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
    rays = handed(MLflowLoggerCallback(tracking_uri=uri, experiment_name="rays"), asked.results_of_ray, 0)
    print(f"Ray's callback, {asked.results_of_ray} results: {in_words(rays)}", flush=True)
    return statistics.median(ours), statistics.median(rays)


def in_words(milliseconds: list[float]) -> str:
    ordered = sorted(milliseconds)
    late = ordered[int(0.99 * len(ordered))]
    return f"median {statistics.median(ordered):.3f} ms, 99 % in {late:.3f} ms, longest {ordered[-1]:.3f} ms"


def this_project(uri: str, folder: Path, results: int) -> list[float]:
    """Hand results to this project's tracking, see that all of them arrive, and return its times."""
    options = SweepOptions(storage=folder, name="sweep", recipe="sample", device="cpu", tracking_uri=uri)
    plan = make_plan(SLEEPING, options)
    plan.folder.mkdir(parents=True)
    tracking = MlflowTracking(plan, Ledger(plan))
    times = handed(tracking, results, EVERY_S)
    sender = tracking._sender
    assert sender is not None
    wait_until(lambda: not sender.outbox.waiting, 300, "not everything was delivered")
    sender.close()
    client, runs = MlflowClient(uri), [run for trial, run in sender.outbox.ids.items() if trial.isdigit()]
    arrived = sum(len(client.get_metric_history(run, metric)) for run in runs for metric in METRICS)
    assert arrived == results * len(METRICS), f"{arrived} values arrived"
    return times


def handed(callback: Callback, count: int, every_s: float) -> list[float]:
    """Hand ``count`` results to a callback, and return for how many milliseconds it kept each."""
    callback.setup()
    times = []
    for number, (trial, result) in enumerate(results_of(count)):
        if result["training_iteration"] == 1:
            callback.on_trial_start(number, [], trial)
        time.sleep(every_s)
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
    return Trial(SLEEPING.name, config=config, experiment_tag=f"{number}_x={config['x']}", stub=True)


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
    near = free_port()
    process = subprocess.Popen([sys.executable, __file__, "--proxy", str(near), str(port)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield f"http://127.0.0.1:{near}"
    finally:
        process.kill()
        process.wait()


async def proxy(near: int, port: int) -> None:
    """Pass on what comes to a port of this machine to another, and its answers, each later."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, further = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(held_back(reader, further), held_back(answers, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", near)
    print("ready", flush=True)
    await server.serve_forever()


async def held_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what is read, each piece so much later, until there is no more."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read() -> None:
        piece = b"any"
        while piece:
            piece = await reader.read(2**16)
            pieces.put_nowait((loop.time() + ONE_WAY_S, piece))

    async def write() -> None:
        due, piece = await pieces.get()
        while piece:
            await asyncio.sleep(due - loop.time())
            writer.write(piece)
            await writer.drain()
            due, piece = await pieces.get()
        writer.close()

    await asyncio.gather(read(), write())


if __name__ == "__main__":
    main()
