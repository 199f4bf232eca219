"""Checkpoints: one file of tensors and plain values, written whole or not at all, read without unpickling code."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from gaudi_tune.base.writing import atomic_write

STATE_FILE = "state.pt"
"""The file in a checkpoint's directory that holds the state of the trial."""
TRAINED_MODEL = "trained_model"
"""The part of the state that holds the weights as trained where ``model`` holds their moving average."""
TRAINING_ALONE = ("optimizer", TRAINED_MODEL)
"""Parts of the state that only training needs, not prediction."""
SEAL_FILE = "seal.json"
"""The file in a checkpoint's directory that is written last: the report that it belongs to, how its train loop counts,
and the sizes of its files."""
_ANY = "checkpoint_*"  # as Tune names the checkpoints of a trial


def write_state(directory: Path, state: dict[str, Any]) -> None:
    """Write ``state`` (tensors and plain values) to ``directory``; a crash in between leaves no file of that name.

    Tensors go to the host one by one first: ``torch.save`` would copy a device's memory as it lies there, and a Gaudi
    keeps the weights of convolutions in an order that suits it.
    """
    import torch

    with atomic_write(directory / STATE_FILE) as partial:
        torch.save(_on_host(state), partial)


def _on_host(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        moved = copy.copy(value)  # what a model's state says of its modules' versions is an attribute
        moved.update({name: _on_host(part) for name, part in value.items()})
        return moved
    return [_on_host(part) for part in value] if isinstance(value, list) else value


def read_state(directory: Path) -> dict[str, Any]:
    """Read what :func:`write_state` wrote, tensors in host memory.

    Raises:
        FileNotFoundError: There is no checkpoint in ``directory``.
    """
    import torch

    file = directory / STATE_FILE
    if not file.is_file():
        raise FileNotFoundError(f"no checkpoint in {directory}: {STATE_FILE} is missing")
    state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return state


def copy_to_predict(checkpoint: Path, directory: Path) -> None:
    """Copy a checkpoint without what only training needs: of one with AdamW, a third remains.

    Files whose names begin with a dot, which are Tune's, are left out.

    Args:
        checkpoint: Of any train loop. The optimizer's state is left out if :func:`write_state` wrote it.
        directory: Made here.

    Raises:
        FileNotFoundError: There is no such checkpoint.
    """
    shutil.copytree(checkpoint, directory, ignore=shutil.ignore_patterns(".*", STATE_FILE, SEAL_FILE))
    if (checkpoint / STATE_FILE).is_file():
        state = read_state(checkpoint)
        write_state(directory, {name: part for name, part in state.items() if name not in TRAINING_ALONE})


class Seal(NamedTuple):
    """What marks a checkpoint as whole says of it."""

    report: int
    """After which report of its trial (from 1) it was written; 0: it is not whole."""
    from_0: bool = False
    """Whether the train loop counts its epochs or steps from 0."""


def seal(directory: Path, report: int, *, from_0: bool = False) -> None:
    """Mark a checkpoint as whole, as :class:`Seal` has it.

    A seal that is in the directory already, which a loop may have copied from elsewhere, is replaced.
    """
    seal_file = directory / SEAL_FILE
    files = [file for file in directory.rglob("*") if file.is_file() and file != seal_file]
    sizes = {str(file.relative_to(directory)): file.stat().st_size for file in files}
    seal_file.write_text(json.dumps({"report": report, "from_0": from_0, "sizes": sizes}))


def last_whole_checkpoint(checkpoint: Path, report: int) -> tuple[Path | None, Seal]:
    """Return the last whole checkpoint of a trial, not later than a report, and its seal.

    Args:
        checkpoint: The directory to prefer; if its files are missing or torn, the directories beside it are searched.
        report: Which report of the trial (from 1) it belongs to.

    Returns:
        None and an empty seal if there is none.
    """
    if (preferred := read_seal(checkpoint)).report:
        return checkpoint, preferred._replace(report=report)
    others = [(read_seal(directory), directory) for directory in checkpoint.parent.glob(_ANY)]
    last, directory = max(((s, d) for s, d in others if 0 < s.report <= report), default=(Seal(0), None))
    return directory, last


def read_seal(directory: Path) -> Seal:
    """Return the seal of a checkpoint; an empty one if it is not whole."""
    try:
        sealed = json.loads((directory / SEAL_FILE).read_text())
        whole = all((directory / name).stat().st_size == size for name, size in sealed["sizes"].items())
        return Seal(int(sealed["report"]), bool(sealed["from_0"])) if whole else Seal(0)
    except (OSError, ValueError, LookupError):
        return Seal(0)
