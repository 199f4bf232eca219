"""What tests share: the team's server, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.team_server import PASSWORDS, Bucket, TeamServer, sign_in, team_server


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
