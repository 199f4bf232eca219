"""What libraries keep for a whole process under private names."""

from __future__ import annotations

import asyncio
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ATTRIBUTES = (
    ("mlflow.tracking._model_registry.utils", "_registry_uri"),
    ("mlflow.tracking._tracking_service.utils", "_tracking_uri"),
    ("mlflow.tracking.fluent", "_active_experiment_id"),
    ("ssl", "_create_default_https_context"),
    ("torch.distributions.distribution", "Distribution._validate_args"),
    ("torch.hub", "_hub_dir"),
    ("torch.nn.modules.module", "_global_is_full_backward_hook"),
    ("torch.nn.modules.module", "_has_any_global_hook"),
    ("urllib.request", "_opener"),
)
"""Values: a module, and the attribute in it."""
CONTAINERS = (
    ("torch._tensor_str", "PRINT_OPTS.__dict__"),
    ("torch.nn.modules.module", "_global_backward_hooks"),
    ("torch.nn.modules.module", "_global_backward_pre_hooks"),
    ("torch.nn.modules.module", "_global_buffer_registration_hooks"),
    ("torch.nn.modules.module", "_global_forward_hooks"),
    ("torch.nn.modules.module", "_global_forward_hooks_always_called"),
    ("torch.nn.modules.module", "_global_forward_hooks_with_kwargs"),
    ("torch.nn.modules.module", "_global_forward_pre_hooks"),
    ("torch.nn.modules.module", "_global_module_registration_hooks"),
    ("torch.nn.modules.module", "_global_parameter_registration_hooks"),
    ("torch.optim.optimizer", "_global_optimizer_post_hooks"),
    ("torch.optim.optimizer", "_global_optimizer_pre_hooks"),
    ("torch.serialization", "_package_registry"),
)
"""Dicts and lists that are changed in place."""
CONFIGS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
"""Modules of torch whose attributes are settings."""
AUTOLOGGING = "mlflow.utils.autologging_utils"
"""The module of MLflow that knows what is logged automatically."""


def read_config(module: str) -> dict[str, Any]:
    """Return the settings of one of :data:`CONFIGS`."""
    settings: dict[str, Any] = sys.modules[module].get_config_copy()
    return settings


def restore_config(module: str, settings: dict[str, Any]) -> None:
    """Set the settings of one of :data:`CONFIGS` that have changed."""
    current = read_config(module)
    for name, setting in settings.items():
        if current.get(name) != setting:
            setattr(sys.modules[module], name, setting)


def read_autologging() -> dict[str, dict[str, Any]]:
    """Return for which libraries MLflow logs automatically, and how."""
    return {name: dict(options) for name, options in sys.modules[AUTOLOGGING].AUTOLOGGING_INTEGRATIONS.items()}


def restore_autologging(integrations: dict[str, dict[str, Any]]) -> None:
    """Set for which libraries MLflow logs automatically; the others no longer are."""
    current = sys.modules[AUTOLOGGING].AUTOLOGGING_INTEGRATIONS
    for name, options in current.items():
        options.clear()
        options.update(integrations.get(name, {"disable": True}))


def torch_modes() -> int:
    """Return how many modes torch has entered, such as the one of ``with torch.device("meta")``."""
    from torch.overrides import _len_torch_function_stack  # type: ignore[attr-defined]

    return int(_len_torch_function_stack())


def leave_torch_modes(count: int) -> None:
    """Leave the modes that were entered last, until ``count`` are left."""
    from torch.overrides import _pop_mode

    while torch_modes() > count:
        _pop_mode()


def has_saved_tensor_hooks() -> bool:
    """Whether torch calls hooks for the tensors that it saves for a backward pass."""
    from torch._C import _autograd

    return _autograd._top_saved_tensors_default_hooks(True) is not None


def leave_saved_tensor_hooks(_: bool) -> None:
    """Leave all hooks for tensors that torch saves for a backward pass."""
    from torch._C import _autograd

    while has_saved_tensor_hooks():
        _autograd._pop_saved_tensors_default_hooks()


def torch_libraries() -> int:
    """Return how many libraries of operators torch keeps for code that did not name one."""
    return len(sys.modules["torch.library"]._keep_alive)


def drop_torch_libraries(count: int) -> None:
    """Drop the libraries that came last, with their operators, until ``count`` are left."""
    libraries = sys.modules["torch.library"]._keep_alive
    while len(libraries) > count:
        libraries.pop()._destroy()


@contextmanager
def libraries_noted(note: Callable[[Any], None]) -> Iterator[None]:
    """Have ``note`` called with each ``torch.library.Library`` that is made inside the block."""
    library_class = sys.modules["torch.library"].Library
    original = library_class.__init__

    def __init__(library: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807
        original(library, *arguments, **options)
        note(library)

    library_class.__init__ = __init__
    try:
        yield
    finally:
        library_class.__init__ = original


def drop_torch_library(library: Any) -> None:
    """Take a library's operators away from torch, which otherwise keeps it, and the module of its functions."""
    library._destroy()


def prometheus_collectors() -> set[Any]:
    """Return the counters and other collectors that Prometheus's registry has."""
    return set(sys.modules["prometheus_client"].REGISTRY._collector_to_names)


def unregister_collectors(collectors: set[Any]) -> None:
    """Take all but these collectors out of Prometheus's registry."""
    registry = sys.modules["prometheus_client"].REGISTRY
    for collector in prometheus_collectors() - collectors:
        registry.unregister(collector)


def frames_of_threads() -> dict[int, FrameType]:
    """Return what each thread of this process runs now, by its number."""
    return sys._current_frames()


def forget_types() -> None:
    """Clear typing's caches, which hold each class that was an argument, as in ``list[Row] | None``."""
    for clear in typing._cleanups:  # type: ignore[attr-defined]
        clear()


def event_loop() -> Any:
    """Return the event loop that was set for this thread, if any. The public function would warn, or make one."""
    return getattr(getattr(asyncio.get_event_loop_policy(), "_local", None), "_loop", None)
