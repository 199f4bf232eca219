"""Finds the processes that use an HPU module, which have its device file open. It reads /proc and touches no device."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gaudi_tune.devices.hl_smi import hl_smi

DEVICE_ROOT = "GAUDI_TUNE_DEVICE_ROOT"
"""Variable with the folder that holds dev/ and sys/; / if it is not set."""
DEVICE_FILES = (("dev/accel", "accel", "sys/class/accel"), ("dev", "hl", "sys/class/habanalabs"))
"""Folder and name of the device files, and their folder in sysfs. The second entry is for drivers older than the accel
subsystem of Linux 6.2. The control files beside them (accel_controlD0) are not devices: any process may open them."""
COMMAND_LENGTH = 60
"""How many characters of a command line are shown."""


@dataclass(frozen=True)
class Owner:
    """A process that uses a module."""

    module: int
    pid: int
    user: str
    command: str


@dataclass(frozen=True)
class Owners:
    """The users of a node's modules, as far as this user may see them."""

    owners: tuple[Owner, ...]
    modules: tuple[int, ...]
    """The modules that have a device file on this node."""
    hidden: int
    """Number of processes whose open files this user may not see."""


def find_owners() -> Owners:
    """Look at the open files of every visible process. In a container, only the container's processes are visible."""
    modules = {str(file.resolve()): module for file, module in module_files().items()}
    owners: list[Owner] = []
    hidden = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            owners += _owners_in(process, modules)
        except PermissionError:  # noqa: PERF203  (reading /proc takes longer than the try)
            hidden += 1
    owners.sort(key=lambda owner: (owner.module, owner.pid))
    return Owners(tuple(owners), tuple(sorted(modules.values())), hidden)


def device_root() -> Path:
    """Return the folder that holds dev/ and sys/."""
    return Path(os.environ.get(DEVICE_ROOT) or "/")


def module_files() -> dict[Path, int]:
    """Return the device files on this node, and the module of each.

    A file's number is not its module's number. The driver maps one to the other in sysfs, and for older drivers hl-smi
    does. Files that neither maps to a module, such as those of other makers' accelerators, are left out.
    """
    root = device_root()
    indices: dict[Path, int] = {}
    modules: dict[Path, int] = {}
    for folder, name, sysfs_folder in DEVICE_FILES:
        for file in (root / folder).glob(f"{name}*"):
            if number := re.fullmatch(rf"{name}(\d+)", file.name):
                indices[file] = int(number[1])
                module_id = root / sysfs_folder / file.name / "device" / "module_id"
                if module_id.is_file():
                    modules[file] = int(module_id.read_text())
    if modules or not indices:
        return modules
    answers = hl_smi("index", "module_id")
    by_index = {int(index): int(module) for index, module in answers if index.isdigit() and module.isdigit()}
    return {file: by_index[index] for file, index in indices.items() if index in by_index}


def _owners_in(process: Path, modules: Mapping[str, int]) -> list[Owner]:
    """Return an entry for each module that a process has open.

    Raises:
        PermissionError: This user may not see the files that the process has open.
    """
    try:
        open_modules = {modules[file] for file in _open_files(process) if file in modules}
        return [Owner(module, int(process.name), _user(process), _command(process)) for module in open_modules]
    except PermissionError:
        raise
    except OSError:  # the process has ended
        return []


def _open_files(process: Path) -> Iterator[str]:
    for link in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed since the folder was read
            yield os.readlink(link)


def _user(process: Path) -> str:
    number = process.stat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # a user of the host that the container does not know
        return f"uid {number}"


def _command(process: Path) -> str:
    arguments = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    words = " ".join(arguments.split()) or (process / "comm").read_text().strip()
    # Not textwrap.shorten: it drops what follows a hyphen, and of the Python in /opt/my-environment leaves "/opt/my-".
    return words if len(words) <= COMMAND_LENGTH else f"{words[: COMMAND_LENGTH - 4]} ..."
