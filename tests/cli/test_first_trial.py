"""A dry run that tries the first trial: faults of a loop that a sweep would show only after its start."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import ray.train
from torch import distributed, ones

from gaudi_tune import Experiment, tune
from gaudi_tune.base.errors import SweepError
from gaudi_tune.cli.first_trial import lines_of_try, try_first_trial
from gaudi_tune.cli.run import run
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.training.session import report
from tests.helpers.quadratic import QUADRATIC


def counted(config: dict[str, Any]) -> None:
    """Counts epochs from 0, saves as Ray Train does, and has a fault that its configuration names."""
    checkpoint, fault, here = ray.train.get_checkpoint(), config["fault"], Path.cwd()
    start = int(Path(checkpoint.path, "epoch").read_text()) if checkpoint is not None else 0
    if start and fault == "load":
        raise RuntimeError("there is no optimizer in it")
    assert ray.train.get_context().get_world_size() == 1
    distributed.all_reduce(ones(1))
    assert config["confirms"] == 0
    assert not list(here.iterdir())  # as in a worker
    for epoch in range(start, config["epochs"]):
        loss = config["x"] / (epoch + 1 if fault != "key" else config["epoch"])
        saved = here / f"saved-{epoch}"
        saved.mkdir()
        (saved / "epoch").write_text(str(epoch + 1))
        metric = "los" if fault == "metric" else "loss"
        ray.train.report({metric: loss, "epoch": epoch}, checkpoint=ray.train.Checkpoint(str(saved)))
    raise AssertionError("it goes on after its first report")


def silent(config: dict[str, Any]) -> None:
    """Trains, and reports nothing."""


def unsaved(config: dict[str, Any]) -> None:
    """Reports without a checkpoint."""
    report({"loss": config["x"]})


def experiment_of(loop: Any, fault: str = "") -> Experiment:
    space = {"x": tune.uniform(1.0, 2.0), "fault": tune.choice([fault])}
    return Experiment(train_loop=loop, space=space, metric="loss", name="tried")


def tried(experiment: Experiment, storage: Path) -> tuple[dict[str, Any], str]:
    plan = make_plan(experiment, SweepOptions(storage=storage, device="cpu", name="x", dry_run=True, tried=True))
    here, variables = Path.cwd(), dict(os.environ)
    try:
        answer = try_first_trial(plan)
    finally:
        assert (Path.cwd(), dict(os.environ)) == (here, variables)
        assert not distributed.is_initialized()
        assert not storage.exists()
    return answer, " ".join(lines_of_try(plan, answer))


def test_the_first_trial_reports_saves_and_continues(storage: Path) -> None:
    answer, words = tried(experiment_of(counted), storage)
    assert (answer["saves"], answer["continues"]) == (True, True)
    assert 1.0 <= answer["metrics"]["loss"] <= 2.0
    assert words.endswith("it saved, and continued from there dry run: all checks passed, no sweep was started")
    answer, words = tried(QUADRATIC, storage)
    assert answer["metrics"]["score"] == pytest.approx(1 - 0.9**2, abs=1.0)
    assert "; it " in words
    answer, words = tried(experiment_of(unsaved), storage)
    assert not answer["saves"]
    assert "it has nothing to save with that report" in words


@pytest.mark.parametrize(
    ("loop", "fault", "message"),
    [
        (counted, "key", r"--try: the train loop raised KeyError: 'epoch' \(.*test_first_trial.py, line \d+\)"),
        (counted, "load", "as it continued from its checkpoint, the train loop raised RuntimeError: there is no opt"),
        (counted, "metric", "asks for 'loss', and the report has los; did you mean metric='los'"),
        (silent, "", "returned without a report"),
    ],
)
def test_a_fault_of_the_loop_is_an_error_with_its_line(loop: Any, fault: str, message: str, storage: Path) -> None:
    with pytest.raises(SweepError, match=message):
        tried(experiment_of(loop, fault), storage)


def test_the_command_line_tries_only_in_a_dry_run(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(experiment_of(counted), SweepOptions(storage=storage, device="cpu", tried=True), []) == 2
    assert "--try goes with --dry-run" in capsys.readouterr().err
    options = SweepOptions(storage=storage, device="cpu", dry_run=True, tried=True, json=True)
    assert run(experiment_of(counted), options, []) == 0
    assert json.loads(capsys.readouterr().out)["tried"]["saves"]
