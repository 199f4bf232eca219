"""Makes a trial independent of the trials that ran before it in the same process."""

from __future__ import annotations

import ctypes
import gc
import random
from functools import cache

import numpy as np
import torch

from gaudi_tune.devices.device import CPUS_PER_WORKER
from gaudi_tune.private.accelerate import forget_accelerator
from gaudi_tune.private.torch import forget_compiled


def fresh_start(seed: int) -> None:
    """Seed every global random generator, and set torch's switches to their defaults.

    Args:
        seed: Any non-negative integer; NumPy takes its lowest 32 bits.
    """
    seed_everything(seed)
    torch.set_default_dtype(torch.float32)
    if torch.empty(0).device.type != "cpu":  # after None, torch 2.7 fails to say which device is the default
        torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.set_anomaly_enabled(False)
    torch.set_flush_denormal(False)
    if torch.get_float32_matmul_precision() != "highest":
        torch.set_float32_matmul_precision("highest")  # a call also overrides the settings of torch.backends
    if torch.are_deterministic_algorithms_enabled():  # otherwise the call would only import Inductor, 1.5 s of CPU
        torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = False
    torch.clear_autocast_cache()
    if torch.get_num_threads() != CPUS_PER_WORKER:
        torch.set_num_threads(CPUS_PER_WORKER)


def seed_everything(*parts: int) -> None:
    """Seed Python, NumPy and torch on all devices from ``parts``, for example (trial seed, rank, steps done)."""
    torch.manual_seed(seed_host(*parts))


def seed_host(*parts: int) -> int:
    """Seed Python, NumPy and torch's CPU generator from ``parts``, and return the seed that was made of them."""
    seed = seed_of(*parts)
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)
    return seed


def seed_of(*parts: int) -> int:
    """Return a seed that is made of ``parts``."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint32)[0])


def release_memory() -> None:
    """Free what the last trial held: cycles of Python objects, cached device blocks, unused heap pages."""
    forget_accelerator()
    # Compiled code stays for the next trial with the same graph, up to the limit after which torch stops compiling. A
    # Gaudi's compiled recipes are kept elsewhere, and are not affected.
    forget_compiled()
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # otherwise glibc keeps freed pages
        libc.malloc_trim(0)
    _leave_out_survivors()


@cache
def _leave_out_survivors() -> None:
    """Exclude what has survived the first trial, such as imports and prepared data, from later garbage collections.

    Looking at it again after every trial would take longer than starting the next one. This runs once, since even
    ``gc.get_freeze_count()`` goes through all objects, which takes 0.1 s.
    """
    gc.freeze()
