"""The winner of an earlier sweep as the baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.tune_bert import EXPERIMENT
from gaudi_tune import SweepError, SweepOptions
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.plan_text import plan_lines
from gaudi_tune.sweep.record.sweep_file import write_sweep_file
from search_spaces.bert import BASELINE as PUBLISHED
from tests.helpers.planned_bert import plan_for

BASELINE = {**PUBLISHED, "batch_size": 16}
"""A configuration of the sample's space."""


def test_the_winner_of_an_earlier_sweep_takes_the_place_of_the_baseline(storage: Path) -> None:
    def summary(name: str, **changes: Any) -> None:
        best = {"trial": 4, "config": {**BASELINE, "lr": 0.03, "seed": 17}}
        (storage / name).mkdir(parents=True)
        contents = {"version": 2, "experiment": "bert", "counts": {}, "best": best, "confirmation": None, **changes}
        contents |= {"metric": "val_accuracy", "mode": "max"}
        (storage / name / "summary.json").write_text(json.dumps(contents))
        began_with = {
            "experiment": contents["experiment"],
            "groups": 1,
            "options": {"name": name, "recipe": "sample"},
            "space": {},
        }
        began_with |= {"metric": "val_accuracy", "mode": "max", "others": [], "store": "", "began": 0.0}
        began_with |= {"earlier_config": {}, "learned": [], "seen_by": [], "recipes": True, "script": None}
        (storage / name / "sweep.json").write_text(json.dumps(began_with))

    summary("searched")
    best, second = ({"config": {**BASELINE, "lr": lr}, "mean": mean} for lr, mean in ((0.02, 0.8), (0.03, 0.7)))
    baseline = {"config": BASELINE, "mean": 0.75}
    summary("confirmed", confirmation={"rivals": [best, second], "baseline": baseline})
    summary("beaten", confirmation={"rivals": [second], "baseline": baseline})
    summary("none", best=None)
    summary("other", experiment="vit")
    assert plan_for(storage, baseline="searched").experiment.baseline == {**BASELINE, "lr": 0.03}
    assert plan_for(storage, baseline=str(storage / "confirmed")).experiment.baseline == {**BASELINE, "lr": 0.02}
    assert plan_for(storage, baseline="beaten").experiment.baseline == BASELINE, "no rival beat it"
    batch = 2 * int(str(BASELINE["batch_size"]))
    summary("larger", best={"trial": 4, "config": {**BASELINE, "batch_size": batch}})
    larger, usual = plan_for(storage, baseline="larger"), plan_for(storage)
    assert larger.experiment.baseline["batch_size"] == batch
    assert larger.settings["lr_for_batch"] == usual.settings["lr_for_batch"], "its learning rate was for that batch"
    for name, says in (
        ("none", "has no winner .no trial of it has reported a value"),
        (
            "gone",
            "no such sweep; give its folder, or the name of .*; found there: beaten, confirmed, larger, none, other, "
            "searched",
        ),
        ("searched:3", "its search has no such trial; it has none"),
        ("other", "is a sweep of vit, not of bert"),
    ):
        with pytest.raises(SweepError, match=f"--baseline {name}: .*{says}"):
            plan_for(storage, baseline=name)
    assert (usual.test_data_seen_by, larger.test_data_seen_by) == ([], ["larger"]), (
        "it had no confirmation, so it held nothing out"
    )
    said = "        on data that larger may have chosen configurations by (begun without --confirm)"
    assert said in plan_lines(larger) and not any("may have chosen" in line for line in plan_lines(usual))
    assert not plan_for(storage, baseline="larger", confirm=0).test_data_seen_by, "what scores then says so itself"
    shared = {name: value for name, value in BASELINE.items() if name != "batch_size"}
    summary("fixed", best={"trial": 4, "config": {**shared, "lr": 0.04}})
    again = plan_for(storage, baseline="fixed", name="again", settings=(f"batch_size={batch}",))
    assert (again.experiment.baseline, again.settings["batch_size"]) == ({**shared, "lr": 0.04}, batch)
    begun = plan_for(storage, baseline="searched", name="now", settings=(f"batch_size={batch}",))
    begun.folder.mkdir()
    write_sweep_file(begun)
    summary("again", best={"trial": 4, "config": {**BASELINE, "lr": 0.01}})
    (storage / "again" / "summary.json").replace(storage / "searched" / "summary.json")
    resumed = make_plan(EXPERIMENT, SweepOptions(storage=storage, resume="now"))
    assert resumed.experiment.baseline == begun.experiment.baseline != BASELINE, "as it was when the sweep began"
    assert resumed.test_data_seen_by == begun.test_data_seen_by == ["searched"]
    assert plan_for(storage, baseline="searched", name="next").test_data_seen_by == ["searched"]
