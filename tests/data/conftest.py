from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.image_files import draw


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAUDI_TUNE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes, three images each to train on and one to validate."""
    root = tmp_path / "mine"
    for label, shade in (("ants", 0), ("bees", 5)):
        for number in range(3):
            draw(root / "train" / label / f"{number}.png", shade=10 * number + shade)
        draw(root / "val" / label / "0.jpg", shade=100 + shade)
    return root
