"""What tests share: the team's server, started once; a sweep that suffered some faults."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.faults.inflict import Inflict
from tests.faults.sweep import GONE_WITHIN_S, Sweep
from tests.team_server import PASSWORDS, Bucket, TeamServer, sign_in, team_server

TRIALS = 6


@pytest.fixture(scope="session")
def bucket() -> Iterator[Bucket]:
    bucket = Bucket()
    yield bucket
    bucket.close()


@pytest.fixture(scope="session")
def team(bucket: Bucket) -> Iterator[TeamServer]:
    """The server with two users: ada logs to every experiment, the guest reads."""
    with team_server(bucket) as server:
        server.ask("/api/2.0/mlflow/experiments/create", {"name": "delivery"})
        yield server


@pytest.fixture
def ada(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test is ada, who has a password of MLflow, and none of S3."""
    sign_in(monkeypatch, "ada", PASSWORDS["ada"])


@pytest.fixture(scope="session")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    """A sweep with a trial that diverges, one that loses its worker and half its checkpoint, and a killed driver whose
    state is torn; resumed with one trial more."""
    folder = tmp_path_factory.mktemp("faults")
    at_once = {"HABANA_STAND_IN_BUSY_S": "0"}  # else each group that comes after a kill is started twice
    sweep = Sweep(folder, "sweep", f"sqlite:///{folder}/mlflow.db", TRIALS, seed=1, variables=at_once)
    inflict = Inflict(sweep, None, random.Random(0))
    try:
        sweep.start()
        assert sweep.wait_for_all(0.0), sweep.printed
        inflict.nan()
        inflict.torn_checkpoint()
        sweep.driver.kill()
        sweep.ended_with(GONE_WITHIN_S)
        inflict.tear_state()
        sweep.resume(add_trials=1)
        sweep.finish()
        yield sweep
    finally:
        sweep.end()
