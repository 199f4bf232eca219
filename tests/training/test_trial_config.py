import math
import re
from dataclasses import replace
from typing import Any

import pytest

from gaudi_tune.devices.hpu import HPU
from tests.helpers.loops import QuadraticConfig
from tests.helpers.small_task import SmallConfig
from trainables.resnet50_imagenet import ResNet50ImageNetConfig


def test_values_are_converted_and_defaults_filled() -> None:
    config = QuadraticConfig.from_dict({"x": "0.5", "epochs": "3"})
    assert (config.x, config.epochs, config.seed, config.fail_at) == (0.5, 3, 0, 0)


def test_everything_wrong_is_named_at_once() -> None:
    message = r"'y' is not known; epochs='many': .*integer.*; 'x' is missing\. It knows: epochs, .*, x, "
    with pytest.raises(ValueError, match=message):
        QuadraticConfig.from_dict({"y": 1, "epochs": "many"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": -1}, "lr must be above 0, but got -1.0"),
        ({"lr": math.nan}, "lr must be above 0, but got nan"),
        ({"lr": math.inf}, "must be finite, but got lr=inf, weight_decay=0.0, clip_norm=0.0"),
        ({"momentum": 2}, "momentum must be from 0 to below 1, but got 2.0"),
        ({"weight_decay": math.nan}, "weight_decay must not be negative, but got nan"),
        ({"nesterov": True, "momentum": 0.0}, "nesterov needs a momentum above 0, but got momentum=0.0, nesterov=True"),
        ({"warmup": 1.5}, "warmup must be from 0 to 1, but got 1.5"),
        ({"label_smoothing": 1}, "label_smoothing must be from 0 to below 1, but got 1.0"),
        ({"ema_decay": 1}, "ema_decay must be from 0 to below 1, but got 1.0"),
        ({"clip_norm": -1}, "clip_norm must not be negative, but got -1.0"),
        ({"loader_workers": -1}, "loader_workers must not be negative, but got -1"),
        ({"micro_batch": -1}, "micro_batch must not be negative, but got -1"),
        ({"val_samples": -3}, "must not be negative, but got train_samples=0, val_samples=-3"),
        ({"epochs": 0}, "epochs or steps must be above 0, and the other 0, but got epochs=0, steps=0"),
        ({"steps": 1, "eval_every": 1}, "epochs or steps must be above 0, and the other 0, but got epochs=1, steps=1"),
        ({"epochs": -1}, "must not be negative, but got epochs=-1"),
        ({"steps": 5, "epochs": 0}, "must be from 1 to steps, but got steps=5, eval_every=0"),
        ({"steps": 5, "epochs": 0, "eval_every": 6}, "must be from 1 to steps, but got steps=5, eval_every=6"),
    ],
)
def test_a_broken_rule_names_the_values(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        SmallConfig.from_dict({"epochs": 1, **changes})


def test_nesterov_needs_no_momentum_where_the_optimizer_has_none() -> None:
    given = {"epochs": 1, "optimizer": "adamw", "momentum": 0.0, "nesterov": True}
    assert SmallConfig.from_dict(given).nesterov


def test_fields_without_default_are_required() -> None:
    assert QuadraticConfig.required_names() == ["x"]


OF_A_STEP: list[dict[str, Any]] = [
    {"weight_decay": 0.1}, {"label_smoothing": 0.1}, {"nesterov": True}, {"batch_size": 32, "micro_batch": 16},
]  # fmt: skip
OF_NO_GRAPH: dict[str, Any] = {"lr": 0.5, "momentum": 0.5, "clip_norm": 1.0, "warmup": 0.5, "seed": 7, "epochs": 9}


def test_a_graph_signature_has_shapes_and_what_is_baked_into_the_model() -> None:
    config = SmallConfig(epochs=1, batch_size=16, compile=True)
    signature = config.graph_signature(HPU, 1)
    assert signature == {"samples of a micro-batch": 16, "mixed_precision": "auto", "eval_batch": 64, "dropout": 0.2}
    for same in (OF_NO_GRAPH, *OF_A_STEP):
        assert replace(config, **same).graph_signature(HPU, 1) == signature
    assert replace(config, batch_size=32).graph_signature(HPU, 2) == signature
    for other in ({"batch_size": 8}, {"dropout": 0.1}, {"mixed_precision": "off"}):
        assert replace(config, **other).graph_signature(HPU, 1) != signature


def test_in_lazy_mode_a_graph_is_a_whole_step() -> None:
    settings: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0, "label_smoothing": 0.0}
    config = ResNet50ImageNetConfig(epochs=1, batch_size=16, compile=False, lazy_mode=True, **settings)
    signature = config.graph_signature(HPU, 1)
    assert replace(config, **OF_NO_GRAPH).graph_signature(HPU, 1) == signature
    for other in OF_A_STEP:
        assert replace(config, **other).graph_signature(HPU, 1) != signature


def test_there_is_no_signature_without_compilation_or_a_graph() -> None:
    assert SmallConfig(epochs=1, compile=False).graph_signature(HPU, 1) is None
    assert QuadraticConfig(epochs=1, x=0.5).graph_signature(HPU, 1) is None
