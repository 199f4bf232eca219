"""The log of a sweep has its study."""

from __future__ import annotations

from pathlib import Path

from optuna.trial import TrialState

from gaudi_tune.base.files import STATE_LOG
from gaudi_tune.sweep.record.state_log import StateLog, pack
from tests.helpers.searchers import end, proposal, searcher_in, train
from tests.helpers.stored_study import stored_trials


def test_it_has_what_the_log_has(tmp_path: Path) -> None:
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
