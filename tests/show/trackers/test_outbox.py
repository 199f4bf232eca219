"""The outbox after a crash of its process or of the machine."""

from __future__ import annotations

import json
import math
import os
from contextlib import closing
from pathlib import Path

import pytest

from gaudi_tune.base.files import DELIVERED_FILE, OUTBOX_FILE
from gaudi_tune.show.trackers.outbox import Outbox, tracked_at
from gaudi_tune.show.trackers.records import (
    KINDS,
    SWEEP,
    BeginRun,
    BeginSweep,
    LogFiles,
    LogModel,
    Update,
    to_line,
)
from tests.helpers.deliveries import outbox_in

RECORDS = [Update(run="001", time_ms=step, step=step, metrics={"loss": 0.5}) for step in range(5)]


def delivered(folder: Path, count: int) -> Outbox:
    """An outbox of RECORDS, the first of them delivered, whose process has ended."""
    with closing(outbox_in(folder, RECORDS[:count])) as outbox:
        outbox.ids[""] = "a run"
        outbox.read_batch()
        outbox.mark_delivered()
        for record in RECORDS[count:]:
            outbox.put(record)
    return Outbox(folder)


def test_delivered_records_are_not_read_again(tmp_path: Path) -> None:
    outbox = delivered(tmp_path / "sweep", 2)
    assert (outbox.read_batch(), outbox.read_batch(), outbox.ids) == (RECORDS[2:], None, {"": "a run"})


@pytest.mark.parametrize(
    "torn", [b"", b"\0" * 40, b'{"delivered": 12, "i', b"[]", b'{"delivered": null, "ids": {}}'], ids=range(5)
)
def test_all_is_delivered_again_if_it_is_not_known_what_was(
    torn: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    delivered(tmp_path / "sweep", 2).close()
    (tmp_path / "sweep" / DELIVERED_FILE).write_bytes(torn)
    outbox = Outbox(tmp_path / "sweep")
    assert f"{DELIVERED_FILE} is torn: all records beside it are delivered again" in caplog.text
    assert (outbox.read_batch(), outbox.ids, outbox.reopened) == (RECORDS, {}, True)
    outbox.mark_delivered()
    assert Outbox(tmp_path / "sweep").waiting == 0


@pytest.mark.parametrize("left", [0, 1, 30, 45])
def test_records_that_are_put_after_delivered_ones_were_lost_are_read_whole(
    left: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    delivered(tmp_path / "sweep", 5).close()
    os.truncate(tmp_path / "sweep" / OUTBOX_FILE, left)
    outbox = Outbox(tmp_path / "sweep")
    assert "bytes of it were delivered, and some of them are lost" in caplog.text
    assert outbox.waiting == 0
    outbox.put(RECORDS[0])
    assert outbox.reopened
    assert (outbox.read_batch(), outbox.read_batch()) == ([RECORDS[0]], None)


def test_a_line_that_a_crash_made_unreadable_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    delivered(tmp_path / "sweep", 1).close()
    file = tmp_path / "sweep" / OUTBOX_FILE
    lines = file.read_bytes().splitlines(keepends=True)
    lines[2], lines[4] = b"\0" * 20 + lines[2][20:], b"5\n"
    file.write_bytes(b"".join(lines))
    outbox = Outbox(tmp_path / "sweep")
    assert list(outbox) == [RECORDS[0], RECORDS[1], RECORDS[3]]
    assert outbox.read_batch() == [RECORDS[1], RECORDS[3]]
    assert "is not a record and is skipped" in caplog.text
    outbox.mark_delivered()
    assert outbox.waiting == 0


def test_a_line_that_is_not_a_record_is_delivered_when_it_is_the_last(tmp_path: Path) -> None:
    outbox = delivered(tmp_path / "sweep", 5)
    with (tmp_path / "sweep" / OUTBOX_FILE).open("ab") as file:
        file.write(b"\0\n")
    assert outbox.read_batch() == []
    outbox.mark_delivered()
    assert (outbox.waiting, outbox.read_batch()) == (0, None)


def test_a_line_that_its_process_had_not_finished_is_cut_off(tmp_path: Path) -> None:
    delivered(tmp_path / "sweep", 2).close()
    with (tmp_path / "sweep" / OUTBOX_FILE).open("ab") as file:
        file.write(to_line(RECORDS[0])[:-9])
    outbox = Outbox(tmp_path / "sweep")
    outbox.put(RECORDS[4])
    assert outbox.read_batch() == [*RECORDS[2:], RECORDS[4]]


RECORDS_OF_EACH_KIND = [
    BeginSweep(
        run=SWEEP, time_ms=1, name="s", tags={"kind": "sweep"}, params={"lr": "0.1"}, tracking_uri="sqlite:///m.db",
        experiment="bert", artifacts=None, data="", facts=["3 texts"], space={"lr": "1e-05 to 0.1"},
    ),
    BeginRun(run="001", time_ms=2, name="trial 001", tags={"trial": "001"}, params={}),
    Update(run="001", time_ms=3, step=4, metrics={"loss": math.inf}, tags={"status": "failed"}, status="FAILED"),
    LogFiles(run=SWEEP, time_ms=5, files=["/results/s/report.html"]),
    LogModel(
        run="001", time_ms=7, sweep="s", checkpoint="/results/s/trial-001/checkpoint_000000", loaded_by="a.b:c",
        params={}, metric="score", value=0.5, step=3, register=None,
    ),
]  # fmt: skip


def test_every_kind_of_record_comes_back_as_it_was(tmp_path: Path) -> None:
    assert {type(record) for record in RECORDS_OF_EACH_KIND} == set(KINDS.values())
    with closing(outbox_in(tmp_path / "sweep", RECORDS_OF_EACH_KIND)):
        assert list(Outbox(tmp_path / "sweep")) == RECORDS_OF_EACH_KIND
    assert tracked_at(tmp_path / "sweep") == "sqlite:///m.db"
    assert tracked_at(tmp_path) is None


def test_a_record_of_another_version_is_skipped_and_both_versions_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = outbox_in(tmp_path / "sweep", RECORDS[:1])
    with (tmp_path / "sweep" / OUTBOX_FILE).open("ab") as file:
        file.write(to_line(RECORDS[1]).replace(b'"version": 1', b'"version": 99'))
    assert outbox.read_batch() == RECORDS[:1]
    assert "it is of version 99, and this code reads version 1" in caplog.text


def test_a_note_of_what_was_delivered_is_json(tmp_path: Path) -> None:
    delivered(tmp_path / "sweep", 5).close()
    state = json.loads((tmp_path / "sweep" / DELIVERED_FILE).read_text())
    size = (tmp_path / "sweep" / OUTBOX_FILE).stat().st_size
    assert state == {"delivered": size, "ids": {"": "a run"}, "names": {"loss": "loss"}}
