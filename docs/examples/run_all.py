"""Tune all twelve examples for real, one after another, on the CPU, and print a table: ``make examples``, minutes.

Each runs in a separate process, as its author would type it. What follows on the command line is given to all, for
example ``--num-samples 6 --storage /tmp/examples``; with names of examples before that, only they run.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
COUNT = runpy.run_path(str(HERE / "count.py"))
WORKERS = {"ray_pytorch": 2, "ray_ddp": 2, "hf_trainer": 2, "lightning_classifier": 2}
"""Workers per trial, where it is not 1."""


def row(name: str, options: list[str]) -> str:
    """Run the sweep of an example and return its row of the table."""
    script = [sys.executable, str(HERE / "tuned" / f"{name}.py")]
    width = WORKERS.get(name, 1)
    began = time.monotonic()
    ran = subprocess.run(
        [*script, "--device", "cpu", "--workers-per-trial", str(width), *options],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
    )
    if ran.returncode:
        return f"| {name} | failed: {(ran.stdout + ran.stderr).strip().splitlines()[-1]} |"
    seconds = time.monotonic() - began
    (summary_file,) = re.findall(r"^summary +(.*)", ran.stdout, re.MULTILINE)
    summary = json.loads(Path(summary_file).read_text())
    trials = ", ".join(f"{count} {status}" for status, count in summary["counts"].items())
    metric, best = summary["metric"], summary["best"]["value"]
    lines = COUNT["of"](name, "tuned")
    return f"| [{name}](tuned/{name}.py) | {lines} | {width} | {trials} | {metric} {best:.4g} | {seconds:.0f} |"


if __name__ == "__main__":
    print("| example | changed lines | workers per trial | trials | best | seconds |\n|---|---|---|---|---|---|")
    chosen = [name for name in COUNT["NAMES"] if name in sys.argv[1:]]
    for name in chosen or COUNT["NAMES"]:
        print(row(name, sys.argv[1 + len(chosen) :]), flush=True)
