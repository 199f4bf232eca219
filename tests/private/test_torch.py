"""What this project uses of torch that torch does not promise to keep."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.private.global_state import config_of, restore_config
from gaudi_tune.private.torch import (
    change_class,
    expect_many_graphs,
    forget_compiled,
    process_group_kept,
    seconds_compiling,
    split_compiled_ddp,
    uncompiled_functions,
)

IN_A_NEW_PROCESS = """
import sys
from gaudi_tune.private.torch import forget_compiled
forget_compiled()
assert "torch._dynamo" not in sys.modules, "a process that never compiles has imported the compiler"
"""


@pytest.fixture(autouse=True)
def dynamo_as_before() -> Iterator[None]:
    """Put Dynamo's settings back; pytest's monkeypatch would delete one, after which Dynamo denies that it exists."""
    before = config_of("torch._dynamo.config")
    yield
    restore_config("torch._dynamo.config", before)


def test_the_compiler_has_a_setting_for_data_parallel_models() -> None:
    for split in (False, True):
        split_compiled_ddp(split)
        assert torch._dynamo.config.optimize_ddp is split
    with pytest.raises(AttributeError):  # Dynamo refuses what is not a setting
        torch._dynamo.config.optimise_ddp = False


def test_compiled_code_is_forgotten() -> None:
    compilations = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        compilations.append(graph)
        return graph

    forget_compiled(limit=0)  # what tests before this one have compiled
    # Not a module: torch 2.7 crashes at times in what is compiled after a module was used before and after a reset.
    successor = torch.compile(lambda x: x + 1, backend=backend)
    for expected in (1, 1):
        successor(torch.ones(1, 2))
        assert len(compilations) == expected
    forget_compiled(limit=1)
    successor(torch.ones(1, 2))
    assert len(compilations) == 1
    forget_compiled(limit=0)
    successor(torch.ones(1, 2))
    assert len(compilations) == 2


def test_the_compiler_says_how_long_it_has_compiled() -> None:
    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        time.sleep(0.3)
        return graph

    before, began = seconds_compiling(), time.perf_counter()
    model = torch.compile(nn.Linear(2, 2), backend=backend)
    model(torch.ones(1, 2))
    took, compiled = time.perf_counter() - began, seconds_compiling()
    model(torch.ones(1, 2))
    assert 0.3 <= compiled - before <= took
    assert seconds_compiling() == compiled


def test_the_compiler_takes_more_graphs_of_a_function_than_its_own_limit() -> None:
    expect_many_graphs()
    compilations = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        compilations.append(graph)
        return graph

    model = torch.compile(nn.Linear(2, 2), backend=backend, dynamic=False)
    for samples in range(1, 21):
        model(torch.ones(samples, 2))
    assert len(compilations) == 20


def test_functions_that_the_compiler_has_given_up_on_are_counted() -> None:
    torch._dynamo.config.recompile_limit = 3
    forget_compiled(limit=0)
    model = torch.compile(nn.Linear(2, 2), backend="eager", dynamic=False)
    for samples in range(1, 6):
        model(torch.ones(samples, 2))
        assert uncompiled_functions() == (samples > 3)
    forget_compiled(limit=3)
    assert uncompiled_functions() == 0


@pytest.mark.processes
def test_nothing_is_imported_to_be_forgotten() -> None:
    command = [sys.executable, "-c", IN_A_NEW_PROCESS]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Doubled(nn.BatchNorm2d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def test_a_module_that_changes_its_class_stays_the_same_object() -> None:
    inner = nn.BatchNorm2d(3)
    model, seen = nn.Sequential(inner).eval(), []
    inner.register_forward_hook(lambda *call: seen.append(call))
    images, parameters = torch.rand(2, 3, 4, 4), list(model.parameters())
    plain = model(images)
    change_class(inner, Doubled)
    torch.testing.assert_close(model(images), 2 * plain)
    assert model[0] is inner
    assert all(now is before for now, before in zip(model.parameters(), parameters, strict=True))
    assert len(seen) == 2
    with pytest.raises(AssertionError):
        change_class(inner, nn.BatchNorm1d)


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_torchs_own_synchronised_batch_norm_refuses_the_cpu() -> None:
    """Why :mod:`gaudi_tune.recipes.sync_batch_norm` exists."""
    with pytest.raises(ValueError, match="expected input tensor to be on GPU"):
        nn.SyncBatchNorm(3)(torch.rand(2, 3, 4, 4))


@pytest.mark.usefixtures("process_group")
def test_a_loop_that_makes_and_ends_a_process_group_gets_the_one_that_is_there() -> None:
    torchs_own, before = dist.destroy_process_group, dist.group.WORLD
    with pytest.raises(ValueError, match="initialize the default process group twice"):
        dist.init_process_group("gloo")
    with process_group_kept():
        from torch.distributed.distributed_c10d import destroy_process_group, init_process_group  # as pickle does

        init_process_group("nccl")
        part = dist.new_group([0])
        dist.destroy_process_group(part)
        with pytest.raises(ValueError, match="Invalid process group"):
            dist.destroy_process_group(part)
        destroy_process_group()
        dist.destroy_process_group(dist.group.WORLD)
        assert dist.group.WORLD is before
    assert dist.destroy_process_group is torchs_own
