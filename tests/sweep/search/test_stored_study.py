"""The study of an earlier sweep is read from its log, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from optuna.trial import TrialState

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import STATE_LOG
from gaudi_tune.sweep.record.state_log import StateLog, pack
from gaudi_tune.sweep.search.stored_study import stored_trials
from tests.helpers.searchers import end, proposal, searcher_in, train


def test_it_has_what_the_log_has(tmp_path: Path) -> None:
    assert stored_trials(tmp_path) == []
    proposer, log = searcher_in(tmp_path), StateLog(tmp_path)
    for name in "ab":
        proposal(proposer, name)
    log.append(pack({"study": proposer.record.snapshot(everything=True)}))
    proposer.record.unlogged.clear()
    train(proposer, "b", 0.1, 0.2, 0.3)
    log.append(pack({"study": proposer.record.snapshot(everything=False)}))
    end(proposer, "a")
    before = (tmp_path / STATE_LOG).read_bytes()
    found = stored_trials(tmp_path)
    assert [(trial.state, trial.value) for trial in found] == [(TrialState.RUNNING, None), (TrialState.COMPLETE, 0.3)]
    assert [trial.params for trial in found] == [trial.params for trial in proposer.trials()]
    assert (tmp_path / STATE_LOG).read_bytes() == before


@pytest.mark.parametrize("content", [b"", bytes(100), b"no log"])
def test_damage_is_an_error_of_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / STATE_LOG).write_bytes(content)
    with pytest.raises(SweepError, match=rf"^{tmp_path / STATE_LOG}: .* damaged \(.*\); put it back from a backup$"):
        stored_trials(tmp_path)
