"""The kinds of fault: what is done to a running sweep, and what is waited for until it is undone."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from gaudi_tune.base.files import DELIVERED_FILE, STATE_LOG
from gaudi_tune.sweep.record.events import CTRL_C, HUNG_UP, PREEMPTED, TERMINATED
from gaudi_tune.training.checkpoint import STATE_FILE, read_state
from tests.helpers.mlflow_server import Server
from tests.helpers.state_records import records_in
from tests.tools.faults.accumulating import EPOCHS, HURRY
from tests.tools.faults.disk import frozen
from tests.tools.faults.sweep import UP_WITHIN_S, Sweep

ENDS_WITHIN_S = 90
"""How long a driver may take to end that was told to, or whose Ray is gone."""
HOUR_S = 3600
STALLS_FOR_S = (3.0, 15.0)
"""How long a disk stalls before the driver is killed, and after that."""
ANSWERS_WITHIN_S = 3.0
"""How long the driver's event loop may take to answer a request."""
SUSPENDED_FOR_S = 120.0
MOVES, MOVES_WITHIN_S, MOVES_FOR_S = "  moves to ", 120, 15
"""What is printed where a trial is to go on with other devices, how long that may take to come, and then to be done."""


class Inflict:
    """Faults, one method each. A method returns when the fault is there, or has been answered by --resume."""

    def __init__(self, sweep: Sweep, server: Server | None, chance: random.Random) -> None:
        self.sweep, self.server, self.chance = sweep, server, chance

    def driver(self) -> None:
        """Kill -9 of the command line's process."""
        self._end(self.sweep.driver.kill, -signal.SIGKILL)

    def raylet(self) -> None:
        """Kill -9 of the process of Ray that all others depend on."""
        self._end(self.sweep.ray_process("raylet").kill)

    def ctrl_c(self) -> None:
        """Ctrl-C, once."""
        self._end(self.sweep.interrupt, CTRL_C)

    def sigterm(self) -> None:
        """What a batch system sends before it kills."""
        self._end(self.sweep.driver.terminate, TERMINATED)

    def sighup(self) -> None:
        """SIGHUP to the driver alone, as from a closed terminal."""
        self._end(partial(self.sweep.driver.send_signal, signal.SIGHUP), HUNG_UP)

    def sigusr1(self) -> None:
        """What Slurm sends before the time limit of a job."""
        self._end(partial(self.sweep.driver.send_signal, signal.SIGUSR1), PREEMPTED)

    def sigterm_group(self) -> None:
        """SIGTERM to the driver and to Ray's own processes, as timeout, scancel and systemd send it."""
        self._end(self.sweep.terminate_group, TERMINATED)

    def gcs(self) -> None:
        """Kill -9 of Ray's control service."""
        self._end(self.sweep.ray_process("gcs_server").kill, 1)

    def torn_state(self) -> None:
        """Kill -9 of the driver, and a record of the sweep's state that is half there."""
        self._end(self.sweep.driver.kill, -signal.SIGKILL, partial(tear_state, self.sweep.folder, self.chance))

    def _end(self, how: Callable[[], None], status: int | None = None, then: Callable[[], None] | None = None) -> None:
        """End the driver, and let it go on; ``status`` is its exit status if there is only one that is right."""
        how()
        ended_with = self.sweep.ended_with(ENDS_WITHIN_S)
        wrong = ended_with != status if status is not None else ended_with == 0
        self.sweep.count("lost", wrong, f"the driver ended with status {ended_with}")
        if then is not None:
            then()
        self.sweep.resume()

    def worker(self) -> None:
        """Kill -9 of a worker."""
        self._kill_one("worker")

    def actor(self) -> None:
        """Kill -9 of a trial actor."""
        self._kill_one("actor")

    def fork_server(self) -> None:
        """Kill -9 of the process of which workers are copies, and of a worker, which comes back without it."""
        for server in self.sweep.of("fork-server"):
            server.kill()
        self.worker()

    def growing(self) -> None:
        """Kill -9 of a worker, a trial actor or the driver, once a trial is to go on with other devices."""
        moves = self.sweep.printed.count(MOVES)
        self.sweep.wait_until(lambda: self.sweep.printed.count(MOVES) > moves or not self.sweep.running, MOVES_WITHIN_S)
        moved = self.sweep.printed.count(MOVES) > moves
        self.sweep.count("lost", not moved, f"no trial moves within {MOVES_WITHIN_S} s")
        time.sleep(self.chance.uniform(0, MOVES_FOR_S))
        self.chance.choice([self.worker, self.actor, self.driver])()

    def _kill_one(self, kind: str) -> None:
        self.chance.choice(self.sweep.of(kind)).kill()

    def mlflow(self) -> None:
        """Kill -9 of MLflow's server, which is started again some seconds later; until all is delivered."""
        assert self.server is not None, "a sweep that is tracked on a server"
        self.server.kill()
        time.sleep(self.chance.uniform(1, 15))
        self.server.start()
        state, written = self.sweep.folder / DELIVERED_FILE, self.sweep.outbox_size()
        arrived = self.sweep.wait_until(lambda: json.loads(state.read_text())["delivered"] >= written, ENDS_WITHIN_S)
        self.sweep.count("lost", not arrived, f"not delivered {ENDS_WITHIN_S} s after MLflow is back")

    def exception(self) -> None:
        """An exception in the train loop; fails its trial."""
        self._order("exception")

    def nan(self) -> None:
        """A loss that is not finite; fails its trial."""
        self._order("nan")

    def memory(self) -> None:
        """The device's memory is full; fails its trial."""
        self._order("memory")

    def host_memory(self) -> None:
        """The host's memory is full: Ray kills processes until it is not."""
        self._order("host-memory")

    def hang(self) -> None:
        """A worker that reports no more: stopped from outside, or a train loop that waits for ever."""
        if self.chance.random() < 0.5:
            self.chance.choice(self.sweep.of("worker")).suspend()
        else:
            self._order("hang")

    def suspended(self) -> None:
        """All processes stand still for two minutes, as in a machine that sleeps, or the driver alone does."""
        everything = self.chance.random() < 0.5
        (self.sweep.suspend if everything else self.sweep.driver.suspend)()
        time.sleep(SUSPENDED_FOR_S)
        self.sweep.wake()

    def _order(self, what: str) -> None:
        order = self.sweep.order(what)
        taken = self.sweep.wait_until(lambda: not order.exists() or not self.sweep.running, ENDS_WITHIN_S)
        self.sweep.count("lost", not taken, f"nobody trains: the order {what} was not taken")

    def disk(self) -> None:
        """No room on a file system, for some seconds, or until the sweep ends of it and is resumed."""
        ballast = self.sweep.small_disk / "ballast"
        for size in (2**20, 2**12):
            with suppress(OSError), ballast.open("ab", buffering=0) as file:
                while True:
                    file.write(bytes(size))
        self.sweep.wait_until(lambda: not self.sweep.running, self.chance.uniform(10, 30))
        ballast.unlink()
        if not self.sweep.running:
            self.sweep.resume()

    def stalled_disk(self) -> None:
        """No write to the sweep's file system returns for a while.

        The driver is killed meanwhile, or goes on afterwards; or all trials end, and the sweep with them.
        """
        what, drawn = self.chance.choice(["kill", "go on", "end"]), self.chance.uniform
        with frozen(self.sweep.storage):
            time.sleep(drawn(*STALLS_FOR_S))
            self._ask_event_loop()
            if what == "kill":
                self.sweep.driver.kill()
            elif what == "end":
                self.sweep.order(HURRY)
            time.sleep(drawn(*STALLS_FOR_S))
        if what == "kill":
            self._end(lambda: None, -signal.SIGKILL)
        elif what == "end":
            self.sweep.wait_until(lambda: not self.sweep.running, UP_WITHIN_S)

    def _ask_event_loop(self) -> None:
        """Ask for something that the driver's event loop refuses, and see that it answers soon."""
        began = time.monotonic()
        answer = self.sweep.page.ask(do="add", trials=0)
        took = time.monotonic() - began
        wrong = took > ANSWERS_WITHIN_S or "give a number" not in answer.get("error", "")
        if wrong:
            self.sweep.print_stacks()
        self.sweep.count("lost", wrong, f"the event loop answers after {took:.1f} s: {answer}")

    def confirming(self) -> None:
        """Kill -9 of the driver, a trial actor or a worker, while trials of the confirmation train."""
        self.sweep.page.until(
            lambda page: any(page.trials[number]["confirms"] for number in page.with_status("running"))
        )
        time.sleep(self.chance.uniform(0, EPOCHS))
        self.chance.choice([self.driver, self.actor, self.worker])()

    def torn_checkpoint(self) -> None:
        """Half of a running trial's newest checkpoint is gone, and then its worker."""
        self._spoil_checkpoint(lambda checkpoint: _halve(checkpoint / STATE_FILE))

    def deleted_checkpoint(self) -> None:
        """A running trial's newest checkpoint is gone, and then its worker."""
        self._spoil_checkpoint(shutil.rmtree)

    def _spoil_checkpoint(self, spoil: Callable[[Path], None]) -> None:
        while self.sweep.running:
            worker = psutil.Process(self.chance.choice(list(self.sweep.training())))
            worker.suspend()  # else a whole one may come in between
            time.sleep(1)  # until what it handed in before is in its place
            if (checkpoint := self._newest_of(worker.pid)) is not None:
                spoil(checkpoint)
                worker.kill()
                return
            worker.resume()
            time.sleep(self.chance.uniform(0, 2))

    def _newest_of(self, pid: int) -> Path | None:
        """Return the newest checkpoint that a process has written of the trial that it trains, if there is one."""
        written = [
            (file.stat().st_mtime, file.parent) for file in self.sweep.folder.glob(f"trial-*/checkpoint_*/{STATE_FILE}")
        ]
        for _, checkpoint in sorted(written, reverse=True):
            try:
                state = read_state(checkpoint)
            except (FileNotFoundError, RuntimeError):  # removed, or torn before
                continue
            if state["pid"] == pid:
                return checkpoint if state["x"] == self.sweep.training()[pid] else None
        return None

    def clock(self) -> None:
        """The clock jumps by an hour, forwards or back."""
        told = float(self.sweep.clock.read_text()) if self.sweep.clock.exists() else 0.0
        told += self.chance.choice([-HOUR_S, HOUR_S])
        partial = self.sweep.clock.with_suffix(".partial")
        partial.write_text(str(told))
        partial.replace(self.sweep.clock)


def tear_state(folder: Path, chance: random.Random) -> None:
    """Cut the last record of a sweep off in the middle, as a machine that crashes does; of a single one add a half."""
    log = folder / STATE_LOG
    content = log.read_bytes()
    *before, (begins, ends) = records_in(content)
    cut = content[: chance.randint(begins, ends - 1)]
    log.write_bytes(cut if before else content + cut)


def _halve(file: Path) -> None:
    with file.open("r+b") as open_file:
        open_file.truncate(file.stat().st_size // 2)


KINDS: dict[str, Callable[[Inflict], None]] = {
    **{name.replace("_", "-"): method for name, method in vars(Inflict).items() if not name.startswith("_")},
    **dict.fromkeys(("few-files", "few-processes", "small-shm"), Inflict.driver),
    **dict.fromkeys(("temporary-disk", "tracking-disk"), Inflict.disk),
    "cgroup-memory": Inflict.host_memory,
}
"""Every kind of fault, by name: a method, and what is done to sweeps that run under a limit."""
