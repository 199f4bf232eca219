"""The stand-in for a Gaudi is as strict as the real thing: each rule is broken on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stand_in_hpu import compilations, output_of, ownerships, start

pytestmark = pytest.mark.processes

BUSY = "synStatus=8 [Device not found] Device acquire failed."
USE = "import torch, habana_frameworks.torch; print('sum', float(torch.ones(3, device='hpu').sum()))"
HOLD = f"{USE}; print('have it', flush=True); import time; time.sleep(300)"


def test_ray_finds_eight_hpus_and_nobody_acquires_one(tmp_path: Path) -> None:
    code = """
from ray._private.accelerators.hpu import HPUAcceleratorManager as hpus
from trainables.runtime.devices.find import find_devices
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
    owner = start(HOLD, tmp_path, HLS_MODULE_ID="1")
    assert owner.stdout is not None
    assert [owner.stdout.readline() for _ in range(2)] == ["sum 3.0\n", "have it\n"]
    neighbour = start(USE, tmp_path, HLS_MODULE_ID="2")
    assert BUSY in output_of(USE, tmp_path, HLS_MODULE_ID="1")
    assert "sum 3.0" in neighbour.communicate(timeout=120)[0]
    owner.kill()
    owner.wait()
    assert BUSY in output_of(USE, tmp_path, HLS_MODULE_ID="1", HABANA_STAND_IN_WAIT_S="0")
    assert "sum 3.0" in output_of(USE, tmp_path, HLS_MODULE_ID="1", HABANA_STAND_IN_WAIT_S="4")  # it waits for it


def test_a_process_that_knows_no_module_takes_any_that_is_free(tmp_path: Path) -> None:
    here = {"HABANA_STAND_IN_MODULES": "2,5"}
    with start(HOLD, tmp_path, HLS_MODULE_ID="2", **here) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "sum 3.0\n"
        assert "sum 3.0" in output_of(USE, tmp_path, **here)
        owner.kill()
    assert [ownership.module for ownership in ownerships(tmp_path)] == [2, 5]


def test_a_module_that_is_not_here_is_not_found(tmp_path: Path) -> None:
    container = {"HABANA_STAND_IN_MODULES": "4,5"}  # given by index
    assert BUSY in output_of(USE, tmp_path, HLS_MODULE_ID="0", **container)
    assert "sum 3.0" in output_of(USE, tmp_path, HLS_MODULE_ID="5", **container)


def test_a_forked_child_is_refused(tmp_path: Path) -> None:
    code = f"{USE}\nimport os\nif os.fork() == 0:\n    torch.ones(1, device='hpu')\nelse:\n    os.wait()"
    assert "synStatus=26 [Generic failure] forked after the device was acquired" in output_of(
        code, tmp_path, HLS_MODULE_ID="0"
    )


def test_the_import_asserts_in_a_child_that_cannot_tell_its_module(tmp_path: Path) -> None:
    of_two = {"WORLD_SIZE": "2", "LOCAL_RANK": "1", "HABANA_VISIBLE_MODULES": "3"}
    assert "AssertionError: There is not enough devices" in output_of(USE, tmp_path, **of_two)
    assert "sum 3.0" in output_of(USE, tmp_path, **of_two, HLS_MODULE_ID="3")


@pytest.mark.parametrize(("lazy", "says"), [("0", "mark_step() has no meaning in eager mode"), ("1", "marked")])
def test_steps_are_marked_in_lazy_mode_only(lazy: str, says: str, tmp_path: Path) -> None:
    code = "import habana_frameworks.torch.core as core; core.mark_step(); print('marked')"
    assert says in output_of(code, tmp_path, PT_HPU_LAZY_MODE=lazy)


COMPILED = """
import torch, habana_frameworks.torch
from torch import nn
metric = torch.hpu.metrics.metric_global
def run(samples=8, dropout=0.1, train=True):
    network = nn.Sequential(nn.Linear(4, 2), nn.Dropout(dropout)).to("hpu").train(train)
    torch.compile(network, backend="hpu_backend", dynamic=False)(torch.ones(samples, 4, device="hpu"))
for changes in {}, {}, {"samples": 4}, {"dropout": 0.2}, {"train": False}:
    run(**changes)
    print(*dict(metric("graph_compilation").stats()).values())
torch._dynamo.reset()
run()
print(*dict(metric("recipe_cache").stats()).values(), metric("none"))
"""


def test_each_graph_is_compiled_once_in_a_process_and_once_on_a_node(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    settings = {
        "HLS_MODULE_ID": "0",
        "HABANA_STAND_IN_COMPILE_S": "0.25",
        "PT_HPU_ENABLE_CACHE_METRICS": "1",
        "PT_HPU_RECIPE_CACHE_CONFIG": f"{tmp_path / 'recipes'},false,100",
    }
    counted = [f"{number} {250_000 * number} 250000.0" for number in (1, 1, 2, 3, 4)]
    assert output_of(COMPILED, tmp_path, **settings).splitlines() == [*counted, "2 4 {} {} None"]
    assert output_of(COMPILED, tmp_path, **settings).splitlines() == [*["0 0 0"] * 5, "6 0 {} {} None"]
    assert len(compilations(tmp_path)) == 4


def test_lazy_mode_compiles_what_was_collected_since_the_last_mark(tmp_path: Path) -> None:
    code = """
import torch, habana_frameworks.torch.core as core
from habana_frameworks.torch.hpex.optimizers import FusedSGD
from torch import nn
def step(samples=8, smoothing=0.0, decay=0.0, lr=0.1, dropout=0.1):
    network = nn.Sequential(nn.Linear(4, 2), nn.Dropout(dropout)).to("hpu")
    optimizer = FusedSGD(network.parameters(), lr=lr, weight_decay=decay)
    labels = torch.zeros(samples, dtype=torch.int64, device="hpu")
    outputs = network(torch.ones(samples, 4, device="hpu"))
    nn.functional.cross_entropy(outputs, labels, label_smoothing=smoothing).backward()
    core.mark_step()
    optimizer.step()
    core.mark_step()
    return dict(torch.hpu.metrics.metric_global("graph_compilation").stats())["TotalNumber"]
changes = [{}, {"lr": 0.2}, {"samples": 4}, {"smoothing": 0.1}, {"dropout": 0.2}, {"decay": 0.1}]
print([step(**change) for change in changes])
"""
    assert output_of(code, tmp_path, HLS_MODULE_ID="0", PT_HPU_LAZY_MODE="1") == "[2, 2, 3, 4, 5, 6]\n"


def test_the_device_module_goes_by_the_rules(tmp_path: Path) -> None:
    """What the training loop asks of a device, on the stand-in, in both modes."""
    code = """
import torch
from trainables.runtime.devices.device_metrics import TrialCounts
from trainables.runtime.devices.find import DEVICE_TYPES, worker_device
from trainables.runtime.devices.hpu import name_own_module
name_own_module()
hpu = worker_device()
device = DEVICE_TYPES[hpu.type]
weight = torch.nn.Parameter(torch.ones(4, device=hpu))
optimizer = device.optimizer_class("adamw")([weight], lr=0.1, weight_decay=0.5)
with device.autocast():
    product = weight.unsqueeze(0) @ weight.unsqueeze(1)
print(hpu, product.dtype, type(optimizer).__name__, optimizer.defaults["eps"], optimizer.defaults["weight_decay"])
product.float().sum().backward()
counts = TrialCounts(device)
device.mark_step()
device.clip_gradients([weight], 0.5)
device.synchronize()
print("norm", round(float(weight.grad.norm()), 4), "marks", torch.hpu.metrics.metric_global("mark_step").stats()[0][1])
optimizer.step()
device.mark_step()
torch.hpu.metrics.COUNTS["cpu_fallback"] += 2
used = {"system/hpu_6_utilization_percentage": 40.0, "system/cpu_utilization_percentage": 99.0}
own = counts.added_to({"loss": 1.0}, used)
print({**own, "peak_memory_gb": own["peak_memory_gb"] > 0.1})
print({**counts.added_to({"compile_s": 3.0}, {}), "peak_memory_gb": 0})
"""
    for lazy, marks in (("0", 0), ("1", 1)):
        settings = {"HABANA_VISIBLE_MODULES": "6", "PT_HPU_LAZY_MODE": lazy, "HABANA_STAND_IN_COMPILE_S": "0.25"}
        printed = output_of(code, tmp_path, **settings)
        assert "hpu torch.bfloat16 FusedAdamW 1e-08 0.5" in printed
        assert f"norm 0.5 marks {marks}" in printed
        counted = {"peak_memory_gb": True, "graph_compilations": marks, "cpu_fallbacks": 2, "compile_s": 0.25 * marks}
        assert str({"device_utilization": 40.0, **counted, "loss": 1.0}) in printed
        assert str({**counted, "peak_memory_gb": 0, "compile_s": 3.0}) in printed
    assert {ownership.module for ownership in ownerships(tmp_path)} == {6}


def test_the_compiler_takes_no_second_shape_as_a_symbol(tmp_path: Path) -> None:
    """Models are compiled as they must be, and the same with torch's own defaults fails where a Gaudi would."""
    code = """
import torch
from trainables.runtime.devices.find import DEVICE_TYPES, worker_device
model = torch.nn.Linear(4, 2).to(worker_device())
model = DEVICE_TYPES["hpu"].compile(model) if {ours} else torch.compile(model, backend="hpu_backend")
for size in (8, 5, 3):
    model(torch.ones(size, 4))
print("graphs", torch.hpu.metrics.metric_global("graph_compilation").stats()[0][1])
"""
    given = {"HABANA_VISIBLE_MODULES": "6", "HLS_MODULE_ID": "6"}
    assert "graphs 3" in output_of(code.format(ours=True), tmp_path, **given)
    assert "Cannot convert symbols to int" in output_of(code.format(ours=False), tmp_path, **given)


def test_a_lazy_evaluation_is_cut_into_a_graph_a_batch(tmp_path: Path) -> None:
    """Three batches of 64, 64 and 3, each cut behind the model and behind the metrics; training cuts twice a step."""
    code = """
import torch
from tests.sessions import reports_of
from tests.small_task import small_loop
reports_of(small_loop, {"steps": 2, "eval_every": 1, "lazy_mode": True})
print("marks", torch.hpu.metrics.metric_global("mark_step").stats()[0][1])
"""
    given = {"HABANA_VISIBLE_MODULES": "6", "HLS_MODULE_ID": "6", "PT_HPU_LAZY_MODE": "1"}
    assert f"marks {2 * 2 + 2 * 2 * 3}" in output_of(code, tmp_path, **given)


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
