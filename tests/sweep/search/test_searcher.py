from __future__ import annotations

import math
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from ray import tune
from ray.tune.search import ConcurrencyLimiter, Searcher

from gaudi_tune.base import names
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.ranges import WithPrior
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.sweep.search import study_record
from gaudi_tune.sweep.search.guesses import GUESSED
from gaudi_tune.sweep.search.sampler_view import SamplerView
from gaudi_tune.sweep.search.samplers import SAMPLERS, make_sampler
from gaudi_tune.sweep.search.searcher import StudySearcher
from gaudi_tune.sweep.search.study_trial import number_in_sweep
from tests.helpers.searchers import (
    BASELINE,
    BUDGET,
    ERROR,
    SCORE,
    crashed,
    end,
    keep,
    proposal,
    report,
    restored,
    searcher_in,
    states,
    train,
    trials,
)


def test_the_baseline_comes_first_and_constants_are_kept(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    first, second = proposal(searcher, "a"), proposal(searcher, "b")
    assert {name: first[name] for name in BASELINE} == BASELINE
    assert first["layers"] == second["layers"] == 2
    assert 1e-4 <= second["lr"] <= 1e-1
    assert first["seed"] != second["seed"]


def test_the_same_seed_proposes_the_same_another_seed_another(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    one, same, other = (searcher_in(f, seed=s) for f, s in zip(folders, (1, 1, 2), strict=True))
    proposals = [[s.suggest(t) for t in "xyz"] for s in (one, same, other)]
    assert proposals[0] == proposals[1]
    assert proposals[0] != proposals[2]


@pytest.mark.parametrize("sampler", ["gp", "tpe", "qmc"])
def test_a_prior_follows_the_baseline_and_others_are_near_it(sampler: str, tmp_path: Path) -> None:
    space = {"lr": WithPrior(tune.loguniform(1e-4, 1e-1), prior=0.02), "momentum": tune.uniform(0.0, 1.0)}
    searcher = searcher_in(tmp_path, space, baseline={"lr": 1e-3, "momentum": 0.5}, sampler=sampler)
    proposals = [proposal(searcher, str(number)) for number in range(12)]
    assert [config["lr"] for config in proposals[:2]] == [1e-3, 0.02]
    guessed = [trial.params["lr"] for trial in trials(searcher) if GUESSED in trial.user_attrs]
    assert len(guessed) == 3, "no more before they are compared"
    assert all(abs(math.log(lr / 0.02)) < 0.3 * math.log(1e3) for lr in guessed)
    assert len({config["momentum"] for config in proposals}) > 10, "the sampler's"


class Looks(optuna.samplers.RandomSampler):
    """Notes the learning rates that it is told a value of."""

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self.told = [t.params["lr"] for t in study.get_trials(deepcopy=False) if t.state == TrialState.COMPLETE]


@pytest.mark.parametrize("good", [True, False])
def test_a_prior_that_was_wrong_is_given_up_and_the_sampler_learns_from_it(good: bool) -> None:
    space, sampler = {"lr": WithPrior(tune.uniform(0.0, 1.0), prior=0.0)}, Looks(seed=0)
    searcher = StudySearcher(
        SearchSpace(space), objectives=[SCORE], study_name="a", baseline={}, sampler=sampler, seed=0,
        storage=InMemoryStorage(),
    )  # fmt: skip
    for number in range(30):
        lr = proposal(searcher, str(number))["lr"]
        train(searcher, str(number), *[1 - lr if good else lr] * 3)
    guessed = [trial.params["lr"] for trial in trials(searcher) if GUESSED in trial.user_attrs]
    assert guessed[0] == 0.0 and max(guessed) < 0.5
    assert len(guessed) > 5 if good else len(guessed) == 3
    assert set(guessed[:-1]) <= set(sampler.told)


def conditional(trial: optuna.Trial) -> dict[str, Any]:
    optimizer = trial.suggest_categorical("optimizer", ["sgd", "adamw"])
    if optimizer == "sgd":
        trial.suggest_float("momentum", 0.5, 0.9)
    return {"layers": 4, "number": trial.number}


def test_a_space_may_be_a_function_of_the_trial(tmp_path: Path) -> None:
    baseline = {"optimizer": "sgd", "momentum": 0.7}
    searcher = searcher_in(tmp_path, conditional, baseline=baseline, storage=InMemoryStorage())
    first = proposal(searcher, "t0")
    assert (first["optimizer"], first["momentum"], first["layers"]) == ("sgd", 0.7, 4)
    for number in range(1, 15):
        train(searcher, f"t{number - 1}", 0.1, 0.2, number / 20)
        config = proposal(searcher, f"t{number}")
        assert ("momentum" in config) == (config["optimizer"] == "sgd")
        assert config["number"] == number
    assert set(states(searcher)[:-1]) == {TrialState.COMPLETE}


@pytest.mark.parametrize(
    ("result", "error", "state"),
    [
        ({"score": 0.5, "epoch": 3}, False, TrialState.COMPLETE),
        ({"score": 0.5, "epoch": 2}, False, TrialState.PRUNED),
        ({"score": 0.5, "training_iteration": 3}, False, TrialState.COMPLETE),
        ({"score": math.nan, "epoch": 3}, False, TrialState.FAIL),
        ({"score": 0.5, "epoch": 3, "train_loss": math.inf}, False, TrialState.FAIL),
        ({"loss": 1.0, "epoch": 3}, False, TrialState.FAIL),
        ({"score": 0.5, "epoch": 3}, True, TrialState.FAIL),
        (None, True, TrialState.FAIL),
        (None, False, TrialState.FAIL),
    ],
)
def test_the_study_is_told_how_a_trial_ended(
    result: dict[str, Any] | None, error: bool, state: TrialState, tmp_path: Path
) -> None:
    searcher = searcher_in(tmp_path)
    searcher.suggest("a")
    end(searcher, "a", result, ERROR if error else None)
    assert states(searcher) == [state]


def test_the_record_has_every_report_and_the_values_it_was_given(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    for name in "abc":
        searcher.suggest(name)
    train(searcher, "a", 0.1, 0.5, 0.4)
    train(searcher, "b", 0.2, 0.1)
    end(searcher, "b", {"score": 0.1, "epoch": 2})
    train(searcher, "c", 0.3)
    assert [trial.intermediate_values for trial in trials(searcher)] == [
        {1: 0.1, 2: 0.5, 3: 0.4},
        {1: 0.2, 2: 0.1},
        {1: 0.3},
    ]
    assert states(searcher) == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING]
    assert [trial.value for trial in trials(searcher)[:2]] == [0.5, 0.1]  # the best of one with its full budget


def test_a_budget_in_steps_is_recorded_by_steps(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path, budget=Budget(steps=200, eval_every=100))
    searcher.suggest("a")
    report(searcher, "a", {"score": 0.1, "step": 100, "epoch": 1.5})
    end(searcher, "a", {"score": 0.2, "step": 200, "epoch": 3})
    assert trials(searcher)[0].intermediate_values == {100: 0.1, 200: 0.2}
    assert states(searcher) == [TrialState.COMPLETE]


def test_a_budget_in_seconds_is_recorded_by_seconds_and_a_trial_is_complete_at_its_last_epoch_too(
    tmp_path: Path,
) -> None:
    searcher = searcher_in(tmp_path, budget=Budget(epochs=3, seconds=60))
    for name, result in {
        "a": {"score": 0.2, "second": 20.7, "epoch": 3},
        "b": {"score": 0.1, "second": 61.2, "epoch": 2},
        "c": {"score": 0.1, "second": 20.1, "epoch": 2},
    }.items():
        proposal(searcher, name)
        end(searcher, name, result)
    assert [trial.intermediate_values for trial in trials(searcher)] == [{20: 0.2}, {61: 0.1}, {20: 0.1}]
    assert states(searcher) == [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.PRUNED]


def test_a_paused_trial_that_is_ended_counts_as_stopped_early(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    searcher.suggest("a")
    train(searcher, "a", 0.9)
    end(searcher, "a")
    assert (states(searcher), trials(searcher)[0].value) == ([TrialState.PRUNED], 0.9)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_goes_on_from_the_record_as_if_nothing_had_happened(sampler: str, tmp_path: Path) -> None:
    space = {"x": tune.uniform(0, 1), "y": tune.uniform(0, 1)}
    proposals = []
    for interrupted in (False, True):
        same: dict[str, Any] = {
            "space": space,
            "sampler": sampler,
            "baseline": {"x": 0.5, "y": 0.5},
            "storage": InMemoryStorage(),
        }
        searcher, made = searcher_in(tmp_path, **same), []
        for number in range(13):
            made.append(proposal(searcher, str(number)))
            train(searcher, str(number), made[-1]["x"] / 2, made[-1]["x"])
            if number % 2:
                end(searcher, str(number), {"score": made[-1]["y"], "epoch": 3})
            if interrupted and number % 5 == 2:
                keep(searcher, tmp_path / "state")
                searcher = crashed(searcher, tmp_path / "state", **same)
        proposals.append(made)
    assert proposals[0] == proposals[1]
    assert len({config["x"] for config in proposals[0]}) > 8


def test_proposals_made_after_the_snapshot_are_made_again_ended_or_not(tmp_path: Path) -> None:
    """Each keeps its place in the study and its seed, so that trial N of the sweep stays what MLflow knows it as."""
    searcher = searcher_in(tmp_path)
    searcher.suggest("a")
    keep(searcher, tmp_path / "state")
    lost = [proposal(searcher, "b"), proposal(searcher, "c")]
    train(searcher, "b", 0.4, 0.5, 0.6)
    again = crashed(searcher, tmp_path / "state")
    assert [proposal(again, "d"), proposal(again, "e")] == lost
    assert proposal(again, "f") not in lost
    train(again, "d", 0.4, 0.5, 0.6)
    train(again, "e", 0.1)
    assert states(again) == [TrialState.RUNNING, TrialState.COMPLETE, TrialState.RUNNING, TrialState.RUNNING]
    assert trials(again)[2].intermediate_values == {1: 0.1}


def test_what_people_wanted_is_proposed_once_also_after_an_interruption(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    searcher.suggest("a")
    first, second = ({"lr": lr, "optimizer": "sgd"} for lr in (2e-3, 3e-3))
    searcher.request(first)
    searcher.request(second)
    keep(searcher, tmp_path / "state")
    assert proposal(searcher, "b")["lr"] == 2e-3
    again = crashed(searcher, tmp_path / "state")
    assert [proposal(again, name)["lr"] for name in "cd"] == [2e-3, 3e-3]
    assert again.requested_configs == []
    assert proposal(again, "e")["lr"] not in (2e-3, 3e-3)


@pytest.mark.parametrize(("saved", "made_until"), [(1, 1), (1, 4), (3, 4)])
def test_a_sweep_may_be_interrupted_again_and_again(saved: int, made_until: int, tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    keep(searcher, tmp_path / "state")
    lost = [proposal(searcher, name)["lr"] for name in "abc"]
    # Another seed, and so other proposals, but for those that are made again.
    searcher = crashed(searcher, tmp_path / "state", seed=5)
    made = []
    for number in range(1, made_until + 1):
        made.append(proposal(searcher, f"t{number}")["lr"])
        if number == saved:
            keep(searcher, tmp_path / "state")
    again = crashed(searcher, tmp_path / "state", seed=6)
    made[saved:] = [proposal(again, f"u{number}")["lr"] for number in range(saved, 5)]
    assert made[:3] == lost
    assert len(set(made)) == 5
    assert states(again).count(TrialState.RUNNING) == 5


def test_a_trial_that_is_proposed_again_has_the_number_that_tune_gives_it_then(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path, num_trials=1)
    proposal(searcher, "a")
    keep(searcher, tmp_path / "state")
    searcher.configs_after_search = lambda search_is_over: [{"lr": 1e-3, "seed": 7, names.CONFIRMS: 1}]
    proposal(searcher, "b")
    searcher.num_trials = 2  # a person adds one
    proposal(searcher, "c")
    assert [number_in_sweep(trial) for trial in trials(searcher)] == [1, 3]
    again = crashed(searcher, tmp_path / "state", num_trials=2)
    proposal(again, "d")
    assert [number_in_sweep(trial) for trial in trials(again)] == [1, 2]


def test_a_trial_queued_by_somebody_else_is_left_alone(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    searcher.suggest("a")
    searcher.study.enqueue_trial({"lr": 0.01})
    assert proposal(searcher, "b")["lr"] != 0.01
    assert states(searcher) == [TrialState.RUNNING, TrialState.WAITING, TrialState.RUNNING]
    assert states(searcher_in(tmp_path)) == [TrialState.FAIL, TrialState.WAITING, TrialState.FAIL]


def test_a_study_that_is_opened_without_a_snapshot_has_no_running_trials(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    searcher.suggest("a")
    searcher.suggest("b")
    assert states(searcher) == [TrialState.RUNNING, TrialState.RUNNING]  # which waits until the database has them
    assert states(searcher_in(tmp_path)) == [TrialState.FAIL, TrialState.FAIL]


def test_the_database_may_be_newer_than_the_log_which_counts(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    for name in "abc":
        searcher.suggest(name)
    train(searcher, "c", 0.5)
    keep(searcher, tmp_path / "state")
    train(searcher, "a", 0.1, 0.2, 0.3)
    end(searcher, "b", failure=ERROR)
    train(searcher, "c", 0.5, 0.6)
    again = crashed(searcher, tmp_path / "state")
    assert [trial.intermediate_values for trial in trials(again)] == [{}, {}, {1: 0.5}]
    assert states(again) == [TrialState.RUNNING] * 3
    train(again, "a", 0.1, 0.2, 0.9)
    end(again, "b", {"score": 0.4, "epoch": 2})
    train(again, "c", 0.55, 0.6, 0.7)
    assert states(again) == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.COMPLETE]
    assert [trial.value for trial in trials(again)] == [0.9, 0.4, 0.7]
    assert trials(again)[2].intermediate_values == {1: 0.55, 2: 0.6, 3: 0.7}


def contents(searcher: StudySearcher) -> list[dict[str, Any]]:
    """What the database of a searcher has, read by another program."""
    assert searcher.study is not None  # which waits until the database has everything
    study = optuna.load_study(study_name="a-sweep", storage=searcher._storage)
    return [{part: getattr(trial, part) for part in study_record.PARTS} for trial in study.get_trials()]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda file: file.write_bytes(b""),
    "cut off": lambda file: file.write_bytes(file.read_bytes()[:5000]),
    "of another kind": lambda file: file.write_bytes(b"not a database " * 1000),
    "overwritten": lambda file: file.write_bytes(
        file.read_bytes()[:20_000] + bytes(60_000) + file.read_bytes()[80_000:]
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("objectives", [[SCORE], [SCORE, Objective("seconds", "min")]])
def test_a_study_that_is_gone_or_damaged_is_written_again_from_the_log(
    kind: str, objectives: list[Objective], tmp_path: Path
) -> None:
    searcher = searcher_in(tmp_path, objectives=objectives)
    for number in range(30):
        proposal(searcher, str(number))
        report(searcher, str(number), {"score": number / 10, "seconds": 2.0, "epoch": 1, "constraint/gb": 1.0})
        if number % 3:
            last = {"score": 1 / (1 + number), "seconds": number, "epoch": 3}
            end(searcher, str(number), last, ERROR if number % 2 else None)
    before = contents(searcher)
    keep(searcher, tmp_path / "state")
    DAMAGE[kind](tmp_path / "optuna.db")
    again = restored(tmp_path / "state", objectives=objectives)
    assert isinstance(again.suggest("new"), dict)
    assert contents(again)[:30] == before
    assert len(again.trials()) == 31
    assert again.close() == 0


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_study_that_somebody_deletes_or_damages_meanwhile_is_whole_at_the_end(kind: str, tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    for number in range(20):
        proposal(searcher, str(number))
        train(searcher, str(number), 0.1, 0.2, number / 10)
    before = contents(searcher)
    DAMAGE[kind](tmp_path / "optuna.db")
    proposal(searcher, "new")
    assert searcher.close() == 0
    study = optuna.load_study(study_name="a-sweep", storage=searcher._storage)
    assert [trial.values for trial in study.get_trials()[:20]] == [trial["values"] for trial in before]
    assert len(study.get_trials()) == 21


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Lock a database as a backup does."""
    with closing(sqlite3.connect(database, timeout=30, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def test_a_snapshot_has_what_the_database_does_not_have_yet(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    proposal(searcher, "a")
    proposal(searcher, "b")
    train(searcher, "a", 0.1)
    assert states(searcher) == [TrialState.RUNNING] * 2  # which waits until the database has them
    folder = tmp_path / "a-sweep"
    folder.mkdir()
    with locked(tmp_path / "optuna.db"):
        train(searcher, "a", 0.1, 0.2, 0.3)
        train(searcher, "b", 0.5)
        configs = [proposal(searcher, name) for name in "cd"]
        train(searcher, "c", 0.4, 0.5, 0.6)
        began = time.monotonic()
        keep(searcher, folder / "state")
        assert time.monotonic() - began < 10, "Tune's loop waits for this"
        shutil.copy(tmp_path / "optuna.db", folder)
    again = restored(folder / "state")
    found = trials(again)
    assert states(again) == [TrialState.COMPLETE, TrialState.RUNNING, TrialState.COMPLETE, TrialState.RUNNING]
    assert [trial.intermediate_values for trial in found] == [
        {1: 0.1, 2: 0.2, 3: 0.3}, {1: 0.5}, {1: 0.4, 2: 0.5, 3: 0.6}, {},
    ]  # fmt: skip
    assert [trial.values for trial in found] == [[0.3], None, [0.6], None]
    assert [trial.params["lr"] for trial in found[2:]] == [config["lr"] for config in configs]
    train(again, "d", 0.7, 0.8, 0.9)
    assert [trial.state for trial in trials(again)][3] == TrialState.COMPLETE
    assert again.close() == 0
    assert [trial["values"] for trial in contents(again)] == [[0.3], None, [0.6], [0.9]]


def test_the_end_waits_for_the_database_and_counts_what_that_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(study_record, "WARN_EVERY_S", 0.2)
    searcher = searcher_in(tmp_path)
    proposal(searcher, "a")
    assert states(searcher) == [TrialState.RUNNING]
    with locked(tmp_path / "optuna.db"):
        proposal(searcher, "b")
        train(searcher, "b", 0.1, 0.2, 0.3)
        monkeypatch.setattr(study_record, "GIVE_UP_AFTER_S", 1.0)
        began = time.monotonic()
        assert searcher.close() == 1
        assert 1 <= time.monotonic() - began < 30
    assert "the study's database does not have everything yet" in caplog.text
    monkeypatch.setattr(study_record, "GIVE_UP_AFTER_S", 60.0)
    assert states(searcher) == [TrialState.RUNNING, TrialState.COMPLETE], "the thread goes on for as long as it can"


def test_a_trial_that_cannot_be_written_is_counted_and_the_others_are_written(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    for name in "abc":
        proposal(searcher, name)
    searcher.trials()[1].user_attrs["of a sampler"] = object()  # which is no JSON
    assert searcher.close() == 1
    stored = optuna.load_study(study_name="a-sweep", storage=f"sqlite:///{tmp_path}/optuna.db").get_trials()
    assert {trial.params["lr"] for trial in stored} == {searcher.trials()[n].params["lr"] for n in (0, 2)}


def test_a_searcher_that_is_closed_leaves_no_thread_and_no_open_file(tmp_path: Path) -> None:
    searcher, before = searcher_in(tmp_path), {*threading.enumerate()}
    for number in range(5):
        proposal(searcher, str(number))
    (study,) = (thread for thread in threading.enumerate() if thread.name == "study" and thread not in before)
    searcher.close()
    study.join(60)
    assert not study.is_alive()
    assert str(tmp_path / "optuna.db") not in [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
    assert len(trials(searcher)) == 5  # all were written


def test_results_of_a_trial_that_it_never_proposed_are_no_error(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    train(searcher, "unknown", 0.1, 0.2, 0.3)
    assert states(searcher) == []


def test_a_restored_searcher_goes_on_with_the_same_study(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    searcher.suggest("a")
    searcher.suggest("b")
    end(searcher, "a", {"score": 1.0, "epoch": 3})
    keep(searcher, tmp_path / "state")
    again = crashed(searcher, tmp_path / "state")
    end(again, "b", failure=ERROR)
    assert states(again) == [TrialState.COMPLETE, TrialState.FAIL]
    stored = optuna.load_study(study_name="a-sweep", storage=f"sqlite:///{tmp_path}/optuna.db")
    assert stored.best_value == 1.0


def test_tune_s_limiter_leaves_counting_to_the_searcher_which_knows_of_pauses(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    limiter = ConcurrencyLimiter(searcher, max_concurrent=2)
    assert limiter.suggest("a") and limiter.suggest("b")
    assert limiter.suggest("c") is None
    searcher.count_waiting = lambda: 1  # a
    assert limiter.suggest("c")
    searcher.count_waiting = lambda: 0
    end(searcher, "b", {"score": 0.1, "epoch": 1})
    assert limiter.suggest("d") is None  # a and c
    searcher.count_waiting = lambda: 1  # c
    assert limiter.suggest("d")


def test_it_is_finished_when_all_trials_have_ended(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path, num_trials=2)
    assert searcher.suggest("a") and searcher.suggest("b")
    assert searcher.suggest("c") is None
    end(searcher, "a", {"score": 0.1, "epoch": 1})
    assert searcher.suggest("c") is None
    end(searcher, "b", failure=ERROR)
    assert searcher.suggest("c") == Searcher.FINISHED


def test_soft_constraints_reach_the_sampler_and_the_record(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    for name in "ab":
        searcher.suggest(name)
        report(searcher, name, {"score": 0.5, "epoch": 1, "constraint/memory_gb": 3.0})
    end(searcher, "b", {"score": 0.5, "epoch": 3, "constraint/memory_gb": -1.0})
    model = SamplerView(searcher.study, searcher._objectives).study_for(make_sampler("tpe", 0))
    assert [trial.constraints for trial in model.trials] == [{"memory_gb": 3.0}, {"memory_gb": -1.0}]
    assert trials(searcher)[1].constraints == {"memory_gb": -1.0}
    assert isinstance(searcher.suggest("c"), dict)


def test_of_several_reports_in_an_epoch_the_best_is_recorded(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path)
    proposal(searcher, "a")
    for count, (epoch, score) in enumerate(((0.5, 0.1), (1.0, 0.9), (1.5, 0.3), (2.0, 0.4), (3.0, 0.5)), start=1):
        report(searcher, "a", {"score": score, "epoch": epoch, "training_iteration": count})
    end(searcher, "a")
    (trial,) = trials(searcher)
    assert trial.intermediate_values == {0: 0.1, 1: 0.9, 2: 0.4, 3: 0.5}
    assert trial.value == 0.9


def test_all_trials_can_have_the_same_seed(tmp_path: Path) -> None:
    own, same = searcher_in(tmp_path), searcher_in(tmp_path, storage=InMemoryStorage(), trial_seed=7)
    assert len({proposal(own, str(n))["seed"] for n in range(3)}) == 3
    proposed = [proposal(same, str(n)) for n in range(3)]
    assert {config["seed"] for config in proposed} == {7}
    assert len({config["lr"] for config in proposed}) == 3


BOTH = [SCORE, Objective("seconds", "min")]


def train_both(searcher: StudySearcher, trial_id: str, *reports: tuple[float, float]) -> None:
    for epoch, (score, seconds) in enumerate(reports, start=1):
        result = {"score": score, "seconds": seconds, "epoch": epoch}
        if epoch == BUDGET.total:
            end(searcher, trial_id, result)
        else:
            report(searcher, trial_id, result)


def test_with_several_objectives_the_sampler_sees_the_point_of_each_trial(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path, objectives=BOTH)
    for name in "abcd":
        proposal(searcher, name)
    train_both(searcher, "a", (0.5, 3.0), (0.7, 2.0), (0.6, 1.0))
    train_both(searcher, "b", (0.4, 5.0))
    end(searcher, "b")
    train_both(searcher, "c", (0.2, 4.0))
    end(searcher, "c", {"score": 0.3, "seconds": math.inf, "epoch": 2})
    report(searcher, "d", {"score": 0.9, "epoch": 1})  # without one of the objectives
    assert searcher.study.directions == [StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE]
    assert states(searcher) == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL, TrialState.RUNNING]
    assert [trial.values for trial in trials(searcher)] == [[0.7, 2.0], None, None, None]
    assert trials(searcher)[1].user_attrs["point"] == [0.4, 5.0]
    assert trials(searcher)[2].user_attrs["failure"] == "diverged: seconds is inf after epoch 2"
    model = SamplerView(searcher.study, searcher._objectives).study_for(optuna.samplers.RandomSampler())
    # The one that diverged counts as the worst in each.
    assert [trial.values for trial in model.get_trials(deepcopy=False)] == [[0.7, 2.0], [0.4, 5.0], [0.4, 5.0], None]


def test_of_equal_values_that_with_the_better_others_is_the_point(tmp_path: Path) -> None:
    searcher = searcher_in(tmp_path, objectives=BOTH)
    proposal(searcher, "a")
    for epoch, seconds in ((1, 3.0), (2, 2.0), (3, 4.0)):
        report(searcher, "a", {"score": 0.5, "seconds": seconds, "epoch": epoch})
    assert trials(searcher)[0].user_attrs["point"] == [0.5, 2.0]


@pytest.mark.parametrize("sampler", [*SAMPLERS, "NSGAIIISampler"])
def test_every_usual_sampler_takes_several_objectives_and_goes_on_from_the_record(sampler: str, tmp_path: Path) -> None:
    proposals: list[list[dict[str, Any]]] = []
    for interrupted in (False, True):
        same: dict[str, Any] = {"objectives": BOTH, "sampler": sampler, "storage": InMemoryStorage()}
        searcher = searcher_in(tmp_path, **same)
        proposals.append([])
        for number in range(13):
            if interrupted and number == 11:
                keep(searcher, tmp_path / "state")
                searcher = crashed(searcher, tmp_path / "state", **same)
            config = proposal(searcher, str(number))
            proposals[-1].append(config)
            score = -abs(math.log10(config["lr"]) + 2)
            train_both(searcher, str(number), *[(score, 1 / config["lr"])] * BUDGET.total)
    assert proposals[0] == proposals[1]
    assert len({config["lr"] for config in proposals[0]}) > 8
