"""What people take away from a sweep, compared with what its loops wrote down."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gaudi_tune.cli.export import export
from gaudi_tune.cli.sweeps import StoredSweep
from gaudi_tune.define.config_file import read_config
from gaudi_tune.plan.earlier_sweeps import results_of
from tests.tools.agree.truth import Truth


def exported(sweep: StoredSweep, truth: Truth) -> Iterator[str]:
    """Compare the table and the winner that are taken away."""
    with tempfile.TemporaryDirectory() as folder:
        table, *best = export(sweep, Path(folder))
        rows = list(csv.DictReader(table.read_text().splitlines()))
        winner = read_config(best[0])["settings"] if best else ()
    for row in rows:
        trial = int(row["trial"])
        value = truth.best_of(trial)
        if row[truth.metric] != ("" if value is None else repr(value)):
            yield f"trial {trial} has {row[truth.metric]}, not {value}"
        texts = {name: row.get(f"config/{name}", row[name]) for name in sweep.file.space if row[name]}
        if not truth.clones and texts != {name: str(value) for name, value in truth.configs[trial].items()}:
            yield f"trial {trial} has {texts}, not {truth.configs[trial]}"
    if truth.clones:
        return
    wanted = {f"{name}={value}" for name, value in truth.configs[truth.winner].items()} if truth.winner else set()
    if {*winner} != wanted:
        yield f"the winner is {winner}, not {wanted}"


def learned(sweep: StoredSweep, truth: Truth) -> Iterator[str]:
    """Compare what a later sweep learns from."""
    results = results_of(sweep.folder, sweep.file, sweep.file.objective)
    for trial, result in zip(sorted(truth.reports), results, strict=True):
        value = truth.best_of(trial)
        if result.value not in (value, None):
            yield f"trial {trial} has {result.value}, not {value}"
        if truth.clones and value is not None:
            if result.params["x"] not in truth.x_of(trial, value):
                yield f"trial {trial} has {result.params}, not {truth.x_of(trial, value)}"
        elif not truth.clones and dict(result.params) != dict(truth.configs[trial]):
            yield f"trial {trial} has {result.params}, not {truth.configs[trial]}"
