"""The pictures and the report of sweeps of all kinds, drawn from a real study; no Ray."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import optuna
import pytest
from plotly.offline import get_plotlyjs

from experiments.tune_bert import EXPERIMENT
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.devices.find import DEVICE_TYPES, Devices
from gaudi_tune.show.pictures import figures
from gaudi_tune.show.pictures.catalogue import PICTURES, draw_pictures
from gaudi_tune.show.pictures.report import DrawPictures, write_report
from gaudi_tune.show.pictures.sweep_view import SweepView, fields_of
from gaudi_tune.sweep.record.device_time import Interval
from gaudi_tune.sweep.record.events import CheckpointSaved, Reported, SweepEnded, TrialBegan
from gaudi_tune.sweep.record.outcome import why_diverged
from gaudi_tune.sweep.record.sweep_state import SweepState
from tests.helpers.fed_state import Fed
from tests.helpers.quadratic import QUADRATIC

EPOCHS = 4
SOME = ("confirmation", "front", "front_1_3", "front_2_3", "path", "rungs")
NAMES = [name for name in PICTURES if name not in SOME]
"""Of the pictures that every sweep has."""


def space(trial: optuna.Trial) -> dict[str, Any]:
    """Every kind of hyperparameter, one of them only with one optimizer."""
    trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    trial.suggest_float("dropout", 0.0, 0.5)
    trial.suggest_int("layers", 1, 4)
    trial.suggest_categorical("batch_size", [8, 16])
    trial.suggest_categorical("pooling", [True, False, None])
    if trial.suggest_categorical("optimizer", ["sgd", "<b>adamw</b>"]) == "sgd":
        trial.suggest_float("momentum", 0.0, 0.9)
    return {}


def state_of(curves: list[list[float] | None], plan: Plan) -> SweepState:
    """A sweep so far, a curve for each trial: with EPOCHS values it finished, with fewer it was stopped early.

    One that ends with 0, or is empty, still runs; None stands for a trial that raised an error.
    """
    mode = plan.objectives[0].mode
    fed = Fed(mode=mode, epochs=EPOCHS, trials=9, kind="hpu", confirm=plan.confirm, seeds=plan.seeds)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for number, curve in enumerate(curves, start=1):
        config, _ = plan.experiment.search_space.propose(study)
        fed.state.apply(TrialBegan(trial=number, trial_id=str(number), config={**config, "seed": 1}))
        for epoch, value in enumerate(curve or [], start=1):
            fed.report(number, epoch, value)
        if curve is None:
            fed.end(number, "failed", "an error ended it", raised=True)
        elif (curve and math.isnan(curve[-1])) or (curve and math.isinf(curve[-1])):
            divergence = why_diverged(fed.state.trials[number].metrics, "score")
            assert divergence is not None
            fed.fail(number, divergence)
        elif curve and curve[-1] != 0:
            fed.end(number, "finished" if len(curve) == EPOCHS else "stopped early")
    time = fed.state.device_time
    for number, curve in enumerate(curves, start=1):
        time.by_trial[number].clear()
        if curve:
            began = time.began + 10 * number
            time.intervals.append(Interval(f"hpu {number % 2}", number, began, began + 2, began + 9))
            time.by_trial[number].update({"starting": 2.0, "training": 7.0})
            time.ended = began + 9
    time.intervals = time.intervals[-sum(bool(curve) for curve in curves) :]  # not those that feeding took
    return fed.state


def test_markup_in_values_is_text_for_plotly(tmp_path: Path) -> None:
    view = view_of([[0.1, 0.2, 0.3, 0.4]] * 8, tmp_path)
    figures = json.dumps([picture.as_data()["figure"] for picture in draw_pictures(view)])
    assert "<b>" not in figures
    assert "<br>optimizer=&lt;b&gt;adamw&lt;/b&gt;" in figures, (
        "a description, in which only the ends of lines are ours"
    )
    assert "%{text}<extra></extra>" in figures


def plan_of(folder: Path, mode: Literal["max", "min"] = "max") -> Plan:
    experiment = replace(QUADRATIC, mode=mode, space=space)
    return Plan(
        experiment=experiment,
        objectives=(experiment.objective,),
        options=SweepOptions(storage=folder.parent),
        devices=Devices(DEVICE_TYPES["hpu"], (2,), "for a test"),
        groups=2,
        recipe="sample",
        recipe_reason="for a test",
        settings={},
        budget=Budget(epochs=EPOCHS),
        num_samples=9,
        name=folder.name,
        tracking_uri="",
        facts=[],
    )


def view_of(
    curves: list[list[float] | None], folder: Path, *, mode: Literal["max", "min"] = "max", running: bool = True
) -> SweepView:
    plan = plan_of(folder, mode)
    state = state_of(curves, plan)
    if not running:
        state.close()
        state.apply(SweepEnded(summary={}))
    if state.trials.get(1) is not None and state.trials[1].curve:
        place = plan.folder / "trial-001" / "checkpoint_000000"
        place.mkdir(parents=True, exist_ok=True)
        state.apply(CheckpointSaved(trial=1, place="trial-001/checkpoint_000000"))
    view = SweepView.take(plan, state, "http://127.0.0.1:5000/#/experiments/1  (start the page with: make ui)")
    return replace(view, device_time=state.device_time)


MIXED: list[list[float] | None] = [
    [0.2, 0.5, 0.6, 0.75], [0.1], None, [0.3, 0.4, math.nan], [0.2, 0], [0.3, 0.6, 0.5, 0.4], [0.05], [math.nan],
]  # fmt: skip
"""Trials of every status; of those that failed, one diverged and one raised."""


def confirmed(folder: Path) -> SweepView:
    """A sweep whose trial 2 was confirmed with three seeds, and so was the baseline."""
    plan = replace(plan_of(folder), confirm=1, seeds=3)
    fed = Fed()
    fed.state = state_of([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]], plan)
    for number in range(6):
        confirms = 1 + number // 3
        config = {**fed.state.trials[confirms].config, "confirms": confirms, "seed": number % 3}
        fed.trial(3 + number, 0.1 * number, 0.1 * number + 0.01, **config)
    return SweepView.take(plan, fed.state, "http://127.0.0.1:5000")


def data_in(page: str) -> Any:
    """The data of a page."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(data)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    view = view_of(MIXED, folder)
    write_report(view, draw_pictures(view), view.plan.report_file)
    return folder


def test_a_sweep_is_drawn_into_its_folder_and_nothing_else_stays_there(drawn: Path) -> None:
    assert [path.name for path in drawn.iterdir() if path.is_file()] == ["report.html"]


def test_the_report_has_all_trials_and_pictures_and_loads_nothing(drawn: Path) -> None:
    text = (drawn / "report.html").read_text()
    assert text.count(get_plotlyjs()) == 1
    page = text.replace(get_plotlyjs(), "")
    assert not re.search(r"<[^>]*(src|href)=|@import|fetch\(|nonce", page)
    assert "<b>adamw" not in page  # it is in the data, where nothing is markup
    data = data_in(page)
    assert [picture["name"] for picture in data["pictures"]] == NAMES
    trials = data["trials"]
    statuses = ["finished", "stopped early", "failed", "failed", "running", "finished", "stopped early", "failed"]
    assert [(trial["number"], trial["status"]) for trial in trials] == list(enumerate(statuses, start=1))
    assert [trial["best"] for trial in trials] == [0.75, 0.1, None, 0.4, 0.2, 0.6, 0.05, None]
    assert [trial["last"] for trial in trials] == [0.75, 0.1, None, None, 0, 0.4, 0.05, None]  # one has diverged
    assert [trial["step"] for trial in trials][:4] == [4, 1, 0, 3]
    assert trials[0]["seconds"] == 9
    assert {trial["params"]["optimizer"] for trial in trials} == {"sgd", "<b>adamw</b>"}
    assert data["head"]["facts"][2] == ["Trials", "8 of 9", ""]
    assert data["head"]["counts"] == {"finished": 2, "stopped early": 2, "failed": 3, "running": 1}
    assert data["head"]["best"]["load"].endswith("trial-001/checkpoint_000000/epoch.txt")
    assert data["head"]["address"] == "http://127.0.0.1:5000/#/experiments/1"


def test_stopped_failed_and_running_trials_are_seen_in_their_colours(tmp_path: Path) -> None:
    history, curves = (picture.figure for picture in draw_pictures(view_of(MIXED, tmp_path))[:2])
    assert history is not None
    assert curves is not None
    marks = {trace.name: trace for trace in history.data if trace.mode == "markers"}
    assert {name: list(trace.x) for name, trace in marks.items()} == {
        "finished (2)": [1, 6], "stopped early (2)": [2, 7], "failed (1)": [4], "running (1)": [5],
    }  # fmt: skip
    assert {t.name: t.marker.color for t in curves.data if t.name} == {n: t.marker.color for n, t in marks.items()}
    assert len({trace.marker.color for trace in marks.values()}) == 4
    best = next(trace for trace in history.data if trace.name == "best so far")
    assert list(best.y) == [0.75] * 6
    finished = next(trace for trace in curves.data if trace.mode == "lines")
    assert [n for n in finished.customdata if n] == [1] * 4 + [6] * 4


def test_nothing_of_an_interrupted_sweep_runs(tmp_path: Path) -> None:
    trials = view_of(MIXED, tmp_path, running=False).trials
    assert Counter(trial.status for trial in trials)["interrupted"] == 1
    assert "running" not in {trial.status for trial in trials}
    assert trials[2].reason == "an error ended it"
    assert trials[3].reason == "diverged: score is nan after epoch 3"


def test_the_report_says_why_a_sweep_ended_early(tmp_path: Path) -> None:
    view = view_of(MIXED, tmp_path, running=False)
    ended = {"why": "the target <0.7> was reached", "status": 0, "at_once": False}
    early = replace(view, summary={**view.summary, "complete": False, "ended_early": ended})
    write_report(early, [], view.plan.report_file)
    head = data_in(view.plan.report_file.read_text())["head"]
    assert head["state"] == "ended early (the target <0.7> was reached)"
    assert head["counts"]["interrupted"] == 1


@pytest.mark.parametrize(
    ("curves", "missing"),
    [
        ([], NAMES),
        ([[]], NAMES),  # the baseline alone, before its first report
        ([[0.1, 0.2, 0.3, 0.4]], ["slices", "importance"]),
        ([None, None, None], NAMES[:4]),  # they had devices
        ([[math.nan], [math.inf], None], ["optimization_history", "learning_curves", *NAMES[2:4]]),
        ([[0.5] * EPOCHS] * 20, ["importance"]),
        ([[0.1 * number] for number in range(1, 20)], ["importance"]),
    ],
)
def test_a_missing_picture_says_why(curves: list[list[float] | None], missing: list[str], tmp_path: Path) -> None:
    view = view_of(curves, tmp_path)
    pictures = draw_pictures(view)
    assert [picture.name for picture in pictures if picture.figure is None] == missing
    assert not {"path", "confirmation"} & {picture.name for picture in pictures}
    assert all(picture.caption.startswith("Not drawn: ") for picture in pictures if picture.figure is None)
    write_report(view, pictures, view.plan.report_file)
    assert "Not drawn: " in view.plan.report_file.read_text() or not missing


def test_less_is_better_where_that_is_so(tmp_path: Path) -> None:
    pictures = draw_pictures(view_of([[3.0, 2.0], [4.0, 1.0, 1.5, 1.2], [5.0]], tmp_path, mode="min"))
    best: dict[str, Any] = {picture.name: picture.figure for picture in pictures}
    assert [list(trace.y) for trace in best["optimization_history"].data if trace.name == "best so far"] == [[2, 1, 1]]


def test_a_picture_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    view = view_of(MIXED, tmp_path)
    view.device_time.intervals[0].device = "of no number"
    pictures = {picture.name: picture for picture in draw_pictures(view)}
    assert pictures["timeline"].caption.startswith("Could not be drawn: invalid literal for int()")
    assert [name for name, picture in pictures.items() if picture.figure is not None] == NAMES[:3]


def test_drawing_that_fails_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan = plan_of(tmp_path / "is-not-there")
    state = state_of([[0.1], [0.2]], plan)
    DrawPictures(plan, str).show(SweepEnded(summary={}), state)
    assert "the sweep could not be drawn" in caplog.text


def test_a_running_sweep_is_drawn_in_a_thread_and_the_end_once_more(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    state = state_of([[0.1, 0.2], [0.3]], plan)
    pictures = DrawPictures(plan, str)
    pictures.tick(state)  # nothing was reported yet
    config = state.trials[1].config
    report = Reported(trial=1, step=2, point=(0.2,), metrics={}, config=config)
    pictures.show(report, state)
    pictures.tick(state)
    while not plan.report_file.is_file():
        time.sleep(0.05)
    assert data_in(plan.report_file.read_text())["head"]["running"]
    state.close()
    state.apply(SweepEnded(summary={}))
    pictures.show(SweepEnded(summary={}), state)
    assert not data_in(plan.report_file.read_text())["head"]["running"]


@pytest.mark.parametrize("num_samples", [19, 20])
def test_what_importance_needs_is_imported_while_trials_train(
    num_samples: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "sklearn.ensemble", raising=False)
    plan = replace(plan_of(tmp_path), num_samples=num_samples)
    state = state_of([[0.1, 0.2], [0.3]], plan)
    pictures = DrawPictures(plan, str)
    pictures.show(Reported(trial=1, step=2, point=(0.2,), metrics={}, config=state.trials[1].config), state)
    pictures.tick(state)
    pictures.show(SweepEnded(summary={}), state)  # waits for the thread, and has too few trials for a forest
    assert ("sklearn.ensemble" in sys.modules) == (num_samples == 20)


def test_a_confirmation_has_a_picture_and_its_trials_are_in_the_table_alone(tmp_path: Path) -> None:
    view = confirmed(tmp_path / "sweep")
    view.plan.folder.mkdir()
    drawn = draw_pictures(view)
    pictures: dict[str, Any] = {picture.name: picture.figure for picture in drawn}
    seeds, means = pictures["confirmation"].data
    assert list(seeds.x) == [0] * 3 + [1] * 3
    assert pictures["confirmation"].layout.xaxis.ticktext == ("baseline", "trial 2")
    assert list(means.y) == pytest.approx([0.11, 0.41])
    assert list(means.error_y.array) == pytest.approx([0.2484, 0.2484], abs=1e-4)
    (points,) = pictures["optimization_history"].select_traces({"mode": "markers"})
    assert list(points.x) == [1, 2]
    write_report(view, drawn, view.plan.report_file)
    data = data_in(view.plan.report_file.read_text())
    assert [trial["confirms"] for trial in data["trials"]] == [0, 0, 1, 1, 1, 2, 2, 2]
    assert data["head"]["confirmed"][-1].startswith("trial 002 beats the baseline by 0.3000")
    assert data["head"]["facts"][2] == ["Trials", "8 of 15", "6 of them confirm"]


def test_no_bar_of_an_accuracy_ends_above_1_or_below_0(tmp_path: Path) -> None:
    view = confirmed(tmp_path / "sweep")
    winner = {"trial": 2, "scores": [0.69, 0.75, 0.9], "mean": 0.78, "interval": [0.51, 1.05]}
    baseline = {"trial": 1, "scores": [0.0, 0.1, 0.2], "mean": 0.1, "interval": [-0.15, 0.35]}
    ends = {}
    for metric in ("test_accuracy", "gain"):
        result = {"metric": metric, "baseline": baseline, "rivals": [winner]}
        figure: Any = figures.confirmation(replace(view, summary={**view.summary, "confirmation": result}))
        bars = figure.data[1].error_y
        ends[metric] = [0.1 - bars.arrayminus[0], 0.1 + bars.array[0], 0.78 - bars.arrayminus[1], 0.78 + bars.array[1]]
    assert ends["test_accuracy"] == pytest.approx([0.0, 0.35, 0.51, 1.0])
    assert ends["gain"] == pytest.approx([-0.15, 0.35, 0.51, 1.05])


def test_marks_are_paler_the_less_a_trial_has_trained_and_choices_have_their_names(tmp_path: Path) -> None:
    figure = figures.slices(view_of(MIXED, tmp_path))
    panels = {axis.title.text: trace for axis, trace in zip(figure.select_xaxes(), figure.data, strict=True)}
    marker = panels["lr"].marker
    assert list(marker.opacity) == pytest.approx([1.0, 0.475, 0.825, 0.65, 1.0, 0.475])  # trials 1, 2, 4, 5, 6, 7
    assert list(marker.symbol) == ["circle", "diamond", "x", "circle-open", "circle", "diamond"]
    assert list(panels["lr"].y) == [0.75, 0.1, 0.4, 0.2, 0.6, 0.05]
    assert len(panels["momentum"].y) < 6  # only one of the optimizers has it
    (axis,) = (axis for axis in figure.select_xaxes() if axis.title.text == "pooling")
    assert list(axis.categoryarray) == ["True", "False", "None"], "in the order of the space"


@pytest.mark.parametrize("mode", ["max", "min"])
def test_one_far_worse_trial_does_not_squash_the_others(mode: Literal["max", "min"], tmp_path: Path) -> None:
    sign = 1 if mode == "max" else -1
    view = view_of([*[[sign * (1 + n / 10)] for n in range(8)], [sign * -500.0]], tmp_path, mode=mode)
    for draw in (figures.optimization_history, figures.learning_curves, figures.slices):
        assert "far worse: 1 of 9" in draw(view).layout.meta
        for axis in draw(view).select_yaxes():
            assert sorted(map(abs, axis.range)) == pytest.approx([0.93, 1.77])
    assert not figures.slices(view_of([[float(n)] for n in range(9)], tmp_path, mode=mode)).layout.meta


def test_a_field_has_choices_or_the_range_of_each_branch() -> None:
    fields = fields_of(EXPERIMENT.for_recipe("sample", 1).search_space)
    assert fields["optimizer"]["choices"] == ["sgd", "adamw"]
    assert fields["warmup"] == {"words": "0 to 0.2", "choices": None}
    assert fields["lr"]["choices"] is None
    assert all(f"logarithmic ({branch})" in fields["lr"]["words"] for branch in ("sgd", "adamw"))
    assert fields["momentum"]["choices"][0] == ""  # only sgd has one
