from __future__ import annotations

import io
import sys

import pytest

from gaudi_tune.base.terminal import replace_unknown_characters


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_a_terminal_lacks_is_replaced(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding=encoding))
    replace_unknown_characters()
    print("1 … 9, Ω, half \ud800", flush=True)
    expected = "1 … 9, Ω, half ?" if encoding == "utf-8" else "1 ? 9, ?, half ?"
    assert shown.getvalue().decode(encoding) == expected + "\n"


def test_a_notebook_s_output_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    replace_unknown_characters()
    print("1 … 9")
