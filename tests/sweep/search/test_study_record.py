from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from gaudi_tune.private import optuna as internals
from gaudi_tune.sweep.search.study_record import StudyRecord


def test_attributes_that_change_while_the_study_is_closed_reach_its_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sampler may learn something after the last trial was written, and before the thread looks whether to end."""
    address = f"sqlite:///{tmp_path}/optuna.db"
    record, view = StudyRecord(address, "study", ["minimize"]), optuna.create_study()
    internals.set_study_attribute(view, "learned", 7)
    write = record._write

    def write_and_learn() -> None:
        write()
        if record._is_closing.is_set():
            record.keep_attributes_of(view)

    monkeypatch.setattr(record, "_write", write_and_learn)
    assert record.close() == 0
    assert internals.study_attributes(optuna.load_study(study_name="study", storage=address)) == {"learned": 7}
