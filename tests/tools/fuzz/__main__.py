"""Give a sweep inputs that are nearly right, wherever it takes any, and see that each is answered.

    python -m tests.tools.fuzz [--inputs 2000] [--seed 0] [--door NAME ...]

An input is answered if it is accepted and means what it says, or if an error names it (a SweepError, or exit status
2). What falls is printed: raw tracebacks, answers that took longer than 5 s of this process's time, inputs that were
accepted and should not have been, and answers that nobody can read. It only plans, in this process: no Ray, no worker.
The same seed gives the same inputs; another seed gives others. The last line is a JSON object:

    {"inputs": 2000, "accepted": 612, "answered": 1388, "raw": 0, "slow": 0, "suspicious": 0, "unreadable": 0}
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from gaudi_tune import SweepError
from tests.helpers.earlier_sweeps import earlier_sweep
from tests.tools.fuzz.fields import arguments_of_build_tuner, budgets, experiment_fields
from tests.tools.fuzz.files import toml_files
from tests.tools.fuzz.given import SMALL, Input
from tests.tools.fuzz.lines import command_lines, gaudi_tune, objectives, places
from tests.tools.fuzz.spaces import spaces
from tests.tools.fuzz.values import MARK, shown

DOORS: dict[str, tuple[Callable[[Random, Path], Input], int]] = {
    "command line": (command_lines, 5), "gaudi-tune": (gaudi_tune, 3), "toml": (toml_files, 4), "space": (spaces, 6),
    "build_tuner": (arguments_of_build_tuner, 5), "Experiment": (experiment_fields, 5), "Budget": (budgets, 1),
    "objectives": (objectives, 1), "places": (places, 2),
}  # fmt: skip
"""Every door, and how often it is taken."""
ANSWER_WITHIN_S = 5.0
ENDLESS_S = 30.0
"""An input without an answer after this long is interrupted."""
LONGEST_ANSWER = 3000
"""Characters of the longest answer that somebody may read."""
UNREADABLE = re.compile(r"np\.\w+\(|\bDecimal\(|<[\w.]+ object at 0x|\x1b|Traceback \(most recent")
"""What people do not write: the types of numbers, addresses of objects, escapes of terminals, tracebacks."""
WHAT = ("accepted", "answered", "raw", "slow", "suspicious", "unreadable")


class Outcome(NamedTuple):
    """What became of an input."""

    kind: str
    text: str = ""
    seconds: float = 0.0


class EndlessError(BaseException):
    """An input had no answer after :data:`ENDLESS_S`."""


@contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    """Raise an error inside the block after this long."""

    def stop(number: int, frame: Any) -> None:
        raise EndlessError

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def outcome_of(given: Input) -> Outcome:
    """Give an input, and return what became of it."""
    said = io.StringIO()
    began = time.process_time()
    result: Any = None
    answer = ""
    try:
        with interrupted(ENDLESS_S), redirect_stdout(said), redirect_stderr(said):
            result = given.give()
    except SweepError as error:
        answer = str(error) or "(an empty text)"
    except EndlessError:
        return Outcome("slow", "no answer", ENDLESS_S)
    except (Exception, SystemExit):
        return Outcome("raw", traceback.format_exc(limit=-6), time.process_time() - began)
    seconds = time.process_time() - began
    if seconds > ANSWER_WITHIN_S:
        return Outcome("slow", answer or "accepted", seconds)
    if not answer and isinstance(result, int) and result:
        answer = said.getvalue() or "(nothing was said)"
    return Outcome(*_judged(given, result, answer), seconds)


def _judged(given: Input, result: Any, answer: str) -> tuple[str, str]:
    """Return the kind of an outcome, and what was said."""
    if answer:
        if len(answer) > LONGEST_ANSWER or UNREADABLE.search(answer) or answer.startswith("("):
            return "unreadable", shown(answer, 600)
        if given.raises and not (MARK in answer and re.search(r"line \d+", answer)):
            return "unreadable", f"the user's error has no line: {shown(answer, 600)}"
        return "answered", answer
    problem = given.wrong or ("the user's error was swallowed" if given.raises else given.misread(result))
    return ("suspicious", problem) if problem else ("accepted", "")


def prepare(place: Path) -> None:
    """Fill a folder with what inputs name: an earlier sweep, and scripts."""
    with (
        patch.dict(os.environ, {"MLFLOW_TRACKING_URI": f"sqlite:///{place}/mlflow.db"}),
        redirect_stdout(io.StringIO()),
    ):
        earlier_sweep(SMALL, place / "results", lambda config: config["lr"], trials=4)
    summary = {"trials": {"finished": 4}, "complete": True, "best": {"trial": 1, "value": 0.1, "config": {"lr": 0.01}}}
    (place / "results" / "earlier" / "summary.json").write_text(json.dumps(summary))
    script = "from tests.tools.fuzz.given import SMALL as EXPERIMENT\n"
    scripts = {
        "my.py": script, "broken.py": f"{script}1 / 0\n", "exits.py": f"{script}raise SystemExit(0)\n",
        "syntax.py": "def f(:\n",
        "wrong.py": "from gaudi_tune import Experiment\nExperiment(train_loop=print, space={}, metric='a', mode='b')\n",
    }  # fmt: skip
    for name, text in scripts.items():
        (place / name).write_text(text)
    (place / "damaged").mkdir()
    (place / "damaged" / "sweep.json").write_text("{")


def fuzz(inputs: int, seed: int, doors: Sequence[str]) -> dict[str, int]:
    """Give this many inputs, print those that go wrong, and return how many there were of each kind."""
    counts: Counter[str] = Counter()
    seen: Counter[tuple[str, str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        prepare(place)
        os.chdir(place)
        with patch.dict(os.environ, {"MLFLOW_TRACKING_URI": f"sqlite:///{place}/mlflow.db", "GAUDI_TUNE_NOTIFY": ""}):
            for number in range(inputs):
                random = Random(f"{seed}.{number}")
                make = DOORS[random.choices(doors, [DOORS[door][1] for door in doors])[0]][0]
                given = make(random, place)
                outcome = outcome_of(given)
                counts[outcome.kind] += 1
                if outcome.kind in ("accepted", "answered"):
                    continue
                last_line = (outcome.text.strip() or " ").splitlines()[-1]
                seen[given.door, outcome.kind, last_line[:50]] += 1
                if seen[given.door, outcome.kind, last_line[:50]] <= 2:
                    title = f"--- {number} {outcome.kind}, {given.door}, {outcome.seconds:.1f} s"
                    print(f"{title}: {given.text}\n{outcome.text}", flush=True)
    return {"inputs": inputs, **{kind: counts[kind] for kind in WHAT}}


def main() -> int:
    """Fuzz as the command line says, and return 1 if anything fell."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--door", choices=list(DOORS), action="append", help="give inputs at this door alone; may be repeated"
    )
    arguments = parser.parse_args()
    counts = fuzz(arguments.inputs, arguments.seed, arguments.door or tuple(DOORS))
    print(json.dumps(counts))
    return int(any(counts[kind] for kind in WHAT[2:]))


if __name__ == "__main__":
    sys.exit(main())
