import pytest

from tests.loops import QuadraticConfig


def test_values_are_converted_and_defaults_filled() -> None:
    config = QuadraticConfig.from_dict({"x": "0.5", "epochs": "3"})
    assert (config.x, config.epochs, config.seed, config.fail_at) == (0.5, 3, 0, 0)


def test_everything_wrong_is_named_at_once() -> None:
    with pytest.raises(ValueError, match=r"'y' is not known; epochs='many': .*integer.*; 'x' is missing"):
        QuadraticConfig.from_dict({"y": 1, "epochs": "many"})


def test_a_broken_rule_is_said_in_words() -> None:
    with pytest.raises(ValueError, match="epochs or steps must be above 0, and the other 0"):
        QuadraticConfig.from_dict({"x": 1.0, "epochs": 0})


def test_fields_without_default_are_required() -> None:
    assert QuadraticConfig.required_names() == ["x"]
