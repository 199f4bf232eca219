"""Which points are on the front, and which come first."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gaudi_tune.sweep.record.ranking import dominates, in_order, on_front

Points = list[tuple[float, ...]]


@pytest.mark.parametrize(
    ("points", "front"),
    [
        ([], []),
        ([(1.0, 2.0)], [0]),
        ([(1.0, 2.0), (2.0, 1.0), (0.0, 0.0), (1.0, 1.0)], [0, 1]),
        ([(1.0, 2.0), (1.0, 2.0), (1.0, 1.0)], [0, 1]),  # equal ones do not dominate each other
        ([(1.0, 2.0), (1.0, 3.0)], [1]),
        ([(1.0,), (3.0,), (3.0,)], [1, 2]),
    ],
)
def test_the_front_are_the_points_that_none_dominates(points: Points, front: list[int]) -> None:
    assert on_front(points) == front


def test_a_point_dominates_what_it_is_better_than_in_one_objective_and_worse_than_in_none() -> None:
    assert dominates((2.0, 1.0), (1.0, 1.0))
    assert not dominates((1.0, 1.0), (1.0, 1.0))
    assert not dominates((2.0, 0.0), (1.0, 1.0))
    assert dominates((2.0,), (1.0,))


def test_the_order_goes_from_front_to_front_and_in_each_as_far_as_can_be() -> None:
    points = [(0.0, 1.0), (1.0, 0.0), (0.9, 0.2), (0.5, 0.6), (0.0, 0.0), (0.4, 0.5)]
    assert in_order(points) == [1, 0, 3, 2, 5, 4]
    assert in_order([]) == []
    assert in_order([(1.0,), (3.0,), (2.0,), (3.0,)]) == [1, 3, 2, 0]
    assert in_order([(2.0, 1.0)] * 3) == [0, 1, 2]


def test_the_unit_of_an_objective_does_not_change_the_order() -> None:
    points = np.random.default_rng(0).random((60, 3))
    order = in_order(points.tolist())
    assert in_order((points * [1e-3, 1.0, 1e6] + [5.0, 0.0, -1e6]).tolist()) == order
    assert sorted(order) == list(range(60))
    rank = {place: number for number, place in enumerate(order)}
    for one, other in itertools.permutations(range(60), 2):
        if (points[one] >= points[other]).all():
            assert rank[one] < rank[other], "what is dominated comes later"
