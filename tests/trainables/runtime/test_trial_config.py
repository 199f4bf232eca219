import math
import re

import pytest

from tests.loops import QuadraticConfig
from tests.small_task import SmallConfig


def test_values_are_converted_and_defaults_filled() -> None:
    config = QuadraticConfig.from_dict({"x": "0.5", "epochs": "3"})
    assert (config.x, config.epochs, config.seed, config.fail_at) == (0.5, 3, 0, 0)


def test_everything_wrong_is_named_at_once() -> None:
    message = r"'y' is not known; epochs='many': .*integer.*; 'x' is missing\. It knows: epochs, .*, x, "
    with pytest.raises(ValueError, match=message):
        QuadraticConfig.from_dict({"y": 1, "epochs": "many"})


def test_a_broken_rule_is_said_in_words() -> None:
    with pytest.raises(ValueError, match=r"epochs or steps .*, and the other 0, but got epochs=0, steps=0\.$"):
        QuadraticConfig.from_dict({"x": 1.0, "epochs": 0})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": -1}, "lr must be above 0, but got -1.0"),
        ({"lr": math.nan}, "lr must be above 0, but got nan"),
        ({"lr": math.inf}, "must be finite, but got lr=inf, weight_decay=0.0, clip_norm=0.0"),
        ({"momentum": 2}, "momentum must be from 0 to below 1, but got 2.0"),
        ({"weight_decay": math.nan}, "weight_decay must not be negative, but got nan"),
        ({"pass_size": -1}, "pass_size must not be negative, but got -1"),
        ({"val_samples": -3}, "must not be negative, but got train_samples=0, val_samples=-3"),
        ({"steps": 5, "epochs": 0, "eval_every": 6}, "must be from 1 to it, but got steps=5, eval_every=6"),
    ],
)
def test_a_broken_rule_names_the_values(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        SmallConfig.from_dict({"epochs": 1, **changes})


def test_fields_without_default_are_required() -> None:
    assert QuadraticConfig.required_names() == ["x"]
