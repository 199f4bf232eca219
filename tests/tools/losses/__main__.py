"""Run a sweep without each private surface of ``gaudi_tune/private/surfaces.ini``, and one without all that can be off.

Each surface is taken away by its name (``GAUDI_TUNE_STOCK``), in every process of a sweep whose trials save, pause and
continue. The sweep must end right, with all trials and the best one; or, where it would lose work, the plan must refuse
with the versions that were tested. The one without all is killed once a trial has saved, resumed, interrupted with
Ctrl-C, and resumed again. Prints a line for
each, and ends with status 1 if one is wrong. About 25 s each on 2 cores.

    python -m tests.tools.losses [NAME ...]    # 1: the one without all
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gaudi_tune.base.files import STATE_LOG
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.private.surfaces import ANY_VERSION, STOCK, SURFACES, tested
from tests.helpers.stored_study import stored_trials
from tests.tools.versions.sweep import Driver

NAME, TRIALS, EPOCHS = "lost", 4, 3
ALL = "1"
"""Takes away all that a sweep can do without."""


def main() -> int:
    """Run the sweeps, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[ALL, *SURFACES], metavar="NAME")
    problems_by_name = {}
    for name in parser.parse_args().names:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            problems = without(name, Path(folder))
        print(f"{name:18} {time.monotonic() - began:4.0f} s  {'; '.join(problems) or 'right'}", flush=True)
        problems_by_name[name] = problems
    return int(any(problems_by_name.values()))


def without(name: str, folder: Path, *options: str) -> list[str]:
    """Run a sweep without a surface, and return what is wrong with it."""
    if name == ALL:
        killed(folder, *options, **{STOCK: name})
        options = ("--resume", NAME)
        interrupted(folder, *options, **{STOCK: name})
    status, answer, said = sweep(folder, *options, **{STOCK: name})
    if name == ALL or SURFACES[name].fallback:
        wrong = problems_of(status, answer, folder)
        if name != ALL and f"{name} is off" not in said:
            wrong.append("the plan does not name it")
        return wrong
    if status != 2 or name not in (error := str(answer.get("error"))) or tested(SURFACES[name].library) not in error:
        return [f"the plan does not refuse: {answer}"]
    status, answer, _ = sweep(folder, *options, **{STOCK: name, ANY_VERSION: "1"})
    return problems_of(status, answer, folder)


def sweep(folder: Path, *options: str, **variables: str) -> tuple[int, dict[str, Any], str]:
    """Run a sweep in ``folder``, and return its status, what it prints as JSON, and all else that it says."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT), **variables}
    command = command_of(folder, *options)
    ran = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    return ran.returncode, json.loads(ran.stdout or "{}"), ran.stderr


def killed(folder: Path, *options: str, **variables: str) -> None:
    """Kill a sweep once one of its trials has saved and paused."""
    driver = Driver(command_of(folder, *options), folder, PYTHONPATH=str(PROJECT_ROOT), **variables)
    try:
        driver.wait_for(r"trial \d+ .* paused")
        driver.kill()
    finally:
        driver.end()


def interrupted(folder: Path, *options: str, **variables: str) -> None:
    """Interrupt a sweep with Ctrl-C once it has shown a report. It ends in good order, with trials that are paused."""
    driver = Driver(command_of(folder, *options), folder, PYTHONPATH=str(PROJECT_ROOT), **variables)
    try:
        driver.wait_for(r"trial \d+ .* epoch")
        driver.process.send_signal(signal.SIGINT)
        assert driver.process.wait(120) == 130, driver.printed
    finally:
        driver.end()


def command_of(folder: Path, *options: str) -> list[str]:
    """Return the command line of a sweep, new or resumed."""
    command = [sys.executable, str(Path(__file__).with_name("loop.py")), "--json", "--storage", str(folder)]
    command += ["--tracking-uri", f"sqlite:///{folder}/mlflow.db", *options]
    if "--resume" not in options:
        command += ["--device", "cpu", "--name", NAME, "--num-samples", str(TRIALS), "--epochs", str(EPOCHS)]
        command += ["--confirm", "0"]
    return command


def problems_of(status: int, summary: dict[str, Any], folder: Path) -> list[str]:
    """Return what is wrong with a sweep that should have ended as usual."""
    if status != 0:
        return [f"status {status}: {summary.get('error') or summary.get('failed')}"]
    places = {
        "the summary": len(summary["trials"]),
        "the study": sum(trial.state.is_finished() for trial in stored_trials(folder / NAME)),
    }
    wrong = [f"{place} has {count} of {TRIALS} trials" for place, count in places.items() if count != TRIALS]
    values = [trial["value"] for trial in summary["trials"] if trial["value"] is not None]
    if not summary["best"] or summary["best"]["value"] != min(values):
        wrong.append(f"the best is {summary['best']}, of {values}")
    if not (folder / NAME / STATE_LOG).stat().st_size:
        wrong.append("the log is empty")
    return [*wrong, *summary.get("missing", ())]


if __name__ == "__main__":
    sys.exit(main())
