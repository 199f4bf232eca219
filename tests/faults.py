"""What happens to sweeps when their processes are killed: kill -9 of workers, trial actors and controllers at random.

Sweeps of a tiny train loop run on stand-in HPUs, and once all their groups are up, a process of some kind is killed at
a random moment, again and again. Afterwards every trial must have finished with the numbers of an undisturbed one, its
metrics must be in MLflow once each, every HPU must be free within 10 s, and no process of the sweep may be left. Prints
a table and, last, one JSON object:

    {"kinds": ..., "runs": ..., "lost": 0, "doubled": 0, "leaked": 0}

    python tests/faults.py [--times 10] [--kinds worker actor controller] [--seed 0]

30 kills take 20 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import mlflow
import psutil
from rich.console import Console
from rich.table import Table

sys.path[0] = str(Path(__file__).resolve().parents[1])  # in place of tests/, which has an "experiments" of its own
from experiments.sweep.options import SweepOptions
from tests.experiments.sweep.sleeping import EPOCHS, SLEEPING
from tests.stand_in_hpu import double_owners, environment, output_of, ownerships

KINDS = {"worker": "RayTrainWorker", "actor": "ResourceTrainable", "controller": "TrainController"}
"""What can be killed, and the word in its process's title."""
GROUPS = 2
KILLS_A_SWEEP = 6
TRIALS = 12
EPOCH_S = 1.0
WAIT_S = (2.0, 25.0)
"""How long to wait for the next kill, once all groups train again."""
FREE_WITHIN_S = 10
UP_WITHIN_S = 300


class Kill(NamedTuple):
    """A process that was killed, and how long it took until all groups had one of its kind again."""

    kind: str
    back_after_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10, help="kills of each kind")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sweep", type=Path, help="run a sweep in this process (used by the script)")
    asked = parser.parse_args()
    if asked.sweep:
        sweep(asked.sweep)
        return
    print(f"seed {asked.seed}", flush=True)
    chance = random.Random(asked.seed)
    planned = [kind for kind in asked.kinds for _ in range(asked.times)]
    chance.shuffle(planned)
    kills: list[Kill] = []
    faults: defaultdict[str, int] = defaultdict(int)
    runs = 0
    while planned:
        now, planned = planned[:KILLS_A_SWEEP], planned[KILLS_A_SWEEP:]
        with tempfile.TemporaryDirectory() as folder:
            done, found = disturbed(Path(folder), now, chance)
        runs += 1
        planned += now[len(done) :]  # the sweep was over before
        kills += done
        for what, count in found.items():
            faults[what] += count
        print(f"run {runs}: {len(done)} kills, {dict(found)}", flush=True)
    show(kills)
    print(json.dumps({"kinds": len(asked.kinds), "kills": len(kills), "runs": runs, **faults}))


def sweep(folder: Path) -> None:
    """Run a sweep in this process."""
    import ray

    from experiments.sweep.plan import make_plan
    from experiments.sweep.tuner import tuner_of

    options = SweepOptions(
        num_samples=TRIALS,
        recipe="sample",
        settings=(f"epoch_s={EPOCH_S}",),
        scheduler="fifo",
        search="random",
        retries=KILLS_A_SWEEP,
        checkpoint_minutes=0,
        storage=folder / "results",
        name="disturbed",
        tracking_uri=f"sqlite:///{folder}/mlflow.db",
    )
    tuner_of(make_plan(SLEEPING, options)).fit()
    ray.shutdown()


def disturbed(folder: Path, kinds: list[str], chance: random.Random) -> tuple[list[Kill], dict[str, int]]:
    """Run a sweep in a process of its own, kill processes of these kinds, and return what was done and what it cost."""
    locks = folder / "locks"
    command = [sys.executable, __file__, "--sweep", str(folder)]
    process = subprocess.Popen(
        command,
        env=environment(locks, HABANA_STAND_IN_MODULES=str(GROUPS)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    tree = Tree(process)
    try:
        kills = [kill for kind in kinds if (kill := kill_one(tree, kind, chance)) is not None]
        code = process.wait(timeout=1800)
        left = tree.left()
    finally:
        tree.end()
    if code != 0:
        print(tree.printed, flush=True)
    return kills, {"failed": int(code != 0), **books_of(folder), **hpus_of(locks), "orphans": left}


class Tree:
    """The processes of a sweep, of which everything is noted that was ever seen."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._seen: set[psutil.Process] = set()
        self.printed = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.printed += line

    @property
    def running(self) -> bool:
        """Whether the sweep has not ended."""
        return self._process.poll() is None

    def of(self, kind: str) -> list[psutil.Process]:
        """Return the processes of a kind."""
        try:
            self._seen |= set(psutil.Process(self._process.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []
        return [process for process in self._seen if KINDS[kind] in _title(process)]

    def left(self) -> int:
        """Return how many processes of the sweep are still there some seconds after its end."""
        psutil.wait_procs(list(self._seen), timeout=FREE_WITHIN_S)
        return sum(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in self._seen)

    def end(self) -> None:
        """Kill what is left."""
        for process in [psutil.Process(self._process.pid)] if self.running else []:
            process.kill()
        for process in self._seen:
            if process.is_running():
                process.kill()


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.Error:
        return ""


def kill_one(tree: Tree, kind: str, chance: random.Random) -> Kill | None:
    """Wait until all groups are up, and for a while, then kill one process; None if the sweep was over before."""
    if not _wait_for_all(tree, kind):
        return None
    time.sleep(chance.uniform(*WAIT_S))
    there = tree.of(kind)
    if not tree.running or not there:
        return None
    chance.choice(sorted(there, key=lambda process: process.pid)).kill()
    began = time.monotonic()
    _wait_for_all(tree, kind)
    print(f"  killed a {kind}, back after {time.monotonic() - began:.0f} s", flush=True)
    return Kill(kind, time.monotonic() - began)


def _wait_for_all(tree: Tree, kind: str) -> bool:
    deadline = time.monotonic() + UP_WITHIN_S
    while tree.running and (len(tree.of(kind)) < GROUPS or len(tree.of("worker")) < GROUPS):
        assert time.monotonic() < deadline, f"the groups are not up after {UP_WITHIN_S} s:\n{tree.printed}"
        time.sleep(0.5)
    return tree.running


def books_of(folder: Path) -> dict[str, int]:
    """Return how many trials and values were lost, and how many values doubled."""
    summary = json.loads((folder / "results" / "disturbed" / "summary.json").read_text())
    lost = TRIALS - summary["trials"].get("finished", 0)
    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    known = client.get_experiment_by_name(SLEEPING.name)
    assert known is not None
    runs = client.search_runs([known.experiment_id], "tags.kind = 'trial'", max_results=1000)
    lost += abs(TRIALS - len(runs))
    doubled = 0
    for run in runs:
        history = client.get_metric_history(run.info.run_id, "score")
        x = float(run.data.params["x"])
        right = {epoch: 1 - x**2 - 1 / epoch for epoch in range(1, EPOCHS + 1)}
        told = {value.step: value.value for value in history}
        lost += sum(abs(told.get(epoch, 99.0) - value) > 1e-9 for epoch, value in right.items())
        doubled += len(history) - len(told)
    return {"lost": lost, "doubled": doubled}


def hpus_of(locks: Path) -> dict[str, int]:
    """Return how often an HPU had two owners, and how many are not free within 10 s of the sweep's end."""
    use = "import torch, habana_frameworks.torch; torch.ones(1, device='hpu'); print('free')"
    leaked = 0
    for module in range(GROUPS):
        deadline = time.monotonic() + FREE_WITHIN_S
        while not (free := "free" in output_of(use, locks, HLS_MODULE_ID=str(module))) and time.monotonic() < deadline:
            pass
        leaked += not free
    return {"leaked": leaked, "double_owners": double_owners(ownerships(locks))}


def show(kills: list[Kill]) -> None:
    """Print a table of what was killed."""
    table = Table("killed", "times", "back after, median", "longest", box=None, pad_edge=False)
    for kind in KINDS:
        seconds = sorted(kill.back_after_s for kill in kills if kill.kind == kind)
        if seconds:
            table.add_row(kind, str(len(seconds)), f"{seconds[len(seconds) // 2]:.0f} s", f"{seconds[-1]:.0f} s")
    Console().print(table)


if __name__ == "__main__":
    main()
