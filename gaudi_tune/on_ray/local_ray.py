"""The start of a sweep's own Ray, in the background while the sweep is planned.

This module imports little besides Ray, so that the start begins early.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from pathlib import Path
from types import FunctionType, ModuleType

import ray

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.module_folders import folders_unknown_to_workers, note_own_ray
from gaudi_tune.base.process import changed_environment, temporary_environment
from gaudi_tune.base.words import last_line
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.devices.device import CPUS_PER_WORKER
from gaudi_tune.group.clean.own_code import is_recorded
from gaudi_tune.private.fork_server import NOT_COPIED, ForkServer
from gaudi_tune.private.ray_core import ON_LOOPBACK, PATIENCE_S, lean_ray, logs_folder
from gaudi_tune.private.setup_worker import FORK_SERVER
from gaudi_tune.private.surfaces import holds
from gaudi_tune.sweep.record.events import CTRL_C

logger = logging.getLogger(__name__)

ATTEMPTS = 4
"""How often a Ray is started until one starts. The waits: Ray's own, times the attempt and the load."""
RAY_TOKEN = Path.home() / ".ray" / "auth_token"
"""The file with the token that Ray demands of everyone who connects to its ports."""
ENVIRONMENT = {
    # The sweep itself says why a trial failed. Trial actors read this at their start, and would say it a second time.
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    # Where Python starts slowly (an image that preloads habana), a node's agent takes longer than Ray's usual limit.
    "RAY_agent_register_timeout_ms": "300000",
    # Ray would start two processes for the driver and wait for them. Nobody uses them: trial actors and workers have
    # other environment variables, and so need other processes.
    "RAY_prestart_worker_first_driver": "0",
}
"""Settings of the Ray that is started, unless the user has set them. Its processes inherit them from this one."""
LEAN_ENVIRONMENT = {
    # For how long Ray waits for its node at a time: in between it is seen whether its raylet lives, and Ctrl-C.
    "RAY_raylet_start_wait_time_s": "1",
}
"""Settings of a Ray that starts lean, likewise."""
TUNE_SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",  # with verbose=0, this leaves the terminal to the sweep's own progress
    # The fewest seconds between two copies of the reports of trials to the sweep's folder.
    "TUNE_GLOBAL_CHECKPOINT_S": "5",
    # The sweep chooses Tune's loggers itself: TensorBoard's takes 5 ms of the event loop per report.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # The sweep itself says why a trial failed, without Ray's frames around the train loop's.
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
}
"""Settings of Tune in this process while a sweep runs, unless the user has set them. Afterwards they are removed: with
them, a plain Tune sweep in the same process would lose files."""

MAX_FOLDER = 38
"""Most characters of the folder in which Ray makes its own: the path of a socket there may have 107."""
TUNE_NEEDS: dict[str, str | None] = {
    "RAY_TRAIN_V2_ENABLED": "1",  # also in the processes of a cluster that was started otherwise
    "TUNE_RESULT_BUFFER_LENGTH": "1",  # each report is decided on before the trial goes on
    "TUNE_ONLY_STORE_CHECKPOINT_SCORE_ATTRIBUTE": None,  # a restored trial needs more of its report than the score
    # Tune refuses to run with these, which mean nothing to it any more.
    "TUNE_RESULT_DIR": None,
    "RAY_AIR_LOCAL_CACHE_DIR": None,
}
"""Variables without which no sweep works, whatever the user has set: their values, None for none."""


class RayNotStartedError(SweepError):
    """Ray did not start, which is not the fault of what a user gave."""

    status = 3


_BACKGROUND = ThreadPoolExecutor(1, "ray")
"""Its one thread lives as long as this process, because the kernel ends Ray's processes with the thread that started
them."""
_pending_start: Future[None] | None = None
"""The start in the background, until somebody has waited for it."""
_is_ending = threading.Event()
"""Set while nobody wants the pending start any more."""


def begin_ray(plan: Plan) -> None:
    """Begin to start the sweep's own Ray, which takes seconds, unless it is being started or a Ray is joined already.

    Afterwards call :func:`start_ray`, or :func:`end_ray` if the plan turns out not to work.
    """
    global _pending_start
    if _pending_start is None and not ray.is_initialized():
        _pending_start = _BACKGROUND.submit(_start, plan)


def start_ray(plan: Plan) -> None:
    """Start the sweep's own Ray on this machine, or finish the start that :func:`begin_ray` has begun.

    Does nothing if a Ray is joined already. Raises a SweepError if Ray does not start.
    """
    global _pending_start
    is_joined = _pending_start is None and ray.is_initialized()
    if not ray.is_initialized():
        print("starting Ray ...", flush=True)
    if _pending_start is None:
        _start(plan)
    else:
        wait([_pending_start])  # if Ctrl-C interrupts this line, end_ray() still finds the pending start
        pending, _pending_start = _pending_start, None
        pending.result()
    if threading.current_thread() is threading.main_thread():  # Ray's handler prints its own stack in place of Python's
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    if not is_joined and (folder := logs_folder()):
        print(f"logs    {folder}/worker-*: what train loops print", flush=True)


def end_ray() -> None:
    """End the Ray of this process, also one that is still starting. Ctrl-C during that ends the process at once."""
    global _pending_start
    _is_ending.set()
    try:
        if _pending_start is not None:
            wait([_pending_start])
    except KeyboardInterrupt:
        os._exit(CTRL_C)  # the kernel then ends Ray's processes
    _pending_start = None
    _is_ending.clear()
    ray.shutdown()
    _end_fork_server()


def _end_fork_server() -> None:
    if ForkServer.running is not None:
        ForkServer.running.end()
        ForkServer.running = None


def _is_lean() -> bool:
    """Whether Ray starts without its dashboard, by which alone Ray Train can free devices."""
    return holds("lean-ray") and holds("bookings")


def _begin_fork_server(plan: Plan) -> dict[str, str]:
    """Start a fork server, and return the environment variable with its address; {} if the devices forbid forks.

    It has the variables of this process, and so must all that Ray starts: of others it makes no copy.
    """
    _end_fork_server()
    device = plan.devices.type
    if not (device.forks and _is_lean() and holds("fork-server")) or FORK_SERVER in os.environ:
        return {}
    threads = {"OMP_NUM_THREADS": str(CPUS_PER_WORKER)}  # the value that Ray gives a worker
    ForkServer.running = ForkServer(
        [*_modules_of_script(), *plan.experiment.imports, *device.imports],
        {**threads, **os.environ},
    )
    return {FORK_SERVER: ForkServer.running.address}


def _modules_of_script() -> list[str]:
    """Return the installed modules from which the script or notebook has imported something.

    Leaves out the modules that each worker must import by itself.
    """
    values = list(vars(sys.modules["__main__"]).values())  # a copy, since the script may run at the same time
    named = [value for value in values if isinstance(value, ModuleType | type | FunctionType)]
    names = {value.__name__ if isinstance(value, ModuleType) else str(value.__module__) for value in named}
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
    packages = re.compile(r"/(site|dist)-packages/")
    installed = [name for name, file in files.items() if file and (packages.search(file) or is_recorded(file))]
    return sorted(name for name in installed if name.partition(".")[0] not in {*NOT_COPIED, "gaudi_tune"})


def _ray_needs(folders: Sequence[str]) -> dict[str, str | None]:
    """Return the variables without which this Ray does not start, does not have the devices of the plan, or does not
    find the modules in these folders, whatever the user has set: their values, None for none."""
    needs: dict[str, str | None] = {"RAY_OVERRIDE_RESOURCES": None}
    if folders:
        needs["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *folders]))
    if "error" in os.environ.get("PYTHONWARNINGS", ""):  # Ray's own processes would end at their first warning
        needs["PYTHONWARNINGS"] = None
    folder = os.environ.get("RAY_TMPDIR", os.environ.get("TMPDIR", "/tmp"))
    if len(folder) > MAX_FOLDER:
        logger.warning("%s is too long for the paths of Ray's sockets, so its files are in /tmp/ray", folder)
        folder = needs["RAY_TMPDIR"] = "/tmp"
    if (shared := Path(folder, "ray")).exists() and not os.access(shared, os.W_OK):
        folder = needs["RAY_TMPDIR"] = f"/tmp/ray-{os.getuid()}"
        logger.warning("%s is another user's, so Ray's files are in %s (RAY_TMPDIR: another place)", shared, folder)
    return needs


def _init(plan: Plan, folders: Sequence[str], patience_s: float) -> None:
    device, count = plan.devices.type, plan.devices.count
    try:
        with (
            lean_ray(patience_s, _is_ending.is_set, **ON_LOOPBACK) if _is_lean() else nullcontext(),
            changed_environment({**_ray_needs(folders), **device.worker_environment()}),
            temporary_environment(_begin_fork_server(plan)),
        ):
            ray.init(
                "local",
                num_cpus=device.ray_cores(count),
                resources=device.ray_resources(count),
                include_dashboard=not holds("bookings"),
                log_to_driver=False,
                logging_level="warning",
            )
    except Exception as error:  # Ray raises a bare Exception when its processes do not come up in time
        _end_fork_server()
        raise RayNotStartedError(
            f"Ray did not start on this machine ({error}). Nothing that you gave is wrong: try again when the machine "
            f"is less busy"
        ) from error


def _keep_token_private() -> None:
    """Make Ray's token if there is none. Only its owner can read it, where all could read one that Ray makes."""
    with suppress(OSError):  # without a home, Ray says what it needs
        RAY_TOKEN.parent.mkdir(parents=True, exist_ok=True)
        if RAY_TOKEN.exists():
            RAY_TOKEN.chmod(0o600)  # an earlier Ray made it
        else:
            partial_file = RAY_TOKEN.with_name(f"{RAY_TOKEN.name}.{os.getpid()}")
            partial_file.touch(0o600)
            partial_file.write_text(secrets.token_hex(32))  # as many bytes as Ray's own have
            partial_file.replace(RAY_TOKEN)


def _start(plan: Plan) -> None:
    for variable, value in {**ENVIRONMENT, **(LEAN_ENVIRONMENT if _is_lean() else {})}.items():
        os.environ.setdefault(variable, value)
    if ray.is_initialized():
        return
    os.environ.update(plan.devices.type.node_environment())
    # Ray would warn that it has turned token authentication on.
    logging.getLogger("ray._private.authentication.authentication_token_setup").setLevel(logging.ERROR)
    # It would warn that it does not handle SIGTERM when it starts in a thread; the sweep does.
    logging.getLogger("ray._private.worker").addFilter(lambda record: "SIGTERM handler" not in record.getMessage())
    _keep_token_private()
    folders = folders_unknown_to_workers()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _init(plan, folders, PATIENCE_S * attempt * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))
            break
        except RayNotStartedError as error:
            if _is_ending.is_set():
                raise  # end_ray() shuts it down
            ray.shutdown()  # ends the processes that did come up
            if attempt == ATTEMPTS:
                raise
            logger.warning("Ray did not start (%s); trying again", last_line(str(error.__cause__)))
    note_own_ray(folders)
