"""Where Ray is to put the workers of a group; ``python -m tests.tools.hosts group`` has them on real hosts."""

from __future__ import annotations

import pytest

from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.group.trainer import WorkerGroupSpec


@pytest.mark.parametrize(("over_nodes", "strategy"), [(False, "STRICT_PACK"), (True, "PACK")])
def test_a_group_is_on_one_node_unless_it_is_wider_than_one(over_nodes: bool, strategy: str) -> None:
    spec = WorkerGroupSpec(
        train_loop=print, num_workers=8, device=DEVICE_TYPES["hpu"], storage="", over_nodes=over_nodes
    )
    assert spec.for_trainer("any")["scaling_config"].placement_strategy == strategy
