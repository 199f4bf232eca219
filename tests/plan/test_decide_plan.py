import pytest

from gaudi_tune.base.errors import SweepError
from gaudi_tune.devices.find import DEVICE_TYPES, Devices
from gaudi_tune.plan.decide_plan import count_groups, pack


def devices(kind: str, *nodes: int) -> Devices:
    return Devices(DEVICE_TYPES[kind], nodes, "for a test")


@pytest.mark.parametrize(("width", "groups"), [(1, 8), (2, 4), (4, 2), (8, 1)])
def test_groups_fill_a_gaudi_node(width: int, groups: int) -> None:
    assert pack(devices("hpu", 8), width) == groups


@pytest.mark.parametrize(("width", "groups"), [(1, 24), (8, 3), (16, 1), (24, 1), (32, 0), (12, 0), (3, 0)])
def test_several_nodes_hold_groups_of_one_node_or_of_whole_nodes(width: int, groups: int) -> None:
    assert count_groups(devices("hpu", 8, 8, 8), width) == groups


def test_parts_of_nodes_do_not_make_a_group() -> None:
    """Two nodes of 4 HPUs have no room for a trial of 8, nor a node of 8 and one of 4 for one of 12."""
    assert count_groups(devices("hpu", 4, 4), 8) == 0
    assert count_groups(devices("hpu", 8, 4), 8) == 1
    assert count_groups(devices("cuda", 3, 3), 2) == 2
    assert count_groups(devices("cuda", 4, 4), 8) == 1


@pytest.mark.parametrize(
    ("kind", "nodes", "width", "says"),
    [
        ("hpu", (8,), 3, "8 hpu devices; possible here: 1, 2, 4, 8"),
        ("hpu", (8,), 0, "8 hpu devices; possible here: 1, 2, 4, 8"),
        ("hpu", (8, 8), 12, "16 hpu devices on 2 nodes; possible here: 1, 2, 4, 8, 16"),
        ("cpu", (2,), 3, "2 cpu devices; possible here: 1, 2"),
    ],
)
def test_another_width_is_an_error_that_names_the_possible_ones(
    kind: str, nodes: tuple[int, ...], width: int, says: str
) -> None:
    with pytest.raises(SweepError) as error:
        pack(devices(kind, *nodes), width)
    assert str(error.value) == f"--workers-per-trial {width}: not possible with {says}"
