"""Addresses of clusters, and what the plan says of a Ray that is joined."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import ray

from gaudi_tune import SweepOptions
from gaudi_tune.base.errors import SweepError
from gaudi_tune.plan.connect import check_train_version, join_cluster
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.plan_text import plan_lines
from tests.helpers.host import Host
from tests.helpers.quadratic import QUADRATIC


@pytest.mark.parametrize("address", ["node-1", "node-1:", ":6379", "node-1:ray"])
def test_an_address_without_a_host_or_a_port_is_an_error(address: str) -> None:
    with pytest.raises(SweepError, match=f"--address {address}: it must be HOST:PORT, such as node-1:6379, or auto"):
        join_cluster(address)


def test_the_old_version_of_ray_train_is_refused_before_anything_starts() -> None:
    check_train_version("True")
    with pytest.raises(SweepError, match=r"RAY_TRAIN_V2_ENABLED=0 in the environment .*; remove it, or set it to 1"):
        check_train_version("0")


def test_the_plan_says_what_others_have_of_a_ray_that_is_joined(ray_here: None, storage: Path) -> None:
    another = ray.remote(Host).options(num_cpus=1).remote()
    try:
        until = time.monotonic() + 120
        while ray.available_resources().get("CPU") != 1 and time.monotonic() < until:  # Ray tells a moment later
            time.sleep(0.1)
        lines = plan_lines(make_plan(QUADRATIC, SweepOptions(storage=storage, device="cpu")))
    finally:
        ray.kill(another)
    (said,) = (line for line in lines if line.startswith("ray "))
    assert (
        "where only 1 of the 2 CPU that this sweep wants are free, and trials wait for the rest; devices that" in said
    )
