"""The lines that a person reads: a state that is fed with events, and what is printed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from experiments.sweep.define.plan import Plan
from experiments.sweep.show.progress import ShowProgress
from experiments.sweep.state.events import Decided, SweepBegan, SweepEnded, TrialEnded
from tests.experiments.sweep.fed_state import Fed


def progress(scheduler: str) -> ShowProgress:
    plan: Any = SimpleNamespace(
        experiment=SimpleNamespace(metric="score", display_params=("x",)),
        options=SimpleNamespace(scheduler=scheduler, workers_per_trial=1),
        groups=2,
        devices=SimpleNamespace(type=SimpleNamespace(kind="cpu")),
    )
    return ShowProgress(cast(Plan, plan))


def test_a_trial_that_waits_is_neither_running_nor_done(capsys: pytest.CaptureFixture[str]) -> None:
    fed, shown = Fed(trials=3), progress("asha-promote")
    shown.show(SweepBegan(), fed.state)
    fed.begin(1, 2)
    for number, verdict in ((1, "pause"), (2, "continue")):
        fed.report(number, 1, number / 10, cast(Any, verdict))
        shown.show(Decided(trial=number, decision=fed.state.trials[number].decision), fed.state)
    shown._say(shown._status(fed.state))
    fed.end(1, "stopped early")
    shown.show(TrialEnded(trial=1, outcome="stopped early", reason="not promoted"), fed.state)
    fed.end(2)
    shown.show(TrialEnded(trial=2, outcome="finished", reason=""), fed.state)
    shown.show(SweepEnded(summary={}), fed.state)
    _, paused, status, finished, last = (
        line.partition("]")[2].strip() for line in capsys.readouterr().out.splitlines()
    )
    assert paused == "trial 001  x=0.5  epoch 1  score 0.1000  paused  best so far"
    assert status.startswith("0 of 3 trials done, 1 running, 1 paused, best score 0.2000 (trial 002), about 0 s left")
    assert finished == "trial 002  x=0.5  epoch 1  score 0.2000  finished  best so far"
    assert last == "2 of 3 trials done, 1 stopped early, 1 finished, best score 0.2000 (trial 002)"


def test_pbt_pauses_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    fed, shown = Fed(trials=3), progress("pbt")
    fed.begin(1)
    fed.report(1, 1, 0.1, "pause")
    shown.show(Decided(trial=1, decision=fed.state.trials[1].decision), fed.state)
    assert capsys.readouterr().out == ""
