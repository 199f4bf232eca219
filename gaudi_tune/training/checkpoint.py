"""Checkpoints: a file of tensors and plain values, written whole or not at all, and read without unpickling code.

The life of a checkpoint, with the file of each step:

1. ``on_ray/sweep_run.py`` asks for one after a report, if ``wants_checkpoint()`` in ``sweep/policies/checkpoints.py``
   says so. Tune asks by itself for a trial that pauses.
2. ``group/warm_trainable.py``: ``save()`` names the folder, has rank 0 write it (``group/worker.py``, which calls what
   the train loop gave to ``report()``; ``group/last_written_checkpoint.py`` if the loop wrote before that report),
   and seals it with :func:`seal`.
3. ``on_ray/sweep_run.py`` notes it in the record, and ``on_ray/state_on_disk.py`` soon in the log: Tune keeps the last
   checkpoint of each trial alone, and deletes the one before.
4. ``on_ray/checkpoint_cleanup.py`` deletes what is over the budget, by the rules in ``sweep/policies/checkpoints.py``.
5. After a kill, ``on_ray/tune_files.py`` tells Tune of the checkpoints that the log has. Tune calls ``restore()`` of
   ``group/warm_trainable.py``, which takes :func:`last_whole_checkpoint`, or what ``training/end_notice.py`` saved
   between two reports if that is newer.
6. ``get_checkpoint()`` in ``training/session.py`` gives it to the train loop.
"""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from gaudi_tune.base.files import atomic_write

STATE_FILE = "state.pt"
"""The file in a checkpoint's directory that holds the state of the trial."""
TRAINED_MODEL = "trained_model"
"""The part of the state with the weights as trained, if ``model`` has their moving average."""
INTERVAL = "interval"
"""The part of the state with what a trial had trained since its last report, if it was saved between two reports."""
TRAINING_ONLY = ("optimizer", TRAINED_MODEL, INTERVAL)
"""Parts of the state that training needs and prediction does not."""
SEAL_FILE = "seal.json"
"""The file in a checkpoint's directory that is written last. It has the number of the checkpoint's report, how the
train loop counts, and the sizes of all files."""
_TUNE_FILE = ".metadata.json"  # not all that begin with a dot: without .metadata, torch cannot read its parts
_CHECKPOINT_FOLDERS = "checkpoint_*"  # as Tune names the checkpoints of a trial


def write_state(directory: Path, state: dict[str, Any]) -> None:
    """Write ``state`` (tensors and plain values) to ``directory``. A crash meanwhile leaves no file of that name.

    Tensors are copied to the host one by one first: ``torch.save`` would copy the device's memory as it is, and a Gaudi
    keeps the weights of convolutions in an order of its own.
    """
    import torch

    # Given a path, torch says only in words of its version that the disk is full; a file raises the system's error.
    with atomic_write(directory / STATE_FILE) as partial, partial.open("wb") as file:
        torch.save(_on_host(state), file)


def _on_host(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        moved = copy.copy(value)  # a model's state has the versions of its modules in an attribute, which stays
        moved.update({name: _on_host(part) for name, part in value.items()})
        return moved
    if isinstance(value, list):
        return [_on_host(part) for part in value]
    return value


def read_state(directory: Path) -> dict[str, Any]:
    """Read what :func:`write_state` wrote, with tensors in host memory.

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
    """Copy a checkpoint without what only training needs. With AdamW, a third remains.

    Tune's own file is left out, too.

    Args:
        checkpoint: A checkpoint of any train loop. If :func:`write_state` wrote it, the optimizer's state is left out.
        directory: The copy; it must not exist yet.

    Raises:
        FileNotFoundError: There is no such checkpoint.
    """
    shutil.copytree(checkpoint, directory, ignore=shutil.ignore_patterns(_TUNE_FILE, STATE_FILE, SEAL_FILE))
    if (checkpoint / STATE_FILE).is_file():
        state = read_state(checkpoint)
        write_state(directory, {name: part for name, part in state.items() if name not in TRAINING_ONLY})


class Seal(NamedTuple):
    """The mark of a checkpoint that was written completely."""

    report: int
    """Number of the trial's report (from 1) after which the checkpoint was written; 0 if it is not whole."""
    from_0: bool = False
    """Whether the train loop counts its epochs or steps from 0."""
    behind: int = 0
    """How many reports earlier the train loop had written what the checkpoint has."""
    progress: int = 0
    """Epochs or steps that what the checkpoint has had trained; 0 if its loop reports none."""


def seal(directory: Path, mark: Seal) -> None:
    """Mark a checkpoint as whole.

    If the directory has a seal already, which a loop may have copied from elsewhere, it is replaced.
    """
    seal_file = directory / SEAL_FILE
    files = [file for file in directory.rglob("*") if file.is_file() and file != seal_file]
    sizes = {str(file.relative_to(directory)): file.stat().st_size for file in files}
    seal_file.write_text(json.dumps({**mark._asdict(), "sizes": sizes}))


def last_whole_checkpoint(checkpoint: Path, report: int) -> tuple[Path | None, Seal]:
    """Return the last whole checkpoint of a trial up to a report, and its seal.

    Args:
        checkpoint: The preferred directory. If its files are missing or torn, the directories beside it are searched.
        report: Number of the report (from 1) that the preferred checkpoint belongs to. If it was written again with a
            later one, before a kill of which the record knows nothing, its seal has that report, and how far it is
            behind.

    Returns:
        None and an empty seal if there is no whole checkpoint.
    """
    preferred = read_seal(checkpoint)
    if preferred.report:
        return checkpoint, preferred
    candidates = [(read_seal(directory), directory) for directory in checkpoint.parent.glob(_CHECKPOINT_FOLDERS)]
    whole_checkpoints = [(mark, directory) for mark, directory in candidates if 0 < mark.report <= report]
    latest, directory = max(whole_checkpoints, default=(Seal(0), None))
    return directory, latest


def read_seal(directory: Path) -> Seal:
    """Return the seal of a checkpoint; an empty seal if the checkpoint is not whole."""
    try:
        mark = json.loads((directory / SEAL_FILE).read_text())
        has_sizes = all((directory / name).stat().st_size == size for name, size in mark.pop("sizes").items())
        return Seal(**mark) if has_sizes else Seal(0)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # torn, or something else of this name
        return Seal(0)
