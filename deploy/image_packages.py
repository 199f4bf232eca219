"""Which packages Intel's image brings, and whether they are still the same: the standard library alone.

    python3 deploy/image_packages.py record FILE             with the image's Python, before anything is installed
    .venv/bin/python deploy/image_packages.py check FILE     with the Python of the environment, afterwards

FILE is a requirements file for pip, a line per package: ``torch==2.9.0+hpu.git  # where it lies``.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

TORCH = ("torch", "torchvision", "torchaudio")
NEEDED = ("torch", "habana-torch-plugin")
LINE = re.compile(r"(?P<name>\S+)==(?P<version>\S+)  # (?P<location>.+)")


class Package(NamedTuple):
    """What Python imports under a name."""

    version: str
    location: str

    def __str__(self) -> str:
        return f"{self.version} in {self.location}"


def image_packages() -> dict[str, Package]:
    """Return torch's and habana's packages as this Python finds them, by their normalised names."""
    found: dict[str, Package] = {}
    for distribution in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        if name in TORCH or name.startswith("habana"):
            # Of two with one name the first on the path is the one that Python imports.
            location = str(Path(str(distribution.locate_file(""))).resolve())
            found.setdefault(name, Package(distribution.version, location))
    return found


def record(file: Path) -> None:
    """Write what is here to ``file``.

    Raises:
        ValueError: It is not Intel's image.
    """
    found = image_packages()
    if missing := [name for name in NEEDED if name not in found]:
        raise ValueError(
            f"the base must be Intel's Gaudi container for PyTorch; {sys.executable} finds no "
            f"{' and no '.join(missing)}. Give its name as BASE_IMAGE, or its Python as PYTHON (deploy/README.md)."
        )
    file.write_text("".join(f"{name}=={version}  # {place}\n" for name, (version, place) in sorted(found.items())))


def check(file: Path) -> None:
    """Hold what is here against ``file``.

    Raises:
        ValueError: A package was changed, moved, hidden by another, added or removed.
    """
    lines = (LINE.fullmatch(line) for line in file.read_text().splitlines())
    before = {line["name"]: Package(line["version"], line["location"]) for line in lines if line}
    if changes := differences(before, image_packages()):
        raise ValueError(
            f"torch and habana's packages must stay as Intel's image has them. {'; '.join(changes)}. Remove the "
            f"environment {sys.prefix}, and install without what replaced them (--force-reinstall, a second pip)."
        )


def differences(before: Mapping[str, Package], after: Mapping[str, Package]) -> list[str]:
    """Return a phrase for each package that is not what it was."""
    names = sorted({*before, *after})
    return [
        f"{name}: was {before.get(name, 'absent')}, is {after.get(name, 'absent')}"
        for name in names
        if before.get(name) != after.get(name)
    ]


def main() -> None:
    """Run the command that is named."""
    commands = {"record": record, "check": check}
    if len(sys.argv) != 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    try:
        commands[sys.argv[1]](Path(sys.argv[2]))
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
