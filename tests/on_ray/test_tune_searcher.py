"""What Tune is given: proposals while there are groups, then the confirmation, then the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from ray.tune.search import ConcurrencyLimiter, Searcher

from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.on_ray.tune_searcher import TuneSearcher
from gaudi_tune.sweep.record.events import Ending, EndingWithdrawn, SweepEnding, TrialsAsked
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.search.proposer import Proposer, raised
from gaudi_tune.sweep.search.study_trial import number_in_sweep
from tests.helpers.fed_state import Fed
from tests.helpers.searchers import SCORE, end

SPACE = {"x": optuna.distributions.FloatDistribution(0.0, 9.0)}


def searcher_of(state: SweepState, count_waiting: Callable[[], int] = lambda: 0) -> TuneSearcher:
    proposer = Proposer(
        SearchSpace(SPACE), objectives=[SCORE], baseline={"x": 1.0}, sampler="random", seed=0,
    )  # fmt: skip
    return TuneSearcher(proposer, state, 0, count_waiting=count_waiting, on_error=raised)


def resumed(searcher: TuneSearcher, state: SweepState, kept: Path) -> TuneSearcher:
    """A searcher of a new process that has what was kept."""
    again = searcher_of(state)
    again.proposer.restore_study(searcher.proposer.record.snapshot(everything=True))
    again.restore(str(kept))
    return again


def test_the_limiter_of_tune_leaves_counting_to_the_searcher_which_knows_of_pauses() -> None:
    waiting: list[str] = []
    searcher = searcher_of(Fed().state, lambda: len(waiting))
    limiter = ConcurrencyLimiter(searcher, max_concurrent=2)
    assert limiter.suggest("a") and limiter.suggest("b")
    assert limiter.suggest("c") is None
    waiting[:] = ["a"]
    assert limiter.suggest("c")
    waiting[:] = []
    end(searcher.proposer, "b", {"score": 0.1, "epoch": 1})
    assert limiter.suggest("d") is None  # a and c
    waiting[:] = ["c"]
    assert limiter.suggest("d")


def test_it_is_finished_when_all_trials_have_ended() -> None:
    searcher = searcher_of(Fed(trials=2).state)
    assert searcher.suggest("a") and searcher.suggest("b")
    assert searcher.suggest("c") is None
    end(searcher.proposer, "a", {"score": 0.1, "epoch": 1})
    assert searcher.suggest("c") is None and not searcher.proposer.is_finished
    end(searcher.proposer, "b", {"score": 0.1, "epoch": 1})
    assert searcher.suggest("c") == Searcher.FINISHED and searcher.proposer.is_finished


def test_a_sweep_that_ends_gets_no_proposal_unless_it_continues_after_all() -> None:
    state = Fed().state
    searcher = searcher_of(state)
    assert searcher.suggest("a")
    state.apply(SweepEnding(ending=Ending("for a test", 0)))
    assert searcher.suggest("b") is None
    state.apply(EndingWithdrawn())
    assert searcher.suggest("b")


def test_it_waits_for_the_verdict_of_the_first_seeds_and_trains_more_if_that_is_open() -> None:
    fed = Fed(trials=2, confirm=1, seeds=2, most_seeds=4)
    searcher = searcher_of(fed.state)
    number = 0

    def train(*scores: float) -> list[int]:
        """Train as many trials as there are scores, and return the trials of the search that they confirm."""
        nonlocal number
        configs: list[Any] = [searcher.suggest(f"id{number + place}") for place in range(1, len(scores) + 1)]
        for place, config in enumerate(configs, start=number + 1):
            fed.begin(place, **config)
        assert searcher.suggest("none") is None and not searcher.proposer.is_finished, "the verdict is to come"
        for score in scores:
            number += 1
            fed.report(number, 1, score)
            fed.end(number)
            searcher.ended(fed.state.trials[number])
        return [config.get("confirms", 0) for config in configs]

    assert train(0.1, 0.2) == [0, 0]
    assert train(0.50, 0.52, 0.54, 0.56) == [1, 1, 2, 2]
    configs: list[Any] = [searcher.suggest(f"id{place}") for place in range(7, 11)]
    assert [config["confirms"] for config in configs] == [1, 1, 2, 2]
    assert len({config["seed"] for config in configs}) == 2
    assert not {config["seed"] for config in configs} & {fed.state.trials[3].config["seed"]}
    assert searcher.suggest("none") == Searcher.FINISHED, "there are no more than these"


def test_the_confirmation_comes_after_the_search_and_is_known_after_a_restart(tmp_path: Path) -> None:
    fed = Fed(trials=2, confirm=1, seeds=2)
    searcher = searcher_of(fed.state)
    searcher.set_max_concurrency(2)
    for number, score in ((1, 0.1), (2, 0.2)):
        config = searcher.suggest(f"id{number}")
        assert isinstance(config, dict) and "confirms" not in config
        fed.trial(number, score, outcome=None, **config)
    assert searcher.suggest("id3") is None, "both groups are taken"
    for number in (1, 2):
        fed.end(number)
        searcher.ended(fed.state.trials[number])
    proposed = [searcher.suggest("id3"), searcher.suggest("id4")]
    assert [config["confirms"] for config in proposed if isinstance(config, dict)] == [1, 1]
    assert searcher.suggest("id5") is None, "both groups are taken again"

    def ended(searcher: TuneSearcher, number: int, config: Any) -> None:
        fed.trial(number, 0.9, **config)
        searcher.ended(fed.state.trials[number])

    ended(searcher, 3, proposed[0])
    file = tmp_path / "searcher"
    searcher.save(str(file))
    again = resumed(searcher, fed.state, file)
    again.set_max_concurrency(2)
    config = again.suggest("id5")
    assert isinstance(config, dict) and config["confirms"] == 2
    ended(again, 4, proposed[1])
    last = again.suggest("id6")
    assert isinstance(last, dict) and (last["confirms"], last["x"]) == (2, config["x"])
    assert last["seed"] != config["seed"]
    ended(again, 5, config)
    assert again.suggest("id7") == Searcher.FINISHED
    assert len(again.proposer.trials()) == 2, "the study is that of the search"
    fed.state.apply(TrialsAsked(request="add 1 trial", num_trials=3))
    added = again.suggest("id7")
    assert isinstance(added, dict)
    found = again.proposer.trials()
    assert [number_in_sweep(trial) for trial in found] == [1, 2, 7], "as Tune counts, with the four that confirm"
    assert found[2].params["x"] == added["x"]


def test_a_trial_that_is_proposed_again_has_the_number_that_tune_gives_it_then(tmp_path: Path) -> None:
    fed, file = Fed(trials=1, seeds=1), tmp_path / "searcher"
    searcher = searcher_of(fed.state)
    config = searcher.suggest("id1")
    assert isinstance(config, dict)
    fed.trial(1, 0.1, outcome=None, **config)
    searcher.save(str(file))
    kept = searcher.proposer.record.snapshot(everything=True)
    fed.end(1)
    confirmation = searcher.suggest("id2")
    assert isinstance(confirmation, dict) and confirmation["confirms"] == 1
    fed.state.apply(TrialsAsked(request="add 1 trial", num_trials=2))
    searcher.suggest("id3")
    assert [number_in_sweep(trial) for trial in searcher.proposer.trials()] == [1, 3]
    again = searcher_of(fed.state)
    again.proposer.restore_study(kept)
    again.restore(str(file))
    again.suggest("id2")
    assert [number_in_sweep(trial) for trial in again.proposer.trials()] == [1, 2]


def test_the_kept_state_is_plain_json(tmp_path: Path) -> None:
    searcher = searcher_of(Fed().state)
    searcher.suggest("a")
    searcher.save(str(tmp_path / "searcher"))
    kept: dict[str, Any] = json.loads((tmp_path / "searcher").read_text())
    assert (kept["proposed"], kept["numbers"], kept["confirming"]) == (1, {"a": 0}, {})
