"""Finding the devices: those of this machine, or of a Ray cluster that runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.module_folders import folders_of_own_ray
from gaudi_tune.base.words import counted, is_digits
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.devices.cpu import CPU
from gaudi_tune.devices.find import Devices, find_devices

TRAIN_V2 = "RAY_TRAIN_V2_ENABLED"
"""Variable with which Ray Train chooses its version when it is imported; without it, version 2."""
CONNECT_TIMEOUT_S = 8
"""How long the head of a cluster may take to accept a connection. Ray itself would try for minutes."""


def connect(options: SweepOptions) -> tuple[Devices, str | None]:
    """Return the devices that the options name, and the cluster that has them in words, or None for this machine."""
    check_train_version(os.environ.get(TRAIN_V2, "1"))
    nodes = join_cluster(options.address)
    try:
        devices = find_devices(options.device, nodes)
    except ValueError as error:
        raise SweepError(str(error)) from error
    if nodes is None:
        return devices, None
    import ray

    return devices, f"{ray.get_runtime_context().gcs_address}, {counted(len(nodes), 'node')}"


def check_train_version(train_v2: str) -> None:
    """Check that the environment leaves version 2 of Ray Train on: with the other, trials would fail."""
    if train_v2.lower() not in ("1", "true"):
        raise SweepError(
            f"{TRAIN_V2}={train_v2} in the environment switches to the old version of Ray Train, with which a sweep "
            f"does not work; remove it, or set it to 1"
        )


def join_cluster(address: str | None) -> list[Mapping[str, float]] | None:
    """Join the Ray cluster at ``address``, and return Ray's resources of each node that is alive.

    The result is None if the sweep uses this machine alone. A process that has already joined a cluster, by
    ``ray.init``, uses that one.
    """
    import ray

    from gaudi_tune.private.ray_core import is_ray_here_private, versions_that_differ

    if address is not None and not ray.is_initialized():
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if address != "auto" and not (host and is_digits(port) and int(port) < 2**16):
            raise SweepError(f"--address {address}: it must be HOST:PORT, such as node-1:6379, or auto")
        if address == "auto" and is_ray_here_private():
            raise SweepError(
                "--address auto: the Ray that runs on this machine is that of another sweep, which cannot be joined; "
                "leave --address out, or give HOST:PORT of a node started with ray start --head"
            )
        try:
            if address != "auto":
                socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
            ray.init(address=address, log_to_driver=False, logging_level="warning")
        except (OSError, ValueError, RuntimeError) as error:
            if versions := versions_that_differ(error):
                there_ray, there_python, here_ray, here_python = versions
                fix = (
                    f'pip install "ray[default,tune,train]=={there_ray}"' if there_ray != here_ray else "another Python"
                )
                raise SweepError(
                    f"--address {address}: that cluster runs Ray {there_ray} with Python {there_python}, and here is "
                    f"Ray {here_ray} with Python {here_python}; both must be the same. The fix here: {fix}"
                ) from error
            raise SweepError(
                f"--address {address}: no Ray cluster answers there ({error}). Give HOST:PORT of a node started with "
                f"ray start --head, or auto on such a node."
            ) from error
    if not ray.is_initialized():
        return None
    # A Ray of an earlier sweep has more cores than this machine, for what train loops start (DeviceType.ray_cores).
    own_cores = {} if folders_of_own_ray() is None else {CPU.resource: CPU.count_here()}
    return [{**node["Resources"], **own_cores} for node in ray.nodes() if node["Alive"]]
