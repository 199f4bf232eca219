from __future__ import annotations

import os

import pytest

from gaudi_tune.base.variables import changed_environment, temporary_environment


def test_variables_are_changed_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "given")
    monkeypatch.delenv("NEW", raising=False)
    with changed_environment({"GIVEN": None, "NEW": "new"}):
        assert (os.environ.get("GIVEN"), os.environ["NEW"]) == (None, "new")
    assert (os.environ["GIVEN"], os.environ.get("NEW")) == ("given", None)
    with temporary_environment({"GIVEN": "other", "NEW": "new"}):
        assert (os.environ["GIVEN"], os.environ["NEW"]) == ("given", "new")
    assert (os.environ["GIVEN"], os.environ.get("NEW")) == ("given", None)
