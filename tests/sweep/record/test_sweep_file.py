"""Which sweeps can go on, and with what; no sweep runs here, the files are as one would have left them."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import SUMMARY_FILE, SWEEP_FILE
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.devices.find import DEVICE_TYPES, Devices
from gaudi_tune.sweep.record.events import Ending
from gaudi_tune.sweep.record.lock import SweepLock
from gaudi_tune.sweep.record.sweep_file import (
    name_for,
    read_summary,
    read_sweep_file,
    sweep_to_resume,
    write_sweep_file,
)
from tests.helpers.earlier_sweeps import options_of_sweep
from tests.helpers.quadratic import QUADRATIC

PLAIN = replace(QUADRATIC, space={"x": tune.uniform(-1.0, 1.0)})
STORE = "sqlite:////data/mlflow.db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep of 8 trials, 2 at a time, that was interrupted."""
    plan = plan_in(tmp_path)
    plan.folder.mkdir()
    write_sweep_file(plan)
    return plan.folder


def plan_in(storage: Path, **changes: Any) -> Plan:
    options = SweepOptions(
        name="sweep", storage=storage, num_samples=8, seed=7, register="digits", tracking_uri=STORE, time_budget=30.0,
        target=0.9, retries=5,
    )  # fmt: skip
    plan = Plan(
        experiment=PLAIN,
        objectives=(PLAIN.objective,),
        options=options,
        devices=Devices(DEVICE_TYPES["cpu"], (2,), "for a test"),
        groups=2,
        recipe="full",
        recipe_reason="for a test",
        settings={},
        budget=Budget(epochs=4),
        num_samples=8,
        name="sweep",
        tracking_uri=STORE,
        facts=[],
    )
    return replace(plan, **changes)


def test_it_keeps_the_budget_that_was_decided(folder: Path) -> None:
    kept = read_sweep_file(folder).options
    assert {name: kept[name] for name in ("epochs", "steps", "seconds", "grace", "reduction")} == {
        "epochs": 4, "steps": None, "seconds": None, "grace": None, "reduction": 3,
    }  # fmt: skip


def test_it_keeps_the_time_at_which_it_began(folder: Path) -> None:
    began = read_sweep_file(folder).began
    write_sweep_file(plan_in(folder.parent, start_time=began))
    assert read_sweep_file(folder).began == began
    write_sweep_file(plan_in(folder.parent))
    assert read_sweep_file(folder).began > began


def resumed(folder: Path, **changes: Any) -> SweepOptions:
    given = SweepOptions(storage=folder.parent, **{"resume": folder.name, **changes})
    return options_of_sweep("quadratic", given, STORE)


def test_it_keeps_what_it_began_with_and_takes_the_rest_from_the_command_line(folder: Path) -> None:
    options = resumed(folder, add_trials=3, time_budget=5.0, retries=1)
    assert (options.name, options.seed, options.num_samples) == ("sweep", 7, 11)
    assert (options.time_budget, options.retries, options.register) == (5.0, 1, "digits")
    kept = resumed(folder, register="other")
    assert (kept.register, kept.time_budget, kept.target, kept.retries) == ("other", 30.0, 0.9, 5)
    assert resumed(folder, retries=3).retries == 3, "the usual value was given"
    assert STORE not in (folder / SWEEP_FILE).read_text()


def test_it_goes_on_without_the_limit_at_which_it_ended(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    ending = Ending("", 0, option="target")._asdict()
    summary: dict[str, Any] = {"version": 2, "counts": {}, "best": None, "ended_early": ending}
    (folder / SUMMARY_FILE).write_text(json.dumps(summary))
    assert (resumed(folder).target, resumed(folder).time_budget) == (None, 30.0)
    assert "it goes on without --target 0.9, at which it ended" in caplog.text
    assert resumed(folder, target=0.95).target == 0.95


def test_numbers_that_are_none_in_json_are_kept(folder: Path) -> None:
    plan = plan_in(folder.parent)
    write_sweep_file(replace(plan, learned=[{"x": math.inf}], earlier_config={"x": -math.inf}))
    kept = read_sweep_file(folder)
    assert (kept.learned, kept.earlier_config) == ([{"x": math.inf}], {"x": -math.inf})


def test_a_summary_that_is_anothers_is_none(folder: Path) -> None:
    for text in ("[]", "{", "{}", '{"seconds_each": null}', '{"trials": 3, "best": null}'):
        (folder / SUMMARY_FILE).write_text(text)
        assert read_summary(folder) == {}
    (folder / SUMMARY_FILE).unlink()
    assert read_summary(folder) == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resume": "other"}, "--resume other: no such sweep; .*; found there: sweep"),
        ({"resume": "/nowhere/sweep"}, "--resume /nowhere/sweep: no such sweep; give its folder, or the name of one"),
        ({"resume": ""}, "--resume : no such sweep"),
        ({"num_samples": 9, "seed": 2, "settings": ("a=1",)}, "leave out --num-samples, --seed, --set"),
    ],
)
def test_a_sweep_that_cannot_be_resumed_is_named(folder: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SweepError, match=message):
        resumed(folder, **changes)


def test_options_may_be_given_again_as_the_sweep_began_with_them(folder: Path) -> None:
    stored = read_sweep_file(folder).options
    again = {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
    assert resumed(folder, **{name: again[name] for name in ("seed", "num_samples", "settings", "epochs", "device")})


def test_a_sweep_of_another_experiment_is_not_resumed(folder: Path) -> None:
    with pytest.raises(SweepError, match="--resume sweep: that is a sweep of quadratic, not of bert"):
        options_of_sweep("bert", SweepOptions(storage=folder.parent, resume="sweep"), STORE)


def test_a_sweep_that_is_tracked_elsewhere_is_not_resumed(folder: Path) -> None:
    with pytest.raises(SweepError, match=r"another tracking store than sqlite:///other\.db; give"):
        options_of_sweep("quadratic", SweepOptions(storage=folder.parent, resume="sweep"), "sqlite:///other.db")


def test_a_sweep_that_runs_is_not_resumed(folder: Path) -> None:
    lock = SweepLock(folder)
    with pytest.raises(SweepError, match="--resume sweep: this sweep is running"):
        resumed(folder)
    lock.release()
    assert resumed(folder).name == "sweep"


@pytest.mark.parametrize("way", [shutil.copytree, shutil.move])
def test_a_copied_or_renamed_folder_does_not_go_on_as_the_original(
    folder: Path, way: Callable[[Any, Any], Any]
) -> None:
    way(folder, folder.with_name("other"))
    with pytest.raises(
        SweepError, match=r"--resume other: this is a copy of the sweep sweep, or .* renamed; .*--resume .* --name NEW"
    ):
        resumed(folder, resume="other")


@pytest.mark.parametrize("name", ["new", "sweep"])
def test_a_renamed_folder_goes_on_under_another_name_or_as_the_original_if_that_is_said(
    folder: Path, tmp_path: Path, name: str
) -> None:
    renamed = folder.rename(tmp_path / "renamed")
    options = SweepOptions(storage=tmp_path / "storage", resume=str(renamed), name=name)
    found, sweep_file = sweep_to_resume("quadratic", options, "sqlite:///other.db")
    assert (found, sweep_file.options["name"]) == (renamed, "sweep")
    assert name_for("quadratic", options, found) == name
    (tmp_path / "storage" / name).mkdir(parents=True)
    with pytest.raises(SweepError, match=f"--name {name}: .*storage/{name} exists and is no sweep"):
        name_for("quadratic", options, found)
    in_place = SweepOptions(storage=tmp_path, resume="renamed", name="renamed")
    assert name_for("quadratic", in_place, renamed) == "renamed"


def test_a_folder_goes_on_where_it_is_unless_a_name_says_otherwise(folder: Path, tmp_path: Path) -> None:
    assert sweep_to_resume("quadratic", SweepOptions(resume=str(folder)), STORE)[0] == folder
    with pytest.raises(SweepError, match=r"without --name, a sweep goes on in its own folder; .*\(--name sweep\)"):
        sweep_to_resume("quadratic", SweepOptions(resume=str(folder), storage=tmp_path / "other"), STORE)


def test_a_sweep_that_was_moved_with_its_name_goes_on_where_it_is(folder: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(folder, tmp_path / "elsewhere" / "sweep")
    options = resumed(moved)
    assert options.storage / str(options.name) == moved


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:40], r"sweep\.json is torn, or is not the file of a sweep .*start a new sweep"),
        (lambda text: "", r"sweep\.json is torn"),
        (lambda text: "{}", r"sweep\.json is torn, or is not the file of a sweep \(Field required\)"),
        (lambda text: "[]", r"sweep\.json is torn, or is not the file of a sweep"),
        (lambda text: json.dumps({**json.loads(text), "options": {}}), r"not the file of a sweep \(KeyError"),
        (lambda text: text.replace('"seed"', '"sead"'), "another version of this project began it .*sead"),
        (lambda text: text.replace('"num_samples"', '"samples"'), "another version of this project began it .*num_sam"),
    ],
)
def test_a_file_that_is_torn_or_of_something_else_is_an_error(
    folder: Path, change: Callable[[str], str], message: str
) -> None:
    (folder / SWEEP_FILE).write_text(change((folder / SWEEP_FILE).read_text()))
    with pytest.raises(SweepError, match=message):
        resumed(folder)


def test_two_sweeps_that_are_planned_in_the_same_second_have_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "strftime", lambda form: "20990101-000000")
    unnamed = SweepOptions(storage=tmp_path)
    assert [name_for("bert", unnamed) for _ in range(2)] == ["bert-20990101-000000", "bert-20990101-000000-2"]
    (tmp_path / "bert-20990101-000000-3").mkdir()  # of another process
    assert name_for("bert", unnamed) == "bert-20990101-000000-4"
