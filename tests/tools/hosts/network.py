"""Hosts on this machine, joined by a switch. Each is a set of Linux's namespaces, as a container is.

A host has its own network card and address, processes, name, monotonic clock, wall clock (of Python), /tmp, /dev/shm,
home and cache. Of this machine's files it sees the rest and can write none of it, as if all hosts ran one image. What
hosts are to share is mounted at :data:`SHARED`. All of it ends with the process that made it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from gaudi_tune.define.options import PROJECT_ROOT
from tests.tools.faults.clock.sitecustomize import SHIFT_FILE
from tests.tools.hosts.line import NETWORK

OWN = Path("/srv")
"""Where a host sees its own disk."""
SHARED = OWN / "shared"
"""Where hosts see the folder that they share."""
SWITCH = "switch"
CLOCK_SHIFT_S = 97.0
"""By how much the wall clock of each host is ahead of the one before."""
UPTIME_SHIFT_S = 100_000
"""The same of the monotonic clock, as if the hosts had been started that long after each other."""
UP_WITHIN_S = 120
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")
DISK = """
set -e
mount --make-rprivate /
mount --bind "$disk" /srv
mount --bind "$project" /srv/project
mount --bind "$shared" /srv/shared
mount --bind /srv/hosts /etc/hosts
mount -t tmpfs -o size=500m none /dev/shm
mount -o remount,bind,ro /
mount --bind /srv/tmp /tmp
mkdir -p "$project" 2> /dev/null || true
mount --bind /srv/project "$project"
mount -o remount,bind,ro "$project"
hostname "$name"
exec "$python" -c '
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel then forgets children that end
print("up", flush=True)
signal.pause()'
"""
"""Makes the host's view of the files, and becomes the process that is the parent of all others there."""


def command(*words: str, **options: object) -> None:
    """Run a command of this machine, whose failure is an error."""
    subprocess.run(words, check=True, **options)  # type: ignore[call-overload]


def wait_until_up(process: subprocess.Popen[str]) -> None:
    """Wait until a process has printed that it is up."""
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n", f"{process.args!r} does not start"


class Host:
    """A host. ``number`` is the last part of its address."""

    def __init__(self, number: int, folder: Path, shared: Path, line: tuple[str, str] | None = None) -> None:
        """Start it, its cable plugged in.

        Args:
            number: Its number.
            folder: Gets its disk.
            shared: The folder that it shares with others.
            line: Milliseconds by which each frame to or from it comes late, and the share that is lost.
        """
        self.number, self.name, self.address = number, f"host-{number}", address_of(number)
        self.disk = folder / self.name
        for part in ("home", "cache", "tmp", "project", "shared"):
            (self.disk / part).mkdir(parents=True)
        # As Debian has it: its own name is an address of loopback.
        (self.disk / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n")
        (self.disk / "clock").write_text(str(CLOCK_SHIFT_S * number))
        uptime = str(UPTIME_SHIFT_S * number)
        self._process = subprocess.Popen(
            [
                *(*ENDS_WITH_US, "unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--time"),
                *("--monotonic", uptime, "--boottime", uptime, "--fork", "--kill-child", "--mount-proc"),
                *("sh", "-c", DISK),
            ],
            env={
                **os.environ, "disk": str(self.disk), "project": str(PROJECT_ROOT), "shared": str(shared),
                "name": self.name, "python": sys.executable,
            },
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        wait_until_up(self._process)
        self.init = psutil.Process(self._process.pid).children()[0]
        """The first of its processes, without which the others end."""
        self._processes = os.readlink(f"/proc/{self.init.pid}/ns/pid")
        self._line: subprocess.Popen[str] | None = None
        self._plug(line)
        command("ip", "link", "set", self.name, "master", SWITCH, "up")
        for words in (f"addr add {self.address}/24 dev eth0", "link set eth0 up", "link set lo up"):
            self.run("ip", *words.split())

    def _plug(self, line: tuple[str, str] | None) -> None:
        """Give it a network card, ``eth0``, whose other side is one here that has the host's name."""
        pid = str(self.init.pid)
        if line is None:
            command("ip", "link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns", pid)
            return
        carry = (sys.executable, "-m", "tests.tools.hosts.line", pid, self.name, *line)
        self._line = subprocess.Popen([*ENDS_WITH_US, *carry], stdout=subprocess.PIPE, text=True)
        wait_until_up(self._line)

    def _entering(self, words: Sequence[str]) -> list[str]:
        return ["nsenter", "--target", str(self.init.pid), "--all", f"--wd={OWN}", "--", *words]

    def _environment(self, variables: dict[str, str]) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        clock = PROJECT_ROOT / "tests" / "tools" / "faults" / "clock"
        return {
            "PATH": path, "LANG": "C.UTF-8", "HOME": str(OWN / "home"), "PYTHONPATH": f"{clock}:{PROJECT_ROOT}",
            SHIFT_FILE: str(OWN / "clock"), "GAUDI_TUNE_CACHE": str(OWN / "cache"), "RAY_AUTH_MODE": "token",
            "PYTHONDONTWRITEBYTECODE": "1", **variables,
        }  # fmt: skip

    def run(self, *words: str, **variables: str) -> str:
        """Run a command there to its end, and return what it printed."""
        done = subprocess.run(
            self._entering(words), env=self._environment(variables), capture_output=True, text=True, timeout=UP_WITHIN_S
        )
        assert not done.returncode, f"{self.name}: {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def begin(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Begin a command there."""
        return subprocess.Popen(
            self._entering(words),
            env=self._environment(variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def titles(self) -> list[str]:
        """Return the titles of all processes there; none if it has ended."""
        titles = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if os.readlink(f"/proc/{process.pid}/ns/pid") == self._processes:
                    titles.append(" ".join(process.cmdline()).strip())
        return titles

    def has_ray(self) -> bool:
        """Whether Ray runs there."""
        return any("/raylet " in title for title in self.titles())

    def pull_cable(self) -> None:
        """Take its cable out of the switch. Its processes run on."""
        command("ip", "link", "set", self.name, "down")

    def plug_in(self) -> None:
        """Put its cable back."""
        command("ip", "link", "set", self.name, "up")

    def copy_token_from(self, first: Host) -> None:
        """Copy Ray's token."""
        folder = self.disk / "home" / ".ray"
        folder.mkdir(mode=0o700)
        shutil.copy(first.disk / "home" / ".ray" / "auth_token", folder)

    def end(self) -> None:
        """End it as a loss of power does: its network is gone before any of its processes could say goodbye."""
        if self._line is not None:  # whose end takes its card away
            self._line.kill()
            self._line.wait()
        subprocess.run(("ip", "link", "delete", self.name), stderr=subprocess.DEVNULL)  # no error where it is gone
        self._process.kill()
        self._process.wait()
        psutil.wait_procs([self.init], timeout=UP_WITHIN_S)  # the kernel kills it with the process that made it


def address_of(number: int) -> str:
    """Return the address of a host; 254 is this process."""
    return f"10.77.0.{number}"


def leave_machines_network() -> None:
    """Give this process a network of its own that has nothing but a switch, to which this process is connected."""
    if ctypes.CDLL(None, use_errno=True).unshare(NETWORK):
        raise OSError(ctypes.get_errno(), "no network namespace can be made; this takes root's rights on Linux")
    command("ip", "link", "set", "lo", "up")
    command("ip", "link", "add", SWITCH, "type", "bridge")
    command("ip", "addr", "add", f"{address_of(254)}/24", "dev", SWITCH)
    command("ip", "link", "set", SWITCH, "up")


@contextmanager
def ended_at_exit(hosts: list[Host]) -> Iterator[None]:
    """End the hosts that are in the list by then, whatever happens inside."""
    try:
        yield
    finally:
        for host in hosts:
            host.end()
