"""What libraries keep for a whole process under private names."""

from __future__ import annotations

import asyncio
import sys
import typing
from types import FrameType
from typing import Any

from gaudi_tune.private.surfaces import part

RESTORED = (
    "mlflow.tracking._model_registry.utils:_registry_uri",
    "mlflow.tracking._tracking_service.utils:_tracking_uri",
    "mlflow.tracking.fluent:_active_experiment_id",
    "ssl:_create_default_https_context",
    "torch.distributions.distribution:Distribution._validate_args",  # which Dynamo changes, too
    "urllib.request:_opener",
)
"""Settings that training scripts change: modules, and the attributes in them."""
CONFIGS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
"""Modules of torch whose attributes are settings."""
AUTOLOGGING = "mlflow.utils.autologging_utils"
"""The module of MLflow that knows what is logged automatically."""


def autologging() -> dict[str, dict[str, Any]]:
    """Return for which libraries MLflow logs automatically, and how."""
    integrations = sys.modules[AUTOLOGGING].AUTOLOGGING_INTEGRATIONS
    return {name: dict(options) for name, options in integrations.items() if options}  # an import adds empty ones


def config_of(module: str) -> dict[str, Any]:
    """Return the settings of one of :data:`CONFIGS`."""
    settings: dict[str, Any] = sys.modules[module].get_config_copy()
    return settings


def restore_config(module: str, settings: dict[str, Any]) -> None:
    """Set the settings of one of :data:`CONFIGS`."""
    sys.modules[module].load_config(settings)


@part("clean-process", dict)
def print_options() -> dict[str, Any]:
    """Return how torch prints tensors."""
    return dict(vars(sys.modules["torch._tensor_str"].PRINT_OPTS))


@part("clean-process", dict)
def torch_modes_and_hooks() -> dict[str, int]:
    """Return how many modes torch has entered, such as ``torch.device("meta")``, and how many hooks it calls for all
    modules and optimizers, and whether it calls some for the tensors that it saves for a backward pass."""
    from torch._C import _autograd
    from torch.overrides import _len_torch_function_stack  # type: ignore[attr-defined]

    top_hooks = getattr(_autograd, "_top_saved_tensors_default_hooks", lambda _: None)(True)  # torch 2.7 has none
    numbers = {"modes": int(_len_torch_function_stack()), "hooks of saved tensors": int(top_hooks is not None)}
    for module in (sys.modules["torch.nn.modules.module"], sys.modules["torch.optim.optimizer"]):
        hooks = {name: value for name, value in vars(module).items() if name.startswith("_global_")}
        numbers |= {name: len(value) for name, value in hooks.items() if isinstance(value, dict)}
    return {name: number for name, number in numbers.items() if number}


def frames_of_threads() -> dict[int, FrameType]:
    """Return what each thread of this process runs now, by its number."""
    return sys._current_frames()


@part("clean-process", lambda: None)
def forget_types() -> None:
    """Clear typing's caches, which hold each class that was an argument, as in ``list[Row] | None``."""
    for clear in typing._cleanups:  # type: ignore[attr-defined]
        clear()


def event_loop() -> Any:
    """Return the event loop that was set for this thread, if any. The public function would warn, or make one."""
    return getattr(getattr(asyncio.get_event_loop_policy(), "_local", None), "_loop", None)
