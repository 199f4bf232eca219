"""A sweep over several nodes, each a raylet with its stand-in HPUs; the tests run it in a separate process.

    python -m tests.helpers.cluster_sweep FOLDER --nodes 2 --hpus 1 --width 1 --trials 6 [--lose 3 --add 4]

Writes what came of it to result.json in the folder: Ray may still print workers' lines after the last of ours.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.cluster_utils import Cluster
from ray.tune.experiment import Trial
from ray.tune.utils.util import flatten_dict

from gaudi_tune import SweepOptions
from gaudi_tune.base import names
from gaudi_tune.on_ray.local_ray import ENVIRONMENT
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.private.ray_core import lean_ray
from gaudi_tune.show.plan_text import plan_lines
from tests.helpers.mlflow_store import empty_store
from tests.helpers.quadratic import STEADY

SOON_GONE = {"RAY_health_check_initial_delay_ms": "1000", "RAY_health_check_period_ms": "500"}
"""Variables with which Ray finds in about 3 s that a node is gone, and not in about 15."""

PAUSE_S = 1.0
"""The seconds by which each report is held up until a node that was added is used: on a slow machine the others would
have trained everything by then."""


class Nodes(tune.Callback):
    """Notes what each trial trained on, loses a node at a trial's epoch and adds one so many reports later.

    A node is lost only once every node has reported: on a slow machine a group may start while another trains.
    """

    def __init__(self, cluster: Cluster, folder: Path, hpus: int, lose_at: int, add_after: int) -> None:
        self._cluster, self._folder, self._hpus = cluster, folder, hpus
        self._lose_at, self._add_after = lose_at, add_after
        self.seen: list[dict[str, Any]] = []
        self.lost_at: int | None = None
        """How many reports there were when a node was lost; the last of them was its own."""

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **_: Any
    ) -> None:
        keys = ("epoch", "training_iteration", names.DEVICES, names.LOST_SECONDS)
        flat = flatten_dict(result)
        self.seen.append({"trial": str(trial), **{key: flat[key] for key in keys if key in flat}})
        if self.lost_at is None:
            all_report = len({_node(report) for report in self.seen}) == len(self._cluster.worker_nodes)
            if all_report and result["epoch"] == self._lose_at:
                self.lose()
        elif len(self.seen) == self.lost_at + self._add_after:
            self.add()
        elif len(self.seen) > self.lost_at + self._add_after:
            used = {_node(report) for report in self.seen[self.lost_at + self._add_after :]}
            if len(used) < len(self._cluster.worker_nodes):
                time.sleep(PAUSE_S)

    def add(self) -> None:
        """Add a node."""
        number = len(list(self._folder.glob("node-*")))
        folder = self._folder / f"node-{number}"
        folder.mkdir()
        resources = {"HPU": self._hpus}
        place = {"HABANA_STAND_IN_DIR": str(folder), "HABANA_STAND_IN_MODULES": str(self._hpus)}
        self._cluster.add_node(num_cpus=self._hpus + 2, resources=resources, env_vars=place)

    def lose(self) -> None:
        """Kill the node of the last report, with all its processes."""
        self.lost_at = len(self.seen)
        lost = next(node for node in self._cluster.worker_nodes if node.node_id == _node(self.seen[-1]))
        self._cluster.remove_node(lost, allow_graceful=False)

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Nodes:
        return self


def _node(report: dict[str, Any]) -> str:
    """Return the id of the node that a report is from."""
    return str(report[names.DEVICES]).split(":")[0]


def main() -> None:
    os.environ.update(ENVIRONMENT | SOON_GONE)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for option, default in (("nodes", 2), ("hpus", 1), ("width", 1), ("trials", 6), ("lose", 0), ("add", 0)):
        parser.add_argument(f"--{option}", type=int, default=default)
    asked = parser.parse_args()
    head = {"num_cpus": 2, "include_dashboard": False}
    with lean_ray():
        cluster = Cluster(initialize_head=True, head_node_args=head)
        nodes = Nodes(cluster, asked.folder, asked.hpus, asked.lose, asked.add)
        for _ in range(asked.nodes):
            nodes.add()
        try:
            came_of_it = sweep(cluster.address, nodes, asked)
            (asked.folder / "result.json").write_text(json.dumps(came_of_it))
        finally:
            ray.shutdown()
            cluster.shutdown()


def sweep(address: str, nodes: Nodes, asked: argparse.Namespace) -> dict[str, Any]:
    """Run the sweep and return what came of it."""
    options = SweepOptions(
        num_samples=asked.trials,
        workers_per_trial=asked.width,
        scheduler="fifo",
        search="random",
        checkpoint_minutes=0,
        address=address,
        storage=asked.folder / "results",
        name="cluster",
        tracking_uri=empty_store(asked.folder / "mlflow.db"),
        settings=("seconds=0.5",),
    )
    plan = make_plan(STEADY, options)
    print("\n".join(plan_lines(plan)), flush=True)
    results = SweepTuner(plan, callbacks=[nodes]).fit()
    deadline = time.time() + 10
    total = ray.cluster_resources().get("HPU", 0)
    while ray.available_resources().get("HPU", 0) < total and time.time() < deadline:
        time.sleep(0.2)
    summary = json.loads(plan.summary_file.read_text())
    return {
        "errors": [str(error) for error in results.errors],
        "groups": plan.groups,
        "trials": summary["counts"],
        "devices": sorted(summary["device_time"]["devices"]),
        "device_seconds": summary["device_seconds"],
        "seen": nodes.seen,
        "lost_at": nodes.lost_at,
        "free": [ray.available_resources().get("HPU", 0), total],
    }


if __name__ == "__main__":
    main()
