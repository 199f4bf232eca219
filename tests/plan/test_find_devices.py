"""Addresses of clusters, and what the plan says of a Ray that is joined."""

from __future__ import annotations

import pytest
import ray
from ray._private.utils import check_version_info

from gaudi_tune.base.errors import SweepError
from gaudi_tune.plan.find_devices import check_train_version, join_cluster


@pytest.mark.parametrize("address", ["node-1", "node-1:", ":6379", "node-1:ray"])
def test_an_address_without_a_host_or_a_port_is_an_error(address: str) -> None:
    with pytest.raises(SweepError, match=f"--address {address}: it must be HOST:PORT, such as node-1:6379, or auto"):
        join_cluster(address)


@pytest.mark.parametrize(
    ("there", "fix"), [("2.9.3", 'pip install "ray[default,tune,train]==2.9.3"'), (ray.__version__, "another Python")]
)
def test_a_cluster_with_another_ray_is_refused_with_both_versions_and_the_fix(
    there: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's own check, without a cluster."""
    metadata = {"ray_version": there, "python_version": "3.9.1"}
    monkeypatch.setattr("gaudi_tune.private.ray_core.is_ray_here_private", lambda: False)
    monkeypatch.setattr("ray.init", lambda **options: check_version_info(metadata, "here"))
    with pytest.raises(SweepError) as caught:
        join_cluster("auto")
    assert f"runs Ray {there} with Python 3.9.1, and here is Ray {ray.__version__}" in str(caught.value)
    assert str(caught.value).endswith(fix)


def test_the_old_version_of_ray_train_is_refused_before_anything_starts() -> None:
    check_train_version("True")
    with pytest.raises(SweepError, match=r"RAY_TRAIN_V2_ENABLED=0 in the environment .*; remove it, or set it to 1"):
        check_train_version("0")
