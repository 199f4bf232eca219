"""What people do with the team's server: sign in, open the experiment, compare the trials of a sweep, in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest
from selenium.webdriver import Chrome

from gaudi_tune.show.trackers.records import CONFIGURATION
from tests.helpers.deliveries import PER_CONFIGURATION, deliver, outbox_in, params_of, records_of, values_of
from tests.helpers.mlflow_pages import SIZE, MlflowPages, chromium
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
def browser(tmp_path: Path) -> Iterator[Chrome]:
    with chromium(tmp_path / "profile") as browser:
        yield browser


@pytest.fixture
def pages(browser: Chrome, server: TeamServer) -> MlflowPages:
    """The experiment's page, and ada before it."""
    pages = MlflowPages(browser, server.uri)
    pages.sign_in("ada", PASSWORDS["ada"])
    pages.open_experiment(EXPERIMENT)
    return pages


def test_without_a_password_nobody_sees_anything(browser: Chrome, server: TeamServer) -> None:
    for address in (server.uri, server.uri.replace("http://", "http://ada:not-her-password@")):
        browser.get(f"{address}/#/experiments")
        status = "return performance.getEntriesByType('navigation')[0].responseStatus"
        assert browser.execute_script(status) == 401
        assert EXPERIMENT not in browser.page_source


def test_trials_stand_under_their_sweep_and_are_compared(pages: MlflowPages) -> None:
    assert sorted(pages.runs()) == ["before", "search"]
    pages.expand("search")
    pages.wait(lambda _: len(pages.runs()) == 2 + TRIALS, "the trials of a sweep")
    assert sorted(pages.runs()) == sorted(["before", "search", *NAMES])
    pages.columns("score", "lr")
    score, lr = pages.column("score"), pages.column("lr")
    for number, name in enumerate(NAMES):
        assert float(score[name]) == values_of(number, EPOCHS)["score"]
        assert lr[name] == params_of(number)["lr"]

    chosen = [4, 1, 3]
    pages.select(*(NAMES[number] for number in chosen))
    pages.compare()
    assert "Comparing 3 Runs from 1 Experiment" in pages.text
    order = [NAMES.index(name) for name in pages.compared("Run Name:")]
    assert sorted(order) == sorted(chosen)
    assert pages.compared("lr") == [params_of(number)["lr"] for number in order]
    assert pages.compared("batch_size") == [params_of(number)["batch_size"] for number in order]
    axes = pages.coordinates()
    assert axes["lr"] == [float(params_of(number)["lr"]) for number in order]
    shown = next(metric for metric in ("score", "loss") if metric in axes)
    assert axes[shown] == [values_of(number, EPOCHS)[shown] for number in order]
    assert pages.picture().size == SIZE


def test_trials_of_one_configuration_are_a_group_that_has_the_mean_of_their_last_values(pages: MlflowPages) -> None:
    pages.search("attributes.run_name LIKE 'search-%'")
    pages.columns("score")
    pages.group_by(CONFIGURATION)
    groups = [range(start, start + PER_CONFIGURATION) for start in range(0, TRIALS, PER_CONFIGURATION)]
    means = [fmean(values_of(number, EPOCHS)["score"] for number in group) for group in groups]
    shown = pages.wait(lambda _: pages.groups("score"), "the groups")
    assert {name: float(score) for name, score in shown.items()} == pytest.approx(
        {f"search {number}": mean for number, mean in enumerate(means)}
    )
