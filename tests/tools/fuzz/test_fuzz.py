"""A small budget of the fuzzer, and that it sees what goes wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gaudi_tune import SweepError
from tests.tools.fuzz.__main__ import DOORS, fuzz, outcome_of, prepare
from tests.tools.fuzz.given import Input
from tests.tools.fuzz.values import MARK, raising


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("door", DOORS)
def test_every_input_is_answered(door: str, capsys: pytest.CaptureFixture[str]) -> None:
    counts = fuzz(4 * DOORS[door][1], 1, [door])
    assert counts["accepted"] + counts["answered"] == counts["inputs"], capsys.readouterr().out


def refuse(text: str) -> None:
    raise SweepError(text)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (Input("door", "", lambda: None), "accepted"),
        (Input("door", "", lambda: refuse("no; give another")), "answered"),
        (Input("door", "", raising), "raw"),
        (Input("door", "", lambda: None, wrong="it is wrong"), "suspicious"),
        (Input("door", "", lambda: None, misread=lambda result: "taken for 3"), "suspicious"),
        (Input("door", "", lambda: 2), "unreadable"),  # a status without a word
        (Input("door", "", lambda: print("a b " * 2000) or 2), "unreadable"),
        (Input("door", "", lambda: refuse(MARK), raises=True), "unreadable"),  # the user's error without its line
        (Input("door", "", lambda: refuse(f"{MARK} (my.py, line 3)"), raises=True), "answered"),
    ],
)
def test_faults_are_seen(given: Input, kind: str) -> None:
    assert outcome_of(given).kind == kind


def test_slow_answers_are_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.tools.fuzz.__main__.ENDLESS_S", 0.1)
    assert outcome_of(Input("door", "", lambda: time.sleep(10))).kind == "slow"
    prepare(tmp_path)
    assert (tmp_path / "results" / "earlier" / "sweep.json").is_file()
