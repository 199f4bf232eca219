"""What people do with the team's server: sign in, open the experiment, look at the trials of a sweep, in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest

from gaudi_tune.show.trackers.records import CONFIGURATION
from tests.helpers.deliveries import PER_CONFIGURATION, deliver, outbox_in, params_of, records_of, values_of
from tests.helpers.mlflow_pages import MlflowPages, chromium
from tests.helpers.team_server import PASSWORDS, TeamServer, sign_in

EXPERIMENT = "pages"
TRIALS, EPOCHS = 6, 5
NAMES = [f"search-{number}" for number in range(TRIALS)]


@pytest.fixture(scope="module")
def server(team: TeamServer, tmp_path_factory: pytest.TempPathFactory) -> TeamServer:
    """The server with two sweeps of an experiment."""
    with pytest.MonkeyPatch.context() as patch:
        sign_in(patch, "ada", PASSWORDS["ada"])
        for sweep, trials in (("before", 2), ("search", TRIALS)):
            records = records_of(sweep, team.uri, EXPERIMENT, trials, EPOCHS)
            outbox = outbox_in(tmp_path_factory.mktemp("pages") / sweep, records)
            deliver(team.uri, outbox)
            assert not outbox.waiting
    return team


@pytest.fixture
def pages(server: TeamServer, tmp_path: Path) -> Iterator[MlflowPages]:
    """The experiment's page, and ada before it."""
    with chromium(tmp_path / "profile") as browser:
        pages = MlflowPages(browser, server.uri)
        pages.sign_in("ada", PASSWORDS["ada"])
        pages.open_experiment(EXPERIMENT)
        yield pages


def test_trials_stand_under_their_sweep_and_those_of_one_configuration_are_a_group(pages: MlflowPages) -> None:
    """The group has the mean of their last values."""
    assert sorted(pages.runs()) == ["before", "search"]
    pages.expand("search")
    pages.wait(lambda _: len(pages.runs()) == 2 + TRIALS, "the trials of a sweep")
    assert sorted(pages.runs()) == sorted(["before", "search", *NAMES])
    pages.columns("score", "lr")
    score, lr = pages.column("score"), pages.column("lr")
    for number, name in enumerate(NAMES):
        assert float(score[name]) == values_of(number, EPOCHS)["score"]
        assert lr[name] == params_of(number)["lr"]

    pages.search("attributes.run_name LIKE 'search-%'")
    pages.group_by(CONFIGURATION)
    groups = [range(start, start + PER_CONFIGURATION) for start in range(0, TRIALS, PER_CONFIGURATION)]
    means = [fmean(values_of(number, EPOCHS)["score"] for number in group) for group in groups]
    shown = pages.wait(lambda _: pages.groups("score"), "the groups")
    assert {name: float(score) for name, score in shown.items()} == pytest.approx(
        {f"search {number}": mean for number, mean in enumerate(means)}
    )
