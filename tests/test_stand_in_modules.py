"""The stand-in for Gaudis keeps to the rules of who has which module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.stand_in_hpu import fork, forked_output_of, output_of, ownerships, start

pytestmark = pytest.mark.processes

BUSY = "synStatus=8 [Device not found] Device acquire failed."
USE = "import torch, habana_frameworks.torch; print('sum', float(torch.ones(3, device='hpu').sum()))"
HOLD = f"{USE}; print('have it', flush=True); import time; time.sleep(300)"


def test_ray_finds_eight_hpus_and_nobody_acquires_one(tmp_path: Path) -> None:
    code = """
from ray._private.accelerators.hpu import HPUAcceleratorManager as hpus
from gaudi_tune.devices.find import find_devices
print(hpus.get_current_node_num_accelerators(), find_devices("auto", None).type.kind)
"""
    assert "8 hpu" in output_of(code, tmp_path)
    assert not (tmp_path / "acquisitions.jsonl").exists()


def test_a_module_is_acquired_at_the_first_use_and_released_at_the_end(tmp_path: Path) -> None:
    assert "sum 3.0" in output_of(USE, tmp_path, HLS_MODULE_ID="5")
    (had,) = ownerships(tmp_path)
    assert had.module == 5
    assert had.until is not None


def test_a_module_has_one_owner_and_is_busy_for_a_while_after_its_owner_was_killed(tmp_path: Path) -> None:
    owner = fork(HOLD, tmp_path, HLS_MODULE_ID="1")
    assert [owner.stdout.readline() for _ in range(2)] == ["sum 3.0\n", "have it\n"]
    neighbour = fork(USE, tmp_path, HLS_MODULE_ID="2")
    assert BUSY in forked_output_of(USE, tmp_path, HLS_MODULE_ID="1")
    assert "sum 3.0" in neighbour.printed()
    owner.kill()
    assert BUSY in forked_output_of(USE, tmp_path, HLS_MODULE_ID="1", HABANA_STAND_IN_WAIT_S="0")
    # It waits for it.
    assert "sum 3.0" in forked_output_of(USE, tmp_path, HLS_MODULE_ID="1", HABANA_STAND_IN_WAIT_S="4")


def test_a_process_that_knows_no_module_takes_any_that_is_free(tmp_path: Path) -> None:
    here = {"HABANA_STAND_IN_MODULES": "2,5"}
    with fork(HOLD, tmp_path, HLS_MODULE_ID="2", **here) as owner:
        assert owner.stdout.readline() == "sum 3.0\n"
        assert "sum 3.0" in forked_output_of(USE, tmp_path, **here)
        owner.kill()
    assert [ownership.module for ownership in ownerships(tmp_path)] == [2, 5]


def test_a_module_that_is_not_here_is_not_found(tmp_path: Path) -> None:
    container = {"HABANA_STAND_IN_MODULES": "4,5"}  # given by index
    assert BUSY in forked_output_of(USE, tmp_path, HLS_MODULE_ID="0", **container)
    assert "sum 3.0" in forked_output_of(USE, tmp_path, HLS_MODULE_ID="5", **container)


def test_a_forked_child_is_refused(tmp_path: Path) -> None:
    code = f"{USE}\nimport os\nif os.fork() == 0:\n    torch.ones(1, device='hpu')\nelse:\n    os.wait()"
    assert "synStatus=26 [Generic failure] forked after the device was acquired" in forked_output_of(
        code, tmp_path, HLS_MODULE_ID="0"
    )


def test_the_import_asserts_in_a_child_that_cannot_tell_its_module(tmp_path: Path) -> None:
    of_two = {"WORLD_SIZE": "2", "LOCAL_RANK": "1", "HABANA_VISIBLE_MODULES": "3"}
    assert "AssertionError: There is not enough devices" in output_of(USE, tmp_path, **of_two)
    assert "sum 3.0" in output_of(USE, tmp_path, **of_two, HLS_MODULE_ID="3")


def test_torch_imports_habana_unless_it_is_told_not_to(tmp_path: Path) -> None:
    of_two = {"WORLD_SIZE": "2", "LOCAL_RANK": "1", "HABANA_VISIBLE_MODULES": "3"}  # whom the import refuses
    code = "import sys, torch; print('habana_frameworks.torch' in sys.modules)"
    told: list[dict[str, str]] = [{}, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, {"PT_HPU_LAZY_MODE": "1"}]
    refused, *let = [start(code, tmp_path, **of_two, **how) for how in told]
    assert "Failed to load the backend extension: device_backend" in refused.communicate(timeout=120)[0]
    assert [process.communicate(timeout=120)[0] for process in let] == ["False\n", "False\n"]
    assert output_of(code, tmp_path) == "True\n"


def test_a_process_may_end_right_after_a_backward_pass(tmp_path: Path) -> None:
    code = """
import sys
import torch
import habana_frameworks.torch
weight = torch.ones(3, requires_grad=True, device="hpu")
sys.setswitchinterval(100)  # autograd's thread gets no turn by itself
weight.sum().backward()
"""
    with start(code, tmp_path) as process:
        printed, _ = process.communicate(timeout=400)
    assert (process.returncode, printed) == (0, "")
    assert [owned.until is not None for owned in ownerships(tmp_path)] == [True]


def test_the_device_module_goes_by_the_rules(tmp_path: Path) -> None:
    """What the training loop asks of a device, on the stand-in, in both modes."""
    code = """
import torch
from gaudi_tune.devices.device_metrics import TrialCounts
from gaudi_tune.devices.find import DEVICE_TYPES, worker_device
from gaudi_tune.devices.gaudi_node import prepare_worker
prepare_worker()
hpu = worker_device()
device = DEVICE_TYPES[hpu.type]
weight = torch.nn.Parameter(torch.ones(4, device=hpu))
optimizer = device.optimizer_class("adamw")([weight], lr=0.1, weight_decay=0.5)
with device.autocast():
    product = weight.unsqueeze(0) @ weight.unsqueeze(1)
print(hpu, product.dtype, type(optimizer).__name__, optimizer.defaults["eps"], optimizer.defaults["weight_decay"])
product.float().sum().backward()
counts = TrialCounts(device)
torch.empty(2**25, device=hpu)
device.mark_step()
device.gradient_clipping([weight], 0.5)()
device.synchronize()
print("norm", round(float(weight.grad.norm()), 4), "marks", torch.hpu.metrics.metric_global("mark_step").stats()[0][1])
optimizer.step()
device.mark_step()
device.synchronize()
torch.hpu.metrics.COUNTS["cpu_fallback"] += 2
used = {"system/hpu_6_utilization_percentage": 40.0, "system/cpu_utilization_percentage": 99.0}
own = counts.add_to_report({"loss": 1.0}, used)
print({**own, "peak_memory_gb": own["peak_memory_gb"] > 0.1})
print({**counts.add_to_report({"compile_s": 3.0}, {}), "peak_memory_gb": 0})
rmsprop = device.optimizer_class("rmsprop")([weight], lr=0.0)
rmsprop.step()
from torch.optim.optimizer import _default_to_fused_or_foreach
print("foreach", rmsprop.defaults["foreach"], _default_to_fused_or_foreach([weight], False)[1])
frozen = torch.nn.Parameter(weight.detach())
try:
    device.optimizer_class("sgd")([{"params": [weight]}, {"params": [frozen]}], lr=0.0).step()
except RuntimeError as error:
    print("refused", error)
"""
    for lazy, marks, compiled in (("0", 0, 3), ("1", 1, 1)):  # in eager mode three operations
        settings = {"HABANA_VISIBLE_MODULES": "6", "PT_HPU_LAZY_MODE": lazy, "HABANA_STAND_IN_COMPILE_S": "0.25"}
        printed = forked_output_of(code, tmp_path, **settings)
        assert "hpu torch.bfloat16 FusedAdamW 1e-08 0.5" in printed
        assert f"norm 0.5 marks {marks}" in printed
        assert "foreach True False" in printed  # torch itself would update one parameter after another
        assert "refused can not process empty weight vector" in printed
        of_memory = {"peak_memory_gb": True}
        counted = {**of_memory, "graph_compilations": compiled, "cpu_fallbacks": 2, "compile_s": 0.25 * marks}
        assert str({"device_utilization": 40.0, **counted, "loss": 1.0}) in printed
        assert str({**counted, "peak_memory_gb": 0, "compile_s": 3.0}) in printed
    assert {ownership.module for ownership in ownerships(tmp_path)} == {6}


def test_pyhlml_wants_to_be_initialised_once_and_counts_in_an_order_of_its_own(tmp_path: Path) -> None:
    code = """
import pyhlml
def error(call, *arguments):
    try:
        return call(*arguments)
    except Exception as error:
        return f"{type(error).__name__} {getattr(error, 'value', '')}"
print("before", error(pyhlml.hlmlDeviceGetCount))
pyhlml.hlmlInit()
print("twice", error(pyhlml.hlmlInit))
print("index 8", error(pyhlml.hlmlDeviceGetHandleByIndex, 8))
print("modules", [pyhlml.hlmlDeviceGetModuleID(pyhlml.hlmlDeviceGetHandleByIndex(i)) for i in range(8)])
pyhlml.hlmlShutdown()
print("after", error(pyhlml.hlmlDeviceGetCount))
"""
    assert output_of(code, tmp_path).splitlines() == [
        "before AttributeError ",
        "twice HLMLError 5",
        "index 8 HLMLError 2",
        "modules [3, 4, 5, 6, 7, 0, 1, 2]",
        "after HLMLError 1",
    ]
