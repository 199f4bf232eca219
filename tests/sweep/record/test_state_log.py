"""The log of a sweep's state: what is read is what was appended, whatever was cut off."""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import STATE_LOG
from gaudi_tune.sweep.record import state_log
from gaudi_tune.sweep.record.state_log import StateLog, logged_trials, pack, read_log
from tests.helpers.fed_state import Fed
from tests.helpers.full_disk import disk_full_at
from tests.helpers.state_records import records_in


def record(at: int, trials: dict[int, Any]) -> dict[str, dict[str, Any]]:
    """A record of two parts, one with trials."""
    return {"sweep": {"at": at, "trials": trials}, "scheduler": {"rungs": [at]}}


def packed(at: int, trials: dict[int, Any]) -> bytes:
    return pack(record(at, trials))


def test_trials_are_kept_and_all_else_is_replaced(tmp_path: Path) -> None:
    log = StateLog(tmp_path)
    log.append(packed(1, {1: "running", 2: "running"}))
    log.append(packed(2, {1: "finished"}))
    log.append(packed(3, {3: "running"}))
    trials = {1: "finished", 2: "running", 3: "running"}
    assert read_log(tmp_path) == {"sweep": {"at": 3, "trials": trials}, "scheduler": {"rungs": [3]}}
    assert [path.name for path in tmp_path.iterdir()] == [STATE_LOG]


def test_objects_are_kept_and_are_none_for_viewers(tmp_path: Path) -> None:
    class OfTheScript:
        """Has no module from which it can be imported."""

        value = 0.5

    StateLog(tmp_path).append(packed(1, {1: {"loss": np.float32(0.25), "odd": OfTheScript(), "saved": b"pickled"}}))
    trial = read_log(tmp_path)["sweep"]["trials"][1]
    assert (trial["loss"], trial["odd"].value, trial["saved"]) == (0.25, 0.5, b"pickled")
    as_data = read_log(tmp_path, as_data=True)
    assert as_data["sweep"]["trials"][1] == {"loss": 0.25, "odd": None, "saved": None}
    assert as_data["scheduler"] == {"rungs": [1]}


def test_a_log_that_is_read_as_data_runs_nothing(tmp_path: Path) -> None:
    class Runs:
        """Makes a folder when it is unpickled."""

        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "ran"),)

    StateLog(tmp_path).append(pack({**record(1, {1: "finished"}), "odd": {"own": [Runs(), {Runs(): 1}]}}))
    as_data = read_log(tmp_path, as_data=True)
    assert (as_data["sweep"]["trials"], as_data["odd"]["own"]) == ({1: "finished"}, [None, {None: 1}])
    assert not (tmp_path / "ran").exists()
    with pytest.raises(FileExistsError):  # there are two of them
        read_log(tmp_path)
    assert (tmp_path / "ran").is_dir(), "it would have run"


def test_a_log_is_lines_of_json(tmp_path: Path) -> None:
    log = StateLog(tmp_path)
    log.append(packed(1, {1: "running"}))
    log.append(packed(2, {2: math.inf}))
    first, second = map(json.loads, (tmp_path / STATE_LOG).read_text().splitlines())
    assert first["parts"]["scheduler"] == {"rungs": [1]}
    assert second["parts"]["sweep"]["trials"] == {"$numbered": {"2": math.inf}}


def test_a_log_of_another_version_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / STATE_LOG).write_bytes(struct.pack(">QI", 20, zlib.crc32((20).to_bytes(8, "big"))) + bytes(range(20)))
    with pytest.raises(ValueError, match="another version of this project wrote it"):
        read_log(tmp_path)


def test_a_record_that_was_cut_off_anywhere_counts_for_nothing(tmp_path: Path) -> None:
    log = StateLog(tmp_path)
    log.append(packed(1, {1: "running"}))
    whole = (tmp_path / STATE_LOG).stat().st_size
    log.append(packed(2, {1: "finished"}))
    content = (tmp_path / STATE_LOG).read_bytes()
    assert len(list(records_in(content))) == 2
    for size in range(whole, len(content)):
        (tmp_path / STATE_LOG).write_bytes(content[:size])
        assert read_log(tmp_path) == record(1, {1: "running"})
    for size in range(whole):
        (tmp_path / STATE_LOG).write_bytes(content[:size])
        with pytest.raises(ValueError, match="no whole record"):
            read_log(tmp_path)


def test_after_a_record_cut_off_by_a_full_disk_the_next_has_the_whole_state(tmp_path: Path) -> None:
    log = StateLog(tmp_path)
    log.append(packed(1, {1: "running"}))
    size = (tmp_path / STATE_LOG).stat().st_size
    with disk_full_at(size + 20), pytest.raises(OSError, match="File too large"):
        log.append(packed(2, {1: "finished"}))
    assert (tmp_path / STATE_LOG).stat().st_size == size + 20
    assert read_log(tmp_path) == record(1, {1: "running"})
    assert log.needs_whole_state
    log.append(packed(3, {1: "finished", 2: "running"}))
    assert read_log(tmp_path) == record(3, {1: "finished", 2: "running"})


def test_another_process_begins_again_and_loses_nothing_if_the_disk_is_full(tmp_path: Path) -> None:
    StateLog(tmp_path).append(packed(1, {1: "running"}))
    log = StateLog(tmp_path)
    assert log.needs_whole_state
    with disk_full_at(20), pytest.raises(OSError, match="File too large"):
        log.append(packed(2, {1: "finished"}))
    assert read_log(tmp_path) == record(1, {1: "running"})
    assert log.needs_whole_state
    log.append(packed(2, {1: "finished"}))
    assert read_log(tmp_path) == record(2, {1: "finished"})


def test_it_begins_again_before_it_is_much_longer_than_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_log, "MAX_GROWTH", 2000)
    draw = np.random.default_rng(0)
    log, trials, sizes = StateLog(tmp_path), dict[int, bytes](), list[int]()
    for number in range(50):
        changed = {number % 20: draw.bytes(300)}  # which cannot be packed smaller
        trials |= changed
        log.append(packed(number, trials if log.needs_whole_state else changed))
        assert read_log(tmp_path)["sweep"] == {"at": number, "trials": trials}
        sizes.append((tmp_path / STATE_LOG).stat().st_size)
    assert max(sizes) < 2000 + 2 * 20 * 400 + 500
    assert sum(later < earlier for earlier, later in pairwise(sizes)) >= 2


@pytest.mark.parametrize("number", [0, 1])
def test_a_flipped_bit_anywhere_before_the_last_record_is_an_error(number: int, tmp_path: Path) -> None:
    log = StateLog(tmp_path)
    for at in range(3):
        log.append(packed(at, {at: "running"}))
    content = (tmp_path / STATE_LOG).read_bytes()
    bounds = [0, *(ends for _, ends in records_in(content))]
    # Where a line ends is left out: without its end it is one damaged record with the next, the last.
    for at in range(bounds[number], bounds[number + 1] - 1):
        (tmp_path / STATE_LOG).write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        with pytest.raises(ValueError, match=r"a record in the middle of .* is damaged|is damaged, or another version"):
            read_log(tmp_path)


def test_room_that_a_crash_left_for_a_record_counts_for_nothing(tmp_path: Path) -> None:
    StateLog(tmp_path).append(packed(1, {1: "running"}))
    with (tmp_path / STATE_LOG).open("ab") as file:
        file.write(bytes(500))
    assert read_log(tmp_path) == record(1, {1: "running"})


def test_a_log_that_is_removed_meanwhile_begins_again(tmp_path: Path) -> None:
    log = StateLog(tmp_path)
    log.append(packed(1, {1: "running"}))
    (tmp_path / STATE_LOG).unlink()
    with pytest.raises(FileNotFoundError):
        log.append(packed(2, {1: "finished"}))
    assert log.needs_whole_state
    log.append(packed(3, {1: "finished"}))
    assert read_log(tmp_path) == record(3, {1: "finished"})


def test_the_trials_of_a_log_are_read_without_what_they_run(tmp_path: Path) -> None:
    assert logged_trials(tmp_path) == []
    fed = Fed()
    for number in (1, 2, 3):
        fed.begin(number, x=0.5)
        fed.report(number, 1, 0.1 * number)
    fed.end(1)
    StateLog(tmp_path).append(pack(fed.state.snapshot()))
    found = logged_trials(tmp_path)
    assert [(trial.number, trial.status, trial.best) for trial in found] == [
        (1, "finished", 0.1), (2, "interrupted", 0.2), (3, "interrupted", 0.1 * 3),
    ]  # fmt: skip


def test_a_damaged_last_record_is_said_and_the_one_before_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = StateLog(tmp_path)
    for number in (1, 2):
        log.append(packed(number, {1: "running"}))
    content = (tmp_path / STATE_LOG).read_bytes()
    (tmp_path / STATE_LOG).write_bytes(content[:-9] + bytes([content[-9] ^ 8]) + content[-8:])
    assert read_log(tmp_path)["sweep"]["at"] == 1
    assert "its last record is damaged, and the one before it counts" in caplog.text


def test_a_record_with_an_empty_end_after_a_crash_is_not_read(tmp_path: Path) -> None:
    log = StateLog(tmp_path)
    for number in (1, 2):
        log.append(packed(number, {1: "x" * 1000}))
    content = (tmp_path / STATE_LOG).read_bytes()
    begins = list(records_in(content))[-1][0]
    (tmp_path / STATE_LOG).write_bytes(content[: begins + 4] + bytes(len(content) - begins - 4))
    assert read_log(tmp_path)["sweep"]["at"] == 1


@pytest.mark.parametrize("content", [b"", bytes(100), b"no log"])
def test_damage_is_an_error_of_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / STATE_LOG).write_bytes(content)
    with pytest.raises(SweepError, match=rf"^{tmp_path / STATE_LOG}: .* damaged \(.*\); put it back from a backup$"):
        logged_trials(tmp_path)
