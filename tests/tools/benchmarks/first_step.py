"""How long a sweep takes from the command to the first step of its first trial, against one bare process.

In turn, so that all have the same machine: BERT's sample recipe in two groups; the same without the fork server; and a
bare process that imports the same libraries, builds the same model and takes a step. Prints, last, one JSON object,
medians:

    {"first_step_s": ..., "without_fork_server_s": ..., "bare_s": ..., "ratio": ...}

``ratio`` is the sweep's time over the bare process's, of each round. 5 rounds take 4 minutes on 2 cores.

    python tests/tools/benchmarks/first_step.py [--rounds 5]
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
from pathlib import Path

from experiments.tune_bert import sample_settings
from gaudi_tune.base import names
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.private.setup_worker import FORK_SERVER

BARE = """
import sys
import ray.train.torch
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_config(AutoConfig.from_pretrained(sys.argv[1]))
optimizer = torch.optim.AdamW(model.parameters())
model(input_ids=torch.ones(8, 40, dtype=torch.long), labels=torch.zeros(8, dtype=torch.long)).loss.backward()
optimizer.step()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured")
    rounds = parser.parse_args().rounds
    model = str(sample_settings()["model"])  # made before anything is timed
    sweep_s()  # finds nothing in memory of what it reads, as all later ones do
    measured = []
    for number in range(1, rounds + 1):
        sweep, without, bare = sweep_s(), sweep_s(**{FORK_SERVER: "off"}), bare_s(model)
        print(f"round {number}: {sweep:.1f} s, {without:.1f} s without the fork server, bare {bare:.1f} s", flush=True)
        measured.append((sweep, without, bare, sweep / bare))
    names_of = ("first_step_s", "without_fork_server_s", "bare_s", "ratio")
    medians = [round(statistics.median(values), 2) for values in zip(*measured, strict=True)]
    print(json.dumps(dict(zip(names_of, medians, strict=True))))


def sweep_s(**variables: str) -> float:
    """Return the seconds from the command to the first step of the first trial."""
    with tempfile.TemporaryDirectory() as storage:
        options = ("--recipe", "sample", "--num-samples", "2", "--confirm", "0", "--search", "random", "--epochs", "1")
        places = ("--name", "first", "--storage", storage, "--tracking-uri", f"sqlite:///{storage}/mlflow.db")
        command = [sys.executable, str(PROJECT_ROOT / "experiments" / "tune_bert.py"), *options, *places]
        began = time.time()
        subprocess.run(command, env={**os.environ, **variables}, check=True, capture_output=True)
        results = [file.read_text().splitlines()[0] for file in Path(storage).glob("first/trial-*/result.json")]
        return min(json.loads(first)[names.FIRST_STEP_AT] for first in results) - began


def bare_s(model: str) -> float:
    """Return the seconds that the bare process takes."""
    began = time.time()
    subprocess.run([sys.executable, "-c", BARE, model], check=True, capture_output=True)
    return time.time() - began


if __name__ == "__main__":
    main()
