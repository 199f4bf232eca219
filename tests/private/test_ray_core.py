"""What this project uses of Ray's core that Ray does not promise to keep."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray._private import parameter, services, utils
from ray._private.node import Node
from ray._private.state import GlobalState, GlobalStateAccessor
from ray.core.generated.gcs_pb2 import PlacementGroupTableData
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from gaudi_tune.private.ray_core import (
    FORKING,
    HOST_OUT_OF_MEMORY,
    LEAN,
    accelerators_found_by_ray,
    is_orphan,
    lean_ray,
    logs_folder,
    versions_that_differ,
    waiting_actors,
)

RAY = Path(ray.__file__).parent
JOB = ray.JobID.from_int(1)


def group(*, creator: ray.ActorID, dead: bool = True) -> PlacementGroupTableData:
    """Return an entry of Ray's table, after a trip through its wire format."""
    made = PlacementGroupTableData(
        placement_group_id=ray.PlacementGroupID.of(JOB).binary(),
        creator_job_id=JOB.binary(),
        creator_actor_id=creator.binary(),
        creator_actor_dead=dead,
    )
    return PlacementGroupTableData.FromString(made.SerializeToString())


def test_an_entry_of_the_table_of_groups_says_who_created_it() -> None:
    actor = ray.ActorID(os.urandom(ray.ActorID.size()))
    assert is_orphan(group(creator=actor))
    assert not is_orphan(group(creator=actor, dead=False))
    assert not is_orphan(group(creator=ray.ActorID.nil()))  # a driver's: Ray says "dead" there, too
    entry = group(creator=actor)
    entry.is_detached = True
    assert not is_orphan(entry)
    assert entry.creator_job_id.hex() == JOB.hex()
    assert entry.creator_actor_id.hex() == actor.hex()
    assert entry.state != PlacementGroupTableData.REMOVED
    assert ray.PlacementGroupID(entry.placement_group_id).binary() == entry.placement_group_id


def test_rays_state_gives_access_to_the_table() -> None:
    assert list(inspect.signature(GlobalState._connect_and_get_accessor).parameters) == ["self"]
    assert callable(GlobalStateAccessor.get_placement_group_table)
    with pytest.raises(ray.exceptions.RaySystemError, match="Ray has not been started yet"):
        GlobalState()._connect_and_get_accessor()  # not our own function: it would start Ray


def test_an_actor_waits_as_long_as_its_placement_group_has_no_room(host: Any) -> None:
    group = ray.get(host.make.remote(placement_group, [{"CPU": 99}]))
    assert waiting_actors() == {host._actor_id.hex()}
    remove_placement_group(PlacementGroup(ray.get(host.ask.remote(group, "id"))))
    assert not waiting_actors()


def test_ray_finds_one_kind_of_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    managers = "ray._private.accelerators.{}AcceleratorManager.get_current_node_num_accelerators"
    for kind, count in (("nvidia_gpu.NvidiaGPU", 0), ("tpu.TPU", 0), ("hpu.HPU", 0)):
        monkeypatch.setattr(managers.format(kind), lambda count=count: count)
    assert accelerators_found_by_ray() == ("accelerator", 0)
    monkeypatch.setattr(managers.format("hpu.HPU"), lambda: 8)
    assert accelerators_found_by_ray() == ("HPU", 8)


def test_ray_says_in_these_words_that_it_killed_a_process_for_memory() -> None:
    raylet = RAY / "core" / "src" / "ray" / "raylet" / "raylet"
    assert HOST_OUT_OF_MEMORY.encode() in raylet.read_bytes()


def test_a_lean_ray_is_the_usual_one_but_for_what_it_leaves_out() -> None:
    usual, start_dashboard = parameter.RayParams, services.start_api_server
    why_minimal = utils.get_dashboard_dependency_error
    with lean_ray():
        assert utils.get_dashboard_dependency_error() is not None
        assert services.start_api_server(False, raise_on_failure=False) == ("", None)
        made, plain = parameter.RayParams(num_cpus=3), usual(num_cpus=3)
    assert (parameter.RayParams, services.start_api_server) == (usual, start_dashboard)
    assert utils.get_dashboard_dependency_error is why_minimal
    taken = inspect.getsource(Node.start_api_server)
    assert "self._webui_url, process_info = ray._private.services.start_api_server(" in taken
    assert "if process_info is not None:" in taken
    differ = {name for name, value in vars(made).items() if value != vars(plain)[name]}
    assert differ - {"resource_isolation_config"} == {*LEAN, *FORKING, "runtime_env_agent_port"}


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return ""


def test_nobody_reads_logs_or_asks_for_machines_and_processes_are_started_by_our_script(ray_here: None) -> None:
    """A process that is started so trains in every test with workers."""
    commands = [command_of(process) for process in psutil.Process().children(recursive=True)]
    (raylet,) = [command for command in commands if "--python_worker_command=" in command]
    assert str(FORKING["setup_worker_path"]) in raylet
    assert "workers/setup_worker.py" not in raylet
    assert " --minimal" in re.sub(r".*--dashboard_agent_command=", "", raylet)
    assert not any(re.search(r"/(monitor|log_monitor|dashboard)\.py", command) for command in commands)
    assert (RAY / "_private" / "log_monitor.py").is_file()
    assert (RAY / "autoscaler" / "_private" / "monitor.py").is_file()
    assert (RAY / "dashboard" / "dashboard.py").is_file()


def test_prints_of_a_worker_are_in_the_folder_of_logs(ray_here: None) -> None:
    @ray.remote
    def say() -> None:
        print("a word of a worker")

    ray.get(say.remote())
    files = list(Path(logs_folder()).glob("worker-*.out"))
    assert any("a word of a worker" in file.read_text() for file in files)


def test_ray_names_the_versions_that_differ() -> None:
    here = utils.compute_version_info()
    utils.check_version_info({"ray_version": here[0], "python_version": here[1]}, "here")
    with pytest.raises(RuntimeError) as caught:
        utils.check_version_info({"ray_version": "2.9.3", "python_version": "3.9.1"}, "here")
    assert versions_that_differ(caught.value) == ["2.9.3", "3.9.1", *here[:2]]
    assert versions_that_differ(RuntimeError("Ray: 1, Python: 2")) == []
