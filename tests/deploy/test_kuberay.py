"""The manifest for KubeRay, held against what the code and the doctor want of a Gaudi node."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
import yaml

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.devices import doctor
from gaudi_tune.devices.device import CPUS_PER_WORKER
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.devices.gaudi_node import MODULES_OF_A_NODE

GIB = {"Gi": 1.0, "Mi": 1 / 1024}
Manifest = dict[str, Any]


@pytest.fixture
def manifests() -> dict[str, Manifest]:
    text = (PROJECT_ROOT / "deploy" / "kuberay.yaml").read_text()
    return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(text)}


@pytest.fixture
def cluster(manifests: dict[str, Manifest]) -> Manifest:
    spec: Manifest = manifests["RayCluster"]["spec"]
    return spec


@pytest.fixture
def workers(cluster: Manifest) -> Manifest:
    (group,) = cluster["workerGroupSpecs"]
    return dict(group)


def pods(cluster: Manifest) -> list[Manifest]:
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


def container(pod: Manifest) -> Manifest:
    (only,) = pod["containers"]
    return dict(only)


def gib(quantity: str) -> float:
    number, unit = re.fullmatch(r"(\d+)(\w+)", quantity).groups()  # type: ignore[union-attr]
    return int(number) * GIB[unit]


def test_it_is_a_cluster_of_the_ray_that_the_image_installs(manifests: dict[str, Manifest], cluster: Manifest) -> None:
    assert manifests["RayCluster"]["apiVersion"] == "ray.io/v1"
    assert f"\nray=={cluster['rayVersion']}\n" in (PROJECT_ROOT / "constraints.txt").read_text()
    assert cluster["authOptions"] == {"mode": "token"}


def test_a_pod_has_a_whole_node_and_what_intel_and_the_doctor_ask_for_it(workers: Manifest) -> None:
    asked = container(workers["template"]["spec"])["resources"]
    assert asked["limits"] == asked["requests"]  # Kubernetes takes no other for hugepages and devices
    assert asked["limits"]["habana.ai/gaudi"] == MODULES_OF_A_NODE
    assert gib(asked["limits"]["hugepages-2Mi"]) * 1024 >= MODULES_OF_A_NODE * doctor.HUGEPAGES_MB_PER_HPU
    assert gib(asked["limits"]["memory"]) >= MODULES_OF_A_NODE * doctor.MEMORY_GB_PER_HPU
    assert int(asked["limits"]["cpu"]) >= MODULES_OF_A_NODE * CPUS_PER_WORKER


def test_ray_is_told_of_the_devices(workers: Manifest) -> None:
    value, wanted = workers["rayStartParams"]["resources"], {DEVICE_TYPES["hpu"].resource: MODULES_OF_A_NODE}
    # KubeRay writes the value into a shell's command line as it is, and reads it itself without the quotes around it.
    (in_the_shell,) = shlex.split(value)
    assert json.loads(in_the_shell) == json.loads(value.strip("'\"` ")) == wanted


def test_the_head_computes_nothing(cluster: Manifest) -> None:
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert "habana.ai/gaudi" not in container(pods(cluster)[0])["resources"]["limits"]


def test_a_gaudi_pod_may_do_what_habana_needs(workers: Manifest) -> None:
    pod = workers["template"]["spec"]
    assert pod["hostIPC"] is True
    assert container(pod)["securityContext"]["capabilities"]["add"] == ["SYS_NICE"]


def test_the_head_and_the_nodes_share_results(manifests: dict[str, Manifest], cluster: Manifest) -> None:
    claim = manifests["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for pod in pods(cluster):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["mountPath"]: mount["name"] for mount in container(pod)["volumeMounts"]}
        assert volumes[mounts["/results"]]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert set(mounts.values()) == set(volumes)


def test_the_cache_is_the_nodes_own_and_habana_has_a_place_for_its_logs(cluster: Manifest) -> None:
    for pod in pods(cluster):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container(pod)["volumeMounts"]}
        environment = {variable["name"]: variable["value"] for variable in container(pod)["env"]}
        assert "persistentVolumeClaim" not in mounts[environment["GAUDI_TUNE_CACHE"]]
        assert environment["HABANA_LOGS"]


def test_the_image_does_not_run_as_root_and_its_user_can_write(cluster: Manifest) -> None:
    steps = (PROJECT_ROOT / "Dockerfile").read_text()
    made = re.search(r"(?m)^RUN useradd --uid (\d+) --create-home (\w+) ", steps)
    assert made is not None
    uid, user = made.groups()
    assert re.findall(r"(?m)^USER (\w+)$", steps) == [user]
    assert [pod["securityContext"]["fsGroup"] for pod in pods(cluster)] == [int(uid), int(uid)]
    for pod in pods(cluster):
        on_host = {volume["name"] for volume in pod["volumes"] if "hostPath" in volume}
        for name in on_host:
            (owned,) = pod["initContainers"]
            mounted = {mount["name"]: mount["mountPath"] for mount in owned["volumeMounts"]}
            assert owned["command"] == ["chown", uid, mounted[name]]
