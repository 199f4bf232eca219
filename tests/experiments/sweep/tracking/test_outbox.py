"""The outbox after a crash of the machine, and beside those of others."""

from __future__ import annotations

import json
import os
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from experiments.sweep.tracking.outbox import RECORDS_FILE, STATE_FILE, Outbox
from tests.deliveries import outbox_in

RECORDS: list[dict[str, Any]] = [{"what": "metrics", "step": step} for step in range(5)]
SOMEBODY = 54321
"""A user that is not this one."""
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def delivered(folder: Path, count: int) -> Outbox:
    """An outbox of RECORDS, the first of them delivered, whose process has ended."""
    with closing(outbox_in(folder, RECORDS[:count])) as outbox:
        outbox.ids[""] = "a run"
        outbox.read()
        outbox.delivered()
        for record in RECORDS[count:]:
            outbox.put(record)
    return Outbox(folder)


def test_what_was_delivered_is_not_read_again(tmp_path: Path) -> None:
    outbox = delivered(tmp_path / "sweep", 2)
    assert outbox.take()
    assert (outbox.read(), outbox.read(), outbox.ids) == (RECORDS[2:], None, {"": "a run"})


@pytest.mark.parametrize(
    "torn", [b"", b"\0" * 40, b'{"delivered": 12, "i', b"[]", b'{"delivered": null, "ids": {}}'], ids=range(5)
)
def test_all_is_delivered_again_if_it_is_not_known_what_was(
    torn: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    delivered(tmp_path / "sweep", 2).close()
    (tmp_path / "sweep" / STATE_FILE).write_bytes(torn)
    assert Outbox.left_in(tmp_path) == [tmp_path / "sweep"]
    outbox = Outbox(tmp_path / "sweep")
    assert outbox.take()
    assert f"{STATE_FILE} is torn: all records beside it are delivered again" in caplog.text
    assert (outbox.read(), outbox.ids, outbox.interrupted) == (RECORDS, {}, True)
    outbox.delivered()
    assert Outbox.left_in(tmp_path) == []


@pytest.mark.parametrize("left", [0, 1, 30, 45])
def test_records_that_are_put_after_delivered_ones_were_lost_are_read_whole(
    left: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    delivered(tmp_path / "sweep", 5).close()
    os.truncate(tmp_path / "sweep" / RECORDS_FILE, left)
    outbox = Outbox(tmp_path / "sweep")
    assert outbox.take()
    assert "bytes of it were delivered, and some of them are lost" in caplog.text
    assert outbox.waiting == 0
    outbox.put({"what": "new"})
    assert outbox.interrupted
    assert (outbox.read(), outbox.read()) == ([{"what": "new"}], None)


def test_a_line_that_a_crash_made_unreadable_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    delivered(tmp_path / "sweep", 1).close()
    file = tmp_path / "sweep" / RECORDS_FILE
    lines = file.read_bytes().splitlines(keepends=True)
    lines[2], lines[4] = b"\0" * 20 + lines[2][20:], b"5\n"
    file.write_bytes(b"".join(lines))
    outbox = Outbox(tmp_path / "sweep")
    assert outbox.take()
    assert list(outbox.all()) == [RECORDS[0], RECORDS[1], RECORDS[3]]
    assert outbox.read() == [RECORDS[1], RECORDS[3]]
    assert "is no record and is passed over" in caplog.text
    outbox.delivered()
    assert outbox.waiting == 0


def test_a_line_that_is_no_record_is_delivered_when_it_is_the_last(tmp_path: Path) -> None:
    outbox = delivered(tmp_path / "sweep", 5)
    with (tmp_path / "sweep" / RECORDS_FILE).open("ab") as file:
        file.write(b"\0\n")
    assert outbox.read() == []
    outbox.delivered()
    assert (outbox.waiting, outbox.read()) == (0, None)


def test_what_cannot_be_read_is_named_and_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a folder" / RECORDS_FILE).mkdir(parents=True)
    (tmp_path / "no outbox").mkdir()
    (tmp_path / "a file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "not there")
    delivered(tmp_path / "sweep", 2).close()
    assert Outbox.left_in(tmp_path) == [tmp_path / "sweep"]
    (said,) = caplog.messages
    assert said.startswith(f"what {tmp_path}/a folder has for MLflow stays there: it cannot be read ")


@AS_ROOT
@pytest.mark.parametrize("of_somebody", ["", RECORDS_FILE])
def test_what_belongs_to_somebody_else_is_passed_over(of_somebody: str, tmp_path: Path) -> None:
    for name in ("theirs", "mine"):
        delivered(tmp_path / name, 2).close()
    os.chown(tmp_path / "theirs" / of_somebody, SOMEBODY, -1)
    (tmp_path / "theirs" / STATE_FILE).write_text("")
    assert Outbox.left_in(tmp_path) == [tmp_path / "mine"]


@AS_ROOT
def test_the_folders_of_others_that_nobody_else_may_enter_or_write_stop_nothing(tmp_path: Path) -> None:
    """As a user who, other than root, is kept out."""
    for name, mode in (("closed", 0o700), ("read only", 0o755), ("mine", 0o755)):
        delivered(tmp_path / name, 2).close()
        (tmp_path / name).chmod(mode)
    for path in [tmp_path / "mine", *(tmp_path / "mine").iterdir()]:
        os.chown(path, SOMEBODY, -1)
    above = [path for path in tmp_path.parents if not path.stat().st_mode & stat.S_IXOTH]
    modes = {path: path.stat().st_mode for path in [tmp_path, *above]}
    for path, mode in modes.items():
        path.chmod(mode | 0o055)
    try:
        os.seteuid(SOMEBODY)
        assert Outbox.left_in(tmp_path) == [tmp_path / "mine"]
    finally:
        os.seteuid(0)
        for path, mode in modes.items():
            path.chmod(mode)


def test_a_note_of_what_was_delivered_is_json(tmp_path: Path) -> None:
    delivered(tmp_path / "sweep", 5).close()
    state = json.loads((tmp_path / "sweep" / STATE_FILE).read_text())
    assert state == {"delivered": (tmp_path / "sweep" / RECORDS_FILE).stat().st_size, "ids": {"": "a run"}}
