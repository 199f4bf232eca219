"""The first contact with a GPU, in one command of at most 500 s: what the project does there, and how fast.

    python -m tests.tools.on_gpu --out $OUT
    python -m tests.tools.on_gpu [--device cpu] [--only tests networks] [--seconds 500] [--out build/on_gpu]

The parts run one after the other, the most valuable first, each in a process. A part ends at its limit, so that a slow
one costs no other, and sooner where less time is left:

- ``versions``: the card, the driver, the versions of torch, Ray and MLflow, and a function compiled for the card, for
  which torch needs a C compiler and Triton. Without torch or a card nothing else runs;
- ``tests``: those marked ``cuda``;
- ``llm``: ``tests/tools/benchmarks/llm_size.py``, LoRA on a language model of 1.24 billion parameters;
- ``networks``: ``tests/tools/benchmarks/full_size.py``, the networks of five recipes at full size;
- ``recipe``: the sample recipe of BERT, 8 trials;
- ``turnaround``: ``tests/tools/benchmarks/trial_turnaround.py``, in three ways, the slowest last;
- ``compiled``, only if it is named: the networks again, beside a loop that is compiled, for which nobody knows how long
  a card's compiler takes. On 2 busy cores a small network took minutes.

It needs a checkout, a C compiler, and the packages of the extra ``test``, without which pytest and the recipes do not
begin; CONTRIBUTING says how they get to a machine without a network. It asks nothing of a network itself.

What a part prints is in the folder of ``--out`` as it comes, as ``PART.txt``, and how the parts ended in
``parts.json``; sweeps are in a temporary folder. A table of all parts is printed last. With ``--device cpu`` everything
is small, has all the time it needs, and no figure means anything: it shows that only the device is missing. The status
is 1 if a part failed or was left out.
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
"""How many times its limit a part may take, and all of them their time, without a GPU."""
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
SECONDS = 500
"""What all parts may take on a GPU, with the end of one that is late."""
LEAST_S = 20
"""With less time, a part is left out."""
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
    """Return the parts by name, in their order."""
    small = device != "cuda"
    trials = "2" if small else "8"
    recipe = f"experiments/tune_bert.py --recipe sample --device {device} --num-samples {trials} --confirm 0"
    recipe += f" --name on-gpu --storage {sweeps}/results --tracking-uri sqlite:///{sweeps}/mlflow.db"
    size = "--small --seconds 1" if small else "--seconds 8"
    networks = f"-m tests.tools.benchmarks.full_size {size}"
    turnaround = f"tests/tools/benchmarks/trial_turnaround.py --device {device} --trials {'4' if small else '12'}"
    turnaround += " --ways warm reused" if small else " --plain-trials 4"
    return {
        "versions": Part(90, ["-c", VERSIONS, device]),
        "tests": Part(170, ["-m", "pytest", "-q", "-rs", "-p", "no:hydra_pytest", "-m", "cuda", "tests/tools/on_gpu"]),
        "llm": Part(80, f"-m tests.tools.benchmarks.llm_size {size}".split()),
        "networks": Part(130, networks.split()),
        "recipe": Part(120, recipe.split()),
        "turnaround": Part(150, turnaround.split()),
        "compiled": Part(400, [*networks.split(), "--compiled"]),
    }


def limit_of(part: Part, left_s: float) -> float | None:
    """Return how long a part may take if so much time is left for all; None if that is too little."""
    limit_s = min(part.limit_s, left_s - 3 * END_S)
    return limit_s if limit_s >= LEAST_S else None


def run(name: str, part: Part, limit_s: float, device: str, out: Path) -> Ended:
    """Run a part, and end it with all that it started when its time is over."""
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
            status = f"ended after {limit_s:.0f} s"
        finally:
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
    parser.add_argument("--seconds", type=float, default=SECONDS, help="what all parts may take")
    parser.add_argument("--out", type=Path, default=PROJECT_ROOT / "build" / "on_gpu")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the part that runs ends, too
    out: Path = given.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    patience = 1 if given.device == "cuda" else PATIENCE
    ended: dict[str, Ended] = {}
    until = time.monotonic() + patience * given.seconds
    with tempfile.TemporaryDirectory(prefix="on-gpu-", ignore_cleanup_errors=True) as sweeps:
        parts = parts_on(given.device, Path(sweeps))
        for name in given.only or [name for name in parts if name != "compiled"]:
            part = parts[name]._replace(limit_s=patience * parts[name].limit_s)
            limit_s = limit_of(part, until - time.monotonic())
            ended[name] = (
                run(name, part, limit_s, given.device, out) if limit_s else Ended("left out", 0, "no time left")
            )
            print(f"{name}: status {ended[name].status}, {ended[name].seconds} s: {ended[name].last_line}", flush=True)
            (out / "parts.json").write_text(json.dumps({key: each._asdict() for key, each in ended.items()}, indent=1))
            if name == "versions" and not re.search("^{", (out / "versions.txt").read_text(), re.MULTILINE):
                break  # no torch, or no card; that nothing compiles costs no other part
    print(f"\n{'part':12} {'status':>18} {'seconds':>8}")
    for name, part_ended in ended.items():
        print(f"{name:12} {part_ended.status!s:>18} {part_ended.seconds:8}")
    return int(any(part_ended.status != 0 for part_ended in ended.values()))


if __name__ == "__main__":
    sys.exit(main())
