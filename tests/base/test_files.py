"""Writing whole or not at all, and where there is no room: /dev/full never has any."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from gaudi_tune.base import files
from gaudi_tune.base.files import atomic_write, is_disk_full, retry_while_disk_is_full


def test_writing_waits_for_room_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files, "RETRY_AFTER_S", 0.01)
    places = iter([Path("/dev/full"), Path("/dev/full"), tmp_path / "there"])
    with caplog.at_level(logging.WARNING):
        assert retry_while_disk_is_full(lambda: next(places).write_text("all of it"), "a line") == 9
    assert (tmp_path / "there").read_text() == "all of it"
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith("the disk is full, a line cannot be written (")
    with pytest.raises(FileNotFoundError):
        retry_while_disk_is_full((tmp_path / "not" / "there").touch, "nothing")


def test_half_a_file_replaces_nothing(tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    with atomic_write(file) as partial:
        partial.write_text("old")
    with suppress(RuntimeError), atomic_write(file) as partial:
        partial.write_text("ne")
        raise RuntimeError("in the middle")
    assert file.read_text() == "old"
    with atomic_write(file) as partial:
        partial.write_text("new")
        assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
    assert file.read_text() == "new"


def test_a_full_disk_is_seen_through_torchs_error() -> None:
    with suppress(OSError), Path("/dev/full").open("wb") as file, pytest.raises(RuntimeError) as raised:
        torch.save({"weights": torch.ones(500_000)}, file)
    assert is_disk_full(raised.value)
    with pytest.raises(RuntimeError) as raised:
        torch.save({"weights": torch.ones(500_000)}, "/dev/full")
    assert is_disk_full(raised.value)
    # As safetensors raises it, which would put a file in the place of the device.
    assert is_disk_full(ValueError("Error while serializing: I/O error: No space left on device (os error 28)"))
    assert not is_disk_full(RuntimeError("no space left on device"))
