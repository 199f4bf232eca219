"""The host's side of the rivals: each a process with an environment of its own, which speaks lines of JSON.

``rivals/serve.py`` has the protocol. A rival is a file in that folder, which names, at its top, the exact versions that
it takes (uv makes the environment, in its cache), and has its settings; and one line here.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from tests.tools.benchmarks.strategies import Take, Trial

FOLDER = Path(__file__).resolve().parent / "rivals"
RIVALS = {
    "random-asha": ("random_asha", ""),
    "syne-BOHB": ("syne_now", "BOHB"),
    "syne-ASHACQR": ("syne_now", "ASHACQR"),
    "syne-ASHABORE": ("syne_now", "ASHABORE"),
    "syne-MOASHA": ("syne_now", "MOASHA"),
    "syne-MOBSTER": ("syne_gp", "MOBSTER"),
    "syne-HyperTune": ("syne_gp", "HyperTune"),
    "syne-DyHPO": ("syne_gp", "DyHPO"),
    "syne-PASHA": ("syne_gp", "PASHA"),
    "neps-priorband": ("neps_budgets", "priorband"),
    "neps-ifbo": ("neps_budgets", "ifbo"),
    "smac": ("smac_hyperband", ""),
    "dehb": ("dehb_budgets", ""),
    "hebo-asha": ("hebo_asha", ""),
    "ax": ("ax_client", "own"),
    "ax-asha": ("ax_client", "asha"),
    "botorch-asha": ("botorch_asha", ""),
}
"""File and kind of each."""
running: dict[Path, tuple[subprocess.Popen[str], TextIO]] = {}
"""The process of a rival; there is one at a time."""


def uv(*arguments: str) -> str:
    """Return what uv prints.

    Raises:
        ValueError: It failed, with what it said.
    """
    done = subprocess.run([Path(sys.executable).with_name("uv"), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr.strip())
    return done.stdout.strip()


def prepare(name: str) -> None:
    """Make the environment of a rival, if it is not there yet."""
    uv("sync", "--quiet", "--script", str(FOLDER / f"{RIVALS[name][0]}.py"))


def started(file: Path) -> tuple[subprocess.Popen[str], TextIO]:
    """Return the process of a rival's file, which serves one sweep after another, and what gives its answers: a pipe of
    its own, because libraries print. That of another file ends.
    """
    if file not in running:
        end_process()
        answers, end = os.pipe()
        command = [uv("python", "find", "--script", str(file)), "-W", "ignore", str(file), str(end)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=2, pass_fds=[end], text=True)
        os.close(end)
        running[file] = process, os.fdopen(answers)
    return running[file]


def end_process() -> None:
    """End the rival's process, if there is one, by the end of its input."""
    while running:
        process, answers = running.popitem()[1]
        process.communicate()
        answers.close()


class Rival:
    """A strategy in a process of its own."""

    def __init__(
        self, file: Path, kind: str, seed: int, dimensions: int, epochs: int, workers: int, objectives: int = 1
    ) -> None:
        self.objectives = objectives
        self.file, (self.process, self.answers) = file, started(file)
        self.trials: dict[int, Trial] = {}
        self.cpu = 0.0
        """The seconds of CPU that its decisions took."""
        self.call("begin", kind=kind, seed=seed, dimensions=dimensions, epochs=epochs, workers=workers)

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        """Return the answer to one call."""
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps({method: given}) + "\n")
            self.process.stdin.flush()
            line = self.answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            end_process()
            raise RuntimeError(f"{self.file.stem} ended with {self.process.returncode}; it said why above")
        answer: dict[str, Any] = json.loads(line)
        self.cpu = answer.pop("cpu")
        return answer

    def next(self, take: Take) -> Trial | None:
        asked = self.call("ask")
        if not asked:
            return None
        number = asked["trial"]
        if "point" not in asked:
            return self.trials[number]
        curve = take(np.array(asked["point"]))
        self.call("began", trial=number, point=None if curve is None else [float(value) for value in curve[0]])
        if curve is None:
            return None
        self.trials[number] = Trial(str(number), curve)
        return self.trials[number]

    def report(self, trial: Trial, loss: float, ended: bool) -> str:
        finite = loss if math.isfinite(loss) else None
        second = {"seconds": trial.curve[1](trial.epoch)[1]} if self.objectives > 1 else {}
        told = self.call("tell", trial=int(trial.trial_id), epoch=trial.epoch, loss=finite, ended=ended, **second)
        return "STOP" if ended else str(told["decision"])
