"""What is trained again after the search is trained with the same settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import tune

from tests.tools.agree.kinds import SPACE, CheckedSweep, Kind
from tests.tools.agree.loops import Curve


@dataclass(frozen=True)
class Choosing(Curve):
    """Reports which algorithms its trial is to choose: one is a setting, the other a hyperparameter."""

    def reports(self, config: dict[str, Any], epoch: int, done: int) -> Iterator[tuple[dict[str, Any], bool]]:
        chosen = {name: config[name] for name in ("tf32", "cudnn_benchmark", "confirms")}
        for metrics, saves in super().reports(config, epoch, done):
            yield {**metrics, **chosen}, saves


def test_the_confirmation_chooses_the_algorithms_of_the_search(storage: Path, tracking_store: str) -> None:
    space = {**SPACE, "tf32": tune.choice([False, True]), "cudnn_benchmark": False}
    options = {"settings": ("cudnn_benchmark=true",), "confirm": 1, "seeds": 2, "search": "random", "scheduler": "fifo"}
    kind = Kind(Choosing(), options, space=space, baseline={"x": 0.25, "tf32": False})
    sweep = CheckedSweep("chosen", kind, storage, tracking_store)
    sweep.run()
    files = sorted(sweep.folder.glob("trial-*/result.json"))
    chosen = [json.loads(file.read_text().splitlines()[0]) for file in files]
    assert [trial["cudnn_benchmark"] for trial in chosen] == [True] * (8 + 4)
    assert {trial["tf32"] for trial in chosen} == {False, True}
    best = json.loads((sweep.folder / "summary.json").read_text())["confirmation"]["rivals"][0]["trial"]
    of_best = chosen[best - 1]["tf32"]
    assert [(trial["confirms"], trial["tf32"]) for trial in chosen[8:]] == [(1, False)] * 2 + [(best, of_best)] * 2
