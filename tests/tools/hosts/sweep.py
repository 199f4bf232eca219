"""A sweep whose command line runs on the first of several hosts, and the check of what it has cost."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.tools.faults.accumulating import EPOCHS
from tests.tools.faults.check import check_books
from tests.tools.faults.sweep import Sweep
from tests.tools.hosts.loop import LOG
from tests.tools.hosts.network import OWN, SHARED, Host

PORT = 6379
SMALL = ("--num-cpus", "1", "--object-store-memory", "80000000", "--disable-usage-stats")
"""One device for each host, and little memory."""
GONE_WITHIN_S = 40
DRIVER = """
from gaudi_tune import main
from tests.tools.hosts.loop import OVER_HOSTS

main(OVER_HOSTS)
"""


def start_ray(host: Host, first: Host) -> None:
    """Start Ray on a host, with the commands of docs/several-nodes.md and deploy/README.md."""
    here = ("--node-ip-address", host.address)
    if host is first:
        host.run("sh", "-c", "umask 077 && ray get-auth-token --generate > /dev/null")
        host.run("ray", "start", "--head", "--port", str(PORT), *here, *SMALL, "--include-dashboard=false")
    else:
        if not (host.disk / "home" / ".ray").exists():
            host.copy_token_from(first)
        host.run("ray", "start", "--address", f"{first.address}:{PORT}", *here, *SMALL)


@dataclass(frozen=True)
class Trained:
    """An epoch that a rank has begun."""

    host: str
    x: float
    pid: int
    master: str
    port: int
    """Where the ranks have met."""
    epoch: int
    rank: int
    width: int


class HostsSweep(Sweep):
    """A sweep over hosts. Its folder is on the disk of the first, unless it is told another storage."""

    def __init__(
        self,
        hosts: Sequence[Host],
        shared: Path,
        trials: int,
        *,
        epochs: int = EPOCHS,
        epoch_s: float = 0.5,
        variables: Mapping[str, str] | None = None,
        **options: str,
    ) -> None:
        """Prepare a sweep.

        Args:
            hosts: The hosts; the command line runs on the first.
            shared: The folder that all of them see, on this machine, with the orders to the train loop.
            trials: How many it has.
            epochs: How many each has.
            epoch_s: The seconds that each takes at least.
            variables: In the environment of the command line.
            **options: More options of the command line, by name, in place of the usual ones.
        """
        super().__init__(shared, "over-hosts", options.get("tracking_uri", f"sqlite:///{shared}/mlflow.db"), trials, 1)
        self.hosts, self.epochs, self._epoch_s = hosts, epochs, epoch_s
        if options.get("storage") != str(SHARED / self.storage.name):
            self.storage = hosts[0].disk / self.storage.name
            self.folder = self.storage / self.name
        self._options, self._driver_variables = options, variables or {}

    def start(self, *options: str) -> None:
        """Start it, with more words for its command line."""
        first, orders = self.hosts[0], SHARED / self.orders.name
        usual = {
            "address": f"{first.address}:{PORT}", "storage": str(OWN / self.storage.name), "name": self.name,
            "tracking_uri": f"sqlite:///{SHARED}/mlflow.db", "num_samples": str(self.searched), "seed": "1",
            "scheduler": "fifo", "search": "random", "recipe": "sample", "epochs": str(self.epochs), "device": "cpu",
            "checkpoint_minutes": "0.02", **self._options,
        }  # fmt: skip
        words = [word for name, value in usual.items() for word in (f"--{name.replace('_', '-')}", value)]
        words += ["--set", f"orders={orders}", f"epoch_s={self._epoch_s}", *options]
        self._process = first.begin("python", "-c", DRIVER, *words, **self._driver_variables)
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    @property
    def process(self) -> subprocess.Popen[str]:
        """The command line's."""
        assert self._process is not None, "started"
        return self._process

    def trained(self) -> list[Trained]:
        """Return the epochs that were begun so far, in their order."""
        log = self.orders / LOG
        lines = log.read_text().splitlines() if log.exists() else []
        return [Trained(**json.loads(line)) for line in lines]

    def hosts_since(self, before: int) -> set[str]:
        """Return the hosts that have begun an epoch after so many."""
        return {epoch.host for epoch in self.trained()[before:]}

    def wait_for_hosts(self, count: int, within_s: float) -> bool:
        """Wait until so many hosts begin epochs from now on."""
        before = len(self.trained())
        return self.wait_until(lambda: not self.running or len(self.hosts_since(before)) >= count, within_s)

    def seconds_until(self, *hosts: Host, x: float | None = None) -> float:
        """Wait until one of these hosts trains from now on, a certain trial if ``x`` is given; return the seconds."""
        before, began, names = len(self.trained()), time.monotonic(), {host.name for host in hosts}

        def is_trained() -> bool:
            return any(epoch.host in names and x in (None, epoch.x) for epoch in self.trained()[before:])

        self.wait_until(lambda: not self.running or is_trained(), 400)
        self.count("lost", not self.running or not is_trained(), f"{names} do not train {x or 'any trial'}")
        return time.monotonic() - began

    def terminate(self) -> None:
        """Send SIGTERM to the command line."""
        (command,) = psutil.Process(self.process.pid).children()  # of the program that enters the host
        command.terminate()

    def check(self, within_s: float = 300) -> None:
        """Wait for its end, and count what is lost, doubled and leaked."""
        status = self.ended_with(within_s)
        self.count("lost", status != 0, f"the sweep ended with status {status}")
        # With an object store, the sweep has its folder in the cache of the first host.
        self.folder = next((self.hosts[0].disk / "cache" / "storage").glob(f"*/{self.name}"), self.folder)
        check_books(self)
        self.check_processes()

    def check_processes(self) -> None:
        """Count the actors and workers that outlive the command line on the hosts that are still there."""
        until = time.monotonic() + GONE_WITHIN_S
        while (left := self._actors()) and time.monotonic() < until:
            time.sleep(0.5)
        self.count("leaked", len(left), f"still there after the sweep: {left}")

    def _actors(self) -> list[str]:
        own = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
        titles = [(host.name, title) for host in self.hosts if host.init.is_running() for title in host.titles()]
        actors = [told for told in titles if told[1].startswith("ray::") and not told[1].startswith(own)]
        return [f"{title} on {host}" for host, title in actors]

    def end(self) -> None:
        """Kill what is left."""
        if self.running:
            self.process.kill()
