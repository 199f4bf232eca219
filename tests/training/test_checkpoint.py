import pickle
from pathlib import Path

import pytest
import torch

from gaudi_tune.training.checkpoint import STATE_FILE, Seal, last_whole_checkpoint, read_state, seal, write_state


def test_written_records_are_read(tmp_path: Path) -> None:
    write_state(tmp_path, {"model": {"w": torch.arange(3.0)}, "epochs_done": 2})
    state = read_state(tmp_path)
    assert state["epochs_done"] == 2
    assert torch.equal(state["model"]["w"], torch.arange(3.0))


def test_a_crash_while_writing_leaves_the_old_state(tmp_path: Path) -> None:
    write_state(tmp_path, {"epochs_done": 1})
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        write_state(tmp_path, {"epochs_done": 2, "cannot be pickled": lambda: None})
    assert read_state(tmp_path)["epochs_done"] == 1


def test_a_folder_without_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"no checkpoint in {tmp_path}"):
        read_state(tmp_path)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return print, ("run",)

    torch.save({"model": Evil()}, tmp_path / STATE_FILE)
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        read_state(tmp_path)


def test_a_checkpoint_that_is_sealed_again_is_whole(tmp_path: Path) -> None:
    """After a try that found the disk full, or where a loop copies an earlier checkpoint with its seal."""
    write_state(tmp_path, {"epoch": 1})
    seal(tmp_path, Seal(1))
    write_state(tmp_path, {"epoch": 1000})
    seal(tmp_path, Seal(1000, from_0=True))
    assert last_whole_checkpoint(tmp_path, 1000) == (tmp_path, Seal(1000, from_0=True))


def test_a_checkpoint_that_was_written_again_with_a_later_report_has_that_one(tmp_path: Path) -> None:
    write_state(tmp_path, {"epoch": 3})
    seal(tmp_path, Seal(3))
    seal(tmp_path, Seal(4, behind=1))
    assert last_whole_checkpoint(tmp_path, 3) == (tmp_path, Seal(4, behind=1))


def test_the_last_whole_checkpoint_of_a_trial_counts(tmp_path: Path) -> None:
    for number, report in enumerate((2, 4, 6)):
        directory = tmp_path / f"checkpoint_{number:06d}"
        directory.mkdir()
        write_state(directory, {"epoch": report})
        seal(directory, Seal(report))
    first, second, third = sorted(tmp_path.iterdir())
    assert last_whole_checkpoint(third, 6) == (third, Seal(6))
    assert last_whole_checkpoint(second, 4) == (second, Seal(4))  # and not one of which Tune knows nothing
    (second / STATE_FILE).write_bytes((second / STATE_FILE).read_bytes()[:-1])
    assert last_whole_checkpoint(second, 4) == (first, Seal(2))
    (first / STATE_FILE).unlink()
    assert last_whole_checkpoint(second, 4) == (None, Seal(0))
    assert last_whole_checkpoint(tmp_path / "checkpoint_000009", 9) == (third, Seal(6))
    assert last_whole_checkpoint(tmp_path / "checkpoint_000009", 6) == (third, Seal(6))
