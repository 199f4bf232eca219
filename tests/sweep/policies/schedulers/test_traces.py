"""What each scheduler decides in a whole sweep: the decisions of seeded, simulated sweeps are as they were recorded.

The sweeps run on Tune's own controller, with simulated groups. To record again, after a change of decisions that is
meant: ``python -m tests.sweep.policies.schedulers.test_traces``.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gaudi_tune.devices.hpu import HPU
from gaudi_tune.sweep.record.events import Decided, Event, TrialBegan, TrialEnded
from gaudi_tune.sweep.record.sweep_state import SweepState
from tests.helpers.simulated_actors import Clock
from tests.helpers.simulated_groups import Groups
from tests.helpers.simulated_sweep import simulated_tuner, without_ray

RECORDED = Path(__file__).with_name("traces.json")
TWO = ("val_accuracy", "train_s:min")
SWEEPS: dict[str, dict[str, Any]] = {
    "asha-promote": {},
    "asha": {},
    "fifo": {},
    "asha-promote, two objectives": {"objectives": TWO},
    "asha, two objectives": {"objectives": TWO},
    "asha-promote, confirmed": {"confirm": 1, "seeds": 2},
}
"""The sweeps by name, which begins with that of the scheduler, and their options. There is none with pbt: Ray's class
waits for a checkpoint in a way that has no simulation."""


class Trace:
    """Notes when trials begin, with which learning rate, when they pause, and when they end."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show(self, event: Event, state: SweepState) -> None:
        match event:
            case TrialBegan():
                self.lines.append(f"{event.trial} begins with {event.config['lr']:.3g}")
            case Decided() if event.decision.verdict == "pause":
                self.lines.append(f"{event.trial} pauses at {state.trials[event.trial].step}")
            case TrialEnded():
                self.lines.append(f"{event.trial} {event.outcome} at {state.trials[event.trial].step}")

    def tick(self, state: SweepState) -> None:
        """Nothing is due."""


def trace_of(name: str, folder: Path) -> list[str]:
    """Run a sweep of 16 trials with four groups, and return what became of its trials."""
    options = {"scheduler": name.split(",")[0], "confirm": 0, **SWEEPS[name]}
    trace = Trace()
    with without_ray(folder, Groups(Clock(), 4), HPU):
        tuner = simulated_tuner(folder, trials=16, epochs=27, seed=1, **options)
        tuner.run.announcer.views[:] = [trace]
        tuner.fit()
    assert tuner.run.state.complete
    return trace.lines


@pytest.mark.parametrize("name", SWEEPS)
def test_the_decisions_of_a_sweep_are_those_that_were_recorded(name: str, tmp_path: Path) -> None:
    assert trace_of(name, tmp_path) == json.loads(RECORDED.read_text())[name].split(", ")


def record() -> None:
    traces = {}
    for name in SWEEPS:
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            traces[name] = ", ".join(trace_of(name, Path(folder)))
    RECORDED.write_text(json.dumps(traces, indent=1) + "\n")


if __name__ == "__main__":
    record()
