"""Each baseline trains as its source does: 21 steps in 3 epochs, fp32, on the CPU, with one worker.

With two workers: tests/group/test_worker_group.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.test_every_experiment import SCRIPTS, experiment_of
from tests.helpers.sessions import reports_of
from tests.helpers.sources import EPOCHS, SOURCES, assert_as_published, source_trial


def test_every_experiment_has_its_source() -> None:
    assert sorted([*SOURCES, "tune_llm"]) == SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_baseline_trains_as_its_source_does(script: str, tmp_path: Path) -> None:
    trial, end = source_trial(script, 1, tmp_path), tmp_path / "end"
    reports = reports_of(experiment_of(script).train_loop, trial, save_at=EPOCHS, save_to=end)
    assert_as_published(script, trial, 1, reports, end, tmp_path)
