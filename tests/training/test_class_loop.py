"""Classes of Ray Tune's as train loops, without Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from gaudi_tune.training.checkpoint import Seal, seal
from gaudi_tune.training.class_loop import ClassLoop
from tests.helpers.sessions import reports_of


class Rising(tune.Trainable):
    """Adds the learning rate in each step, and writes into its folder what happens."""

    def setup(self, config: dict[str, Any], start: float = 0.0) -> None:
        self.value = start
        self.note("setup", config["lr"])

    def step(self) -> dict[str, Any]:
        self.value += self.config["lr"]
        return {"value": self.value, "steps_before": self.training_iteration, "done": self.value >= 4}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, float] | None:
        return {"value": self.value}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.value = checkpoint["value"]
        self.note("loaded", self.training_iteration)

    def cleanup(self) -> None:
        self.note("cleanup", self.value)

    def note(self, *what: Any) -> None:
        with Path(str(self.logdir), "notes").open("a") as notes:
            notes.write(json.dumps([self.trial_id, *what]) + "\n")


class InFiles(Rising):
    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "value").write_text(str(self.value))

    def load_checkpoint(self, checkpoint: str) -> None:
        super().load_checkpoint({"value": float(Path(checkpoint, "value").read_text())})


class Elsewhere(Rising):
    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        return "/elsewhere"


class WithoutCheckpoints(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {"value": 1.0, "done": self.training_iteration == 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trial-001").mkdir()
    return tmp_path / "trial-001"


@pytest.mark.parametrize("kind", [Rising, InFiles])
def test_a_class_trains_step_by_step_and_goes_on_with_other_hyperparameters(
    kind: type[tune.Trainable], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    loop, saved = ClassLoop(kind), tmp_path / "saved"
    assert loop.__module__ == __name__
    reports = reports_of(loop, {"lr": 2.0}, save_at=1, save_to=saved, folder=folder)
    assert [(report["value"], report["steps_before"], report["done"]) for report in reports] == [
        (2.0, 0, False),
        (4.0, 1, True),
    ]
    seal(saved, Seal(1))
    reports = reports_of(loop, {"lr": 1.0}, start_from=saved, folder=folder)
    assert [(report["value"], report["steps_before"]) for report in reports] == [(3.0, 1), (4.0, 2)]
    assert [json.loads(line) for line in (folder / "notes").read_text().splitlines()] == [
        ["trial-001", "setup", 2.0],
        ["trial-001", "cleanup", 4.0],
        ["trial-001", "setup", 1.0],
        ["trial-001", "loaded", 1],
        ["trial-001", "cleanup", 4.0],
    ]
    assert not (tmp_path / "home").exists()  # where Ray would make a folder for each object


def test_a_class_has_parameters_as_a_function_has(folder: Path) -> None:
    class From3(Rising):
        def setup(self, config: dict[str, Any], start: float = 3.0) -> None:
            super().setup(config, start)

    assert [report["value"] for report in reports_of(ClassLoop(From3), {"lr": 1.0}, folder=folder)] == [4.0]


def test_a_checkpoint_elsewhere_is_an_error_that_says_what_to_return(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"save_checkpoint\(\) must return a dict, or None .* returned '/elsewhere'"):
        reports_of(ClassLoop(Elsewhere), {"lr": 1.0}, save_at=1, save_to=tmp_path / "saved", folder=folder)


def test_a_class_without_checkpoints_has_nothing_to_save(folder: Path, tmp_path: Path) -> None:
    assert len(reports_of(ClassLoop(WithoutCheckpoints), {}, folder=folder, start_from=tmp_path)) == 2
    with pytest.raises(AssertionError):
        reports_of(ClassLoop(WithoutCheckpoints), {}, save_at=1, save_to=tmp_path / "saved", folder=folder)
