"""What a trial prints: a line in the files of its workers says where it begins, and one in the sweep's folder where
these files are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gaudi_tune.base.files import GROUPS_FOLDER, open_regular_file

PLACES_FILE = f"{GROUPS_FOLDER}/prints.txt"
"""The file in a sweep's folder with the folders of Ray's that have what its workers print, one for each start."""
BEGINS = ":trial:"
"""The beginning of the line before the prints of a trial; Ray's own lines in such a file begin with a colon, too."""


def begin_prints(folder: Path) -> None:
    """Note in this worker's files that what follows was printed by the trial of a folder."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # the user's code may have closed or replaced it
            print(f"{BEGINS}{folder.parent.name}/{folder.name}", file=stream, flush=True)


def note_place(sweep: Path, place: str) -> None:
    """Note where the workers of a sweep print. Without the note the sweep continues all the same."""
    with suppress(OSError):
        (sweep / PLACES_FILE).parent.mkdir(parents=True, exist_ok=True)
        with (sweep / PLACES_FILE).open("a") as file:
            file.write(f"{place}\n")


def prints_of(sweep: Path, trial: str) -> Iterator[str]:
    """Yield what a trial printed on this machine, line by line, after the name of each file.

    Raises:
        OSError: The sweep has not noted where its workers print.
    """
    with open_regular_file(sweep / PLACES_FILE) as file:
        places = file.read().decode(errors="replace").splitlines()
    printed: dict[str, set[str]] = {}
    for path in (path for place in dict.fromkeys(places) for path in sorted(Path(place).glob("worker-*.*"))[::-1]):
        is_of_trial = is_named = False
        # A worker's .err, which comes after its .out, has what that has, too.
        lines = printed.setdefault(path.stem, set())
        known_lines = {*lines}
        with suppress(OSError), open_regular_file(path) as file:
            for line in file:
                text = line.decode(errors="replace").rstrip("\n")
                if text.startswith(BEGINS):
                    is_of_trial = text == f"{BEGINS}{sweep.name}/{trial}"
                elif is_of_trial and text not in known_lines:
                    lines.add(text)
                    if not is_named:
                        yield f"{path}:"
                        is_named = True
                    yield text
