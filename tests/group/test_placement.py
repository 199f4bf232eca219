"""Where Ray puts the workers of a group: its own scheduler, two nodes of eight HPUs, no worker started."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gaudi_tune.define.options import PROJECT_ROOT

pytestmark = [pytest.mark.workers, pytest.mark.own_ray]

PLACE = """
import json, sys
from collections import Counter
import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.group.trainer import WorkerGroupSpec
from gaudi_tune.private.ray_core import lean_ray

def strategy(width):
    spec = WorkerGroupSpec(
        train_loop=print, num_workers=width, device=DEVICE_TYPES["hpu"], storage="", over_nodes=width > 8
    )
    return spec.placement_strategy

def nodes_of(*widths):
    groups = [placement_group([{"HPU": 1}] * width, strategy(width)) for width in widths]
    ray.get([group.ready() for group in groups], timeout=120)
    counts = [Counter(placement_group_table(group)["bundles_to_node_id"].values()) for group in groups]
    for group in groups:
        remove_placement_group(group)
    return [sorted(count.values()) for count in counts]

with lean_ray():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=1, resources={"HPU": 8})
ray.init(address=cluster.address, log_to_driver=False)
placed = {"wide": nodes_of(16), "whole nodes": nodes_of(8, 8), "parts": nodes_of(4, 4, 4, 4)}
ray.shutdown()
cluster.shutdown()
print(json.dumps(placed))
"""


def test_a_group_is_on_one_node_unless_it_is_wider_and_then_takes_whole_nodes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLACE], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stderr
    placed = json.loads(done.stdout.splitlines()[-1])
    assert placed == {"wide": [[8, 8]], "whole nodes": [[8], [8]], "parts": [[4]] * 4}
