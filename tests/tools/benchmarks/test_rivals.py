"""The protocol of the rivals, with processes and environments of their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ray.tune.schedulers import ASHAScheduler

from tests.tools.benchmarks.rival import FOLDER, RIVALS, Rival, end_process, prepare
from tests.tools.benchmarks.scoreboard import simulate
from tests.tools.benchmarks.strategies import Curve, Trial
from tests.tools.benchmarks.tasks import TABLES, find_tasks

pytestmark = pytest.mark.processes
HALVES = '''# /// script
# requires-python = ">=3.10"
# ///
from serve import Budgets, serve


class Halves(Budgets):
    """Gives three points an epoch each, then the best of them three, and waits between."""

    def __init__(self, kind, seed, dimensions, epochs, workers):
        super().__init__()
        self.points, self.told, self.given, self.best = [[0.1], [0.5], [0.9]], {}, 0, None

    def job(self):
        self.given += 1
        if self.given <= 3:
            return self.given, self.given, self.points[self.given - 1], 1
        if self.best is None:
            return None
        best, self.best = self.best, None
        return "again", best, self.points[best - 1], 3

    def done(self, job, loss, epochs):
        print("what a library prints")
        self.told[job] = loss
        if len(self.told) == 3:
            self.best = min((loss, job) for job, loss in self.told.items() if loss is not None)[1]


serve(Halves)
'''


@pytest.fixture(autouse=True)
def no_process_stays() -> Iterator[None]:
    yield
    end_process()


class Listening:
    """A rival, and what it was told and answered."""

    def __init__(self, rival: Rival) -> None:
        self.rival = rival
        self.reports: list[tuple[str, int, float, bool, str]] = []

    def next(self, take: Any) -> Trial | None:
        return self.rival.next(take)

    def report(self, trial: Trial, loss: float, ended: bool) -> str:
        decision = self.rival.report(trial, loss, ended)
        self.reports.append((trial.trial_id, trial.epoch, loss, ended, decision))
        return decision


def test_a_rival_that_only_proposes_stops_as_rays_asha_does() -> None:
    task = next(task for task in find_tasks(TABLES) if "GRU128" in task.name)
    prepare("random-asha")
    rival = Listening(Rival(FOLDER / f"{RIVALS['random-asha'][0]}.py", "", 7, task.dimensions, task.epochs, 8))
    simulate(rival, task, 8, 300)
    asha = ASHAScheduler(time_attr="epoch", max_t=task.epochs, grace_period=1, reduction_factor=3)
    asha.set_search_properties("loss", "min")
    trials: dict[str, Any] = {}
    for name, epoch, loss, ended, decision in rival.reports:
        if name not in trials:
            trials[name] = SimpleNamespace(trial_id=name)
            asha.on_trial_add(None, trials[name])
        expected = "STOP" if ended else asha.on_trial_result(None, trials[name], {"epoch": epoch, "loss": loss})
        assert decision == expected, (name, epoch)
    decisions = [report[-1] for report in rival.reports]
    assert decisions.count("STOP") > 20
    assert len(decisions) == 300


def test_a_rival_is_told_where_it_was_measured_and_continues_what_it_paused(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "serve.py", tmp_path)
    file = tmp_path / "halves.py"
    file.write_text(HALVES)
    rival = Rival(file, "", 0, 1, 9, 2)

    def take(point: Any) -> Curve:
        return point, lambda epoch: (float("nan") if point[0] > 0.8 else float(point[0]) / epoch, 1.0)

    trials = [rival.next(take) for _ in range(3)]
    assert [float(trial.curve[0][0]) for trial in trials if trial] == [0.1, 0.5, 0.9]
    assert rival.next(take) is None  # it waits
    for trial in filter(None, trials):
        trial.epoch += 1
        loss = trial.curve[1](1)[0]
        assert rival.report(trial, loss, ended=not np.isfinite(loss)) == ("PAUSE" if np.isfinite(loss) else "STOP")
    again = rival.next(take)
    assert again
    assert again is trials[0]
    for decision in ("CONTINUE", "PAUSE"):
        again.epoch += 1
        assert rival.report(again, again.curve[1](again.epoch)[0], ended=False) == decision
    assert rival.next(take) is None
    assert rival.cpu > 0


def test_a_rival_that_fails_ends_its_sweep(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "serve.py", tmp_path)
    file = tmp_path / "halves.py"
    file.write_text(HALVES.replace("self.given += 1", "raise KeyError('broken')"))
    with pytest.raises(RuntimeError, match=r"halves ended with 1"):
        Rival(file, "", 0, 1, 9, 2).next(lambda point: (point, lambda epoch: (0.0, 1.0)))
