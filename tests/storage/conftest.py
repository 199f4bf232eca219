from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.object_store import ObjectStore, object_store


@pytest.fixture(scope="session")
def one_store() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(one_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A store that works, and a cache that is empty."""
    one_store.proxy.fails = one_store.proxy.stalls = False
    one_store.proxy.delay_s = 0.0
    monkeypatch.setenv("GAUDI_TUNE_CACHE", str(tmp_path / "cache"))
    for name, value in one_store.variables.items():
        monkeypatch.setenv(name, value)
    return one_store
