"""Run Ray Tune's own examples as sweeps, with a few lines changed, and see that they do what they do in Ray Tune.

    python -m tests.tools.ray_examples --source DIR [DIR ...] [--only NAME ...]

DIR is ``ray/tune/examples`` of an installed Ray, or a folder of Ray's sources; none of its code is in this project.
NAME is the beginning of an example's name. Each runs in a process and a folder of its own, with a Ray of its own. Only
imports and the call of ``Tuner()`` are changed; the table has how many lines these are. An example fails if its process
fails, other trials end than expected, one of them fails, the best value is missing, or the longest trial has other
reports. The exit status is 1 if one does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits

from gaudi_tune.define.options import PROJECT_ROOT
from tests.tools.ray_examples.changed import OtherTextError, changed, count_lines
from tests.tools.ray_examples.examples import EXAMPLES, IN_EVERY, Example

ENDS_WITHIN_S = 600
HEAD = ("example", "lines changed", "what happened", "trials", "best value", "seconds")
MAGIC = {1: 2049, 3: 2051}
"""The first number of a file of MNIST, by the dimensions of its array."""


class Row(NamedTuple):
    """A line of the table."""

    example: str
    lines: str
    what: str
    trials: str = ""
    best: str = ""
    seconds: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m tests.tools.ray_examples",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--source", type=Path, nargs="+", required=True, metavar="DIR")
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME")
    arguments = parser.parse_args()
    rows = []
    print_cells(HEAD)
    print_cells(("---",) * len(HEAD))
    with tempfile.TemporaryDirectory(prefix="ray-examples-") as folder:
        write_digits(Path(folder, "home", "data", "MNIST", "raw"))
        for example in EXAMPLES:
            if example.file.startswith(tuple(arguments.only)):
                rows.append(row_of(example, arguments.source, Path(folder)))
                print_cells(rows[-1])
    ran, refused = (sum(row.what.startswith(word) for row in rows) for word in ("ran", "refused"))
    print(f"\n{ran} of {len(rows)} ran, {refused} refused")
    return int(ran + refused < len(rows))


def row_of(example: Example, sources: list[Path], folder: Path) -> Row:
    """Run an example, and return its line of the table."""
    file = next((found for source in sources for found in source.rglob(example.file)), None)
    if file is None:
        return Row(example.file, "", "failed: not in the source")
    before = file.read_text()
    try:
        after = changed(before, (*IN_EVERY, *example.changes))
    except OtherTextError as error:
        return Row(example.file, "", f"failed: another version of the example: {error}")
    number, elsewhere = count_lines(before, after)
    if elsewhere:
        return Row(example.file, str(number), f"failed: {elsewhere} changed lines neither import nor build")
    place = folder / Path(example.file).stem
    place.mkdir()
    (place / example.file).write_text(after)
    started = time.monotonic()
    status, output = run(place, example, folder / "home")
    seconds = f"{time.monotonic() - started:.0f}"
    (place / "output").write_text(output)
    summaries = [json.loads(summary.read_text()) for summary in sorted(place.glob("results/*/summary.json"))]
    trials = sum((Counter(summary["counts"]) for summary in summaries), Counter())
    told = ", ".join(f"{count} {status}" for status, count in trials.items() if count)
    best = ", ".join(f"{summary['best']['value']:.4g}" for summary in summaries if summary["best"])
    problem = problem_of(example, status, output, summaries, place)
    remark = f" ({example.remark})" if example.remark else ""
    if problem:
        print(*output.splitlines()[-15:], sep="\n", file=sys.stderr)
        return Row(example.file, str(number), f"failed: {problem}", told, best, seconds)
    what = f"refused: {refusal_in(output)}" if example.refused else "ran"
    return Row(example.file, str(number), f"{what}{remark}", told, best, seconds)


def run(place: Path, example: Example, home: Path) -> tuple[int, str]:
    """Run an example to its end, and return its exit status and what it printed."""
    path = os.pathsep.join(filter(None, (str(PROJECT_ROOT), os.environ.get("PYTHONPATH"))))
    folders = {"HOME": str(home), "PYTHONPATH": path, "TMPDIR": str(place), "RAY_TMPDIR": "/tmp"}
    environment = {**os.environ, **folders, "MLFLOW_ALLOW_FILE_STORE": "true"}  # as Ray's example of MLflow needs it
    process = subprocess.Popen(
        [sys.executable, example.file, *example.arguments], cwd=place, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        output, _ = process.communicate()
        return 124, output
    return process.returncode, output


def problem_of(example: Example, status: int, output: str, summaries: list[Mapping[str, Any]], place: Path) -> str:
    """Return what is not as it must be after an example has run; "" if all is."""
    if example.refused:
        return "" if refusal_in(output).startswith(example.refused) else f"not refused, exit status {status}"
    if status:
        last_line = next((line for line in reversed(output.splitlines()) if line.strip()), "")
        return f"exit status {status}: {last_line.strip()[:200]}"
    counts = sum((Counter(summary["counts"]) for summary in summaries), Counter())
    files = place.glob("results/*/trial-*/result.json")
    reports = [json.loads(line)["training_iteration"] for file in files for line in file.read_text().splitlines()]
    expected = {
        "sweeps": (len(summaries), example.sweeps),
        "trials": (counts.total(), example.trials),
        "failed trials": (counts["failed"], 0),
        "best values": (sum(bool(summary["best"]) for summary in summaries), example.sweeps),
        "reports of the longest trial": (max(reports, default=0), example.reports),
    }
    return "; ".join(f"{name}: {had}, not {must}" for name, (had, must) in expected.items() if had != must)


def refusal_in(output: str) -> str:
    """Return the message of the error with which an example ended, without the place; "" without one."""
    lines = [line.removeprefix("error: ") for line in output.splitlines() if line.startswith("error: ")]
    return lines[-1].rpartition(" (")[0] if lines else ""


def write_digits(folder: Path) -> None:
    """Write scikit-learn's digits, enlarged, in the format of MNIST."""
    folder.mkdir(parents=True)
    digits = load_digits()
    small = torch.tensor(digits.images / 16 * 255).unsqueeze(1)
    images = torch.nn.functional.interpolate(small, size=28, mode="bilinear").squeeze(1).numpy().astype(np.uint8)
    for name, part in (("train", slice(0, 1400)), ("t10k", slice(1400, None))):
        write_idx(folder / f"{name}-images-idx3-ubyte", images[part])
        write_idx(folder / f"{name}-labels-idx1-ubyte", digits.target[part].astype(np.uint8))


def write_idx(file: Path, array: np.ndarray[Any, Any]) -> None:
    """Write an array of bytes as MNIST's files have it."""
    header = np.array([MAGIC[array.ndim], *array.shape], dtype=">i4")
    file.write_bytes(header.tobytes() + array.tobytes())


def print_cells(cells: Sequence[str]) -> None:
    """Print a line of a table of Markdown."""
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
