"""Starting the Ray of a sweep, at best while that is still planned. Imports little else."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType, ModuleType

import ray

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.variables import temporary_environment
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.devices.device import CPUS_PER_WORKER
from gaudi_tune.plan.connect import added_to_sys_path, folders_of_own
from gaudi_tune.private.fork_server import NOT_COPIED, ForkServer
from gaudi_tune.private.ray_core import lean_ray
from gaudi_tune.private.setup_worker import FORK_SERVER
from gaudi_tune.sweep.record.events import CTRL_C

RAY_TOKEN = Path.home() / ".ray" / "auth_token"
"""What Ray asks of everyone who comes to its ports."""
ENVIRONMENT = {
    # The sweep says itself why a trial failed. Trial actors would say so, too, and read this at their start.
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    # Where Python's start is slow (an image that preloads habana), a node's agent takes longer than Ray waits for it.
    "RAY_agent_register_timeout_ms": "300000",
    # A driver would wait for two processes that nobody uses, since trial actors and workers have variables of theirs.
    "RAY_prestart_worker_first_driver": "0",
}
"""Settings of the Ray that is started, which its processes take from this one, unless the user has set them."""
OF_TUNE = {
    "RAY_AIR_NEW_OUTPUT": "0",  # with verbose=0, leaves the terminal to our own progress
    # Seconds between two snapshots of the sweep's state where no checkpoint is written: what a crash costs besides the
    # work since a checkpoint.
    "TUNE_GLOBAL_CHECKPOINT_S": "5",
    # The sweep names Tune's loggers itself, without TensorBoard's, which takes 5 ms of the event loop per report.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # The sweep says itself why a trial failed, without Ray's frames around the train loop's.
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
}
"""Settings of Tune in this process while a sweep runs, unless the user has set them. A plain sweep of Tune that follows
would lose files with them."""


@contextmanager
def python_path_with(folders: Sequence[str]) -> Iterator[None]:
    """Let Python processes that start inside the block look for modules in these folders, too."""
    kept = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, [kept]), *folders])
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH")
        os.environ.update({} if kept is None else {"PYTHONPATH": kept})


_IN_BACKGROUND = ThreadPoolExecutor(1, "ray")
"""Its thread lives as long as this process: the kernel ends Ray's processes together with the thread that made them."""
_begun: Future[None] | None = None
"""The start in the background that nobody has waited for."""
_fork_server: ForkServer | None = None
"""That of the Ray that this process has started last."""


def begin_ray(plan: Plan) -> None:
    """Begin to start a Ray of this sweep's own, which takes seconds, unless that has begun or one is joined already.

    Then call :func:`start_ray`, or :func:`end_ray` if the plan turns out not to work.
    """
    global _begun
    if _begun is None and not ray.is_initialized():
        _begun = _IN_BACKGROUND.submit(_start, plan)


def start_ray(plan: Plan) -> None:
    """Start a Ray of this sweep's own on this machine, unless one is joined already. Waits for one that was begun.

    A SweepError if Ray does not start.
    """
    global _begun
    if _begun is None:
        _start(plan)
    else:
        wait([_begun])  # and if that is interrupted, end_ray() must know of it
        begun, _begun = _begun, None
        begun.result()


def end_ray() -> None:
    """End the Ray of this process, also one that still starts. Ctrl-C during that ends the process at once."""
    global _begun
    try:
        if _begun is not None:
            wait([_begun])
    except KeyboardInterrupt:
        os._exit(CTRL_C)  # and the kernel ends what there is of Ray
    _begun = None
    ray.shutdown()
    _end_fork_server()


def _end_fork_server() -> None:
    global _fork_server
    if _fork_server is not None:
        _fork_server.end()
        _fork_server = None


def _begin_fork_server(plan: Plan) -> dict[str, str]:
    """Start a fork server, unless the devices forbid it, and return the variable with its address."""
    global _fork_server
    _end_fork_server()
    device = plan.devices.type
    if not device.forks or FORK_SERVER in os.environ:
        return {}
    threads = {"OMP_NUM_THREADS": str(CPUS_PER_WORKER)}  # as Ray has it for a worker
    _fork_server = ForkServer(
        [*_imported_by_script(), *plan.experiment.imports],
        {**threads, **os.environ, **device.worker_environment()},
    )
    return {FORK_SERVER: _fork_server.address}


def _imported_by_script() -> list[str]:
    """Return the installed modules that the script or notebook has imported something from, but for those that each
    worker must import by itself."""
    names = set[str]()
    for value in [*vars(sys.modules["__main__"]).values()]:  # a copy: this may run beside the script
        if isinstance(value, ModuleType):
            names.add(value.__name__)
        elif isinstance(value, type | FunctionType):
            names.add(str(value.__module__))
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
    left_out = {*NOT_COPIED, "gaudi_tune"}
    installed = [name for name, file in files.items() if file and re.search(r"/(site|dist)-packages/", file)]
    return sorted(name for name in installed if name.partition(".")[0] not in left_out)


def _is_news(record: logging.LogRecord) -> bool:
    return "SIGTERM handler is not set" not in record.getMessage()


def _start(plan: Plan) -> None:
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    if ray.is_initialized():
        return
    os.environ.update(plan.devices.type.node_environment())
    # Ray turns its token authentication on and warns that it did, and that in a thread it does not handle SIGTERM.
    logging.getLogger("ray._private.authentication.authentication_token_setup").setLevel(logging.ERROR)
    logging.getLogger("ray._private.worker").addFilter(_is_news)
    folders = added_to_sys_path()
    try:
        with python_path_with(folders), lean_ray(), temporary_environment(_begin_fork_server(plan)):
            ray.init(
                "local",
                num_cpus=plan.devices.type.ray_cores(plan.devices.count),
                resources=plan.devices.type.ray_resources(plan.devices.count),
                include_dashboard=False,
                log_to_driver=False,
                logging_level="warning",
            )
    except Exception as error:  # Ray raises a bare Exception when its processes do not come up in time
        _end_fork_server()
        raise SweepError(
            f"Ray did not start on this machine ({error}). If the machine is busy, try again; its logs are in /tmp/ray"
        ) from error
    folders_of_own[ray.get_runtime_context().gcs_address] = folders
    with suppress(OSError):  # there is none, or it is another's
        RAY_TOKEN.chmod(0o600)  # Ray writes it for all users of the machine to read
