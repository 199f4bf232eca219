"""Which trials go on with more devices, and which give some back. Nothing runs: a state is fed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from gaudi_tune import Budget, Experiment
from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.names import CONFIRMS
from gaudi_tune.base.trial_place import Place
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.find import DEVICE_TYPES, Devices
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.sweep.policies.growth import Growth, choose_growth, max_devices
from tests.helpers.fed_state import Fed
from tests.helpers.small_task import SmallConfig, small_loop

NODE, EPOCH_S, WHOLE = "a-node", 100.0, Place(8, tuple(range(8)))


@dataclass(frozen=True, kw_only=True)
class GrowingConfig(SmallConfig):
    """Says of dropout what the recipes say, and of weight decay what would train worse."""

    x: float = 0.5

    def why_not_wider(self, device: DeviceType, workers: int, wider: int) -> str | None:
        return "decay" if self.weight_decay else None

    def why_not_exact(self, device: DeviceType, workers: int, wider: int) -> str | None:
        return "dropout" if self.dropout else super().why_not_exact(device, workers, wider)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    experiment = Experiment(
        name="growing",
        train_loop=small_loop,
        config_class=GrowingConfig,
        space={"lr": tune.loguniform(1e-3, 1.0), "momentum": tune.uniform(0.0, 0.9)},
        budget=Budget(epochs=27),
    )
    options = SweepOptions(
        storage=tmp_path,
        scheduler="asha",
        device="cpu",
        settings=("dropout=0",),
        tracking_uri=f"sqlite:///{tmp_path}/m.db",
    )
    made = make_plan(experiment, options)
    return replace(made, devices=Devices(DEVICE_TYPES["hpu"], (8,), "for a test"))


class Node(Fed):
    """A sweep on eight HPUs whose trials take 100 s an epoch, and 10 s to start."""

    def __init__(self, plan: Plan, trials: int = 8) -> None:
        super().__init__(epochs=27, trials=trials, kind="hpu", count=8)
        self.growth = Growth(plan, self.state)

    def after(
        self,
        number: int,
        epoch: int,
        on: str,
        value: float = 0.5,
        took: float = EPOCH_S,
        start: float = 0.0,
        promoted: int = 0,
    ) -> Place | None:
        """Report from these modules, and return where the trial is to go on."""
        devices = " ".join(f"{NODE}:{module}" for module in on)
        booked: dict[str, Any] = {names.DEVICES: devices, names.STEP_SECONDS: took + start}
        booked |= {names.START_SECONDS: start} if start else {}
        self.report(number, epoch, value, **booked)
        self.growth.measure(self.state.trials[number])
        return self.growth.after_report(self.state.trials[number], promoted)

    def begin_all(self, *modules: str) -> None:
        """Begin a trial on each of these modules."""
        for number, on in enumerate(modules, start=1):
            self.begin(number, lr=0.1, momentum=0.5, seed=1)
            assert self.after(number, 9, on, start=10.0, promoted=8) is None  # others wait


def test_the_last_trial_gets_the_whole_node_and_the_others_nothing_while_some_wait(plan: Plan) -> None:
    node = Node(plan, trials=8)
    node.begin_all("0", "1", "2", "3", "4", "5", "6", "7")
    for number in range(1, 8):
        node.end(number)
    assert node.after(8, 10, "7") == WHOLE
    assert node.growth.is_moving(8)
    assert node.after(8, 11, "01234567", took=EPOCH_S / 4.9, start=10.0) is None
    assert not node.growth.is_moving(8)


def test_while_trials_have_yet_to_begin_none_grows(plan: Plan) -> None:
    node = Node(plan, trials=9)
    node.begin_all("0", "1")
    assert node.after(1, 10, "0") is None


def test_the_best_grow_first_and_to_aligned_sets(plan: Plan) -> None:
    node = Node(plan, trials=3)
    node.begin_all("1", "2", "5")
    # Four would be its share, but neither 0 to 3 nor 4 to 7 will be free.
    assert node.after(2, 10, "2", value=0.9) == Place(2, (2, 3))
    assert node.after(3, 10, "5", value=0.7) == Place(4, (4, 5, 6, 7))  # while the other moves
    assert node.after(1, 10, "1", value=0.5) == Place(2, (0, 1))
    assert node.after(2, 11, "23", value=0.9, took=60.0, start=10.0) is None
    assert node.after(3, 11, "4567", value=0.7, took=60.0, start=10.0) is None


def test_one_idle_device_goes_to_the_best_trial(plan: Plan) -> None:
    node = Node(replace(plan, devices=Devices(DEVICE_TYPES["cuda"], (3,), "for a test")), trials=2)
    node.begin_all("0", "1")
    assert node.after(2, 10, "1", value=0.9) == Place(2)
    assert node.after(1, 10, "0", value=0.7) is None


def test_one_that_gives_back_to_a_trial_that_waits_keeps_the_highest(plan: Plan) -> None:
    node = Node(plan, trials=1)
    node.begin_all("7")
    assert node.after(1, 11, "7") == WHOLE
    node.state.num_trials = 2  # a person adds one
    node.begin(2, lr=0.1, momentum=0.5, seed=1)
    assert node.after(1, 12, "01234567", took=20.0, start=10.0) == Place(4, (4, 5, 6, 7))


def test_one_that_begins_again_while_it_was_to_move_is_asked_again(plan: Plan) -> None:
    node = Node(plan, trials=1)
    node.begin_all("0")
    assert node.after(1, 10, "0") == WHOLE
    node.growth.trial_began(1)
    assert not node.growth.is_moving(1)
    assert node.after(1, 10, "1", start=10.0) == WHOLE


def test_a_budget_in_seconds_and_a_ray_of_others_rule_growth_out(plan: Plan) -> None:
    config = GrowingConfig.from_dict({**plan.settings, **plan.experiment.search_space.draws[0].config})

    def growth(budget: Budget, **options: Any) -> int | str:
        return choose_growth(config, SweepOptions(**options), budget, plan.devices)

    assert growth(plan.budget) == 8
    assert growth(plan.budget, address="auto") == 1
    assert growth(Budget(epochs=27, seconds=600)) == 1
    with pytest.raises(SweepError, match="--seconds compares trials by the time that they take; leave"):
        growth(Budget(epochs=27, seconds=600), grow="on")


def test_a_plan_says_whether_its_trials_grow(plan: Plan) -> None:
    assert [replace(plan, growth=growth).grows for growth in (1, 2, "dropout")] == [False, True, False]


def test_on_several_nodes_no_trial_grows(plan: Plan) -> None:
    config = GrowingConfig.from_dict({**plan.settings, **plan.experiment.search_space.draws[0].config})
    nodes = Devices(DEVICE_TYPES["hpu"], (8, 8), "for a test")
    assert choose_growth(config, SweepOptions(), plan.budget, nodes) == 1
    with pytest.raises(SweepError, match="--grow on: trials grow only within one node, and the sweep has 2 nodes"):
        choose_growth(config, SweepOptions(grow="on"), plan.budget, nodes)


def test_a_configuration_that_cannot_be_read_grows_not(plan: Plan) -> None:
    node = Node(plan, trials=1)
    node.begin(1, lr=0.1, momentum=0.5, seed=1, rare=1)
    assert node.after(1, 10, "0", start=1.0) is None


def test_a_growth_that_costs_more_than_it_saves_is_left(plan: Plan) -> None:
    node = Node(plan, trials=1)
    node.begin(1, lr=0.1, momentum=0.5, seed=1)
    assert node.after(1, 9, "0", start=1500.0) is None  # 18 epochs to go, which eight do in 1,430 s less
    assert node.after(1, 10, "0") is None


def test_a_trial_that_a_warm_group_takes_says_nothing_of_what_a_start_costs(plan: Plan) -> None:
    node = Node(plan, trials=9)
    for number, modules in enumerate("01234567", start=1):
        node.begin(number, lr=0.1, momentum=0.5, seed=1)
        node.after(number, 9, modules, start=5000.0)
        node.end(number)
    node.begin(9, lr=0.1, momentum=0.5, seed=1)
    assert node.after(9, 9, "0", start=0.1) is None
    assert node.after(9, 10, "0") is None


def test_no_trial_grows_to_where_one_was_no_faster(plan: Plan) -> None:
    node = Node(plan, trials=2)
    node.begin_all("0", "4")
    assert node.after(1, 10, "0", value=0.9) == Place(4, (0, 1, 2, 3))
    assert node.after(1, 11, "0123", value=0.9, took=95.0, start=10.0) is None  # the first time takes longer
    assert node.after(1, 12, "0123", value=0.9, took=95.0) is None
    assert node.after(1, 13, "0123", value=0.9, took=95.0) is None
    assert node.after(1, 14, "0123", value=0.9, took=95.0) == Place(2, (2, 3))
    assert node.after(1, 15, "23", value=0.9, took=60.0, start=10.0) is None
    assert node.after(2, 11, "4") == Place(2, (4, 5))


def test_a_single_report_that_had_to_wait_does_not_end_growth(plan: Plan) -> None:
    node = Node(plan, trials=2)
    node.begin_all("0", "4")
    assert node.after(1, 10, "0", value=0.9) == Place(4, (0, 1, 2, 3))
    assert node.after(1, 11, "0123", value=0.9, took=95.0, start=10.0) is None
    for epoch, seconds in ((12, 300.0), (13, 95.0), (14, 30.0), (15, 300.0)):
        assert node.after(1, epoch, "0123", value=0.9, took=seconds) is None
    assert node.after(2, 11, "4") == Place(4, (4, 5, 6, 7))


def test_one_that_could_not_move_twice_leaves_the_devices_to_others(plan: Plan) -> None:
    node = Node(replace(plan, devices=Devices(DEVICE_TYPES["cuda"], (4,), "for a test")), trials=3)
    node.begin_all("0", "1", "2")
    for epoch in (10, 11, 12):
        node.after(1, epoch, "0", value=0.9)  # the best, and one device is idle
    assert node.after(2, 10, "1", value=0.7) == Place(2)


def test_a_confirmation_keeps_the_usual_width(plan: Plan) -> None:
    for confirms, place in ((0, Place(8, tuple(range(8)))), (3, None)):
        node = Node(plan, trials=1)
        node.begin(1, **({CONFIRMS: confirms} if confirms else {}))
        node.report(1, 1, 0.5, devices=f"{NODE}:0")
        assert node.after(1, 2, "0") == place


@pytest.mark.parametrize(
    ("grow", "config", "most"),
    [
        ("auto", {}, 4),  # a batch of 12 in eight parts is none
        ("auto", {"dropout": 0.1}, 4),
        ("auto", {"weight_decay": 0.1}, "decay"),
        ("exact", {}, 4),
        ("exact", {"dropout": 0.1}, "dropout"),
        ("exact", {"weight_decay": 0.1}, "decay"),
        ("on", {"dropout": 0.1, "weight_decay": 0.1}, 4),
        ("on", {"batch_size": 64}, 8),
        ("on", {"batch_size": 9}, 1),
    ],
)
def test_the_batch_and_the_numbers_say_how_far_a_trial_may_grow(
    grow: str, config: dict[str, float], most: int | str
) -> None:
    trial = GrowingConfig(**{"epochs": 1, "batch_size": 12, "dropout": 0.0, "weight_decay": 0.0, **config})  # type: ignore[arg-type]
    devices = Devices(DEVICE_TYPES["hpu"], (8,), "for a test")
    assert max_devices(trial, devices, SweepOptions(grow=grow)) == most  # type: ignore[arg-type]
