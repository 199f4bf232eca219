"""A whole sweep on the stand-in for Gaudis: the code path is that of HPUs, end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.sweep.define.options import PROJECT_ROOT
from tests.stand_in_hpu import Ownership, double_owners, environment, ownerships

pytestmark = pytest.mark.workers


class Sweep:
    """A finished sweep of 3 trials on a group of two HPUs."""

    def __init__(self, folder: Path) -> None:
        options = ["--num-samples", "3", "--epochs", "2", "--workers-per-trial", "2", "--recipe", "sample"]
        with subprocess.Popen(
            [sys.executable, "experiments/tune_bert.py", "--name", "hpu", "--storage", str(folder), *options],
            cwd=PROJECT_ROOT,
            env=environment(folder / "modules", HABANA_STAND_IN_MODULES="2"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            self.pid = process.pid
            self.printed = process.communicate(timeout=400)[0]
        self.status = process.returncode
        assert self.status == 0, self.printed
        self.summary = json.loads((folder / "hpu" / "summary.json").read_text())
        self.owned: list[Ownership] = ownerships(folder / "modules")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return Sweep(tmp_path_factory.mktemp("hpu"))


def test_it_finds_the_hpus_and_trains_on_them(sweep: Sweep) -> None:
    assert "device  hpu: the best of what is here (2 hpu, 0 cuda, " in sweep.printed
    assert sum(sweep.summary["trials"].values()) == 3
    assert "failed" not in sweep.summary["trials"]
    devices = sweep.summary["ledger"]["devices"]
    assert list(devices) == ["hpu 0", "hpu 1"]
    assert all(seconds["training"] > 0 for seconds in devices.values())


def test_every_hpu_has_one_owner_and_is_given_back(sweep: Sweep) -> None:
    assert sorted(ownership.module for ownership in sweep.owned) == [0, 1]
    assert double_owners(sweep.owned) == 0
    assert all(ownership.until is not None for ownership in sweep.owned)
    assert sweep.pid not in {ownership.pid for ownership in sweep.owned}
