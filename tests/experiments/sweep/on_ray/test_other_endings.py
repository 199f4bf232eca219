"""A sweep that ends without Ray, twice, and goes on with other callbacks than before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.sweep.on_ray.signals import TERMINATED
from tests.faults.check import check
from tests.faults.sweep import DRIVER, Sweep

pytestmark = pytest.mark.workers

TRIALS = 5
ENDS_WITHIN_S = 60
WITH_A_CALLBACK = f"""
from ray import tune
from experiments.sweep.on_ray.tuner import SweepTuner

class Extra(tune.Callback):
    def get_state(self):
        return {{"extra": 1}}
    def set_state(self, state):
        print("a state for", type(self).__name__, state, flush=True)

def with_extra(self, made=SweepTuner._run_config):
    config = made(self)
    config.callbacks.insert(0, Extra())
    return config

SweepTuner._run_config = with_extra
{DRIVER}
"""
"""A command line whose sweep has one callback more than before, and before the others."""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    folder = tmp_path_factory.mktemp("endings")
    at_once = {"HABANA_STAND_IN_BUSY_S": "0"}
    sweep = Sweep(folder, "sweep", f"sqlite:///{folder}/mlflow.db", TRIALS, seed=2, variables=at_once)
    yield sweep
    sweep.end()


def test_sigterm_to_the_process_group_ends_it_in_good_order(sweep: Sweep) -> None:
    sweep.code = WITH_A_CALLBACK
    sweep.start()
    assert sweep.wait_for_all(0.0), sweep.printed
    sweep.terminate_group()
    assert sweep.ended_with(ENDS_WITHIN_S) == TERMINATED, sweep.printed
    summary = json.loads((sweep.folder / "summary.json").read_text())
    assert summary["ended_early"]["why"] == "it received SIGTERM"
    assert summary["interrupted"]
    assert "go on with it: python" in sweep.printed


def test_without_rays_control_service_it_ends_and_says_how_to_go_on(sweep: Sweep) -> None:
    """Without the callback that it began with: nothing may depend on a callback's position."""
    sweep.code = DRIVER
    began = len(sweep.printed)
    sweep.resume()
    assert sweep.wait_for_all(Path(sweep.folder / "sweep.json").stat().st_mtime), sweep.printed
    sweep.ray_process("gcs_server").kill()
    assert sweep.ended_with(ENDS_WITHIN_S) == 1, sweep.printed
    printed = sweep.printed[began:]
    assert "the sweep ends early: Ray's control service (GCS) is gone" in printed
    assert "go on with it: python" in printed
    assert json.loads((sweep.folder / "summary.json").read_text())["ended_early"]["status"] == 1


def test_it_goes_on_with_one_callback_more_and_loses_nothing(sweep: Sweep) -> None:
    sweep.code = WITH_A_CALLBACK
    sweep.resume()
    sweep.finish()
    check(sweep)
    assert sweep.faults == {"lost": 0, "doubled": 0, "leaked": 0}, sweep.printed
    assert "a state for" not in sweep.printed  # of another callback
    assert json.loads((sweep.folder / "summary.json").read_text())["trials"] == {"finished": TRIALS}
