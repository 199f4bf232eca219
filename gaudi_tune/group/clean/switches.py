"""The global switches of a worker's process: every trial finds them as they were before the first one.

:data:`RESTORED` are those that training scripts do set: they are set back after each trial. All others are
:data:`COMPARED`: if a trial has changed one, the worker gets no other trial. A new switch is one line in a table. One
of a module that is not imported yet is read as soon as a trial imports it.
"""

from __future__ import annotations

import decimal
import functools
import gc
import locale
import logging
import multiprocessing
import os
import re
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.machinery import PathFinder
from operator import attrgetter
from pkgutil import resolve_name
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from gaudi_tune.base.words import shortened
from gaudi_tune.group.clean import loggers
from gaudi_tune.group.clean.own_code import is_own
from gaudi_tune.private import global_state
from gaudi_tune.private.torch import expect_many_graphs


class Switch(NamedTuple):
    """A setting of a process, or of the thread in which a worker runs trials."""

    name: str
    module: str
    """The module that must be imported before the setting can be read."""
    read: Callable[[], Any]
    """Returns the setting, as a value that does not change with it."""
    restore: Callable[[Any], object] | None = None
    """Takes what ``read`` returned before the first trial. None: the switch is only compared."""


def value_of(place: str) -> Any:
    """Return what an imported module has at a place, such as ``gc:callbacks``, or what ``gc:isenabled()`` returns."""
    value = resolve_name(place.removesuffix("()"))
    return value() if place.endswith("()") else _copied(value)


def _copied(value: Any) -> Any:
    return value[:] if isinstance(value, list) else value


def compared(place: str) -> Switch:
    """Return the switch at a place, which is only compared."""
    return Switch(place.replace(":", "."), place.partition(":")[0], partial(value_of, place))


def attribute(place: str) -> Switch:
    """Return the switch that is an attribute."""
    module, _, path = place.partition(":")
    parent, _, name = path.rpartition(".")
    owner = f"{module}:{parent}"
    return compared(place)._replace(restore=lambda value: setattr(resolve_name(owner), name, _copied(value)))


def functions(getter: str, setter: str) -> Switch:
    """Return the switch of two functions: the second takes what the first returns, which may be named arguments."""

    def restore(value: Any) -> None:
        if isinstance(value, dict):
            resolve_name(setter)(**value)
        else:
            resolve_name(setter)(value)

    return compared(getter)._replace(restore=restore)


def toggle(is_on: str, turn_on: str, turn_off: str) -> Switch:
    """Return the switch that two functions turn on and off."""
    return compared(is_on)._replace(restore=lambda on: resolve_name(turn_on if on else turn_off)())


def _torch() -> Any:
    return sys.modules["torch"]


def _restore_environment(variables: Mapping[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)
    time.tzset()


def _restore_filters(filters: Sequence[Any]) -> None:
    warnings.resetwarnings()  # also has Python forget which filters it has applied
    warnings.filters[:] = filters  # type: ignore[index]


PRECISION_SCOPES = (
    "backends", "backends.cudnn", "backends.cudnn.conv", "backends.cudnn.rnn", "backends.cuda.matmul",
    "backends.mkldnn", "backends.mkldnn.conv", "backends.mkldnn.matmul", "backends.mkldnn.rnn",
)  # fmt: skip
"""The parts of torch that have a setting fp32_precision. The older settings, such as allow_tf32, change these, too."""


def _precisions() -> dict[str, str]:
    return {scope: attrgetter(scope)(_torch()).fp32_precision for scope in PRECISION_SCOPES}


def _restore_precisions(precisions: Mapping[str, str]) -> None:
    # First the older settings: to read them is an error where they and the newer ones say different things.
    _torch().set_float32_matmul_precision("highest")
    _torch().backends.cudnn.allow_tf32 = True
    for scope, precision in precisions.items():
        attrgetter(scope)(_torch()).fp32_precision = precision


RESTORED = (
    Switch("environment", "os", lambda: dict(os.environ), _restore_environment),
    Switch("cores", "os", lambda: os.sched_getaffinity(0), lambda cores: os.sched_setaffinity(0, cores)),
    functions("sys:getrecursionlimit()", "sys:setrecursionlimit"),
    Switch("start method", "multiprocessing", partial(multiprocessing.get_start_method, allow_none=True),
           partial(multiprocessing.set_start_method, force=True)),
    Switch("captured warnings", "logging", lambda: warnings.showwarning.__module__ == "logging",
           logging.captureWarnings),
    Switch("warning filters", "warnings", lambda: list(warnings.filters), _restore_filters),
    Switch("logging.disable()", "logging", lambda: logging.root.manager.disable, logging.disable),
    # Before the loggers, which take those of a library that a trial has imported as they find them.
    *(functions(f"{library}.utils.logging:get_verbosity()", f"{library}.utils.logging:set_verbosity")
      for library in ("transformers", "datasets", "huggingface_hub")),
    Switch("loggers", "logging", loggers.read, loggers.restore),
    *map(attribute, (
        "sys:path", "sys:argv", "sys:stdin", "sys:stdout", "sys:stderr", "sys:excepthook", "sys:displayhook",
        "sys:unraisablehook", "threading:excepthook", "warnings:showwarning", "warnings:formatwarning",
        "tempfile:tempdir", *global_state.RESTORED,
    )),
    # torch; fresh_start() sets back those whose defaults it knows
    functions("torch:multiprocessing.get_sharing_strategy()", "torch:multiprocessing.set_sharing_strategy"),
    functions("torch:hub.get_dir()", "torch:hub.set_dir"),
    *(functions(f"torch:backends.cuda.{kernel}_sdp_enabled()", f"torch:backends.cuda.enable_{kernel}_sdp")
      for kernel in ("flash", "mem_efficient", "math", "cudnn")),
    attribute("torch:backends.cudnn.enabled"),
    Switch("precision of float32", "torch", _precisions, _restore_precisions),
    # Set before it is read with the other settings of Dynamo: with torch's own limit a function of a library, which
    # stays from trial to trial, would soon run uncompiled.
    Switch("limit of Dynamo", "torch._dynamo.config", expect_many_graphs),
    Switch("how torch prints", "torch", global_state.print_options,
           lambda _: _torch().set_printoptions(profile="default")),
    *(Switch(name, name, partial(global_state.config_of, name), partial(global_state.restore_config, name))
      for name in global_state.CONFIGS),
    # other libraries
    functions("numpy:geterr()", "numpy:seterr"),
    functions("numpy:get_printoptions()", "numpy:set_printoptions"),
    Switch("options of pandas", "pandas", lambda: sys.modules["pandas"].describe_option("all", False),
           lambda _: sys.modules["pandas"].reset_option("all")),
    Switch("matplotlib", "matplotlib", lambda: dict.copy(sys.modules["matplotlib"].rcParams),
           lambda settings: dict.update(sys.modules["matplotlib"].rcParams, settings)),  # its update() loads a backend
    *map(attribute, ("PIL.Image:MAX_IMAGE_PIXELS", "PIL.ImageFile:LOAD_TRUNCATED_IMAGES")),
    *(toggle(f"{library}.utils.tqdm:are_progress_bars_disabled()", f"{library}.utils.tqdm:disable_progress_bars",
             f"{library}.utils.tqdm:enable_progress_bars") for library in ("datasets", "huggingface_hub")),
    toggle("transformers.utils.logging:is_progress_bar_enabled()", "transformers.utils.logging:enable_progress_bar",
           "transformers.utils.logging:disable_progress_bar"),
    toggle("datasets:is_caching_enabled()", "datasets:enable_caching", "datasets:disable_caching"),
)  # fmt: skip

PATCHED = (
    "builtins", "copy", "datetime", "io", "json", "math", "os", "os.path", "pathlib", "pickle", "random", "shutil",
    "socket", "subprocess", "tempfile", "threading", "time",
    "numpy", "numpy.linalg", "numpy.random", "pandas", "PIL.Image", "tqdm", "tqdm.auto",
    "torch", "torch.autograd", "torch.cuda", "torch.distributed", "torch.nn", "torch.nn.functional", "torch.nn.init",
    "torch.nn.utils", "torch.optim", "torch.optim.lr_scheduler", "torch.utils.data", "torch.serialization",
    "torchvision.datasets", "torchvision.models", "torchvision.transforms", "torchvision.transforms.functional",
)  # fmt: skip
"""Modules whose functions scripts replace."""
SAFE_GLOBALS = "torch:serialization.get_safe_globals()"
AUTOCAST_DEVICES = ("cpu", "cuda", "hpu")
MAX_VALUE = 100
"""Most characters of a value that a message has."""


def _replaced_functions() -> list[str]:
    """Return the functions and methods of libraries that own code has replaced. Libraries may replace each other's."""
    modules = [module for name in PATCHED if (module := sys.modules.get(name)) is not None]
    # Copies, since another thread may import something. And not isinstance(), which asks an object for its class: a
    # deprecated one answers with a warning.
    members = [member for module in modules for member in vars(module).copy().values()]
    classes = {member for member in members if issubclass(type(member), type)}
    return [
        f"{owner.__name__}.{name}"
        for owner in (*modules, *classes)
        for name, member in vars(owner).copy().items()
        if type(member) is functools.partial or (type(member) is FunctionType and is_own(member))
    ]


def _own_hooks() -> list[Any]:
    """Return the hooks of own code. Libraries add theirs when a trial imports them."""
    return [hook for hook in (*sys.meta_path, *sys.path_hooks, *gc.callbacks) if is_own(hook)]


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _autocast() -> list[Any]:
    states = [
        (_torch().is_autocast_enabled(device), _torch().get_autocast_dtype(device)) for device in AUTOCAST_DEVICES
    ]
    return [*states, _torch().is_autocast_cache_enabled()]


COMPARED = (
    Switch("umask", "os", _umask),
    Switch("priority", "os", partial(os.getpriority, os.PRIO_PROCESS, 0)),
    Switch("standard files", "os", lambda: [os.fstat(number)[:3] for number in range(3)]),
    Switch("resource limits", "resource", lambda: [resource.getrlimit(kind) for kind in range(16)]),
    Switch("blocked signals", "signal", partial(signal.pthread_sigmask, signal.SIG_BLOCK, ())),
    Switch("timers", "signal", lambda: [signal.getitimer(timer) for timer in range(3)]),
    Switch("locale", "locale", partial(locale.setlocale, locale.LC_ALL)),
    Switch("hooks", "sys", _own_hooks),
    Switch("replaced functions", "builtins", _replaced_functions),
    Switch("event loop", "asyncio", global_state.event_loop),
    Switch("decimal context", "decimal",
           lambda: [(context.prec, context.rounding) for context in (decimal.getcontext(), decimal.DefaultContext)]),
    Switch("autocast", "torch", _autocast),
    Switch("types that torch.load() trusts", "torch", lambda: set(filter(is_own, value_of(SAFE_GLOBALS)))),
    Switch("modes and hooks of torch", "torch", global_state.torch_modes_and_hooks),
    Switch("MLflow's autologging", global_state.AUTOLOGGING, global_state.autologging),
    *map(compared, (
        "asyncio:get_event_loop_policy()", "csv:field_size_limit()", "faulthandler:is_enabled()", "gc:get_debug()",
        "gc:get_threshold()", "logging:getLogRecordFactory()", "logging:getLoggerClass()", "sklearn:get_config()",
        "socket:getdefaulttimeout()", "sys:get_int_max_str_digits()", "sys:getdlopenflags()", "sys:getprofile()",
        "sys:getswitchinterval()", "sys:gettrace()", "sys:stdout.closed", "threading:getprofile()",
        "threading:gettrace()", "threading:stack_size()",
        "torch:__future__.get_overwrite_module_params_on_conversion()",
        "torch:__future__.get_swap_module_params_on_conversion()",
        "torch:backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
        "torch:backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
        "torch:backends.mha.get_fastpath_enabled()", "torch:backends.mkldnn.deterministic",
        "torch:backends.opt_einsum.enabled", "torch:backends.opt_einsum.strategy", "torch:backends.quantized.engine",
        "torch:is_warn_always_enabled()", "torch:serialization.get_default_load_endianness()",
        "torch:serialization.get_default_mmap_options()", "torch:utils.deterministic.fill_uninitialized_memory",
        "torchvision:get_image_backend()", "tracemalloc:is_tracing()",
    )),
)  # fmt: skip


class Switches:
    """What the switches of this process were before its first trial."""

    def __init__(self) -> None:
        """Read the switches of the modules that are imported, and have the others read when they are."""
        self._settings: dict[Switch, Any] = {}
        self._awaited_switches: dict[str, list[Switch]] = {}
        for switch in (*RESTORED, *COMPARED):
            self._awaited_switches.setdefault(switch.module, []).append(switch)
        # A None among the modules bars one from being imported, and reading its switches would import it.
        imported = {name for name, module in sys.modules.copy().items() if module is not None}
        for module in self._awaited_switches.keys() & imported:
            self._read(self._awaited_switches.pop(module))
        sys.meta_path.insert(0, self)

    def restore(self) -> None:
        """Set back what trials do change."""
        for switch in self._changed(RESTORED):
            assert switch.restore is not None
            switch.restore(self._settings[switch])

    def differences(self) -> list[str]:
        """Return what is not as it was, and is not set back."""
        return [f"the setting {switch.name!r} is now {_shown(switch.read())}" for switch in self._changed(COMPARED)]

    def _changed(self, switches: Iterable[Switch]) -> Iterator[Switch]:
        for switch in switches:
            if switch in self._settings and switch.read() != self._settings[switch]:
                yield switch

    def _read(self, switches: Iterable[Switch]) -> None:
        for switch in switches:
            with suppress(AttributeError):  # this version of the library does not have it
                self._settings[switch] = switch.read()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """Have the switches of a module read after its import, for which Python asks here where the module is.

        Libraries ask, too, to see what is installed, and import nothing.
        """
        spec = PathFinder.find_spec(name, path, target) if name in self._awaited_switches else None
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            exec_module = loader.exec_module

            def exec_and_read(module: ModuleType) -> None:
                exec_module(module)
                self._read(self._awaited_switches.pop(name, ()))

            loader.exec_module = exec_and_read  # Python calls nothing else after an import
        return spec


def _shown(value: Any) -> str:
    """Return a value as text, without addresses: what is the same in each trial is said once in a sweep."""
    return shortened(re.sub(r" at 0x\w+", "", repr(value)), MAX_VALUE)
