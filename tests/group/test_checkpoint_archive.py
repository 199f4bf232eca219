"""Checkpoints that pass between nodes."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from gaudi_tune.group.checkpoint_archive import pack, unpack


def test_a_checkpoint_arrives_as_it_was(tmp_path: Path) -> None:
    kept, sent, arrived = tmp_path / "kept", tmp_path / "sent", tmp_path / "arrived"
    (sent / "adapter" / "empty").mkdir(parents=True)
    arrived.mkdir()
    kept.write_bytes(b"weights of the sweep's other folder")
    (sent / "state.pt").write_bytes(bytes(range(256)) * 10_000)
    (sent / "adapter" / ".config").write_text("r=8")
    (sent / "weights").symlink_to(kept)  # which the other node does not have
    unpack(pack(sent), arrived)
    kept.unlink()
    assert (arrived / "state.pt").read_bytes() == (sent / "state.pt").read_bytes()
    assert (arrived / "adapter" / ".config").read_text() == "r=8"
    assert (arrived / "adapter" / "empty").is_dir()
    assert (arrived / "weights").read_bytes() == b"weights of the sweep's other folder"


def test_nothing_is_written_outside_of_the_folder(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as writer:
        writer.addfile(tarfile.TarInfo("../outside"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(tarfile.OutsideDestinationError):
        unpack(archive.getvalue(), tmp_path / "folder")
    assert not (tmp_path / "outside").exists()
