from pathlib import Path

import pytest
import torch

from trainables.runtime.checkpoint import STATE_FILE, read_state, write_state


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_state(tmp_path, {"model": {"w": torch.arange(3.0)}, "epochs_done": 2})
    state = read_state(tmp_path)
    assert state["epochs_done"] == 2
    assert torch.equal(state["model"]["w"], torch.arange(3.0))


def test_a_crash_while_writing_leaves_the_old_state(tmp_path: Path) -> None:
    write_state(tmp_path, {"epochs_done": 1})
    with pytest.raises(Exception, match="pickle"):
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
