"""Ray's core: how it starts, orphaned placement groups, the HPUs that it finds, its message when a host's memory is
full, and the largest class that it sends."""

from __future__ import annotations

import inspect
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError
from ray.util.placement_group import PlacementGroup, remove_placement_group

from gaudi_tune.private.surfaces import holds, part

# What is missing is looked for by the surface that needs it.
with suppress(ImportError):
    from ray._private import parameter, services, utils
try:
    from ray._raylet import persist_port  # type: ignore[attr-defined]  # which is compiled
except ImportError:  # the raylet of Ray 2.53 waits for no port
    persist_port = None
with suppress(ImportError):
    from ray._private import ray_constants, worker
with suppress(ImportError):
    from ray._private.resource_and_label_spec import ResourceAndLabelSpec
with suppress(ImportError):
    from ray._private.state import state
with suppress(ImportError):
    from ray.core.generated.gcs_pb2 import PlacementGroupTableData

HOST_OUT_OF_MEMORY = "low on memory"
"""This is in Ray's message for each process that it kills because the host's memory is full."""
MAX_CLASS_BYTES = 95 * 2**20
"""Most bytes of an actor's class when it is pickled, with everything that it refers to."""
with suppress(NameError, AttributeError):
    MAX_CLASS_BYTES = ray_constants.FUNCTION_SIZE_ERROR_THRESHOLD  # a variable sets it


LEAN: dict[str, Any] = {
    # The log monitor sends the output of workers to the driver, which does not use it. The other requests machines from
    # a cloud.
    "include_log_monitor": False,
    "no_monitor": True,
}
# Ray's own script imports Ray before it starts each process, which imports it again. That takes 0.4 s of CPU.
FORKING: dict[str, Any] = {"setup_worker_path": str(Path(__file__).with_name("setup_worker.py"))}
"""Has the fork server start Ray's processes."""


ON_LOOPBACK: dict[str, Any] = {"node_ip_address": "127.0.0.1"}
"""Has all ports of a Ray listen on loopback. ``ray.init()`` itself replaces this address by the machine's, on which its
ports then listen, and on all others. Other processes cannot join such a Ray: they look for it at the machine's address.
"""


AGENT_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")
"""The files with ports of the node's agent, for which a raylet waits."""
PATIENCE_S = 30.0
"""How long Ray itself waits for its node."""


class NotStartedError(Exception):
    """Ray did not start: a process of it ended, or it was too slow, or nobody wants it any more."""


@part("lean-ray", lambda *_, **changes: nullcontext())
@contextmanager
def lean_ray(
    patience_s: float = PATIENCE_S, is_unwanted: Callable[[], bool] = lambda: False, **changes: Any
) -> Iterator[None]:
    """Have ``ray.init("local")`` inside the block start three processes less, and faster.

    Args:
        patience_s: How long to wait for Ray's node. Ray waits :data:`PATIENCE_S`, also for one that has ended.
        is_unwanted: Says whether to stop waiting.
        **changes: Parameters of Ray that come before those of the call, such as :data:`ON_LOOPBACK`.

    Raises:
        NotStartedError: Out of ``ray.init()``.

    ``include_dashboard=False`` is not enough (Ray 2.60, two busy cores):

    - There is no public way to set :data:`LEAN`. Its script makes workers from copies of the fork server.
    - The dashboard's process starts all the same, and ``ray.init()`` waits for it: 4.2 to 6.4 s in place of 2.3 to 3.4,
      0.6 s of CPU and 70 MB.
    - The dashboard's agent on the node, without which Ray ends, opens port 52365 on the machine's network address and
      takes jobs there. It starts here as if the dashboard were not installed, and then opens no such port.
    - A raylet ends itself after 15 s if the agents have not written their ports, which on a busy machine they do not.
      So the files are written before it starts: the agent's say that it listens nowhere, and the other agent gets a
      port. This also saves the seconds in which it would wait for two Pythons to start.
    """
    ray_params, start_dashboard, start_raylet = parameter.RayParams, services.start_api_server, services.start_raylet
    dashboard_error, get_node = utils.get_dashboard_dependency_error, services.get_node
    raylet = _Raylet(start_raylet, get_node, patience_s, is_unwanted)
    usual = {**LEAN, **(FORKING if holds("fork-server") else {})}
    parameter.RayParams = lambda **options: ray_params(
        **{**usual, "runtime_env_agent_port": _free_port(), **options, **changes}  # a port for each node that starts
    )
    services.start_api_server = lambda *arguments, **options: ("", None)
    services.start_raylet, services.get_node = raylet.start, raylet.wait_for_node
    utils.get_dashboard_dependency_error = lambda: ImportError("there is to be none")
    try:
        yield
    finally:
        parameter.RayParams, services.start_api_server = ray_params, start_dashboard
        services.start_raylet, services.get_node = start_raylet, get_node
        utils.get_dashboard_dependency_error = dashboard_error


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class _Raylet:
    """The raylet of a Ray that starts, and the wait for it, in place of Ray's own functions for both."""

    def __init__(
        self,
        start: Callable[..., Any],
        get_node: Callable[[str, str], Any],
        patience_s: float,
        is_unwanted: Callable[[], bool],
    ) -> None:
        self._start, self._get_node, self._patience_s, self._is_unwanted = start, get_node, patience_s, is_unwanted
        self._process: Any = None
        self._session = ""

    def start(self, *arguments: Any, **options: Any) -> Any:
        """Start it, once the files for which it would wait are there."""
        bound = inspect.signature(self._start).bind(*arguments, **options).arguments
        self._session = str(bound["session_dir"])
        for name in AGENT_PORTS if persist_port is not None else ():
            persist_port(self._session, bound["node_id"], name, -1)
        started = self._start(*arguments, **options)
        self._process = started.process
        return started

    def wait_for_node(self, gcs_address: str, node_id: str) -> Any:
        """Return what Ray's control service knows of the node, once it knows it.

        Raises a NotStartedError as soon as the raylet has ended.
        """
        begin = time.monotonic()
        while True:
            try:
                return self._get_node(gcs_address, node_id)  # which itself waits RAY_raylet_start_wait_time_s
            except RuntimeError as error:  # noqa: PERF203  (it is the wait itself that ends so)
                if self._process is not None and self._process.poll() is not None:
                    raise NotStartedError(f"its raylet has ended: {self._last_words()}") from error
                waited_s = time.monotonic() - begin
                if self._is_unwanted() or waited_s >= self._patience_s:
                    text = f"its node was not there after {waited_s:.0f} s; see {self._session}"
                    raise NotStartedError(text) from error

    def _last_words(self) -> str:
        """Return the line of the raylet's log that says why it ended, and where the log is."""
        log = Path(self._session, "logs", "raylet.out")
        lines: list[str] = []
        with suppress(OSError):
            lines = log.read_text(errors="replace").splitlines()
        fatal_lines = [line for line in lines if re.search(r" [CF] \d+ \d+\] ", line)]
        words = (fatal_lines or lines or ["it wrote nothing"])[-1]
        return f"{words.rpartition('Check failed:')[2].strip()[:300]} (in {log})"


@part("this-machine", lambda: "")
def logs_folder() -> str:
    """Return the folder, on each node, with what Ray's processes there print; "" if this process has no node.

    ``ray.get_runtime_context().get_session_name()`` is only the name of the folder above.
    """
    node = worker._global_node
    return "" if node is None else str(node.get_logs_dir_path())


def was_killed_for_memory(error: BaseException) -> bool:
    """Whether an error about lost processes says that Ray killed them because the host's memory was full.

    Not every such error has a type: of Ray Train's errors, only the text says so.
    """
    return isinstance(error, OutOfMemoryError) or HOST_OUT_OF_MEMORY in str(error)


@part("bookings", lambda: None)
def free_orphans() -> None:
    """Free the devices that dead trial actors have left booked.

    Each group of workers has a placement group. Ray removes it only when both its creator and the whole job are dead
    (ray#54305), so the devices would stay booked until the end of the sweep. Ray Train has an actor in each group for
    that, which needs Ray's dashboard; this function needs neither.
    """
    _remove(group for group in _placement_groups() if is_orphan(group))


@part("bookings", lambda: None)
def free_own() -> None:
    """Free the devices that this actor has booked.

    Ray Train's controller (Ray 2.60) forgets a placement group if its workers fail while they start.
    """
    actor_id = ray.get_runtime_context().get_actor_id()
    _remove(group for group in _placement_groups() if group.creator_actor_id.hex() == actor_id)


@part("this-machine", lambda: False)
def is_ray_here_private() -> bool:
    """Whether the Ray that runs on this machine is one that other processes cannot join (:data:`ON_LOOPBACK`)."""
    try:
        return str(services.get_ray_address_from_environment("auto", None)).startswith("127.")
    except ConnectionError:  # there is none
        return False


def versions_that_differ(error: BaseException) -> list[str]:
    """Return Ray's and Python's version in a cluster, and those here, from Ray's error that they differ; [] for another
    error. It has no type of its own."""
    text = str(error)
    return re.findall(r"(?:Ray|Python): *(\S+)", text) if text.startswith("Version mismatch") else []


@part("draining-nodes", lambda: set())
def draining_nodes() -> set[str]:
    """Return the ids of the nodes that Ray was told to take away soon."""
    return set(state.get_draining_nodes())


@part("bookings", lambda: set())
def waiting_actors() -> set[str]:
    """Return the ids of the actors whose placement group waits for resources that others have booked."""
    pending = PlacementGroupTableData.PENDING
    return {group.creator_actor_id.hex() for group in _placement_groups() if group.state == pending}


def _placement_groups() -> list[PlacementGroupTableData]:
    """Return this job's placement groups that have not been removed.

    ``ray.util.placement_group_table()`` is public, but has neither the job nor the creator of a group.
    """
    job = ray.get_runtime_context().get_job_id()
    entries = state._connect_and_get_accessor().get_placement_group_table()
    groups = [PlacementGroupTableData.FromString(entry) for entry in entries]
    removed = PlacementGroupTableData.REMOVED
    return [group for group in groups if group.creator_job_id.hex() == job and group.state != removed]


def _remove(groups: Iterable[PlacementGroupTableData]) -> None:
    for group in groups:
        remove_placement_group(PlacementGroup(ray.PlacementGroupID(group.placement_group_id)))


def is_orphan(group: PlacementGroupTableData) -> bool:
    """Whether the group was created by an actor that is dead."""
    # Ray also sets creator_actor_dead for the group of a driver, but then the creator's id is nil.
    created_by_an_actor = not ray.ActorID(group.creator_actor_id).is_nil()
    return created_by_an_actor and group.creator_actor_dead and not group.is_detached


@part("this-machine", lambda: ("accelerator", 0))
def accelerators_found_by_ray() -> tuple[str, int]:
    """Return the name and number of the accelerators that Ray would find on this machine; ("accelerator", 0) for none.

    Ray finds only one kind, the first of its list. ``ray.cluster_resources()`` has it only once Ray runs.
    """
    manager, count = ResourceAndLabelSpec._get_current_node_accelerator(None, {})
    return (manager.get_resource_name() if manager else "accelerator"), count
