"""Folders of sweeps as one leaves them, and what gaudi-tune says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_tune import SweepOptions
from gaudi_tune.cli.commands import main
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan, make_proposer
from gaudi_tune.show.summary import search_of, summarise, write_summary
from gaudi_tune.sweep.record.events import Ending, SweepEnding
from gaudi_tune.sweep.record.outcome import why_diverged
from gaudi_tune.sweep.record.state_log import StateLog, pack
from gaudi_tune.sweep.record.sweep_file import write_sweep_file
from tests.helpers.fed_state import Fed
from tests.helpers.quadratic import QUADRATIC


def kept(
    storage: Path, name: str, *scores: float, ending: Ending | None = None, raises: int = 0, **options: Any
) -> Plan:
    """A sweep's folder, as one leaves it whose trials reported these scores; the last is lost if it ends early.

    The trial ``raises`` saves its score, reports a much better one, and raises an error.
    """
    plan = make_plan(QUADRATIC, SweepOptions(name=name, storage=storage, device="cpu", epochs=1, **options))
    plan = replace(plan, command=("python", "-m", "gaudi_tune", "run", str(storage.parent / "my tune.py")))
    plan.folder.mkdir(parents=True)
    write_sweep_file(plan)
    proposer, fed = make_proposer(plan), Fed(epochs=1, trials=plan.num_samples, others=plan.objectives[1:])
    for number, score in enumerate(scores, start=1):
        config: Any = proposer.propose(f"id{number}")
        lost = ending is not None and number == len(scores)
        fed.begin(number, **config)
        fed.report(number, 1, score, seconds=2 * score)
        proposer.reported(fed.state.trials[number])
        if number == raises:
            fed.save(number)
            fed.report(number, 2, 10 * score)
            proposer.reported(fed.state.trials[number])
            fed.end(number, "failed", "RuntimeError: unlucky", raised=True)
            proposer.ended(fed.state.trials[number])
        elif not lost:
            divergence = why_diverged(fed.state.trials[number].metrics, "score")
            if divergence:
                fed.fail(number, divergence)
            else:
                fed.end(number)
            proposer.ended(fed.state.trials[number])
    tune_part = {"trials": {f"id{n}": (json.dumps({"experiment_tag": str(n)}), "{}") for n in fed.state.trials}}
    study_part, scheduler_part = proposer.record.snapshot(everything=True), SweepTuner(plan).run.scheduler.get_state()
    parts = {**fed.state.snapshot(), "tune": tune_part, "study": study_part, "scheduler": scheduler_part}
    StateLog(plan.folder).append(pack(parts))
    if ending is not None:
        fed.state.apply(SweepEnding(ending=ending))
    fed.state.close()
    summary = summarise(plan, fed.state, {"mlflow": "http://127.0.0.1:5000"})
    write_summary(plan.summary_file, {**summary, "trials": search_of(plan, fed.state)})
    return plan


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out
