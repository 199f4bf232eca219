"""Making a trial independent of the trials that ran before it in the same process."""

from __future__ import annotations

import ctypes
import gc
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
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
    if torch.get_default_device().type != "cpu":
        torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.set_anomaly_enabled(False)
    torch.set_float32_matmul_precision("highest")
    if torch.are_deterministic_algorithms_enabled():  # else the call would only import Inductor, 1.5 s of CPU
        torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = False
    torch.clear_autocast_cache()
    if torch.get_num_threads() != CPUS_PER_WORKER:
        torch.set_num_threads(CPUS_PER_WORKER)


def seed_everything(*parts: int) -> None:
    """Seed Python, NumPy and torch (all devices) from ``parts``, for example (trial seed, rank, steps done)."""
    torch.manual_seed(seed_host(*parts))


def seed_host(*parts: int) -> int:
    """Seed Python, NumPy and torch's generator of the CPU from ``parts``, and return the seed that was made of them."""
    seed = int(np.random.SeedSequence(parts).generate_state(1, np.uint32)[0])
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)
    return seed


@contextmanager
def environment_restored() -> Iterator[None]:
    """Undo what is done to the variables of this process and its current folder inside the block: Lightning keeps a
    trial's seed in one, and a script that enters a folder would look for it there in the next trial."""
    before, folder = dict(os.environ), os.getcwd()
    try:
        yield
    finally:
        os.chdir(folder)
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def release_memory() -> None:
    """Free what the last trial held: cycles of Python objects, cached device blocks, unused heap pages."""
    forget_accelerator()
    # Compiled code stays for the next trial of the same graph, up to the limit after which torch gives up compiling. A
    # Gaudi's recipes live below this, and stay in any case.
    forget_compiled()
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # glibc keeps freed pages otherwise
        libc.malloc_trim(0)
    _leave_out_survivors()


@cache
def _leave_out_survivors() -> None:
    """Leave what has survived the first trial, imports and prepared data, out of later collections: to look at it again
    after every trial would take longer than to start the next one. Even ``gc.get_freeze_count()`` goes through all of
    it, which takes 0.1 s."""
    gc.freeze()
