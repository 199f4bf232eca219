"""The global switches of a worker's process: every trial finds them as they were before the first one.

A switch is a line in :data:`SWITCHES`: how it is read, and how it is restored. One of a module that no trial has
imported yet is read as soon as one does.
"""

from __future__ import annotations

import asyncio
import decimal
import locale
import multiprocessing
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from operator import attrgetter
from types import ModuleType
from typing import Any

from gaudi_tune.group.clean import loggers, patches
from gaudi_tune.group.clean.own_code import is_own
from gaudi_tune.private import global_state


@dataclass(frozen=True)
class Switch:
    """A setting of a process, or of the thread in which a worker runs trials."""

    name: str
    module: str
    """The module that must be imported before the setting can be read."""
    read: Callable[[], Any]
    """Returns the setting, as a value that does not change with it."""
    restore: Callable[[Any], Any]
    """Takes what ``read`` has returned."""
    is_same: Callable[[Any], bool] | None = None
    """Whether the setting is still what ``read`` returned. None: it is read again and compared."""


def functions(module: str, getter: str, setter: str) -> Switch:
    """Return the switch of two functions of a module. The setter takes a tuple or a dict as its arguments."""

    def restore(setting: Any) -> None:
        function = attrgetter(setter)(sys.modules[module])
        if isinstance(setting, dict):
            function(**setting)
        elif isinstance(setting, tuple):
            function(*setting)
        else:
            function(setting)

    return Switch(f"{module}.{setter}", module, lambda: attrgetter(getter)(sys.modules[module])(), restore)


def toggle(module: str, is_on: str, turn_on: str, turn_off: str) -> Switch:
    """Return the switch that two functions of a module turn on and off."""

    def restore(was_on: bool) -> None:
        getattr(sys.modules[module], turn_on if was_on else turn_off)()

    return Switch(f"{module}.{is_on}", module, lambda: getattr(sys.modules[module], is_on)(), restore)


def attribute(module: str, path: str) -> Switch:
    """Return the switch that is an attribute of a module, or of something in it."""
    *parents, name = path.split(".")

    def owner() -> Any:
        return attrgetter(".".join(parents))(sys.modules[module]) if parents else sys.modules[module]

    return Switch(f"{module}.{path}", module, lambda: getattr(owner(), name), lambda old: setattr(owner(), name, old))


def container(module: str, path: str) -> Switch:
    """Return the switch that is what a list or a dict contains."""
    find = attrgetter(path)

    def restore(contents: Any) -> None:
        target = find(sys.modules[module])
        target.clear()
        if isinstance(target, list):
            target.extend(contents)
        else:
            target.update(contents)

    return Switch(f"{module}.{path}", module, lambda: find(sys.modules[module]).copy(), restore)


def hooks(module: str, name: str) -> Switch:
    """Return the switch that is a list of hooks. Those stay that a library added when a trial imported it."""

    def restore(old: list[Any]) -> None:
        current_hooks = getattr(sys.modules[module], name)
        added = [hook for hook in current_hooks if hook not in old and not is_own(hook)]
        current_hooks[:] = [*added, *old]

    return Switch(f"{module}.{name}", module, lambda: list(getattr(sys.modules[module], name)), restore)


def _restore_environment(variables: dict[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)
    time.tzset()


def _read_folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # the trial has removed it
        return None


def _restore_folder(folder: str | None) -> None:
    if folder is not None:
        os.makedirs(folder, exist_ok=True)
        os.chdir(folder)


def _read_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _read_limits() -> list[tuple[int, tuple[int, int]]]:
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    kinds = sorted({getattr(resource, name) for name in names})
    return [(kind, resource.getrlimit(kind)) for kind in kinds]


def _restore_limits(limits: list[tuple[int, tuple[int, int]]]) -> None:
    for kind, limit in limits:
        if resource.getrlimit(kind) != limit:
            resource.setrlimit(kind, limit)


def _read_context() -> str:
    return repr(decimal.getcontext()) + repr(decimal.DefaultContext)


def _restore_context(_: str) -> None:
    standard = decimal.Context(
        prec=28, rounding=decimal.ROUND_HALF_EVEN, Emin=-999999, Emax=999999, capitals=1, clamp=0, flags=[],
        traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
    )  # fmt: skip
    for name in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "traps", "flags"):
        setattr(decimal.DefaultContext, name, getattr(standard, name))
    decimal.setcontext(standard)


def _read_event_loops() -> tuple[Any, Any]:
    return asyncio.get_event_loop_policy(), global_state.event_loop()


def _restore_event_loops(state: tuple[Any, Any]) -> None:
    policy, loop = state
    asyncio.set_event_loop_policy(policy)
    asyncio.set_event_loop(loop)


def _read_filters() -> tuple[list[Any], Any, Any]:
    return list(warnings.filters), warnings.showwarning, warnings.formatwarning


def _restore_filters(state: tuple[list[Any], Any, Any]) -> None:
    old_filters, warnings.showwarning, warnings.formatwarning = state
    warnings.resetwarnings()  # also has Python forget which filters it has applied
    warnings.filters[:] = old_filters  # type: ignore[index]


def _torch() -> Any:
    return sys.modules["torch"]


AUTOCAST_DEVICES = ("cpu", "cuda", "hpu")
PRECISION_SCOPES = (
    "backends", "backends.cudnn", "backends.cudnn.conv", "backends.cudnn.rnn", "backends.cuda.matmul",
    "backends.mkldnn", "backends.mkldnn.conv", "backends.mkldnn.matmul", "backends.mkldnn.rnn",
)  # fmt: skip
"""The parts of torch that have a setting fp32_precision."""
TF32_SWITCHES = ("backends.cudnn", "backends.cuda.matmul")
"""The parts of torch that have the older setting allow_tf32."""


def _read_autocast() -> tuple[Any, ...]:
    torch = _torch()
    enabled = [torch.is_autocast_enabled(device) for device in AUTOCAST_DEVICES]
    types = [torch.get_autocast_dtype(device) for device in AUTOCAST_DEVICES]
    return enabled, types, torch.is_autocast_cache_enabled()


def _restore_autocast(state: tuple[Any, ...]) -> None:
    torch = _torch()
    for device, enabled, dtype in zip(AUTOCAST_DEVICES, *state[:2], strict=True):
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(state[2])


def _read_anomaly() -> tuple[bool, bool]:
    return _torch().is_anomaly_enabled(), _torch().is_anomaly_check_nan_enabled()


def _read_precision() -> tuple[Any, ...]:
    try:
        matmul = _torch().get_float32_matmul_precision()
        tf32 = [attrgetter(scope)(_torch()).allow_tf32 for scope in TF32_SWITCHES]
    except RuntimeError:  # the trial has used the newer settings as well
        matmul, tf32 = None, []
    scopes = [getattr(attrgetter(scope)(_torch()), "fp32_precision", None) for scope in PRECISION_SCOPES]
    return matmul, tf32, scopes


def _restore_precision(state: tuple[Any, ...]) -> None:
    matmul, tf32, scopes = state
    _torch().set_float32_matmul_precision(matmul)
    for scope, allowed in zip(TF32_SWITCHES, tf32, strict=True):
        attrgetter(scope)(_torch()).allow_tf32 = allowed
    for scope, precision in zip(PRECISION_SCOPES, scopes, strict=True):
        owner = attrgetter(scope)(_torch())
        if getattr(owner, "fp32_precision", None) != precision:
            owner.fp32_precision = precision


def _restore_safe_globals(types: list[Any]) -> None:
    serialization = _torch().serialization
    serialization.clear_safe_globals()
    serialization.add_safe_globals(types)


def _read_options(options: Any = None, prefix: str = "") -> dict[str, Any]:
    """Return all options of pandas by their full names."""
    options = sys.modules["pandas"].options if options is None else options
    values: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some options are deprecated
        for name in dir(options):
            option = getattr(options, name)
            if isinstance(option, type(options)):
                values |= _read_options(option, f"{prefix}{name}.")
            else:
                values[prefix + name] = option
    return values


def _restore_options(options: dict[str, Any]) -> None:
    current = _read_options()
    for name, option in options.items():
        if current[name] != option:
            sys.modules["pandas"].set_option(name, option)


def _read_figures() -> tuple[dict[str, Any], list[int]]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    settings: dict[str, Any] = dict.copy(sys.modules["matplotlib"].rcParams)  # its own copy() would choose a backend
    return settings, pyplot.get_fignums() if pyplot is not None else []


def _restore_figures(state: tuple[dict[str, Any], list[int]]) -> None:
    """Restore matplotlib's settings, close its figures, and load the backend of the settings."""
    settings, _ = state
    if "matplotlib.pyplot" in sys.modules:
        pyplot = sys.modules["matplotlib.pyplot"]
        pyplot.close("all")
        if isinstance(settings["backend"], str) and pyplot.get_backend() != settings["backend"]:
            pyplot.switch_backend(settings["backend"])
    dict.update(sys.modules["matplotlib"].rcParams, settings)


SWITCHES = (
    # Python and the process
    Switch("environment", "os", lambda: dict(os.environ), _restore_environment),
    Switch("current folder", "os", _read_folder, _restore_folder),
    Switch("umask", "os", _read_umask, os.umask),
    Switch("cores", "os", lambda: os.sched_getaffinity(0), lambda cores: os.sched_setaffinity(0, cores)),
    Switch("priority", "os", partial(os.getpriority, os.PRIO_PROCESS, 0),
           partial(os.setpriority, os.PRIO_PROCESS, 0)),
    Switch("resource limits", "resource", _read_limits, _restore_limits),
    Switch("blocked signals", "signal", partial(signal.pthread_sigmask, signal.SIG_BLOCK, ()),
           partial(signal.pthread_sigmask, signal.SIG_SETMASK)),
    Switch("locale", "locale", partial(locale.setlocale, locale.LC_ALL), partial(locale.setlocale, locale.LC_ALL)),
    *(container("sys", name) for name in ("path", "argv", "warnoptions")),
    *(hooks("sys", name) for name in ("meta_path", "path_hooks")),
    hooks("gc", "callbacks"),
    *(attribute("sys", name) for name in ("excepthook", "displayhook", "unraisablehook", "breakpointhook",
                                          "dont_write_bytecode", "pycache_prefix")),
    attribute("threading", "excepthook"),
    attribute("tempfile", "tempdir"),
    attribute("http.client", "HTTPConnection.debuglevel"),
    functions("sys", "getrecursionlimit", "setrecursionlimit"),
    functions("sys", "getswitchinterval", "setswitchinterval"),
    functions("sys", "getdlopenflags", "setdlopenflags"),
    functions("sys", "get_int_max_str_digits", "set_int_max_str_digits"),
    functions("sys", "gettrace", "settrace"),
    functions("sys", "getprofile", "setprofile"),
    functions("threading", "gettrace", "settrace"),
    functions("threading", "getprofile", "setprofile"),
    functions("threading", "stack_size", "stack_size"),
    functions("socket", "getdefaulttimeout", "setdefaulttimeout"),
    functions("csv", "field_size_limit", "field_size_limit"),
    functions("gc", "get_threshold", "set_threshold"),
    functions("gc", "get_debug", "set_debug"),
    toggle("gc", "isenabled", "enable", "disable"),
    Switch("start method", "multiprocessing", partial(multiprocessing.get_start_method, allow_none=True),
           partial(multiprocessing.set_start_method, force=True)),
    Switch("event loops", "asyncio", _read_event_loops, _restore_event_loops),
    Switch("decimal context", "decimal", _read_context, _restore_context),
    toggle("faulthandler", "is_enabled", "enable", "disable"),
    toggle("tracemalloc", "is_tracing", "start", "stop"),
    Switch("warning filters", "warnings", _read_filters, _restore_filters),
    Switch("loggers", "logging", loggers.read, loggers.restore),
    # torch
    functions("torch", "get_default_dtype", "set_default_dtype"),
    functions("torch", "is_grad_enabled", "set_grad_enabled"),
    functions("torch", "is_warn_always_enabled", "set_warn_always"),
    functions("torch", "get_deterministic_debug_mode", "set_deterministic_debug_mode"),
    functions("torch", "get_num_threads", "set_num_threads"),
    functions("torch", "multiprocessing.get_sharing_strategy", "multiprocessing.set_sharing_strategy"),
    functions("torch", "backends.mha.get_fastpath_enabled", "backends.mha.set_fastpath_enabled"),
    *(functions("torch", f"backends.cuda.{name}_sdp_enabled", f"backends.cuda.enable_{name}_sdp")
      for name in ("flash", "mem_efficient", "math", "cudnn")),
    functions("torch", "__future__.get_overwrite_module_params_on_conversion",
              "__future__.set_overwrite_module_params_on_conversion"),
    functions("torch", "__future__.get_swap_module_params_on_conversion",
              "__future__.set_swap_module_params_on_conversion"),
    functions("torch", "serialization.get_default_load_endianness", "serialization.set_default_load_endianness"),
    functions("torch", "serialization.get_default_mmap_options", "serialization.set_default_mmap_options"),
    *(attribute("torch", f"backends.cudnn.{name}") for name in ("enabled", "benchmark", "benchmark_limit",
                                                               "deterministic")),
    *(attribute("torch", f"backends.cuda.matmul.allow_{kind}_reduced_precision_reduction")
      for kind in ("fp16", "bf16")),
    *(attribute("torch", f"backends.{name}") for name in ("opt_einsum.enabled", "opt_einsum.strategy",
                                                         "quantized.engine", "mkldnn.deterministic")),
    attribute("torch", "utils.deterministic.fill_uninitialized_memory"),
    Switch("autocast", "torch", _read_autocast, _restore_autocast),
    Switch("anomaly detection", "torch", _read_anomaly, lambda state: _torch().set_anomaly_enabled(*state)),
    Switch("precision of float32", "torch", _read_precision, _restore_precision),
    Switch("types that torch.load() trusts", "torch", lambda: list(_torch().serialization.get_safe_globals()),
           _restore_safe_globals),
    Switch("modes of torch", "torch", global_state.torch_modes, global_state.leave_torch_modes),
    Switch("hooks for saved tensors", "torch", global_state.has_saved_tensor_hooks,
           global_state.leave_saved_tensor_hooks),
    Switch("operators", "torch.library", global_state.torch_libraries, global_state.drop_torch_libraries),
    *(Switch(name, name, partial(global_state.read_config, name), partial(global_state.restore_config, name))
      for name in global_state.CONFIGS),
    # other libraries
    functions("numpy", "geterr", "seterr"),
    functions("numpy", "geterrcall", "seterrcall"),
    functions("numpy", "getbufsize", "setbufsize"),
    functions("numpy", "get_printoptions", "set_printoptions"),
    functions("numpy", "random.get_bit_generator", "random.set_bit_generator"),
    functions("sklearn", "get_config", "set_config"),
    functions("torchvision", "get_image_backend", "set_image_backend"),
    attribute("PIL.Image", "MAX_IMAGE_PIXELS"),
    attribute("PIL.ImageFile", "LOAD_TRUNCATED_IMAGES"),
    Switch("pandas.options", "pandas", _read_options, _restore_options),
    Switch("matplotlib", "matplotlib", _read_figures, _restore_figures),
    toggle("transformers.utils.logging", "is_progress_bar_enabled", "enable_progress_bar", "disable_progress_bar"),
    *(toggle(name, "are_progress_bars_disabled", "disable_progress_bars", "enable_progress_bars")
      for name in ("datasets.utils.tqdm", "huggingface_hub.utils.tqdm")),
    toggle("datasets", "is_caching_enabled", "enable_caching", "disable_caching"),
    Switch("MLflow's autologging", global_state.AUTOLOGGING, global_state.read_autologging,
           global_state.restore_autologging),
    Switch("Prometheus's registry", "prometheus_client", global_state.prometheus_collectors,
           global_state.unregister_collectors),
    *(attribute(module, path) for module, path in global_state.ATTRIBUTES),
    *(container(module, path) for module, path in global_state.CONTAINERS),
    # functions that own code has replaced
    *(Switch(f"functions of {name}", name, partial(patches.read, name), patches.restore, patches.are_same)
      for name in patches.PATCHED),
)  # fmt: skip
LIMITS = ("resource limits", "priority")
"""Switches that a process without privileges may set in one direction only."""


class Switches:
    """What the switches of this process were before its first trial."""

    def __init__(self) -> None:
        """Read the switches of the modules that are imported, and have the others read when they are."""
        self._settings: dict[str, Any] = {}
        self._awaited_switches: dict[str, list[Switch]] = {}
        self._read_switches(switch for switch in SWITCHES if switch.module in sys.modules)
        for switch in SWITCHES:
            if switch.module not in sys.modules:
                self._awaited_switches.setdefault(switch.module, []).append(switch)
        sys.meta_path.insert(0, self)
        self._settings["sys.meta_path"] = list(sys.meta_path)

    def close(self) -> None:
        """Read no more switches."""
        sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """Have the switches of a module read after its import, which Python has begun by asking for the module."""
        switches = self._awaited_switches.pop(name, [])
        spec = PathFinder.find_spec(name, path, target) if switches else None
        if spec is not None and spec.loader is not None:
            _after_import(spec, partial(self._read_switches, switches))
        return spec

    def _read_switches(self, switches: Iterable[Switch]) -> None:
        for switch in switches:
            with suppress(Exception):  # this version of the library does not have it
                self._settings[switch.name] = switch.read()

    def restore(self) -> list[str]:
        """Restore the switches that have changed, and return the names of those that cannot be restored."""
        return [switch.name for switch in SWITCHES if switch.name in self._settings and not self._restored(switch)]

    def _restored(self, switch: Switch) -> bool:
        """Restore a switch, and return whether that was possible."""
        setting = self._settings[switch.name]
        try:
            if _is_unchanged(switch, setting):
                return True
            switch.restore(setting)
            return switch.name not in LIMITS or _is_unchanged(switch, setting)
        except Exception:
            return False


def _is_unchanged(switch: Switch, setting: Any) -> bool:
    try:
        return switch.is_same(setting) if switch.is_same is not None else bool(switch.read() == setting)
    except Exception:  # it can no longer be read, or not be compared
        return False


def _after_import(spec: ModuleSpec, callback: Callable[[], object]) -> None:
    """Have the loader of a module call a function when it has run the module."""
    loader: Any = spec.loader
    exec_module = loader.exec_module

    def exec_and_call(module: ModuleType) -> None:
        exec_module(module)
        callback()

    loader.exec_module = exec_and_call
