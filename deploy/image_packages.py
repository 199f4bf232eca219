"""Which packages Intel's image brings, and whether they are still the same: the standard library and pip alone.

    python3 deploy/image_packages.py record FILE                       before anything is installed
    .venv/bin/python deploy/image_packages.py constrain PINS FILE      before anything is installed
    .venv/bin/python deploy/image_packages.py check FILE               afterwards

The FILE of record and check is a requirements file for pip, a line per package: ``torch==2.9.0+hpu.git  # where it
lies``. That of constrain is a constraints file for pip.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Callable, Mapping
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
    return {
        name: Package(distribution.version, str(Path(str(distribution.locate_file(""))).resolve()))
        for name, distribution in image_distributions().items()
    }


def image_distributions() -> dict[str, importlib.metadata.Distribution]:
    """Return the same packages with all of their metadata."""
    found: dict[str, importlib.metadata.Distribution] = {}
    for distribution in importlib.metadata.distributions():
        name = normalised(distribution.metadata["Name"] or "")
        if is_of_the_image(name):
            # Of two with one name the first on the path is the one that Python imports.
            found.setdefault(name, distribution)
    return found


def is_of_the_image(name: str) -> bool:
    """Whether a package of this normalised name is torch's or habana's."""
    return name in TORCH or name.startswith("habana")


def normalised(name: str) -> str:
    """Return a package's name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def constrain(pins: Path, file: Path) -> None:
    """Write the pins to ``file`` that can hold on the image, and print those that cannot.

    Left out are torch's and habana's packages, which stay the image's, and versions that those rule out.
    """
    from pip._vendor.packaging.requirements import Requirement  # pip is there; packaging need not be

    needs: dict[str, list[Requirement]] = {}
    for distribution in image_distributions().values():
        for requirement in map(Requirement, distribution.requires or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needs.setdefault(normalised(requirement.name), []).append(requirement)
    kept = []
    for line in pins.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        pin = Requirement(line)
        name, version = normalised(pin.name), str(pin.specifier).removeprefix("==")
        if is_of_the_image(name) or not (pin.marker is None or pin.marker.evaluate()):
            continue
        against = [need for need in needs.get(name, []) if not need.specifier.contains(version, prereleases=True)]
        if against:
            print(f"{pin.name}=={version} of {pins.name} is left out: the image's packages need {against[0]}")
        else:
            kept.append(f"{pin.name}=={version}\n")
    file.write_text("".join(kept))


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
    commands: dict[tuple[str, int], Callable[..., None]] = {
        ("record", 1): record, ("constrain", 2): constrain, ("check", 1): check,
    }  # fmt: skip
    name, files = "".join(sys.argv[1:2]), [Path(argument) for argument in sys.argv[2:]]
    if (name, len(files)) not in commands:
        sys.exit(__doc__)
    try:
        commands[name, len(files)](*files)
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
