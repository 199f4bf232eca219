"""The file for Optuna's own tools: what they read of it, and what it costs nothing else."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from gaudi_tune.sweep.search.study_file import StudyFile
from gaudi_tune.sweep.search.study_trial import number_in_sweep
from tests.helpers.searchers import ERROR, end, proposal, searcher_in, train


def read(file: Path) -> list[FrozenTrial]:
    """The trials that another process finds."""
    return optuna.load_study(study_name="a-sweep", storage=JournalStorage(JournalFileBackend(str(file)))).get_trials()


def test_a_trial_is_there_once_it_has_ended_with_its_number_in_the_sweep(tmp_path: Path) -> None:
    proposer, file = searcher_in(tmp_path), tmp_path / "optuna.log"
    writer = StudyFile(file, "a-sweep")
    for name in "abc":
        proposal(proposer, name)
    writer.write(proposer.study)
    assert read(file) == []
    train(proposer, "b", 0.1, 0.5, 0.4)
    writer.write(proposer.study)
    proposer.trials()[0].user_attrs["of a sampler"] = object()  # which is no JSON
    end(proposer, "a", failure=ERROR)
    writer.write(proposer.study)
    writer.write(proposer.study)
    first, second = read(file)
    assert (first.state, first.value, first.intermediate_values) == (TrialState.COMPLETE, 0.5, {1: 0.1, 2: 0.5, 3: 0.4})
    assert first.params == proposer.trials()[1].params
    assert second.state == TrialState.FAIL
    assert [number_in_sweep(trial) for trial in (first, second)] == [2, 1]
    StudyFile(file, "a-sweep").write(proposer.study)
    assert [number_in_sweep(trial) for trial in read(file)] == [1, 2], "another process begins it anew"


def test_a_disk_that_takes_nothing_is_said_and_all_is_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    proposer, file = searcher_in(tmp_path), tmp_path / "gone" / "optuna.log"
    writer = StudyFile(file, "a-sweep")
    proposal(proposer, "a")
    train(proposer, "a", 0.1, 0.2, 0.3)
    writer.write(proposer.study)
    assert "optuna.log could not be written" in caplog.text
    file.parent.mkdir()
    writer.write(proposer.study)
    assert [trial.value for trial in read(file)] == [0.3]
