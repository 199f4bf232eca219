"""What stays from trial to trial on purpose, in this process; in a worker: tests/group/test_worker_group.py."""

from __future__ import annotations

import pytest
import torch

from gaudi_tune import keep
from gaudi_tune.training import keep as kept


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_entries", {})


def layer() -> torch.nn.Linear:
    """A frozen layer with 3,000 weights in bfloat16, which are no whole number of words."""
    return torch.nn.Linear(999, 3).to(torch.bfloat16).requires_grad_(False)


def test_another_module_around_the_same_weights() -> None:
    first, second = keep("base", layer), keep("base", layer)
    second.register_forward_hook(lambda *_: pytest.fail("a hook of another trial"))
    second.weight.requires_grad_(True)
    first(torch.zeros(999, dtype=torch.bfloat16))
    assert first.weight.data_ptr() == second.weight.data_ptr() != keep("other", layer).weight.data_ptr()
    assert not first.weight.requires_grad


def test_tied_weights_stay_tied() -> None:
    def tied() -> torch.nn.Module:
        pair = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        pair[1].weight = pair[0].weight
        return pair

    pair = keep("base", tied)
    assert pair[1].weight is pair[0].weight  # type: ignore[index]


def test_something_else_under_the_name_takes_its_place() -> None:
    first = keep("base", layer, made_of=("a", "bf16"))
    assert keep("base", layer, made_of=("b", "bf16")).weight.data_ptr() != first.weight.data_ptr()
    assert list(kept._entries) == ["base"]


def test_what_is_no_weights_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"a mapping or list of these, but make\(\) returned Linear|returned set; return"
    ):
        keep("base", lambda: {1})
    assert kept._entries == {}


@pytest.mark.parametrize("device", ["exact", "bytes"])
def test_a_changed_byte_is_seen(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "EXACT_IN_64_BITS", ("cpu",) if device == "exact" else ())
    for place in (0, 70_000, 99_998):
        weights = keep("weights", lambda: [torch.ones(99_999, dtype=torch.bfloat16)])
        kept.forget_changed(lambda kind: False)
        assert "weights" in kept._entries
        weights[0].data[place] += 2**-7  # the smallest step
        kept.forget_changed(lambda kind: False)
        assert "weights" not in kept._entries


def test_classes_of_a_trials_own_code_are_forgotten() -> None:
    keep("base", layer)
    kept.forget_changed(lambda kind: kind is torch.nn.Linear)
    assert kept._entries == {}
