import pytest

from experiments.sweep.errors import SweepError
from experiments.sweep.packing import pack, possible_widths
from trainables.runtime.device import DEVICE_TYPES, DeviceKind, Devices


def devices(kind: DeviceKind, count: int) -> Devices:
    return Devices(DEVICE_TYPES[kind], count, "for a test")


@pytest.mark.parametrize(("width", "groups"), [(1, 8), (2, 4), (4, 2), (8, 1)])
def test_groups_fill_a_gaudi_node(width: int, groups: int) -> None:
    assert pack(devices("hpu", 8), width) == groups


def test_several_nodes_allow_whole_nodes_only() -> None:
    assert possible_widths(devices("hpu", 24)) == [1, 2, 4, 8, 16, 24]


@pytest.mark.parametrize(("kind", "count", "width", "possible"), [("hpu", 8, 3, "1, 2, 4, 8"), ("cpu", 2, 3, "1, 2")])
def test_another_width_is_an_error_that_names_the_possible_ones(
    kind: DeviceKind, count: int, width: int, possible: str
) -> None:
    with pytest.raises(SweepError, match=rf"--workers-per-trial {width}: not possible with {count} .* {possible}$"):
        pack(devices(kind, count), width)
