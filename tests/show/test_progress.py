"""The lines that a person reads: a state that is fed with events, and what is printed."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gaudi_tune.base import names
from gaudi_tune.base.awaited import note_awaited
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.progress import ShowProgress
from gaudi_tune.sweep.record.events import (
    Decided,
    Ending,
    PlaceChanged,
    Reported,
    SearchExhausted,
    SweepBegan,
    SweepEnded,
    SweepEnding,
    TrialEnded,
    TrialRecovered,
    TrialsAsked,
)
from tests.helpers.fed_state import Fed
from tests.helpers.quadratic import QUADRATIC


def progress(rungs: Sequence[int], folder: Path = Path("nowhere")) -> ShowProgress:
    plan: Any = SimpleNamespace(
        folder=folder,
        graphs=None,
        experiment=SimpleNamespace(metric="score", display_params=("x",), search_space=QUADRATIC.search_space),
        options=SimpleNamespace(workers_per_trial=1),
        rungs=rungs,
        seeds=2,
        groups=2,
        trials_per_device=1,
        devices=SimpleNamespace(type=SimpleNamespace(kind="cpu")),
    )
    return ShowProgress(cast(Plan, plan))


def test_a_trial_that_waits_is_neither_running_nor_done(capsys: pytest.CaptureFixture[str]) -> None:
    fed, shown = Fed(trials=3), progress((1, 3))
    shown.show(SweepBegan(), fed.state)
    fed.begin(1, 2)
    for number, verdict in ((1, "pause"), (2, "continue")):
        fed.report(number, 1, number / 10, cast(Any, verdict))
        shown.show(Decided(trial=number, decision=fed.state.trials[number].decision), fed.state)
    shown._print(shown._status(fed.state))
    fed.end(1, "stopped early")
    shown.show(TrialEnded(trial=1, outcome="stopped early", reason="not promoted"), fed.state)
    fed.end(2)
    shown.show(TrialEnded(trial=2, outcome="finished", reason=""), fed.state)
    shown.show(SweepEnded(summary={}), fed.state)
    _, paused, status, finished, last = (
        line.partition("]")[2].strip() for line in capsys.readouterr().out.splitlines()
    )
    assert paused == "trial 001  x=0.5  epoch 1  score 0.1000  paused  best so far"
    assert status.startswith("0 of 3 trials done, 1 running, 1 paused, best score 0.2000 (trial 002)")
    assert finished == "trial 002  x=0.5  epoch 1  score 0.2000  finished  best so far"
    assert last == "2 of 3 trials done, 1 stopped early, 1 finished, best score 0.2000 (trial 002)"


def test_workers_are_not_blamed_for_the_loss_of_a_kill(capsys: pytest.CaptureFixture[str]) -> None:
    fed, shown = Fed(trials=3), progress((1, 3))
    fed.begin(1)  # before the sweep was killed
    shown.show(SweepBegan(), fed.state)
    fed.begin(2)
    for number in (1, 1, 2):
        report: Any = {"metrics": {names.LOST_SECONDS: 4.0}, "step": 1, "point": (0.5,), "config": {}}
        shown.show(Reported(trial=number, **report), fed.state)
    _, *said = (line.partition("]")[2].strip() for line in capsys.readouterr().out.splitlines())
    workers = "lost its workers, continues on new ones (4 s lost)"
    assert said == [
        "trial 001  repeats what it had not saved (4 s lost)",
        f"trial 001  {workers}",
        f"trial 002  {workers}",
    ]


def test_an_error_of_several_lines_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    fed, shown = Fed(trials=3), progress((1, 3))
    fed.begin(1)
    error = TrialEnded(trial=1, outcome="failed", reason="...\nRuntimeError: cannot load:\n\tsize mismatch")
    shown.show(error, fed.state)
    assert capsys.readouterr().out.endswith("failed: RuntimeError: cannot load: size mismatch\n")


def test_a_small_loss_has_digits(capsys: pytest.CaptureFixture[str]) -> None:
    fed, shown = Fed(trials=3), progress((1, 3))
    fed.trial(1, 6.183e-05)
    shown.show(TrialEnded(trial=1, outcome="finished", reason=""), fed.state)
    shown._print(shown._status(fed.state))
    assert capsys.readouterr().out.count("score 6.183e-05") == 2


def test_with_several_objectives_a_line_has_all_and_whether_the_trial_is_on_the_front(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fed, shown = Fed(trials=3, others=[Objective("seconds", "min")]), progress((1, 3))
    for number, reports in ((1, [(0.5, 3.0)]), (2, [(0.6, 5.25), (0.4, 1.0)]), (3, [(0.4, 4.0)])):
        fed.begin(number)
        for step, (score, seconds) in enumerate(reports, start=1):
            fed.report(number, step, score, seconds=seconds)
        fed.end(number)
        shown.show(TrialEnded(trial=number, outcome="finished", reason=""), fed.state)
    shown._print(shown._status(fed.state))
    one, two, three, status = (line.partition("x=0.5")[2] or line for line in capsys.readouterr().out.splitlines())
    assert one == "  epoch 1  score 0.5000  seconds 3  finished  on the front"
    assert two == "  epoch 2  score 0.4000  seconds 1 (best 0.6000, 5.25)  finished  on the front"
    assert three == "  epoch 1  score 0.4000  seconds 4  finished"
    assert status.endswith("3 finished, 2 on the front, best score 0.6000 (trial 002)")


def test_pbt_pauses_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    fed, shown = Fed(trials=3), progress(())
    fed.begin(1)
    fed.report(1, 1, 0.1, "pause")
    shown.show(Decided(trial=1, decision=fed.state.trials[1].decision), fed.state)
    assert capsys.readouterr().out == ""


def test_a_train_loop_that_returns_early_is_not_blamed_on_the_scheduler(capsys: pytest.CaptureFixture[str]) -> None:
    fed, shown = Fed(trials=3), progress((1, 3))
    for number, verdict in ((1, "continue"), (2, "stopped early")):
        fed.begin(number)
        fed.report(number, 1, 0.1, cast(Any, verdict))
        fed.end(number, "stopped early")
        shown.show(TrialEnded(trial=number, outcome="stopped early", reason="for a test"), fed.state)
    one, two = capsys.readouterr().out.splitlines()
    assert one.endswith("score 0.1000  stopped early: its train loop returned  best so far")
    assert two.endswith("score 0.1000  stopped early")


def test_requests_of_a_person_and_how_trials_and_the_sweep_go_on_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    fed, shown = Fed(trials=3), progress((1, 3))
    fed.begin(1, 2)
    fed.report(2, 1, 0.5)
    fed.save(2)
    shown.show(TrialsAsked(request="2 more trials", num_trials=5), fed.state)
    shown.show(SearchExhausted(num_trials=5, source="ray.OptunaSearch"), fed.state)
    for trial in (1, 2):
        shown.show(TrialRecovered(trial=trial), fed.state)
    shown.show(PlaceChanged(trial=1, workers=4), fed.state)
    shown.show(SweepEnding(ending=Ending("the target is reached", 0)), fed.state)
    shown.show(SweepEnding(ending=Ending("its time is spent", 0, at_once=True)), fed.state)
    assert [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines()] == [
        "by hand: 2 more trials",
        "no more trials begin: ray.OptunaSearch has no more configurations",
        "trial 001  lost its trial actor, continues from its beginning",
        "trial 002  lost its trial actor, continues from its last checkpoint",
        "trial 001  moves to 4 cpu, from the checkpoint it saves now",
        "the sweep ends early: the target is reached; each running trial saves a checkpoint at its next report "
        "(Ctrl-C ends it at once)",
        "the sweep ends early: its time is spent",
    ]


def test_a_trial_that_confirms_says_which_and_its_score_on_test_data(capsys: pytest.CaptureFixture[str]) -> None:
    fed, shown = Fed(trials=1, confirm=1, seeds=2), progress((1, 3))
    fed.trial(1, 0.5)
    test_metric: dict[int, dict[str, Any]] = {2: {"test_score": 0.3}, 3: {}}
    for number, more in test_metric.items():
        fed.begin(number, confirms=1)
        fed.report(number, 1, 0.4, **more)
        fed.end(number)
        shown.show(TrialEnded(trial=number, outcome="finished", reason=""), fed.state)
    tested, not_tested = capsys.readouterr().out.splitlines()
    assert tested.endswith("score 0.4000  finished  confirms 001: 0.3000 on test data")
    assert not_tested.endswith("score 0.4000  finished  confirms 001")


def test_a_verdict_that_is_open_is_said_once_with_the_seeds_that_follow(capsys: pytest.CaptureFixture[str]) -> None:
    fed, shown = Fed(trials=2, confirm=1, seeds=2, most_seeds=4), progress((1, 3))
    for number, (confirms, score) in enumerate(
        ((0, 0.5), (0, 0.6), (1, 0.5), (1, 0.52), (2, 0.54), (2, 0.56)), start=1
    ):
        fed.begin(number, confirms=confirms)
        fed.report(number, 1, score)
        fed.end(number)
        shown.show(TrialEnded(trial=number, outcome="finished", reason=""), fed.state)
    fed.trial(7, 0.51, confirms=1)
    shown.show(TrialEnded(trial=7, outcome="finished", reason=""), fed.state)
    lines = [line for line in capsys.readouterr().out.splitlines() if "seeds" in line]
    (line,) = lines
    assert line.endswith("whether the best trial beats the baseline is open: 2 more seeds for each (--most-seeds)")


def test_the_number_of_trials_says_how_many_confirm(capsys: pytest.CaptureFixture[str]) -> None:
    fed, shown = Fed(trials=4, confirm=2, seeds=2), progress(())
    shown._print(shown._status(fed.state))
    assert capsys.readouterr().out.endswith(
        "0 of 10 trials done (6 of them confirm), waiting for the first trial to begin\n"
    )


def test_in_a_pipe_a_line_says_where_the_sweep_is_when_nothing_else_was_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    fed, shown = Fed(trials=3), progress((1, 3))
    said = []
    for now in (1029.0, 1030.0, 1059.0, 1060.0):  # noqa: B007
        shown.tick(fed.state)
        said.append(capsys.readouterr().out)
    status = "0 of 3 trials done, waiting for the first trial to begin\n"
    assert said == ["", f"[   30 s] {status}", "", f"[1 m 00 s] {status}"]


def test_on_a_terminal_each_group_has_a_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setenv("FORCE_COLOR", "1")  # by which rich takes a pipe for a terminal
    fed, shown = Fed(trials=3), progress((1, 3))
    shown.show(SweepBegan(), fed.state)
    fed.begin(1, 2)
    fed.report(2, 1, 0.25)
    capsys.readouterr()
    now += 0.4
    shown.tick(fed.state)
    assert "hyperparameters" not in capsys.readouterr().out
    now += 0.1
    shown.tick(fed.state)
    rows = [line.split() for line in re.sub(r"\x1b\[[\d;?]*\w", "", capsys.readouterr().out).splitlines()]
    assert ["group", "trial", "hyperparameters", "epoch", "score"] in rows
    assert [(row[:4], row[-1]) for row in rows if row[-1:] == ["0.2500"]] == [(["2", "002", "x=0.5", "1/4"], "0.2500")]
    shown.show(SweepEnded(summary={}), fed.state)
    assert "0 of 3 trials done, 2 running, best score 0.2500 (trial 002)" in capsys.readouterr().out


def test_while_groups_start_the_status_says_what_is_awaited(tmp_path: Path) -> None:
    fed, shown = Fed(trials=4), progress((), tmp_path)
    fed.begin(1, 2)
    assert "2 running, 2 waiting for Ray to start their processes" in shown._status(fed.state)
    note_awaited(tmp_path, "trial-001", "devices")
    note_awaited(tmp_path, "trial-002", "workers")
    assert "1 waiting for their devices, 1 waiting for their workers (imports, devices)" in shown._status(fed.state)
    note_awaited(tmp_path, "trial-001", "report")
    note_awaited(tmp_path, "trial-002", None)
    fed.report(2, 1, 0.5)
    assert "2 running, 1 waiting for the first report (imports, data, training)" in shown._status(fed.state)
    note_awaited(tmp_path, "trial-001", None)
    fed.report(1, 1, 0.5)
    assert "waiting" not in shown._status(fed.state)


def test_the_time_left_counts_down_between_reports_but_not_below_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now)
    fed, shown = Fed(trials=3), progress(())
    fed.begin(1, 2)
    for step in range(1, 5):  # a hundred seconds each
        now += 100
        fed.report(1, step, 0.5)
    fed.end(1)
    fed.report(2, 1, 0.5)

    def left() -> str:
        return shown._status(fed.state).partition("about ")[2]

    first, now = left(), now + 60
    second, now = left(), now + 60
    third, now = left(), now + 600
    assert first != second != third
    late, now = left(), now + 600
    assert left() == late, "a report that is late says nothing about the epochs after it"
