"""The scoreboard's command line: what it prints last, and what it refuses before a sweep is simulated."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from tests.tools.benchmarks import scoreboard


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["scoreboard.py", *arguments])
    try:
        scoreboard.main()
    finally:
        logging.disable(logging.NOTSET)  # of other tests in this process


@pytest.mark.processes
def test_its_last_line_compares_ours_with_the_best_rival_and_with_random_search(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--seeds", "2", "--epochs", "20", "30", "--strategies", "tpe+asha", "ray-random", "optuna"]
    run(monkeypatch, "--tasks", "odd", *few)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(f"{done:3d} of 6 ") for done, line in enumerate(lines[:6], 1))
    assert sum("the best rival is" in line for line in lines) == 4  # 20 and 30 epochs, in epochs and in seconds
    last = json.loads(lines[-1])
    assert last.keys() == {"speedup_best_rival", "low", "speedup_random", "wins", "mean_rank", "tasks"}
    assert 0 < last["low"] <= last["speedup_best_rival"]
    assert 0 <= last["wins"] <= 1 <= last["mean_rank"] <= 3 and last["tasks"] == 2


@pytest.mark.processes
def test_learning_from_a_sweep_of_the_same_task_is_faster_than_from_one_that_misleads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    over_random = []
    for kind in ("same", "reversed"):
        few = ["--seeds", "4", "--epochs", "20", "--strategies", "random+asha", "--learn-from", kind]
        run(monkeypatch, "--tasks", "odd", *few)
        lines = capsys.readouterr().out.splitlines()
        assert f" random+asha+{kind} " in lines[0]
        over_random.append(json.loads(lines[-1])["speedup_random"])
    assert over_random[0] > over_random[1]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--strategies", "gp+ahsa"], "--strategies gp+ahsa: take our <search>+<scheduler>, the scheduler one of"),
        (["--strategies", "annealing+asha"], "--strategies annealing+asha: --search annealing: no such sampler"),
        (["--strategies", "ray-gp"], "--strategies ray-gp: take our <search>+<scheduler>"),
        (["--learn-from", "another"], "--learn-from: invalid choice: 'another'"),
        (["--objectives", "--tables", "EMPTY"], "there is no lcbench.onnx\n"),
        (["--rivals", "syne-missing"], "--rivals: invalid choice: 'syne-missing'"),
        (["--seeds", "0"], "--seeds: 0: give a whole number, 1 or more"),
        (["--epochs", "200", "4"], "--epochs: 4: give a whole number, 8 or more"),
        (["--workers", "many"], "--workers: many: give a whole number, 1 or more"),
        (["--tables", "EMPTY"], "there is no lcbench.onnx, and no .npz"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(
    wrong: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, *[str(tmp_path) if each == "EMPTY" else each for each in wrong])
    assert said in capsys.readouterr().err
