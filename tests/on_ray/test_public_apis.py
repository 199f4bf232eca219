"""A sweep with public APIs alone, as with a version of Ray in which everything private has changed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gaudi_tune.private.surfaces import STOCK
from tests.tools.losses.__main__ import ALL, sweep_without

pytestmark = [pytest.mark.workers, pytest.mark.own_ray]


def test_a_sweep_of_public_apis_alone_pauses_saves_and_ends_right(tmp_path: Path) -> None:
    sweep = sweep_without(ALL, tmp_path, workers=2)
    assert sweep.run(random.Random(0)) == [], sweep.printed
    assert f"{STOCK}=1: public APIs alone, but for " in sweep.printed
