from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from gaudi_tune.sweep.search.gaussian_process.space import Space

RANGES: dict[str, BaseDistribution] = {
    "lr": FloatDistribution(1e-4, 1.0, log=True),
    "optimizer": CategoricalDistribution(["sgd", "adamw", None]),
    "layers": IntDistribution(1, 5),
    "width": IntDistribution(8, 1024, step=8),
    "dropout": FloatDistribution(0.0, 0.6, step=0.2),
}
SPACE = Space(RANGES)


def test_numbers_go_from_0_to_1_and_choices_are_as_far_apart_as_the_ends_of_a_range() -> None:
    low: dict[str, Any] = {"lr": 1e-4, "optimizer": "sgd", "layers": 1, "width": 8, "dropout": 0.0}
    high: dict[str, Any] = {"lr": 1.0, "optimizer": "sgd", "layers": 5, "width": 1024, "dropout": 0.6}
    rows = SPACE.rows([low, high, {**low, "lr": 0.01, "optimizer": None}])
    assert SPACE.parameter_of_column.tolist() == [0, 1, 1, 1, 2, 3, 4]
    numbers = SPACE.parameter_of_column != 1
    np.testing.assert_allclose(rows[:, numbers], np.array([[0, 0, 0, 0], [1, 1, 1, 1], [0.5, 0, 0, 0]]), atol=1e-12)
    assert np.square(rows[0] - rows[2])[~numbers].sum() == pytest.approx(1)
    assert SPACE.rows([]).shape == (0, 7)


def test_a_row_is_the_nearest_configuration_there_is() -> None:
    known: list[dict[str, Any]] = [
        {"lr": 0.003, "optimizer": None, "layers": 4, "width": 64, "dropout": 0.2},
        {"lr": 1.0, "optimizer": "adamw", "layers": 5, "width": 1024, "dropout": 0.6},
    ]
    for configuration, row in zip(known, SPACE.rows(known), strict=True):
        found = SPACE.configuration(row)
        assert {**found, "lr": round(found["lr"], 12)} == configuration, "and 0.2 is not 0.20000000000000001"
    between = np.array([1.1, 0.1, 0.6, 0.2, 0.3, 0.501, 0.4])
    assert SPACE.configuration(between) == {"lr": 1.0, "optimizer": "adamw", "layers": 2, "width": 520, "dropout": 0.2}


def test_random_rows_cover_each_range_evenly() -> None:
    rows = SPACE.random_rows(100, np.random.default_rng(0))
    assert np.histogram(rows[:, 0], 20, (0, 1))[0].tolist() == [5] * 20
    drawn = [SPACE.configuration(row) for row in rows]
    assert [sum(each["layers"] == layers for each in drawn) for layers in range(1, 6)] == [20] * 5
    assert {each["optimizer"] for each in drawn} == {"sgd", "adamw", None}
    assert not np.array_equal(rows, SPACE.random_rows(100, np.random.default_rng(1)))


def test_a_range_of_few_values_is_tried_out_and_not_climbed() -> None:
    assert SPACE.continuous.tolist() == [1, 0, 0, 0, 0, 1, 0]
    assert [(columns.start, values.shape) for columns, values in SPACE.discrete] == [
        (1, (3, 3)),
        (4, (5, 1)),
        (6, (4, 1)),
    ]
    layers, dropout = (values[:, 0].tolist() for _, values in SPACE.discrete[1:])
    assert layers == pytest.approx([0, 1 / 4, 1 / 2, 3 / 4, 1])
    assert dropout == pytest.approx([0, 1 / 3, 2 / 3, 1])
