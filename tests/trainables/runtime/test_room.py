"""Writing where there is no room: /dev/full never has any."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from trainables.runtime import room
from trainables.runtime.room import is_full, once_there_is_room


def test_it_writes_when_there_is_room_and_says_that_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(room, "TRY_AGAIN_AFTER_S", 0.01)
    places = iter([Path("/dev/full"), Path("/dev/full"), tmp_path / "there"])
    with caplog.at_level(logging.WARNING):
        assert once_there_is_room(lambda: next(places).write_text("all of it"), "a line") == 9
    assert (tmp_path / "there").read_text() == "all of it"
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == ["no room for a line"]
    with pytest.raises(FileNotFoundError):
        once_there_is_room((tmp_path / "not" / "there").touch, "nothing")


def test_torch_hides_why_it_could_not_write() -> None:
    with suppress(OSError), Path("/dev/full").open("wb") as file, pytest.raises(RuntimeError) as raised:
        torch.save({"weights": torch.ones(500_000)}, file)
    assert is_full(raised.value)
    assert not is_full(RuntimeError("no space left on device"))
