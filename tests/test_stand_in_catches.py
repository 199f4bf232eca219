"""The stand-in for a Gaudi catches mistakes that only a device would show.

Each part of the code below finds what the project's way gives, and what a planted mistake gives.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.stand_in_hpu import forked_output_of

pytestmark = pytest.mark.processes

BEGIN = """
import contextlib, json, time, torch
import habana_frameworks.torch
from unittest.mock import patch
from habana_frameworks.torch import _device, _recipes
from gaudi_tune.devices.find import DEVICE_TYPES, worker_device
from gaudi_tune.recipes import compiling, loop
from gaudi_tune.recipes.feed import Feed
from gaudi_tune.recipes.task import Task
from tests.helpers.sessions import reports_of
from tests.helpers.small_task import SmallConfig, small_loop
hpu = DEVICE_TYPES[worker_device().type]
found = {}
def refused(use, *given):
    try:
        use(*given)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
"""
END = "\nprint(json.dumps(found))\n"

WAITS = """
def waits_of(steps):
    before = _device.counts().waits
    reports_of(small_loop, {"steps": steps, "eval_every": steps, "optimizer": "adamw", "compile": False})
    return _device.counts().waits - before
def waits_a_step():
    return (waits_of(9) - waits_of(4)) / 5
def reads_each_loss(trial, batch, interval):
    step(trial, batch, interval)
    float(interval.loss_sum)
step = loop._Trial._step
found["waits"] = [waits_a_step()]
with patch.object(loop._Trial, "_step", reads_each_loss):
    found["waits"].append(waits_a_step())
"""

CLIPPING = """
weights = [torch.nn.Parameter(torch.ones(4, device="hpu")) for _ in range(30)]
for weight in weights:
    weight.grad = torch.ones_like(weight)
def counted(use, what):
    use()  # which makes the state of an optimizer
    before = getattr(_device.counts(), what)
    use()
    return getattr(_device.counts(), what) - before
found["clipping"] = [counted(hpu.gradient_clipping(weights, 1.0), "waits")]
found["clipping"].append(counted(lambda: hpu.gradient_clipping(weights, 1.0)(), "waits"))
"""

FOREACH = """
found["foreach"] = [counted(optimizer(weights, lr=0.1).step, "launches")
                    for optimizer in (hpu.optimizer_class("rmsprop"), torch.optim.RMSprop)]
"""

EMPTY_GROUPS = """
network = torch.nn.Linear(4, 2, bias=False).to("hpu")
network(torch.ones(1, 4, device="hpu")).sum().backward()
def step_with(groups):
    hpu.optimizer_class("sgd")(groups, lr=0.1).step()
config = SmallConfig(epochs=1, decayed="weights")
found["empty groups"] = [refused(config.make_optimizer(network, torch.device("hpu")).step),
                         refused(step_with, [{"params": [*network.parameters()]}, {"params": []}])]
"""

COPIES = """
from functools import partial
from tests.helpers import small_task
from gaudi_tune.recipes.loading import padded
class Bytes(small_task.Points):
    def __getitems__(self, indices):
        batch = super().__getitems__(indices)
        return {**batch, "points": (batch["points"] * 20 + 100).clamp(0, 255).to(torch.uint8)}
def scaled(batch):
    return {**batch, "points": batch["points"].float().sub(100).div(20)}
def prepares_on_the_host(trial, loader, pad_to=0):
    for batch in loader:
        prepared = scaled(padded(batch, pad_to))
        yield {name: tensor.to("hpu", non_blocking=True) for name, tensor in prepared.items()}, len(batch["labels"])
def bytes_copied():
    before = _device.counts().bytes_to_device
    task = partial(Task, prepare=scaled)
    with patch.object(small_task, "Points", Bytes), patch.object(small_task, "Task", task):
        reports_of(small_loop, {"steps": 5, "eval_every": 5, "optimizer": "adamw", "compile": False})
    return _device.counts().bytes_to_device - before
found["copies"] = [bytes_copied()]
with patch.object(Feed, "on_device", prepares_on_the_host):
    found["copies"].append(bytes_copied())
"""

EAGER = """
def compilations():
    before = _device.compiled()[0]
    reports_of(small_loop, {"steps": 2, "eval_every": 2, "optimizer": "adamw", "compile": False})
    return _device.compiled()[0] - before
def pads_on_the_device(trial, loader, pad_to=0):
    for batch in loader:
        yield padded({name: tensor.to("hpu") for name, tensor in batch.items()}, pad_to), len(batch["labels"])
compilations()
found["padding"] = [compilations()]
with patch.object(Feed, "on_device", pads_on_the_device):
    found["padding"].append(compilations())
"""

AOT = """
def train_compiled(backward):
    with patch.object(torch.Tensor, "backward", backward):
        reports_of(small_loop, {"steps": 2, "eval_every": 2, "optimizer": "adamw", "compile": True})
def keeps_graph(loss):
    torch.autograd.backward(loss, create_graph=True)
found["compiled"] = [refused(train_compiled, torch.Tensor.backward), refused(train_compiled, keeps_graph)]
"""

MEMORY = """
def old_way():
    stats = torch.hpu.memory_stats()
    return stats["InUse"] / stats["Limit"]
def after_a_large_tensor(measure):
    before = measure()
    torch.empty(_device.counts().most_memory, dtype=torch.uint8, device="hpu")
    return measure() > before
found["memory"] = [after_a_large_tensor(hpu.memory_in_use), after_a_large_tensor(old_way)]
kept = []
def leaves_a_tensor():
    before = hpu.memory_in_use()
    kept.append(torch.empty(1000, device="hpu"))
    return hpu.memory_in_use() > before
found["left"] = leaves_a_tensor()
"""


CLOCK = """
def adds_up(compilations):  # as the clock once did
    reading, counted_s = time.perf_counter(), compilations._counted()
    compile_s = counted_s - compilations._counted_s
    compilations._clock += reading - compilations._previous_reading - compile_s
    compilations._seconds += compile_s
    compilations._previous_reading, compilations._counted_s = reading, counted_s
def trained_s(size):
    began, before = time.perf_counter(), _device.compiled()[1]
    config = {"steps": 3, "eval_every": 3, "optimizer": "adamw", "compile": False, "batch_size": size}
    (report,) = reports_of(small_loop, config)
    wall_s, compiled_s = time.perf_counter() - began, _device.compiled()[1] - before
    return report["train_s"], report["compile_s"], wall_s, compiled_s
found["clock"] = [trained_s(7)]
with patch.object(compiling.Compiling, "_advance", adds_up):
    found["clock"].append(trained_s(9))
"""

FIRST_ALONE = """
import os, pathlib
recipes = pathlib.Path("recipes")
recipes.mkdir()
os.environ["PT_HPU_RECIPE_CACHE_CONFIG"] = f"{recipes.absolute()},false,100"
class Watched(compiling.Compiling):
    @contextlib.contextmanager
    def _first_alone(self, folder, key):
        with super()._first_alone(folder, key):
            yield
        whole.append(all(map(_recipes._is_whole, recipes.glob("*.recipe"))))
def are_whole(size):
    whole.clear()
    config = {"steps": 2, "eval_every": 2, "optimizer": "adamw", "compile": True, "batch_size": size, "size": size}
    reports_of(small_loop, config)
    return list(whole)
whole = []
with patch.object(loop, "Compiling", Watched):
    found["whole recipes"] = [are_whole(12)]
    with patch.object(type(hpu), "synchronize", lambda self: None):
        found["whole recipes"].append(are_whole(13))
"""

OUT_OF_MEMORY = """
try:
    torch.empty(2**28, dtype=torch.uint8, device="hpu")
except Exception as error:
    found["out of memory"] = [hpu.is_out_of_memory(error), isinstance(error, torch.OutOfMemoryError)]
found["goes on"] = refused(lambda: torch.ones(1, device="hpu"))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the parts find that the device's counts show."""
    parts = BEGIN, WAITS, CLIPPING, FOREACH, EMPTY_GROUPS, COPIES, EAGER, AOT, MEMORY
    return run(parts, tmp_path_factory.mktemp("counted"))


@pytest.fixture(scope="module")
def with_costs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the parts find that a device's times, and a small memory, show."""
    costs = {"COMPILE_S": "1", "EAGER_COMPILE_S": "0.1", "OPERATION_S": "0.001", "MEMORY_GB": "0.125"}
    return run((BEGIN, CLOCK, FIRST_ALONE, OUT_OF_MEMORY), tmp_path_factory.mktemp("costs"), **costs)


def run(parts: tuple[str, ...], folder: Path, **costs: str) -> dict[str, Any]:
    own = {"HABANA_VISIBLE_MODULES": "0", "HLS_MODULE_ID": "0", "PYTHONWARNINGS": "ignore"}
    settings = {f"HABANA_STAND_IN_{name}": value for name, value in costs.items()}
    code = f"import os; os.chdir({str(folder)!r})\n" + "".join(parts) + END
    printed = forked_output_of(code, folder, **own, **settings)
    assert printed.splitlines()[-1].startswith("{"), printed
    result: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return result


def test_a_loss_that_is_read_in_each_step_waits_for_the_device(found: dict[str, Any]) -> None:
    waits, planted = found["waits"]
    assert waits == 0
    assert planted >= 1


def test_clipping_that_is_made_anew_in_each_step_waits_once_more(found: dict[str, Any]) -> None:
    waits, planted = found["clipping"]
    assert planted == waits + 1  # habana's kernel waits once by itself


def test_an_optimizer_that_does_not_ask_for_many_parameters_at_once_takes_one_by_one(found: dict[str, Any]) -> None:
    launches, planted = found["foreach"]
    assert launches < 10
    assert planted >= 3 * 30


def test_a_group_without_parameters_is_refused(found: dict[str, Any]) -> None:
    assert found["empty groups"] == [None, "RuntimeError: can not process empty weight vector"]


def test_samples_that_are_prepared_on_the_host_copy_more_bytes(found: dict[str, Any]) -> None:
    copied, planted = found["copies"]
    assert copied < planted / 2


def test_batches_that_are_padded_on_the_device_compile_operations(found: dict[str, Any]) -> None:
    compilations, planted = found["padding"]
    assert compilations == 0
    assert planted > 0


def test_a_backward_pass_that_keeps_its_graph_is_refused_where_models_are_compiled(found: dict[str, Any]) -> None:
    error, planted = found["compiled"]
    assert error is None
    assert "requires create_graph=False and retain_graph=False" in planted


def test_memory_that_includes_the_workspace_seems_to_grow(found: dict[str, Any]) -> None:
    assert found["memory"] == [False, True]
    assert found["left"]  # what stays is seen


def test_a_clock_that_adds_up_compilations_runs_backwards(with_costs: dict[str, Any]) -> None:
    (trained_s, compile_s, wall_s, _), (planted_s, planted_compile_s, planted_wall_s, compiled_s) = with_costs["clock"]
    assert trained_s > 0
    assert trained_s + compile_s <= wall_s
    assert planted_s < 0
    assert planted_compile_s == pytest.approx(compiled_s, abs=0.01)
    assert planted_compile_s > planted_wall_s


def test_groups_are_let_in_when_recipes_are_whole(with_costs: dict[str, Any]) -> None:
    whole, planted = with_costs["whole recipes"]
    assert whole == [True, True]
    assert planted[0] is False


def test_a_full_memory_is_told_in_habanas_words_and_loses_the_device(with_costs: dict[str, Any]) -> None:
    assert with_costs["out of memory"] == [True, False]  # it is none of torch's own errors
    assert "the device is lost: its memory was full" in with_costs["goes on"]
