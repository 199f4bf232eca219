"""``gaudi-tune export``: the trials of a sweep as a table, and its winner as a file that ``--config`` reads."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import atomic_write
from gaudi_tune.cli.sweeps import StoredSweep
from gaudi_tune.define.config_file import SET
from gaudi_tune.plan.outside_results import CONFIG
from gaudi_tune.sweep.record.sweep_file import winner_of

TRIALS_FILE, BEST_FILE = "trials.csv", "best.toml"
TRAINED = ("recipe", "data", "model", "epochs", "steps", "eval_every", "seconds", "objectives")
"""The options that say what a trial trained, and on which data; the device may be another."""


def export(sweep: StoredSweep, folder: Path) -> list[Path]:
    """Write both files into a folder, and return their paths; the second one if there is a winner."""
    metrics = [objective.name for objective in sweep.file.all_objectives]
    names, head = list(sweep.file.space), ["trial", "status", *metrics, "at"]
    with atomic_write(folder / TRIALS_FILE) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*head, *(f"{CONFIG}{name}" if name in head else name for name in names)])
        for trial in sweep.trials:
            point = trial.get("point", [trial["value"]] * len(metrics))
            params = [str(trial["config"][name]) if name in trial["config"] else "" for name in names]
            writer.writerow([trial["trial"], trial["status"], *point, trial["at"], *params])
    try:
        winner = winner_of(sweep.folder)
    except SweepError:  # a sweep that runs, or without a value, has none
        (folder / BEST_FILE).unlink(missing_ok=True)  # of an earlier export, before the sweep went on
        return [folder / TRIALS_FILE]
    lines = [f"# The winner of the sweep {sweep.folder.name}, for --config {BEST_FILE} --baseline-only."]
    lines += [f"{name} = {_toml(value)}" for name in TRAINED if (value := sweep.file.options.get(name))]
    settings: dict[str, Any] = dict(entry.split("=", 1) for entry in sweep.file.options["settings"])
    settings |= {name: winner[name] for name in names if name in winner}
    lines += [f"[{SET}]", *(f"{json.dumps(name)} = {_toml(value)}" for name, value in settings.items())]
    with atomic_write(folder / BEST_FILE) as partial:
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [folder / TRIALS_FILE, folder / BEST_FILE]


def _toml(value: Any) -> str:
    value = "None" if value is None else value  # TOML has no null
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool | list) else repr(value)
