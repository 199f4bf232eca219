"""How many trials a second pass through a sweep when they take no time, and whether all of them are kept.

Each trial reports one number and ends. The same number of trials runs in plain Ray Tune first, as a function trainable
with ``reuse_actors=True`` and without any logging (``plain_tune.py``), then as a whole command of this project. Then
every place that keeps trials is counted. Prints, last, one JSON object:

    {"trials": 400, "rival": {"command_s": ..., "sweep_s": ..., "trials_per_s": ...},
     "own": {"status": 0, "command_s": ..., "sweep_s": ..., "trials_per_s": ..., "idle": ...},
     "lost": {"log": 0, "study": 0, "summary": 0, "mlflow": 0}, "doubled": {...}, "ratio": ...}

With ``--stock``, a second command with public APIs alone (``GAUDI_TUNE_STOCK=1``) follows, "stock".
``idle`` is the share of the devices' time without a trial, ``ratio`` our trials a second over the rival's, both
from the call of ``fit`` (here: the start of the sweep) to its end. Takes a minute for 400 trials on 2 quiet cores.

    python tests/tools/benchmarks/instant_trials.py [--trials 400] [--stock] [--no-rival]
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from gaudi_tune.base.files import SUMMARY_FILE
from gaudi_tune.base.process import changed_environment
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.private.surfaces import STOCK
from gaudi_tune.sweep.record.device_time import IDLE
from gaudi_tune.sweep.record.state_log import TRIALS, read_log
from gaudi_tune.sweep.search.study_trial import number_in_sweep
from tests.helpers.stored_study import stored_trials

sys.path[0] = str(PROJECT_ROOT)

AT_A_TIME = 2
NAME = "instant"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--stock", action="store_true", help="run with public APIs alone as well")
    parser.add_argument("--no-rival", action="store_true", help="run this project alone")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rival = None if given.no_rival else run_rival(Path(folder), given.trials)
        own = run_own(Path(folder), given.trials)
        kept = numbers_kept(Path(folder), own["summary"])
        stock: dict[str, Any] = {}
        if given.stock:
            (stock_folder := Path(folder, "stock")).mkdir()
            with changed_environment({STOCK: "1"}):
                stock = run_own(stock_folder, given.trials)
    figures = {
        "trials": given.trials,
        "rival": rival,
        "own": {name: value for name, value in own.items() if name != "summary"},
        **({"stock": {name: value for name, value in stock.items() if name != "summary"}} if stock else {}),
        "lost": {place: given.trials - len(set(numbers)) for place, numbers in kept.items()},
        "doubled": {place: sum(count > 1 for count in Counter(numbers).values()) for place, numbers in kept.items()},
    }
    ratio = {} if rival is None else {"ratio": round(own["trials_per_s"] / rival["trials_per_s"], 2)}
    print(json.dumps({**figures, **ratio}))


def run_rival(folder: Path, trials: int) -> dict[str, float]:
    """Run the trials in plain Ray Tune, and return how long that took."""
    configs = folder / "configs.json"
    configs.write_text(json.dumps([{"x": number / trials} for number in range(trials)]))
    script = str(PROJECT_ROOT / "tests/tools/benchmarks/plain_tune.py")
    command = [sys.executable, script, str(configs), "--loop", "tests.tools.benchmarks.instant:train_loop"]
    began = time.monotonic()
    ran = subprocess.run(
        [*command, "--at-a-time", str(AT_A_TIME)], stdout=subprocess.PIPE, text=True, check=True, cwd=PROJECT_ROOT
    )
    command_s = time.monotonic() - began
    sweep_s = json.loads(ran.stdout.splitlines()[-1])["sweep_s"]
    return {"command_s": round(command_s, 1), "sweep_s": sweep_s, "trials_per_s": round(trials / sweep_s, 1)}


def run_own(folder: Path, trials: int) -> dict[str, Any]:
    """Run the trials with this project, and return how long that took, its exit status and its summary."""
    options = ["--num-samples", str(trials), "--epochs", "1", "--search", "random", "--scheduler", "fifo"]
    places = ["--storage", str(folder), "--name", NAME, "--tracking-uri", f"sqlite:///{folder}/mlflow.db"]
    script = str(PROJECT_ROOT / "tests/tools/benchmarks/instant.py")
    command = [sys.executable, script, "--device", "cpu", "--confirm", "0", *options, *places]
    began = time.monotonic()
    status = subprocess.run(command, cwd=PROJECT_ROOT, check=False).returncode
    command_s = time.monotonic() - began
    summary = json.loads((folder / NAME / SUMMARY_FILE).read_text())
    seconds = summary["device_seconds"]
    return {
        "status": status,
        "command_s": round(command_s, 1),
        "sweep_s": summary["wall_s"],
        "trials_per_s": round(trials / summary["wall_s"], 1),
        "idle": round(seconds.get(IDLE, 0.0) / sum(seconds.values()), 2),
        "missing": summary.get("missing"),
        "summary": summary,
    }


def numbers_kept(folder: Path, summary: dict[str, Any]) -> dict[str, list[int]]:
    """Return the numbers of the trials with a result that each place has."""
    study = [number_in_sweep(trial) for trial in stored_trials(folder / NAME) if trial.state.is_finished()]
    log = [number for number, trial in read_log(folder / NAME)["sweep"][TRIALS].items() if trial["curve"]]
    with closing(sqlite3.connect(folder / "mlflow.db")) as database:
        query = (
            "SELECT n.value FROM metrics m JOIN tags k ON k.run_uuid = m.run_uuid AND k.key = 'kind' "
            "JOIN tags n ON n.run_uuid = m.run_uuid AND n.key = 'mlflow.runName' "
            "WHERE m.key = 'loss' AND k.value = 'trial'"
        )
        mlflow = [
            int(name.split()[1])  # "trial 002 x=0.5"
            for (name,) in database.execute(query)
        ]
    return {"log": log, "study": study, "summary": list(map(int, summary["device_time"]["trials"])), "mlflow": mlflow}


if __name__ == "__main__":
    main()
