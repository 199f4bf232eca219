"""The first contact with a GPU, in two commands of at most 500 s each: what the project does there, and how fast.

    python -m tests.tools.on_gpu --half 1 --out $OUT     # versions, tests, recipe
    python -m tests.tools.on_gpu --half 2 --out $OUT     # versions, networks, turnaround
    python -m tests.tools.on_gpu [--device cpu] [--only tests networks] [--out build/on_gpu]

The parts run one after the other, each in a process, and end at their limits, so that a slow one costs no other:

- ``versions``: the card, the driver, the versions of torch, Ray and MLflow, and a function compiled for the card, for
  which torch needs a C compiler and Triton. Without torch or a card nothing else runs;
- ``tests``: those marked ``cuda``;
- ``recipe``: the sample recipe of BERT, 8 trials;
- ``networks``: ``tests/tools/benchmarks/full_size.py``, the networks of the five recipes at full size;
- ``turnaround``: ``tests/tools/benchmarks/trial_turnaround.py``, in three ways, the slowest last;
- ``compiled``, in neither half: the networks again, beside a loop that is compiled, for which nobody knows how long a
  card's compiler takes. On 2 busy cores a small network took minutes.

What a part prints is in the folder of ``--out`` as it comes, as ``PART.txt``, and how the parts ended in
``parts.json``; sweeps are in a temporary folder. A table of all parts is printed last. With ``--device cpu`` everything
is small, and no figure means anything: it shows that only the device is missing. The status is 1 if a part failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from gaudi_tune.define.options import PROJECT_ROOT

PATIENCE = 3
"""How many times a part's limit it may take without a GPU."""
VERSIONS = """
import importlib.util, json, shutil, subprocess, sys, mlflow, ray, torch
found = {"torch": torch.__version__, "ray": ray.__version__, "mlflow": mlflow.__version__}
found |= {"cc": shutil.which("cc") or shutil.which("gcc"), "triton": importlib.util.find_spec("triton") is not None}
device = sys.argv[1]
if device == "cuda":
    assert torch.cuda.is_available(), f"torch finds no GPU: {found}"
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    found |= {"cuda": torch.version.cuda, "card": subprocess.run(query, capture_output=True, text=True).stdout.strip()}
print(json.dumps(found), flush=True)
try:
    found["compiles"] = torch.compile(lambda x: (x + 1).sum())(torch.ones(64, device=device)).item() == 128
except Exception as error:
    found["compiles"] = str(error).splitlines()[0]
print(json.dumps(found))
"""
HALVES = {1: ("versions", "tests", "recipe"), 2: ("versions", "networks", "turnaround")}
"""The parts of each command."""
END_S = 10
"""How long a part may take to end after each of three signals."""


class Part(NamedTuple):
    """A part of the first contact."""

    limit_s: int
    command: list[str]


class Ended(NamedTuple):
    """How a part ended."""

    status: int | str
    seconds: float
    last_line: str


def parts_on(device: str, sweeps: Path) -> dict[str, Part]:
    """Return the parts by name. Those of each half fit into its time, also if each is late and must be ended."""
    small = device != "cuda"
    trials = "2" if small else "8"
    recipe = f"experiments/tune_bert.py --recipe sample --device {device} --num-samples {trials} --confirm 0"
    recipe += f" --name on-gpu --storage {sweeps}/results --tracking-uri sqlite:///{sweeps}/mlflow.db"
    networks = "-m tests.tools.benchmarks.full_size " + ("--small --seconds 1" if small else "--seconds 20")
    turnaround = f"tests/tools/benchmarks/trial_turnaround.py --device {device} --trials {'4' if small else '12'}"
    turnaround += " --ways warm reused" if small else " --plain-trials 4"
    return {
        "versions": Part(60, ["-c", VERSIONS, device]),
        "tests": Part(210, ["-m", "pytest", "-q", "-rs", "-m", "cuda", "tests/tools/on_gpu"]),
        "recipe": Part(140, recipe.split()),
        "networks": Part(170, networks.split()),
        "turnaround": Part(180, turnaround.split()),
        "compiled": Part(400, [*networks.split(), "--compiled"]),
    }


def run(name: str, part: Part, device: str, out: Path) -> Ended:
    """Run a part, and end it with all that it started when its time is over."""
    limit_s = part.limit_s if device == "cuda" else PATIENCE * part.limit_s
    own = {"PYTHONPATH": f"{PROJECT_ROOT}:{os.environ.get('PYTHONPATH', '')}", "PYTHONUNBUFFERED": "1"}
    own |= {} if device == "cuda" else {"ON_GPU_AS": device}
    printed, began = out / f"{name}.txt", time.monotonic()
    with printed.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, *part.command],
            cwd=PROJECT_ROOT,
            env={**os.environ, **own},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status: int | str
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = f"ended after {limit_s} s"
        end(process)
    lines = printed.read_text(errors="replace").splitlines() or [""]
    return Ended(status, round(time.monotonic() - began, 1), lines[-1])


def end(process: subprocess.Popen[bytes]) -> None:
    """End the processes of a part: first as Ctrl-C does, so that Ray ends what it started."""
    if process.poll() is not None:
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        os.killpg(process.pid, number)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            continue
        return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", nargs="+", metavar="PART")
    parser.add_argument("--half", type=int, choices=HALVES)
    parser.add_argument("--out", type=Path, default=PROJECT_ROOT / "build" / "on_gpu")
    given = parser.parse_args()
    out: Path = given.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    wanted = given.only or HALVES.get(given.half)
    ended: dict[str, Ended] = {}
    with tempfile.TemporaryDirectory(prefix="on-gpu-", ignore_cleanup_errors=True) as sweeps:
        for name, part in parts_on(given.device, Path(sweeps)).items():
            if wanted and name not in wanted:
                continue
            ended[name] = run(name, part, given.device, out)
            print(f"{name}: status {ended[name].status}, {ended[name].seconds} s: {ended[name].last_line}", flush=True)
            (out / "parts.json").write_text(json.dumps({key: each._asdict() for key, each in ended.items()}, indent=1))
            if name == "versions" and not re.search("^{", (out / "versions.txt").read_text(), re.MULTILINE):
                break  # no torch, or no card; that nothing compiles costs no other part
    print(f"\n{'part':12} {'status':>8} {'seconds':>8}")
    for name, part_ended in ended.items():
        print(f"{name:12} {part_ended.status!s:>8} {part_ended.seconds:8}")
    return int(any(part_ended.status != 0 for part_ended in ended.values()))


if __name__ == "__main__":
    sys.exit(main())
