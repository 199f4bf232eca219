"""A trial of Tune as the sweep knows it."""

from __future__ import annotations

from ray.tune.experiment import Trial

from gaudi_tune.on_ray.trials import give_last_report
from gaudi_tune.sweep.record.trial_state import TrialState


def test_the_last_report_of_a_trial_that_failed_when_it_was_to_go_on_is_not_that_of_its_checkpoint() -> None:
    trial = Trial("any", stub=True)
    saved = {"loss": 0.3, "training_iteration": 2, "config": {"x": 0.5}}
    trial.update_last_result(dict(saved))  # as Tune sets it when it restores a trial
    state = TrialState(number=1, trial_id="any", began_with={}, config={}, best_config={}, reports=2)
    state.metrics = {"loss": 0.3, "gaudi_tune/step_s": 1.0}
    give_last_report(trial, state)
    assert trial.last_result["loss"] == 0.3
    state.metrics, state.reports = {"loss": 0.4, "gaudi_tune/step_s": 1.0}, 3
    give_last_report(trial, state)
    assert {name: trial.last_result[name] for name in saved} == {**saved, "loss": 0.4, "training_iteration": 3}
    assert "gaudi_tune/step_s" not in trial.last_result
