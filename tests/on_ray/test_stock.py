"""A sweep with public APIs alone, as with a version of Ray in which everything private has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_tune.private.surfaces import STOCK
from tests.tools.losses.__main__ import ALL, problems_of, sweep

pytestmark = [pytest.mark.workers, pytest.mark.own_ray]


def test_a_sweep_of_public_apis_alone_pauses_saves_and_ends_right(tmp_path: Path) -> None:
    status, summary, said = sweep(tmp_path, "--workers-per-trial", "2", **{STOCK: ALL})
    assert f"{STOCK}=1: public APIs alone, but for " in said
    assert problems_of(status, summary, tmp_path) == []
