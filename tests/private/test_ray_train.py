"""What this project uses of Ray Train that Ray does not promise to keep."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
import ray.train
import ray.tune
from ray.actor import _modify_class
from ray.exceptions import RayActorError
from ray.train import ControllerError, ScalingConfig, WorkerGroupError
from ray.train._internal import session as tune_session
from ray.train.backend import Backend
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.torch import config as torch_config
from ray.train.v2._internal import constants, exceptions
from ray.train.v2._internal.callbacks.accelerators import AcceleratorSetupCallback
from ray.train.v2._internal.callbacks.backend_setup import BackendSetupCallback
from ray.train.v2._internal.exceptions import RayTrainError
from ray.train.v2._internal.execution import train_fn_utils
from ray.train.v2._internal.execution.checkpoint.sync_actor import SynchronizationActor
from ray.train.v2._internal.execution.context import DistributedContext
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.scaling_policy import create_scaling_policy
from ray.train.v2._internal.execution.worker_group import state as group_state
from ray.train.v2._internal.execution.worker_group import worker_group as group_module
from ray.train.v2._internal.execution.worker_group.worker import ActorMetadata, RayTrainWorker, Worker
from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.group.lean_trainer import DeviceBackendConfig, RanksByDevice
from gaudi_tune.private import ray_train
from gaudi_tune.private.ray_train_torch import (
    ACCELERATE_DEVICE,
    DISPENSABLE,
    FixedSize,
    HandOver,
    Hooks,
    LeanTorchTrainer,
    TorchBackend,
    TorchBackendConfig,
    interface_of,
)


def worker(module: str, rank: int) -> ray_train.Worker:
    metadata = ActorMetadata("host", "node", "10.0.0.1", 1, {"HPU": [module]})
    return cast(ray_train.Worker, Worker(None, metadata, {}, DistributedContext(rank, 2, rank, 2, 0)))


def test_the_errors_of_lost_processes_are_ray_trains_and_come_inside_a_public_one() -> None:
    lost = exceptions.WorkerHealthCheckFailedError("a worker is gone", ValueError("why"))
    assert WorkerGroupError("", {0: lost}).worker_failures == {0: lost}
    late = exceptions.WorkerGroupStartupTimeoutError(2)
    assert ray_train.timed_out(ControllerError(late))
    assert "timed out" in str(late)
    assert len(ray_train.LOST_WORKERS) == 3
    assert all(issubclass(kind, RayTrainError) for kind in ray_train.LOST_WORKERS)


def test_rays_variables_have_these_names() -> None:
    assert constants.WORKER_GROUP_START_TIMEOUT_S_ENV_VAR == ray_train.START_TIMEOUT_S
    name = getattr(constants, "ENABLE_PREEMPTION_WATCHER_ENV_VAR", ray_train.ENABLE_PREEMPTION_WATCHER)  # not in 2.55
    assert name == ray_train.ENABLE_PREEMPTION_WATCHER


def test_a_callback_changes_ranks_before_the_workers_have_them() -> None:
    class Swap(ray_train.WorkerGroupCallback):
        def before_init_train_context(self, workers: list[ray_train.Worker]) -> dict[str, list[Any]]:
            assert [worker.metadata.node_id for worker in workers] == ["node", "node"]
            assert [worker.metadata.accelerator_ids["HPU"] for worker in workers] == [["3"], ["2"]]
            first, second = workers
            first.distributed_context, second.distributed_context = (
                second.distributed_context,
                first.distributed_context,
            )
            workers.sort(key=lambda worker: cast(int, worker.distributed_context.world_rank))
            return {}

    sent: list[tuple[Any, int]] = []

    def send(workers: list[ray_train.Worker], sync_actor: Any, arguments: dict[str, Any]) -> None:
        assert arguments == {}
        sent.extend(
            (worker.metadata.accelerator_ids["HPU"], worker.distributed_context.world_rank) for worker in workers
        )

    if not hasattr(WorkerGroup, "_init_train_context"):  # in Ray 2.55 these lines are in a longer method
        start = inspect.getsource(WorkerGroup._start_impl)
        assert start.index("before_init_train_context(workers)") < start.index("_init_train_context_on_workers(")
        return
    group = SimpleNamespace(_execution_group_callbacks=[Swap()], _init_train_context_on_workers=send)
    WorkerGroup._init_train_context(group, [worker("3", 0), worker("2", 1)], None)
    assert sent == [(["2"], 0), (["3"], 1)]


def test_the_backend_that_ray_starts_is_the_one_that_a_config_names() -> None:
    calls: list[str] = []

    class Own(TorchBackend):
        def on_start(self, worker_group: Any, backend_config: Any) -> None:
            calls.append("start")

        def on_shutdown(self, worker_group: Any, backend_config: Any) -> None:
            calls.append("shutdown")

    class OwnConfig(TorchBackendConfig):
        backend_cls = Own

    assert issubclass(TorchBackend, Backend)
    setup: Any = BackendSetupCallback(OwnConfig())
    group = "execution" if "after_execution_group_start" in vars(BackendSetupCallback) else "worker"  # as in Ray 2.55
    getattr(setup, f"after_{group}_group_start")(None)
    getattr(setup, f"before_{group}_group_shutdown")(None)
    assert calls == ["start", "shutdown"]
    assert callable(WorkerGroup.execute)


def test_torch_is_set_up_and_ended_as_by_the_backend_of_ray() -> None:
    """Every test with workers sets it up so."""
    rays: Any = torch_config.TorchConfig().backend_cls
    # Ray 2.55 sets the variables in the second.
    starts = inspect.getsource(rays.on_start) + inspect.getsource(rays.on_training_start)
    ends = inspect.getsource(rays.on_shutdown)
    for call in (
        "execute_single(\n                0, get_address_and_port\n",
        "execute(_set_torch_distributed_env_vars)",
    ):
        assert call in starts
    assert 'os.environ["MASTER_ADDR"] = addr' in starts
    assert "destroy_process_group=len(worker_group) > 1" in ends
    setup = inspect.signature(torch_config._setup_torch_process_group)
    assert list(setup.parameters) == ["backend", "world_rank", "world_size", "init_method", "timeout_s"]
    assert setup.parameters["timeout_s"].default == torch_config.TorchConfig().timeout_s
    assert TorchConfig().init_method == "env"
    assert ACCELERATE_DEVICE in inspect.getsource(torch_config._set_torch_distributed_env_vars)
    usual, ours = TorchConfig().train_func_context, TorchBackendConfig().train_func_context
    assert isinstance(ours(), cast(type, usual))


def test_each_worker_sees_its_own_gpu_alone() -> None:
    """``ON_GPU_AS=cpu pytest tests/tools/on_gpu/test_two_gpus.py`` shows it with real workers."""
    asked: list[Any] = []
    peers = [
        SimpleNamespace(
            metadata=ActorMetadata("host", "node", "10.0.0.1", 1, {"GPU": [gpu]}), execute_async=asked.append
        )
        for gpu in "01"
    ]
    config = DeviceBackendConfig(device=DEVICE_TYPES["cuda"])
    scaling = ScalingConfig(num_workers=2, use_gpu=True)
    AcceleratorSetupCallback(config, scaling).before_init_train_context(cast(Any, peers))
    assert asked == []


def test_an_address_belongs_to_a_network_interface_of_this_host() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") is None  # no host has it


MEETING = """
import os, psutil, socket, sys, torch.distributed as dist
from gaudi_tune.private.ray_train_torch import store_at
with socket.socket() as free:
    free.bind(("", 0))
    port = free.getsockname()[1]
name, address = sys.argv[1:]
store = store_at(address, port, 1)
os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port), GLOO_SOCKET_IFNAME=name)
dist.init_process_group("gloo", rank=0, world_size=1)
del store
dist.new_group([0])
dist.barrier()
entries = psutil.net_connections()  # psutil 5 has another name for those of a process
listening = [entry.laddr for entry in entries if entry.pid == os.getpid() and entry.status == "LISTEN"]
print({address.ip for address in listening}, port in {address.port for address in listening})
"""


CARDS = [
    pytest.param(name, entry.address, id=name)
    for name, entries in psutil.net_if_addrs().items()
    for entry in entries
    if entry.family == socket.AF_INET
]
"""This machine's network cards and their addresses; loopback is one of them."""


@pytest.mark.processes
@pytest.mark.parametrize(("name", "address"), CARDS[:2])
def test_a_process_group_listens_at_the_address_where_its_ranks_meet_alone(name: str, address: str) -> None:
    command = [sys.executable, "-c", MEETING, name, address]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == f"{{'{address}'}} True\n", done.stderr


def test_a_torch_trainer_adds_its_config_to_what_it_is_made_of() -> None:
    assert TorchTrainer.__mro__[1] is LeanTorchTrainer.__mro__[1] is DataParallelTrainer
    added = {name for name in vars(TorchTrainer) if not name.startswith("__")} - set(vars(DataParallelTrainer))
    assert added == set()
    overridden = {name for name in vars(TorchTrainer) if inspect.isfunction(vars(TorchTrainer)[name])}
    assert overridden == {"__init__", "_get_local_controller"}  # which only a trainer without workers calls
    parameters = [inspect.signature(trainer).parameters for trainer in (TorchTrainer, DataParallelTrainer)]
    assert set(parameters[0]) ^ set(parameters[1]) == {"torch_config", "backend_config"}


def test_actors_can_be_asked_to_end_as_python_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain:
        pass

    assert callable(_modify_class(Plain).__ray_terminate__)  # Ray gives it to every actor
    assert callable(WorkerGroup.get_workers)
    waited: list[Any] = []
    monkeypatch.setattr("ray.wait", lambda leaving, **limits: waited.append((leaving, limits)))
    actor = SimpleNamespace(__ray_terminate__=SimpleNamespace(remote=lambda: "leaves"))
    group = SimpleNamespace(get_workers=lambda: [Worker(actor, None, {})])
    ray_train.end_workers(group, within_s=3)
    assert waited == [(["leaves"], {"num_returns": 1, "timeout": 3})]


def test_a_function_runs_on_all_workers_in_time_or_not_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(WorkerGroup.execute_async)  # Ray's execute() has no limit
    answers = ["of rank 0", "of rank 1"]
    group = SimpleNamespace(execute_async=lambda function: answers)

    def dead(ready: list[str]) -> None:
        raise RayActorError

    for late, get, all_ran in ((0, len, True), (1, len, False), (0, dead, False)):
        monkeypatch.setattr("ray.wait", lambda given, late=late, **limits: (given[late:], given[:late]))
        monkeypatch.setattr("ray.get", get)
        assert ray_train.run_on_all(group, print, within_s=3) is all_ran


def test_calls_of_a_loop_for_ray_are_answered_inside_a_block_alone(tmp_path: Path) -> None:
    reported: list[Any] = []
    folder = tmp_path / "sweep" / "trial-007"
    usual = train_fn_utils.LocalTrainFnUtils("")
    train_fn_utils.set_train_fn_utils(usual)
    try:
        with ray_train.answered_by(lambda *said: reported.append(said), lambda: "a checkpoint", folder):
            ray.train.report({"loss": 0.5})
            ray.train.report({"loss": 0.4}, checkpoint="written", checkpoint_dir_name="mine")
            ray.tune.report({"loss": 0.3}, checkpoint="written, too")
            assert ray.tune.get_checkpoint() == "a checkpoint"
            assert ray.tune.get_context().get_trial_name() == "trial-007"
            assert ray.tune.get_context().get_trial_dir() == str(folder)
            assert ray.train.get_checkpoint() == "a checkpoint"
            assert ray.train.get_context().get_experiment_name() == "sweep"
            (earlier,) = ray.train.get_all_reported_checkpoints()
            assert (earlier.checkpoint, earlier.metrics) == ("written", {"loss": 0.4})
            validation = inspect.signature(ray.train.report).parameters.keys() & {"validation", "validate_fn"}
            for not_done in ({validation.pop(): print}, {"checkpoint_upload_fn": print}):
                with pytest.raises(ValueError, match=f"{next(iter(not_done))}=...\\): a sweep does not call it"):
                    ray.train.report({"loss": 0.2}, checkpoint="written", **not_done)
            # What Ray asks its context for first is there in a worker alone; it passes DatasetShardMetadata.
            with pytest.raises(KeyError, match="there is no dataset 'train': load your data in the train loop"):
                train_fn_utils.get_train_fn_utils().get_dataset_shard(SimpleNamespace(dataset_name="train"))
        assert train_fn_utils.get_train_fn_utils() is usual
    finally:
        train_fn_utils.set_train_fn_utils(None)
    assert reported == [({"loss": 0.5}, None), ({"loss": 0.4}, "written"), ({"loss": 0.3}, "written, too")]
    assert ray.tune.get_checkpoint() is None


@pytest.mark.parametrize(("rank", "continues"), [(1, False), (0, True)])
def test_unknown_reported_checkpoints_are_an_error(rank: int, continues: bool, tmp_path: Path) -> None:
    train_fn_utils.set_train_fn_utils(train_fn_utils.LocalTrainFnUtils("", world_rank=rank))
    try:
        with ray_train.answered_by(lambda *said: None, lambda: None, tmp_path, continues=continues):
            assert tune_session.get_session().world_rank == rank
            with pytest.raises(RuntimeError, match="in a sweep only rank 0 knows what was reported"):
                ray.train.get_all_reported_checkpoints()
    finally:
        train_fn_utils.set_train_fn_utils(None)


def test_a_lean_trainer_has_all_callbacks_of_ray_but_the_dispensable(monkeypatch: pytest.MonkeyPatch) -> None:
    class BegunError(Exception):
        """Ends the run before it begins."""

    def begin(controller: Any, *, callbacks: list[Any], **parts: Any) -> None:
        raise BegunError([type(callback) for callback in callbacks])

    monkeypatch.setattr(TrainController, "__init__", begin)
    config = ray.train.RunConfig(callbacks=[RanksByDevice("HPU")])
    trainer = LeanTorchTrainer(
        print,
        worker_class=RayTrainWorker,
        hooks=Hooks(print, print, threading.Event()),
        run_config=config,
    )
    callbacks = trainer._create_default_callbacks()
    usual = [type(callback) for callback in callbacks]
    assert usual[-1] is RanksByDevice
    assert len({*DISPENSABLE} & {kind.__name__ for kind in usual}) == 2
    with pytest.raises(BegunError) as caught:
        trainer._initialize_and_run_controller(
            scaling_policy=create_scaling_policy(ray.train.ScalingConfig(num_workers=1)), callbacks=callbacks
        )
    kept = [callback for callback in usual if callback.__name__ not in DISPENSABLE]
    assert caught.value.args[0] == [*kept, HandOver]
    # What the one for data gives each worker may be missing.
    assert inspect.signature(RayTrainWorker.init_train_context).parameters["dataset_shard_provider"].default is None


def test_ray_train_pauses_between_two_looks_at_its_workers() -> None:
    """A lean trainer takes the pause away once they end; tests/group/test_worker_group.py has a group end."""
    pause = "self._health_check_interval_s - time_since_last_poll"
    source = inspect.getsource(TrainController._poll_workers)
    assert "time_since_last_poll = time_monotonic() - self._latest_poll_time" in source
    assert pause in source


def test_workers_meet_in_an_actor_that_ray_train_makes_and_ends_as_the_one_on_demand_is() -> None:
    """tests/group/test_worker_group.py has workers meet in it."""
    started = inspect.getsource(WorkerGroup._start_impl)
    assert "sync_actor = SynchronizationActor.options(" in started
    assert group_module.SynchronizationActor in (SynchronizationActor, ray_train.SynchronizationOnDemand)
    assert inspect.getsource(group_state).count("_shutdown_sync_actor(self.sync_actor)") == 2
    made: Any = ray_train.SynchronizationOnDemand.options(num_cpus=1).remote(timeout_s=3, warn_interval_s=2)
    again = pickle.loads(pickle.dumps(made))
    assert (again._options, again._arguments) == (made._options, {"timeout_s": 3, "warn_interval_s": 2})
    assert again._options["num_cpus"] == 1
    assert again._options["name"] != ray_train.SynchronizationOnDemand.options().remote()._options["name"]


def test_a_policy_of_a_fixed_size_asks_nobody_for_machines() -> None:
    scaling = ray.train.ScalingConfig(num_workers=3, resources_per_worker={"HPU": 1})
    usual = create_scaling_policy(scaling)
    assert type(usual) is FixedSize.__base__
    lean = FixedSize(usual.scaling_config)
    lean.after_controller_start(None)
    decision = lean.make_decision_for_non_running_worker_group()
    assert (decision.num_workers, decision.resources_per_worker) == (3, {"HPU": 1})
    asyncio.run(lean.before_controller_shutdown())
    lean.before_controller_abort()
    made = {"_coordinator_client", "_autoscaling_coordinator"} & vars(lean).keys()  # the second in Ray 2.55
    assert [vars(lean)[name] for name in made] in ([], [None])


def test_the_trainer_can_run_its_controller_itself_with_workers_of_another_class() -> None:
    assert inspect.iscoroutinefunction(TrainController.run)
    assert not inspect.iscoroutinefunction(TrainController.get_result)
    made_of = set(inspect.signature(TrainController).parameters)
    source = inspect.getsource(TorchTrainer.fit)
    given = set(
        re.findall(r"(\w+)=", source.split("_initialize_and_run_controller(", 1)[1].split("if result.error")[0])
    )
    assert given == made_of >= {"callbacks"}
    assert TrainController.worker_group_cls is WorkerGroup
    assert WorkerGroup._worker_cls is RayTrainWorker is ray_train.RayTrainWorker
    assert callable(ray_train.WorkerGroupCallback.after_worker_group_training_start)
