from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gaudi_tune.base.trial_output import begin_prints, note_place, prints_of


def test_prints_are_read_by_trial_over_all_starts_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, elsewhere = tmp_path / "mine", tmp_path / "other"
    for start, trials in enumerate([(sweep, 7), (sweep, 70), (elsewhere, 7), (sweep, 7)]):
        place = tmp_path / f"session{start // 2}" / "logs"
        place.mkdir(parents=True, exist_ok=True)
        with (place / f"worker-{start}.out").open("w") as file:
            monkeypatch.setattr(sys, "stdout", file)
            print("imports")
            begin_prints(trials[0] / f"trial-{trials[1]:03d}")
            print(f"line {start}\n\x1b]0;of it")
            begin_prints(sweep / "trial-008")
            print("of the next")
        monkeypatch.undo()
        note_place(sweep, str(place))
    errors = ":trial:mine/trial-007\n:trial:mine/trial-007\nline 0\na warning\n"  # as Ray has it: with what is in .out
    (tmp_path / "session0" / "logs" / "worker-0.err").write_text(errors)
    assert list(prints_of(sweep, "trial-007")) == [
        f"{tmp_path}/session0/logs/worker-0.out:", "line 0", "\x1b]0;of it",
        f"{tmp_path}/session0/logs/worker-0.err:", "a warning",
        f"{tmp_path}/session1/logs/worker-3.out:", "line 3", "\x1b]0;of it",
    ]  # fmt: skip
    with pytest.raises(FileNotFoundError):
        list(prints_of(elsewhere, "trial-007"))
