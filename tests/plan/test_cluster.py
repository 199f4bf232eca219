"""A sweep over several nodes: each is a separate raylet on this machine, with its own stand-in HPUs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from gaudi_tune.base import names
from tests.helpers.stand_in_hpu import double_owners, environment, ownerships

pytestmark = [pytest.mark.workers, pytest.mark.own_ray]

ADD_AFTER = 4
"""Reports from the one with which a node is killed to another node's coming."""


def sweep(folder: Path, *options: str) -> dict[str, Any]:
    """Run tests/helpers/cluster_sweep.py, and return what came of it."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.helpers.cluster_sweep", str(folder), *options],
        env=environment(folder, HABANA_STAND_IN_MODULES="0"),  # the head has none
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-5000:]
    told: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return told


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, Any]:
    """Two nodes with an HPU each; one is killed at its trial's third epoch, another is added four reports later."""
    return sweep(folder, "--nodes", "2", "--hpus", "1", "--trials", "5", "--lose", "3", "--add", str(ADD_AFTER))


def node_of(report: dict[str, Any]) -> str:
    return str(report[names.DEVICES]).split(":")[0]


@pytest.fixture(scope="module")
def lost(told: dict[str, Any]) -> dict[str, Any]:
    """The last report of the node that was killed."""
    report: dict[str, Any] = told["seen"][told["lost_at"] - 1]
    return report


def test_groups_spread_over_the_nodes(told: dict[str, Any]) -> None:
    assert told["groups"] == 2
    at_first = {node_of(report) for report in told["seen"][: told["lost_at"]]}
    assert len(at_first) == 2


def test_a_lost_node_costs_its_trials_progress_since_their_last_checkpoint(
    told: dict[str, Any], lost: dict[str, Any]
) -> None:
    assert told["errors"] == []
    assert told["trials"] == {"finished": 5}
    by_trial: dict[str, list[dict[str, Any]]] = {}
    for report in told["seen"]:
        by_trial.setdefault(report["trial"], []).append(report)
    assert node_of(by_trial[lost["trial"]][-1]) != node_of(lost)
    # Each report has a checkpoint here, so none is repeated but one whose checkpoint was being written; and no trial
    # has lost anything but those that ran then: the other's actor may have been on the node that was lost.
    running = {report["trial"] for report in told["seen"][: told["lost_at"]]}
    for trial, reports in by_trial.items():
        epochs = [report["epoch"] for report in reports]
        assert sorted(set(epochs)) == list(range(1, 10)), (trial, epochs)
        assert len(epochs) <= 9 + (trial in running), (trial, epochs)


def test_a_node_that_is_added_is_used(told: dict[str, Any], lost: dict[str, Any]) -> None:
    assert len(told["devices"]) == 3
    # Not before it came: processes of a killed node live on for a moment, and may hand in a report.
    used = {node_of(report) for report in told["seen"][told["lost_at"] + ADD_AFTER :]}
    assert len(used) == 2
    assert node_of(lost) not in used


def test_every_hpu_is_free_in_the_end_and_had_one_owner_at_a_time(told: dict[str, Any], folder: Path) -> None:
    free, total = told["free"]
    assert free == total == 2
    nodes = sorted(folder.glob("node-*"))
    assert len(nodes) == 3
    assert [double_owners(ownerships(node)) for node in nodes] == [0, 0, 0]
    unreleased = [ownership for node in nodes for ownership in ownerships(node) if ownership.until is None]
    # The worker that was killed with its node, and the other if its trial actor was there.
    assert 1 <= len(unreleased) <= 2
    assert not any(psutil.pid_exists(ownership.pid) for ownership in unreleased)
