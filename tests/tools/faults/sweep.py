"""A sweep to disturb: its processes, what they printed, and the orders to its train loop."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from gaudi_tune.base.files import OUTBOX_FILE
from gaudi_tune.define.options import PROJECT_ROOT, SchedulerName
from tests.helpers.page_client import PageClient
from tests.helpers.stand_in_hpu import STAND_IN, environment
from tests.tools.faults.accumulating import ALIVE, EPOCHS, HURRY
from tests.tools.faults.clock.sitecustomize import SHIFT_FILE

GROUPS = 2
EPOCH_S = 1.0
TITLES = {"worker": "WarmWorker", "actor": "Trainable", "fork-server": "fork_server.py"}
"""What processes of a sweep have in their titles."""
HUNG_AFTER_S = 20
READ_WITHIN_S = 10
"""How long the last lines of a driver that has ended may take to be read; a child that lives on keeps the pipe open."""
UP_WITHIN_S = 600
"""How long the groups may take to train again after a fault."""
GONE_WITHIN_S = 30
"""How long the processes of a driver that ended may take to end, too."""
STACKS = signal.SIGUSR2
"""Has the driver print where its threads are."""
DRIVER = f"""
import faulthandler, signal
from gaudi_tune import main
from tests.tools.faults.accumulating import ACCUMULATING

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the faults are inflicted under nohup
faulthandler.register({STACKS:d})
main(ACCUMULATING)
"""


class Sweep:
    """A sweep of the command line, in separate processes."""

    def __init__(
        self,
        folder: Path,
        name: str,
        tracking_uri: str,
        trials: int,
        seed: int,
        *,
        own_clock: bool = False,
        scheduler: SchedulerName = "fifo",
        variables: Mapping[str, str] | None = None,
        grows: bool = False,
        seeds: int = 0,
        inside: Sequence[str] = (),
    ) -> None:
        """Prepare a sweep.

        Args:
            folder: Gets all that it writes, but for what MLflow keeps.
            name: Of the sweep.
            tracking_uri: Where it is tracked.
            trials: How many its search has.
            seed: Of its search.
            own_clock: Whether its processes have a clock that can be set.
            scheduler: With fifo every trial trains to its end.
            variables: In the environment of its processes.
            grows: Whether there are more devices than trials, which take so long that it is worth while to grow.
            seeds: How often the winner and the baseline are trained again, each with another seed.
            inside: A command that runs the command that follows it, under a limit.
        """
        self.modules, self.epochs = (2 * GROUPS, 60 * EPOCHS) if grows else (GROUPS, EPOCHS)
        self._grow = "on" if grows else "off"
        self.name, self.tracking_uri, self._seed = name, tracking_uri, seed
        self.searched, self.seeds, self.trials = trials, seeds, trials + 2 * seeds
        self.scheduler = scheduler
        self.trains_in_full = scheduler == "fifo"
        self.code = DRIVER
        """Python that runs the command line."""
        self.storage, self.folder = folder / "results", folder / "results" / name
        self.small_disk = self.storage
        """What can be filled, where a file system of its own is."""
        self.locks, self.orders, self.clock = folder / "locks", folder / "orders", folder / "clock"
        (self.orders / ALIVE).mkdir(parents=True)
        self.faults: Counter[str] = Counter(lost=0, doubled=0, leaked=0)
        self.printed = ""
        self._own_clock, self._variables, self._inside = own_clock, variables or {}, inside
        self._seen: set[psutil.Process] = set()
        self._process: subprocess.Popen[str] | None = None

    def start(self, *options: str) -> None:
        """Start it."""
        self._run(
            *options,
            *("--name", self.name, "--num-samples", str(self.searched), "--seed", str(self._seed)),
            *("--scheduler", self.scheduler, "--search", "random", "--recipe", "sample"),
            *(("--confirm", "1", "--seeds", str(self.seeds)) if self.seeds else ()),
            *("--grow", self._grow, "--epochs", str(self.epochs)),
            *("--set", f"orders={self.orders}", f"epoch_s={EPOCH_S}"),
        )

    def resume(self, add_trials: int = 0) -> None:
        """Let it go on after its driver has ended, and with it all that it had started."""
        self.count("leaked", self.left(), "still there after their driver")
        self.searched += add_trials
        self.trials += add_trials
        self._run("--resume", self.name, "--add-trials", str(add_trials))

    def _run(self, *options: str) -> None:
        shared = ["--storage", str(self.storage), "--tracking-uri", self.tracking_uri]
        # Some reports without a checkpoint, so that there is something to train again.
        shared += ["--retries", "100", "--checkpoint-minutes", "0.04"]
        shared += ["--hang-minutes", f"{HUNG_AFTER_S / 60}"]
        own = {"HABANA_STAND_IN_MODULES": str(self.modules), **self._variables}
        if self._own_clock:
            path = f"{Path(__file__).parent / 'clock'}:{STAND_IN}:{PROJECT_ROOT}"
            own |= {SHIFT_FILE: str(self.clock), "PYTHONPATH": path}
        self._process = subprocess.Popen(
            [*self._inside, sys.executable, "-c", self.code, *options, *shared],
            env=environment(self.locks, **own),
            cwd=self.orders.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that Ctrl-C can be sent as a terminal sends it: to all of them
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.printed += line

    def count(self, what: str, times: int, why: str) -> None:
        """Count what a fault has done, and say what it was."""
        if times:
            self.faults[what] += times
            print(f"  {what}: {int(times)} ({why})", flush=True)

    @property
    def driver(self) -> psutil.Process:
        """The process of the command line."""
        assert self._process is not None, "started"
        return psutil.Process(self._process.pid)

    @property
    def running(self) -> bool:
        """Whether the driver has not ended."""
        return self._process is not None and self._process.poll() is None

    def ended_with(self, within_s: float) -> int | None:
        """Wait until the driver ends, and return its exit status; one that does not end is killed, and counted."""
        assert self._process is not None, "started"
        if not self.wait_until(lambda: not self.running, within_s):
            self.count("leaked", 1, f"the driver did not end within {within_s:.0f} s")
            self.driver.kill()
        status = self._process.wait()
        self._reader.join(READ_WITHIN_S)
        return status

    def of(self, kind: str) -> list[psutil.Process]:
        """Return the processes of a kind, by their ids."""
        self._look()
        found = [p for p in self._seen if TITLES[kind] in _title(p)]
        return sorted(found, key=lambda process: process.pid)

    def ray_process(self, name: str) -> psutil.Process:
        """Return a process of Ray that all others depend on: raylet or gcs_server."""
        self._look()
        return next(p for p in self._seen if _title(p) and p.name() == name)

    def suspend(self) -> None:
        """Let all of its processes stand still."""
        self._look()
        for process in [self.driver, *self._seen]:
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def wake(self) -> None:
        """Let them go on."""
        for process in [self.driver, *self._seen]:
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def terminate_group(self) -> None:
        """Send SIGTERM to the driver's process group, in which Ray's own processes are."""
        os.killpg(self.driver.pid, signal.SIGTERM)

    def _look(self) -> None:
        if self.running:
            self._seen |= set(self.driver.children(recursive=True))

    def training(self, since: float = 0.0) -> dict[int, float]:
        """Return ``x`` of the trials that began an epoch since then (clock time), by their workers' process ids."""
        workers = {process.pid for process in self.of("worker")}
        alive = [file for file in (self.orders / ALIVE).iterdir() if file.stat().st_mtime > since]
        return {int(file.name): float(file.read_text() or "nan") for file in alive if int(file.name) in workers}

    def wait_for_all(self, since: float) -> bool:
        """Wait until all groups have begun an epoch since then; False if the sweep is over before."""
        up = self.wait_until(lambda: not self.running or len(self.training(since)) >= GROUPS, UP_WITHIN_S)
        self.count("lost", not up, f"only {len(self.training(since))} groups train {UP_WITHIN_S} s after a fault")
        return up and self.running

    def wait_until(self, done: Callable[[], bool], within_s: float) -> bool:
        """Return whether ``done()`` holds within so many seconds."""
        until = time.monotonic() + within_s
        while not done():
            self._look()
            if time.monotonic() > until:
                return False
            time.sleep(0.2)
        return True

    def order(self, what: str) -> Path:
        """Order the train loop of whichever trial takes it to do something, and return the file that says so."""
        order = self.orders / what
        order.touch()
        return order

    def taken(self) -> dict[float, str]:
        """Return what was ordered, by ``x`` of the trial that took it."""
        files = [file.name.split(".", maxsplit=1) for file in self.orders.iterdir() if "." in file.name]
        return {float(x): name for name, x in files}

    @property
    def page(self) -> PageClient:
        """The page of the driver that runs now."""
        return PageClient(re.findall(r"^page +(\S+)$", self.printed, re.MULTILINE)[-1])

    def print_stacks(self) -> None:
        """Have the driver print where its threads are. A thread that waits for a disk could not be asked."""
        thread = next(t.id for t in self.driver.threads() if _state_of(t.id) == "S")
        ctypes.CDLL(None).tgkill(self.driver.pid, thread, STACKS)

    def outbox_size(self) -> int:
        """Return how many bytes the sweep has had for MLflow so far."""
        return (self.folder / OUTBOX_FILE).stat().st_size

    def finish(self) -> None:
        """Let what is left of it take no time, and wait for its end."""
        self.order(HURRY)
        status = self.ended_with(600)
        self.count("lost", status != 0, f"the sweep ended with status {status}")
        self.count("leaked", self.left(), "still there after the sweep")

    def left(self) -> int:
        """Wait for the processes of a driver that ended, and return how many do not end; not for Ray's agents, which
        look for their raylet at long intervals."""
        waited_for = [p for p in self._seen if not _title(p).endswith("Agent")]
        _, alive = psutil.wait_procs(waited_for, timeout=GONE_WITHIN_S)
        names = [_title(process) for process in alive]
        if any(names):
            print(f"  left: {', '.join(filter(None, names))}", flush=True)
        return len(list(filter(None, names)))

    def end(self) -> None:
        """Kill what is left."""
        self._look()
        for process in [self.driver, *self._seen] if self.running else list(self._seen):
            if process.is_running():
                process.kill()

    def interrupt(self) -> None:
        """Do what a terminal does at Ctrl-C."""
        os.killpg(self.driver.pid, signal.SIGINT)


def _state_of(thread: int) -> str:
    """Return the letter for the state of a thread: S if it sleeps, D if it waits for a disk."""
    return Path(f"/proc/{thread}/stat").read_text().rpartition(")")[2].split()[0]


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()).strip() if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.Error:
        return ""
