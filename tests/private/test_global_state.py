"""What this project uses of libraries' global state that they do not promise to keep."""

from __future__ import annotations

import asyncio
import threading
import typing
from concurrent.futures import ThreadPoolExecutor
from pkgutil import resolve_name

import mlflow.utils.autologging_utils
import pytest
import torch
import torch._dynamo.config
import torch.utils.data
from torch._C import _autograd

from gaudi_tune.private import global_state


@pytest.mark.parametrize("place", global_state.RESTORED)
def test_libraries_have_the_settings(place: str) -> None:
    resolve_name(place)


def test_settings_of_the_compiler_are_restored_one_by_one() -> None:
    settings = global_state.config_of("torch._dynamo.config")
    torch._dynamo.config.recompile_limit += 1
    assert global_state.config_of("torch._dynamo.config") != settings
    global_state.restore_config("torch._dynamo.config", settings)
    assert global_state.config_of("torch._dynamo.config") == settings


def test_modes_and_hooks_of_torch_are_counted() -> None:
    assert global_state.torch_modes_and_hooks() == {}
    hook = torch.nn.modules.module.register_module_forward_hook(lambda *arguments: None)
    with torch.device("meta"), torch.autograd.graph.saved_tensors_hooks(abs, abs):
        found = global_state.torch_modes_and_hooks()
    assert found.pop("hooks of saved tensors", 0) == hasattr(_autograd, "_top_saved_tensors_default_hooks")
    assert found == {"modes": 1, "_global_forward_hooks": 1}
    hook.remove()
    assert global_state.torch_modes_and_hooks() == {}


def test_torch_prints_by_options_that_can_be_read() -> None:
    options = global_state.print_options()
    torch.set_printoptions(precision=1)
    assert global_state.print_options() != options
    torch.set_printoptions(profile="default")
    assert global_state.print_options() == options


def test_automatic_logging_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    before = global_state.autologging()
    integrations = mlflow.utils.autologging_utils.AUTOLOGGING_INTEGRATIONS
    monkeypatch.setitem(integrations, "gaudi_tune_test", {"disable": False})
    assert global_state.autologging() == {**before, "gaudi_tune_test": {"disable": False}}


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
