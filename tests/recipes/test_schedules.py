import pytest

from gaudi_tune.recipes.schedules import Schedule, ScheduleKind
from trainables.resnet50_imagenet import PEAK, PUBLISHED_RATES, PUBLISHED_TABLE


def test_warm_up_rises_linearly_to_the_peak() -> None:
    schedule = Schedule(warmup=0.3)
    assert [schedule.factor(step, 10, 5) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert Schedule().factor(0, 10, 5) == 1.0


def test_step_falls_every_so_many_epochs() -> None:
    schedule = Schedule(kind="step", step_size=2, gamma=0.1)
    factors = [schedule.factor(step, 50, 10) for step in (0, 19, 20, 39, 40)]
    assert factors == pytest.approx([1, 1, 0.1, 0.1, 0.01])


def test_cosine_falls_to_nothing_after_its_warm_up() -> None:
    schedule = Schedule(kind="cosine", warmup=0.1)
    assert schedule.factor(10, 100, 7) == 1.0
    assert schedule.factor(55, 100, 7) == pytest.approx(0.5)
    assert schedule.factor(100, 100, 7) == pytest.approx(0.0)


def test_linear_falls_to_nothing_after_its_warm_up() -> None:
    schedule = Schedule(kind="linear", warmup=0.1)
    assert [schedule.factor(step, 100, 7) for step in (10, 55, 100)] == pytest.approx([1.0, 0.5, 0.0])


def test_polynomial_falls_with_the_square_of_what_is_left_after_its_warm_up() -> None:
    schedule = Schedule(kind="polynomial", warmup=0.1)
    assert [schedule.factor(step, 100, 7) for step in (10, 55, 100)] == pytest.approx([1.0, 0.25, 0.0])


def test_exponential_falls_as_much_as_step_but_evenly() -> None:
    schedule = Schedule(kind="exponential", step_size=2, gamma=0.01)
    assert [schedule.factor(step, 50, 10) for step in (0, 10, 20, 40)] == pytest.approx([1, 0.1, 0.01, 0.0001])


@pytest.mark.parametrize("kind", ["linear", "cosine", "polynomial", "step", "exponential"])
def test_no_schedule_falls_below_its_floor(kind: ScheduleKind) -> None:
    schedule = Schedule(kind=kind, floor=0.2, step_size=1)
    factors = [schedule.factor(step, 100, 10) for step in range(101)]
    assert factors[0] == 1.0
    assert min(factors) == factors[-1] == pytest.approx(0.2)
    assert Schedule(kind=kind, floor=0.2, warmup=0.5).factor(0, 100, 10) < 0.02


def test_the_published_table_is_that_of_imagenet_at_90_epochs() -> None:
    schedule = Schedule(kind="published", table=PUBLISHED_TABLE)
    steps_per_epoch = 5005
    for epoch in range(90):
        published = PUBLISHED_RATES[max(start for start in PUBLISHED_RATES if start <= epoch)]
        for step in (epoch * steps_per_epoch, (epoch + 1) * steps_per_epoch - 1):
            assert schedule.factor(step, 90 * steps_per_epoch, steps_per_epoch) * PEAK == pytest.approx(published)


def test_the_published_table_fits_other_budgets() -> None:
    schedule = Schedule(kind="published", table=PUBLISHED_TABLE)
    shares = [schedule.factor(epoch * 7, 9 * 7, 7) for epoch in range(9)]
    assert shares == pytest.approx([0.125, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.001])


def test_warm_up_comes_on_top_of_a_table() -> None:
    schedule = Schedule(kind="published", table=PUBLISHED_TABLE, warmup=0.5)
    assert schedule.factor(0, 90, 1) == pytest.approx(0.125 / 46)
    assert schedule.factor(89, 90, 1) == pytest.approx(0.001)
