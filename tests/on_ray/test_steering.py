"""What a person asks of a sweep while it runs; a whole sweep is steered in tests/docs/test_agents.py."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from gaudi_tune import SweepError, SweepOptions
from gaudi_tune.on_ray.sweep_run import SweepRun
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.sweep.policies.stopping import StoppingRules
from gaudi_tune.sweep.record.events import TrialBegan, TrialsAsked
from gaudi_tune.sweep.record.sweep_file import read_sweep_file, write_sweep_file
from tests.helpers.quadratic import QUADRATIC
from tests.tools.agree.kinds import CheckedSweep, Kind

PLAIN = replace(QUADRATIC, space={"x": tune.uniform(-1.0, 1.0)})


@pytest.fixture
def run(storage: Path) -> SweepRun:
    """A sweep with a running trial and three proposed, before anything of Ray."""
    plan = make_plan(PLAIN, SweepOptions(storage=storage, name="x", device="cpu", num_samples=3))
    run = SweepTuner(plan, trackers=[]).run
    plan.folder.mkdir(parents=True)
    write_sweep_file(plan)
    run.state.apply(TrialBegan(trial=1, trial_id="1", config={"x": 0.9, "seed": 1}))
    for number in range(3):
        run.searcher.suggest(str(number))
    return run


def asked(run: SweepRun, **wish: Any) -> str:
    answer = run.steering.ask(wish)
    run.steering.grant_all()
    return answer.result(0)


def test_a_configuration_beyond_the_last_trial_adds_one(run: SweepRun) -> None:
    assert asked(run, do="try", config={"x": 0.5}) == "next: x=0.5"
    assert run.state.num_trials == 4
    assert json.loads((run.plan.folder / "sweep.json").read_text())["options"]["num_samples"] == 4
    assert run.searcher.suggest("next")["x"] == 0.5  # type: ignore[index]
    assert run.searcher.suggest("after") is None


def test_wanted_configurations_outlive_a_search_cut_short_by_time(run: SweepRun, tmp_path: Path) -> None:
    asked(run, do="try", config={"x": 0.5})
    run.steering.cut_search()
    assert run.searcher.suggest("next") is None
    run.searcher.save(str(tmp_path / "searcher"))
    other = SweepTuner(run.plan, trackers=[]).run
    other.searcher.restore(str(tmp_path / "searcher"))
    other.state.apply(TrialsAsked(request="add 1 trial", num_trials=4))
    assert other.searcher.suggest("next")["x"] == 0.5  # type: ignore[index]


def test_a_search_whose_source_has_no_more_is_over_also_after_a_resume(run: SweepRun) -> None:
    run.steering.end_search()
    assert (run.state.num_trials, run.state.cut) == (3, False)
    assert json.loads((run.plan.folder / "sweep.json").read_text())["options"]["num_samples"] == 3


def test_the_end_says_that_configurations_that_wait_are_dropped(run: SweepRun) -> None:
    asked(run, do="try", config={"x": 0.5})
    asked(run, do="try", config={"x": 0.4})
    assert asked(run, do="end").endswith("; 2 configurations that waited will not be tried")


def test_wanted_configurations_never_proposed_are_kept(run: SweepRun, tmp_path: Path) -> None:
    asked(run, do="try", config={"x": 0.5})
    asked(run, do="stop", trial=1)
    run.searcher.save(str(tmp_path / "searcher"))
    other = SweepTuner(run.plan, trackers=[]).run
    other.searcher.restore(str(tmp_path / "searcher"))
    other.state.apply(TrialsAsked(request="add 1 trial", num_trials=4))
    other.on_disk.restore(run.on_disk.snapshot())
    assert other.searcher.suggest("next")["x"] == 0.5  # type: ignore[index]
    assert other.state.trials[1].to_stop
    assert [what for _, what in other.state.steered] == ["try x=0.5", "add 1 trial for that", "stop trial-001"]


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"do": "stop", "trial": 2}, r"trial 2: there is no such trial; give one that is running or paused \(1\)"),
        ({"do": "add", "trials": 0}, "0 trials: give a number from 1 to 10000"),
        ({"do": "add", "trials": None}, "not a request that a sweep knows; send {.do.: .stop., .trial.: 7}"),
        ({"do": "add", "trials": True}, "not a request that a sweep knows"),
        ({"do": "stop", "trial": "1"}, "not a request that a sweep knows"),
        ({"trial": 1}, "not a request that a sweep knows"),
        ({"do": "try", "config": {}}, "x: every trial needs a value; give one in its range, -1 to 1"),
        ({"do": "try", "config": {"x": "", "y": 1}}, "y: no such hyperparameter is searched; there are x"),
        ({"do": "try", "config": {"x": "7"}}, "x=7.0 is not in its range, -1 to 1; give a value inside, such as 0"),
        ({"do": "try", "config": {"x": "far"}}, "x must be a valid number, but got 'far'; its range is -1 to 1"),
    ],
)
def test_a_wish_that_cannot_be_says_why(run: SweepRun, wish: dict[str, Any], message: str) -> None:
    with pytest.raises(SweepError, match=message):
        asked(run, **wish)
    assert not run.state.steered


def test_a_search_that_the_time_budget_has_cut_short_takes_no_more(run: SweepRun) -> None:
    asked(run, do="add", trials=2)
    run.steering.cut_search()
    for wish in ({"do": "add", "trials": 1}, {"do": "try", "config": {"x": 0.5}}):
        with pytest.raises(SweepError, match=r"the time left is for .*, begin more with: .*add_trials=N\)"):
            asked(run, **wish)
    assert run.state.cut


def test_a_sweep_that_ends_and_a_search_that_is_over_take_no_more(run: SweepRun) -> None:
    run.searcher.proposer.finish()
    with pytest.raises(SweepError, match=r"the search is over; .*add trials with: .*resume='x'.*, add_trials=N\)"):
        asked(run, do="add", trials=1)
    run.early_end.check_signals()
    run.state.has_ended = True
    with pytest.raises(SweepError, match=r"the sweep has ended; resume it with: build_tuner"):
        asked(run, do="end")


def test_a_request_after_the_last_step_is_answered_at_once(run: SweepRun) -> None:
    waits = run.steering.ask({"do": "add", "trials": 1})
    run.conclusion.write()
    for answer in (waits, run.steering.ask({"do": "end"})):
        with pytest.raises(SweepError, match="the sweep has ended; resume it with: "):
            answer.result(0)


def test_a_search_that_the_time_budget_cuts_short_is_not_complete_and_keeps_what_was_asked_for(
    storage: Path, tracking_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoppingRules, "no_more_trials", lambda rules, state, groups: len(state.searched) >= 3)
    options = {"num_samples": 50, "confirm": 1, "seeds": 2, "time_budget": 90.0}
    sweep = CheckedSweep("cut", Kind(options=options, baseline={"x": 0.25}, complete=False), storage, tracking_store)
    assert sweep.run() == []
    summary = json.loads((sweep.folder / "summary.json").read_text())
    assert [len(row["scores"]) for row in summary["confirmation"]["rivals"]] == [2]
    reason = "its time budget of 1 h 30 m left no time for more trials"
    assert (summary["complete"], summary["ended_early"]["why"]) == (False, reason)
    begun = len(summary["trials"])
    assert begun < 10 and summary["steered"] == []
    assert f"{50 - begun} not begun" in (said := sweep.printed)
    assert "--time-budget: no more trials begin" in said
    assert read_sweep_file(sweep.folder).options["num_samples"] == 50
