from __future__ import annotations

import io
import os
import sys

import pytest

from gaudi_tune.base.process import changed_environment, prepare_terminal, temporary_environment


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_missing_characters_of_a_terminal_are_replaced(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding=encoding))
    prepare_terminal()
    print("1 … 9, Ω, half \ud800", flush=True)
    expected = "1 … 9, Ω, half ?" if encoding == "utf-8" else "1 ? 9, ?, half ?"
    assert shown.getvalue().decode(encoding) == expected + "\n"


def test_a_notebook_s_output_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    prepare_terminal()
    print("1 … 9")


def test_variables_are_changed_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "given")
    monkeypatch.delenv("NEW", raising=False)
    with changed_environment({"GIVEN": None, "NEW": "new"}):
        assert (os.environ.get("GIVEN"), os.environ["NEW"]) == (None, "new")
    assert (os.environ["GIVEN"], os.environ.get("NEW")) == ("given", None)
    with temporary_environment({"GIVEN": "other", "NEW": "new"}):
        assert (os.environ["GIVEN"], os.environ["NEW"]) == ("given", "new")
    assert (os.environ["GIVEN"], os.environ.get("NEW")) == ("given", None)
