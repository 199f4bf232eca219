"""A scheduler that is unlike the project's own takes one class and an entry in the table of schedulers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gaudi_tune.devices.hpu import HPU
from gaudi_tune.show.plan_text import plan_lines
from gaudi_tune.sweep.policies.schedulers.factory import SCHEDULERS
from gaudi_tune.sweep.policies.schedulers.scheduler import CONTINUE, Scheduler
from gaudi_tune.sweep.record.events import Decision, Reported
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState
from tests.helpers.simulated_actors import Clock
from tests.helpers.simulated_groups import Groups
from tests.helpers.simulated_sweep import simulated_tuner, without_ray

LAP = 3
"""A trial may end at every report of this number."""


class Race(Scheduler):
    """Ends a trial that is the worst of those that run, whatever epoch they are at."""

    @classmethod
    def in_words(cls, budget: Any, groups: int, *, may_not_save: bool) -> str:
        return f"every {LAP} reports the worst of the {groups} that train at the same time ends"

    def decide(self, state: SweepState, trial: TrialState, report: Reported) -> Decision:
        rivals = [rival for rival in state.running if rival.best is not None]
        worst = min(rivals, key=lambda rival: (self._objectives[0].score(rival.best or 0.0), -rival.number))
        if trial is worst and len(rivals) > 1 and trial.reports % LAP == 0:
            return Decision("stopped early", f"the worst of {len(rivals)} after {trial.reports} reports")
        return CONTINUE


def test_a_sweep_runs_with_it_once_it_is_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEDULERS, "fifo", Race)  # a name of its own would be one more in SchedulerName
    with without_ray(tmp_path, Groups(Clock(), 4), HPU):
        tuner = simulated_tuner(tmp_path, trials=12, epochs=9, scheduler="fifo", seed=1, confirm=0)
        tuner.run.announcer.views[:] = []
        tuner.fit()
    plan = "\n".join(plan_lines(tuner.plan))
    assert "every 3 reports the worst of the 4 that train at the same time ends" in plan
    state = tuner.run.state
    assert state.complete
    stopped = [trial for trial in state.trials.values() if trial.status == "stopped early"]
    assert stopped and all(trial.reports % LAP == 0 and "the worst of" in trial.reason for trial in stopped)
    assert state.best is not None and state.best.status == "finished"
