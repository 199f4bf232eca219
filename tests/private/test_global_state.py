"""What this project uses of libraries' global state that they do not promise to keep."""

from __future__ import annotations

import asyncio
import importlib
import threading
import typing
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter

import mlflow.utils.autologging_utils
import prometheus_client
import pytest
import torch
import torch._dynamo.config
import torch.library
import torch.utils.data

from gaudi_tune.private import global_state


@pytest.mark.parametrize(("module", "path"), [*global_state.ATTRIBUTES, *global_state.CONTAINERS])
def test_libraries_have_what_is_restored(module: str, path: str) -> None:
    attrgetter(path)(importlib.import_module(module))


def test_settings_of_the_compiler_are_restored_one_by_one() -> None:
    settings = global_state.read_config("torch._dynamo.config")
    torch._dynamo.config.recompile_limit += 1
    assert global_state.read_config("torch._dynamo.config") != settings
    global_state.restore_config("torch._dynamo.config", settings)
    assert global_state.read_config("torch._dynamo.config") == settings


def test_modes_and_hooks_of_torch_are_left() -> None:
    torch.device("meta").__enter__()
    torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved).__enter__()
    assert global_state.torch_modes() == 1
    assert global_state.has_saved_tensor_hooks()
    global_state.leave_torch_modes(0)
    global_state.leave_saved_tensor_hooks(False)
    assert torch.ones(1).device.type == "cpu"
    assert not global_state.has_saved_tensor_hooks()


def test_an_operator_that_is_dropped_can_be_defined_again() -> None:
    count = global_state.torch_libraries()
    for _ in range(2):
        torch.library.define("gaudi_tune_test::twice", "(Tensor x) -> Tensor")
        global_state.drop_torch_libraries(count)
    assert global_state.torch_libraries() == count


def test_libraries_of_operators_are_noted_and_dropped() -> None:
    made: list[torch.library.Library] = []
    with global_state.libraries_noted(made.append):
        for _ in range(2):
            torch.library.Library("gaudi_tune_test_2", "DEF").define("half(Tensor x) -> Tensor")
            global_state.drop_torch_library(made.pop())
    torch.library.Library("gaudi_tune_test_3", "FRAGMENT")
    assert made == []


def test_a_counter_that_is_unregistered_can_be_made_again() -> None:
    collectors = global_state.prometheus_collectors()
    for _ in range(2):
        prometheus_client.Counter("gaudi_tune_test", "Steps")
        global_state.unregister_collectors(collectors)
    assert global_state.prometheus_collectors() == collectors


def test_automatic_logging_ends() -> None:
    before = global_state.read_autologging()
    integrations = mlflow.utils.autologging_utils.AUTOLOGGING_INTEGRATIONS
    integrations["gaudi_tune_test"] = {"disable": False}
    global_state.restore_autologging(before)
    assert mlflow.utils.autologging_utils.autologging_is_disabled("gaudi_tune_test")
    del integrations["gaudi_tune_test"]


def test_each_thread_has_a_frame() -> None:
    assert threading.get_ident() in global_state.frames_of_threads()


def test_the_event_loop_of_a_thread_is_known_without_making_one() -> None:
    with ThreadPoolExecutor(1) as thread:
        loop = asyncio.new_event_loop()
        assert thread.submit(global_state.event_loop).result() is None
        thread.submit(asyncio.set_event_loop, loop).result()
        assert thread.submit(global_state.event_loop).result() is loop
        loop.close()


def test_typing_forgets_the_classes_of_its_caches() -> None:
    class Row: ...

    made = typing.List[Row]  # noqa: UP006
    assert typing.List[Row] is made  # noqa: UP006
    global_state.forget_types()
    assert typing.List[Row] is not made  # noqa: UP006
