from __future__ import annotations

import copy
import io
import json
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import yaml
from pydantic import BaseModel

from gaudi_tune.training.noted_config import NotedConfig, noted, unread_keys

ENTRIES = {"lr": 0.1, "dropout": 0.2, "epochs": 3}


@pytest.fixture(autouse=True)
def _no_strict_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a worker: a plugin of pytest imports omegaconf."""
    monkeypatch.delitem(sys.modules, "omegaconf", raising=False)


class Model(BaseModel):
    lr: float
    dropout: float


def test_what_a_loop_looks_up_is_noted() -> None:
    config = noted(dict(ENTRIES))
    assert unread_keys(config) == []  # nothing was read: then the values are had in some other way
    assert (config["lr"], config.get("momentum", 0.9), "dropout" in config) == (0.1, 0.9, True)
    assert unread_keys(config) == ["dropout", "epochs"]
    match config:
        case {"epochs": epochs}:
            assert epochs == 3
    assert unread_keys(config) == ["dropout"]
    config.setdefault("dropout", 0.5)
    assert unread_keys(config) == []


def pickled(config: dict[str, Any]) -> Any:
    return pickle.loads(pickle.dumps(config))


def saved(config: dict[str, Any]) -> Any:
    file = io.BytesIO()
    torch.save(config, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(
    "take",
    [
        dict, copy.copy, copy.deepcopy, pickled, saved,
        lambda config: {**config},
        lambda config: (lambda **entries: entries)(**config),
        lambda config: json.loads(json.dumps(config)),
        lambda config: yaml.safe_load(yaml.safe_dump(config)),
        lambda config: {} | config,
    ],
)  # fmt: skip
def test_who_takes_all_of_it_has_read_every_key_and_has_a_plain_dict(take: Callable[[Any], Any]) -> None:
    config = noted(dict(ENTRIES))
    config["lr"]
    assert take(config) == ENTRIES
    assert not isinstance(take(config), NotedConfig)
    assert unread_keys(config) == []


def test_a_class_of_pydantic_reads_its_fields() -> None:
    config = noted(dict(ENTRIES))
    assert Model.model_validate(config).lr == 0.1
    assert unread_keys(config) == ["epochs"]


def test_omegaconf_gets_the_plain_dict_that_it_asks_for() -> None:
    from omegaconf import OmegaConf

    config = noted(dict(ENTRIES))
    assert OmegaConf.create({"trial": config}).trial.lr == 0.1
    assert type(config) is dict
