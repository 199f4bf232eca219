"""Which processes use which HPU module: those that have its device file open. Reads /proc, touches no device."""

from __future__ import annotations

import os
import pwd
import re
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gaudi_tune.devices.hl_smi import hl_smi

DEVICE_ROOT = "GAUDI_TUNE_DEVICE_ROOT"
"""Variable with the folder in which dev/ and sys/ with the devices are; / if it is not set."""
DEVICE_FILES = (("dev/accel", "accel", "sys/class/accel"), ("dev", "hl", "sys/class/habanalabs"))
"""Folder and name of the device files, and their folder in sysfs; the second is of drivers before Linux 6.2's accel.
Any number of processes may open the control files beside them (accel_controlD0), which are no devices."""
COMMAND_LENGTH = 60
"""Characters of a command line that are shown."""


@dataclass(frozen=True)
class Owner:
    """A process that uses a module."""

    module: int
    pid: int
    user: str
    command: str


@dataclass(frozen=True)
class Owners:
    """What /proc shows."""

    found: tuple[Owner, ...]
    modules: tuple[int, ...]
    """The modules whose device files are here."""
    hidden: int
    """Number of processes whose open files this user may not see."""


def find_owners() -> Owners:
    """Look at the open files of every process that is visible here; in a container, only those of the container are."""
    modules = {str(file.resolve()): module for file, module in module_files().items()}
    found: list[Owner] = []
    hidden = 0
    for process in Path("/proc").glob("[0-9]*"):
        owners = _owners_in(process, modules)
        found += owners or []
        hidden += owners is None
    in_order = sorted(found, key=lambda owner: (owner.module, owner.pid))
    return Owners(tuple(in_order), tuple(sorted(modules.values())), hidden)


def device_root() -> Path:
    """Return the folder in which dev/ and sys/ with the devices are."""
    return Path(os.environ.get(DEVICE_ROOT) or "/")


def module_files() -> dict[Path, int]:
    """Return the device files that are here, and the module of each.

    A file's number is not its module's. The driver maps one to the other in sysfs; where an older one does not, hl-smi
    does. Files that neither maps to a module, such as those of another maker's accelerator, are left out.
    """
    root = device_root()
    files: dict[Path, int] = {}
    known: dict[Path, int] = {}
    for folder, name, in_sysfs in DEVICE_FILES:
        for file in (root / folder).glob(f"{name}*"):
            if number := re.fullmatch(rf"{name}(\d+)", file.name):
                files[file] = int(number[1])
                module_id = root / in_sysfs / file.name / "device" / "module_id"
                known |= {file: int(module_id.read_text())} if module_id.is_file() else {}
    if known or not files:
        return known
    answers = hl_smi("index", "module_id")
    by_index = {int(index): int(module) for index, module in answers if index.isdigit() and module.isdigit()}
    return {file: by_index[index] for file, index in files.items() if index in by_index}


def _owners_in(process: Path, modules: Mapping[str, int]) -> list[Owner] | None:
    """Return an entry for each module that a process has open; None if this user may not see its files."""
    try:
        taken = {modules[file] for file in _open_files(process) if file in modules}
        return [Owner(module, int(process.name), _user(process), _command(process)) for module in taken]
    except PermissionError:
        return None
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
    words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return textwrap.shorten(words, COMMAND_LENGTH, placeholder=" ...") or (process / "comm").read_text().strip()
