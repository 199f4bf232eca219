"""Addresses of clusters, and what the plan says of a Ray that is joined."""

from __future__ import annotations

import pytest

from gaudi_tune.base.errors import SweepError
from gaudi_tune.plan.connect import check_train_version, join_cluster


@pytest.mark.parametrize("address", ["node-1", "node-1:", ":6379", "node-1:ray"])
def test_an_address_without_a_host_or_a_port_is_an_error(address: str) -> None:
    with pytest.raises(SweepError, match=f"--address {address}: it must be HOST:PORT, such as node-1:6379, or auto"):
        join_cluster(address)


def test_the_old_version_of_ray_train_is_refused_before_anything_starts() -> None:
    check_train_version("True")
    with pytest.raises(SweepError, match=r"RAY_TRAIN_V2_ENABLED=0 in the environment .*; remove it, or set it to 1"):
        check_train_version("0")
