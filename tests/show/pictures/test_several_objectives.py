"""Pictures of several objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import optuna

from gaudi_tune.base.words import format_params
from gaudi_tune.define.objective import Objective
from gaudi_tune.show.pictures import figures
from gaudi_tune.show.pictures.catalogue import draw_picture, draw_pictures
from gaudi_tune.show.pictures.sweep_view import SweepView
from gaudi_tune.show.result import result_lines
from gaudi_tune.sweep.record.events import TrialBegan
from tests.helpers.fed_state import Fed
from tests.show.pictures.test_pictures import EPOCHS, plan_of, view_of


def of_several(folder: Path, modes: Sequence[Literal["max", "min"]]) -> SweepView:
    """Eight trials of which 1, the baseline, 3 and 6 are on the front of the first two objectives."""
    others = [Objective(f"other {place}", mode) for place, mode in enumerate(modes[1:], start=1)]
    plan = plan_of(folder, modes[0])
    plan = replace(plan, objectives=(*plan.objectives, *others))
    fed = Fed(mode=modes[0], epochs=EPOCHS, trials=8, others=others)
    points = [(1.0, 8.0), (1.0, 3.0), (5.0, 6.0), (4.0, 4.0), (5.0, 5.0), (9.0, 1.0), (2.0, 2.0), (6.0, 0.5)]
    for number, point in enumerate(points, start=1):
        signed = [value if mode == "max" else -value for value, mode in zip((*point, number), modes, strict=False)]
        config, _ = plan.experiment.search_space.propose(optuna.create_study())
        fed.state.apply(TrialBegan(trial=number, trial_id=str(number), config={**config, "seed": 1}))
        also: dict[str, Any] = dict(zip([other.name for other in others], signed[1:], strict=True))
        fed.report(number, 1, signed[0], **also)
        fed.end(number)
    return SweepView.take(plan, fed.state, "")


def traces(view: SweepView, name: str) -> dict[str, list[tuple[float, float]]]:
    picture = draw_picture(name, view)
    assert picture is not None
    assert picture.figure is not None, picture.caption
    return {trace.name: list(zip(trace.x, trace.y, strict=True)) for trace in picture.figure.data}


def border_of(view: SweepView) -> str:
    """How plotly draws the border from one point to the next."""
    figure = figures.front(view)
    assert figure is not None
    (border,) = figure.select_traces({"name": "border"})
    return str(border.line.shape)


def test_the_front_is_drawn_with_its_border_and_the_baseline(tmp_path: Path) -> None:
    more, less = (of_several(tmp_path, [mode, mode]) for mode in ("max", "min"))
    drawn = traces(more, "front")
    assert drawn["on the front (3)"] == [(1.0, 8.0), (5.0, 6.0), (9.0, 1.0)]
    assert drawn["border"] == drawn["on the front (3)"]
    assert border_of(more) == "vh", "down to the next point's height, then to it"
    assert border_of(less) == "hv"
    assert drawn["baseline"] == [(1.0, 8.0)]
    assert len(drawn["finished (8)"]) == 8
    pictures = {picture.name for picture in draw_pictures(of_several(tmp_path, ["max", "min"]))}
    assert "front" in pictures
    assert not {"front_1_3", "front_2_3"} & pictures


def test_each_pair_of_three_objectives_is_drawn(tmp_path: Path) -> None:
    view = of_several(tmp_path, ["max", "max", "min"])
    assert traces(view, "front_1_3")["on the front (6)"][0] == (1.0, -1.0)
    assert len(traces(view, "front_2_3")["on the front (6)"]) == 6
    assert "border" not in traces(view, "front")


def test_the_page_knows_the_front(tmp_path: Path) -> None:
    view = of_several(tmp_path, ["max", "max"])
    head = view.head()
    assert (head["front"], head["others"]) == ([6, 3, 1], ["other 1"])
    assert ("On the front", "3", "trials") in head["facts"]
    assert view.trials[2].row()["others"] == (6.0,)
    assert [one["trial"] for one in view.summary["front"]] == [6, 3, 1]
    assert view.summary["front"][0]["values"] == {"score": 9.0, "other 1": 1.0}
    assert view.summary["best"] == view.summary["front"][0]
    configs = [format_params(one["config"]) for one in view.summary["front"]]
    assert result_lines(tmp_path, {**view.summary, "device_seconds": {"training": 1.0}})[3:8] == [
        "front       trial     score  other 1  epoch  hyperparameters",
        f"            006       9      1        1      {configs[0]}",
        f"            003       5      6        1      {configs[1]}",
        f"            001       1      8        1      {configs[2]}",
        "            baseline  1      8",
    ]
    one = view_of([[0.1], [0.3]], tmp_path).head()
    assert (one["front"], one["others"]) == ([2], [])
