"""LARS by its definition, and habana's the same to the last digits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gaudi_tune.devices.lars import Lars
from tests.helpers.stand_in_hpu import forked_output_of


def weight_with(gradient: list[float]) -> torch.nn.Parameter:
    weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))  # of length 5
    weight.grad = torch.tensor(gradient)
    return weight


def test_a_step_of_lars_has_a_thousandth_of_the_weights_length() -> None:
    weight, spared = weight_with([0.0, 2.0]), weight_with([0.0, 2.0])
    groups = [{"params": [weight]}, {"params": [spared], "weight_decay": 0.0, "adapts": False}]
    lars = Lars(groups, lr=2.0, momentum=0.5, weight_decay=0.2)
    lars.step()
    ratio = 0.001 * 5 / (2 + 0.2 * 5)
    step = 2.0 * ratio * torch.tensor([0.2 * 3, 2 + 0.2 * 4])
    assert torch.allclose(weight, torch.tensor([3.0, 4.0]) - step)
    assert torch.allclose(spared, torch.tensor([3.0, 0.0]))
    weight.grad = spared.grad = torch.zeros(2)  # what is left is momentum, at the old learning rate
    for group in lars.param_groups:
        group["lr"], group["weight_decay"] = 100.0, 0.0
    lars.step()
    assert torch.allclose(weight, torch.tensor([3.0, 4.0]) - 1.5 * step)
    assert torch.allclose(spared, torch.tensor([3.0, -2.0]))


def test_weights_of_zero_take_plain_steps() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    weight.grad = torch.ones(2)
    Lars([weight], lr=0.5, weight_decay=0.1).step()
    assert torch.allclose(weight, torch.tensor(-0.5), atol=1e-5)


AS_HABANAS = """
import torch
from gaudi_tune.devices.find import DEVICE_TYPES, worker_device
from gaudi_tune.training.checkpoint import read_state, write_state
from pathlib import Path
def trained(device, at):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 3)).to(at)
    weights = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim == 1]
    spared = {"params": others, "weight_decay": 0.0, "adapts": False}
    def optimizer():
        groups = [dict(group) for group in ({"params": weights}, spared)]
        return device.optimizer_class("lars")(groups, lr=0.5, weight_decay=0.01, momentum=0.9)
    used = optimizer()
    for step in range(6):
        if step == 3:
            Path(device.kind).mkdir()
            write_state(Path(device.kind), {"optimizer": used.state_dict()})
            used = optimizer()
            used.load_state_dict(read_state(Path(device.kind))["optimizer"])
        for group in used.param_groups:
            group["lr"] = 0.5 / (step + 1)
        model(torch.ones(8, 6, device=at) * step - 2).square().sum().backward()
        used.step()
        used.zero_grad()
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])
hpu = worker_device()
theirs, ours = trained(DEVICE_TYPES["hpu"], hpu), trained(DEVICE_TYPES["cpu"], "cpu")
print(torch.allclose(theirs.cpu(), ours, rtol=1e-5, atol=1e-6), bool(ours.isfinite().all()))
"""


@pytest.mark.processes
def test_habanas_own_take_the_same_steps_before_and_after_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"HABANA_VISIBLE_MODULES": "6", "HLS_MODULE_ID": "6"}
    assert forked_output_of(AS_HABANAS, tmp_path, **given) == "True True\n"
