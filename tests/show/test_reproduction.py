"""The baseline beside the published run, from a trial's reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.tune_resnet50 import EXPERIMENT
from gaudi_tune import SweepOptions
from gaudi_tune.on_ray.tune_files import reports_of
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.reproduction import compare_with_published


def report(epoch: int, accuracy: float, compile_s: float = 0.0) -> dict[str, Any]:
    steps = {"epoch": epoch, "step": 7 * epoch, "training_iteration": epoch}
    timed = {"train_s": 1.0, "compile_s": compile_s, "eval_s": 0.5, "samples_per_s": 320.0}
    last_step = {"last_step_samples_per_s": 640.0, "step_s": 2.0 + compile_s, **({"workers": 2} if epoch > 1 else {})}
    return {**steps, "val_accuracy": accuracy, "config": {"batch_size": 32}, **timed, **last_step}


def test_measured_stands_beside_published(storage: Path) -> None:
    plan = make_plan(EXPERIMENT, SweepOptions(storage=storage, name="again", device="cpu", baseline_only=True))
    file = plan.folder / "trial-001" / "result.json"
    file.parent.mkdir(parents=True)
    made = [report(1, 0.5, compile_s=20.0), report(2, 0.8), report(2, 0.7), report(3, 0.9)]  # the second twice
    file.write_text("".join(json.dumps(one) + "\n" for one in made))
    assert EXPERIMENT.published is not None
    said = compare_with_published(reports_of(plan.folder, 1), plan, EXPERIMENT.published)
    assert said[0].startswith("published by Ray 2.53 documentation")
    assert said[1] == "the sample recipe trains on other data: its figures are not comparable"
    rows = [line.split() for line in said[2:]]
    assert rows[1:4] == [
        ["1", "0.5000", "1", "21.50", "320.0", "640.0", "10.4"],
        ["2", "0.7000", "2", "1.50", "320.0", "640.0", "149.3"],
        ["3", "0.9000", "2", "1.50", "320.0", "640.0", "149.3"],
    ]
    assert rows[5:12] == [
        ["val_accuracy", "0.9605", "0.9"],
        ["first", "epoch,", "s", "24.7", "21.5"],
        ["each", "later", "epoch,", "s", "1.37", "1.5"],
        ["all", "seconds", "above,", "s", "-", "24.5"],
        ["in", "all,", "s", "43", "26"],
        ["samples/s", "-", "320"],
        ["samples/s,", "last", "step", "-", "640"],
    ]
    assert any(line.startswith("here: 1 to 2 cpu workers (published: 2), recipe sample, eager, ") for line in said)
    assert any("73 of the 77 images" in line for line in said)


def test_a_batch_that_is_fixed_counts_as_one_that_is_searched(storage: Path) -> None:
    fixed = SweepOptions(storage=storage, name="again", device="cpu", baseline_only=True, settings=("batch_size=64",))
    plan = make_plan(EXPERIMENT, fixed)
    assert EXPERIMENT.published is not None
    said = compare_with_published([report(1, 0.5) | {"config": {}}], plan, EXPERIMENT.published)
    assert said[3].split()[-1] == f"{64 * 7 / 1.5:.1f}"
