"""The scoreboard's tasks: what two objectives are worth, and what an earlier sweep is of."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.tools.benchmarks.tasks import (
    HYPERPARAMETERS,
    TABLES,
    TRANSLATIONS,
    dominated,
    earlier_task,
    find_tasks,
    front_of,
)


def test_the_area_that_points_dominate_is_counted_once_and_only_inside() -> None:
    points = [(0.5, 0.5), (0.25, 0.75), (0.6, 0.6), (-1.0, 2.0), (2.0, -1.0)]
    front = front_of(points)
    assert front == [(-1.0, 2.0), (0.25, 0.75), (0.5, 0.5), (2.0, -1.0)]
    x, y = np.random.default_rng(0).random((2, 200_000))
    share = float(np.mean([(x >= a) & (y >= b) for a, b in points], axis=0).astype(bool).mean())
    assert dominated(front) == 0.3125 == pytest.approx(share, abs=0.01)
    assert dominated([]) == 0


def test_an_earlier_sweep_is_of_the_same_half_and_a_reversed_one_looks_for_the_worst() -> None:
    tasks = find_tasks(TABLES)
    task = tasks[0]
    related = {earlier_task(TABLES, task, "related", seed).name for seed in range(4)}
    assert related == {one.name for one in tasks[2::2] if one.dimensions == task.dimensions}
    curves = [earlier_task(TABLES, task, kind, 0).opened()(np.zeros(task.dimensions)) for kind in ("same", "reversed")]
    same, worst = [curve[1](3)[0] for curve in curves if curve]
    assert same == -worst > 0


def test_a_translation_is_a_table_whose_curves_stay_where_they_end_and_code_is_refused(tmp_path: Path) -> None:
    rows = [(10, [4.0, 2.0]), (20, [8.0] * 300)]
    runs = [
        {
            "task": task,
            "dataset_name": data,
            "perplexity_curve": curve,
            "hyperparams": dict.fromkeys(HYPERPARAMETERS[task], place),
        }
        for task, data in TRANSLATIONS
        for place, curve in rows
    ]
    file = tmp_path / "nmtlc.pkl"
    file.write_bytes(pickle.dumps(runs))
    tasks = find_tasks(tmp_path)
    assert [task.epochs for task in tasks] == [20, 20, 27, 27]
    for task in tasks:
        np.testing.assert_allclose(task.u, np.array([0.0, 1.0])[:, None] * np.ones(task.dimensions))
        assert task.loss[0, -1] == pytest.approx(np.log(2)) and task.loss[1] == pytest.approx(np.log(8))
    assert [task.loss[0, 0] > 1 for task in tasks] == [True, True, False, False]
    file.write_bytes(pickle.dumps(Path))
    find_tasks.cache_clear()
    with pytest.raises(pickle.UnpicklingError, match="Path is no plain data"):
        find_tasks(tmp_path)
