"""The doctor's computations on HPUs, with a process for each HPU, and what to do if they fail."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass

from gaudi_tune.devices.cores import device_root
from gaudi_tune.devices.gaudi_node import MODULES, OWN_MODULE, RECIPE_CACHE
from gaudi_tune.devices.hpu import HPU

WITHIN_S = 300
"""How long a probe may take; habana alone may wait 60 s for a device."""
START_THE_CONTAINER = "start the container with --runtime=habana -e HABANA_VISIBLE_DEVICES=all"

MATMUL = """
import torch
from gaudi_tune.devices.find import worker_device
from gaudi_tune.devices.hpu import HPU
device = worker_device()
ones = torch.ones(256, 256)
product = (ones.to(device) @ ones.to(device)).to("cpu")
HPU.synchronize()
assert float(product[0, 0]) == 256.0, float(product[0, 0])
"""
ALL_REDUCE = """
import os
import torch
import torch.distributed as dist
from gaudi_tune.devices.find import worker_device
device = worker_device()
dist.init_process_group("hccl")
rank = torch.tensor([float(dist.get_rank())]).to(device)
dist.all_reduce(rank)
assert float(rank) == sum(range(dist.get_world_size())), float(rank)
dist.destroy_process_group()  # else a rank may crash on its way out, when the other is gone
"""
FIXES = {
    r"Session init failed|spdlog": "habana cannot write its logs: set HABANA_LOGS to a writable folder",
    r"synStatus=26.*Device acquire failed": "it is being reset (wait a minute), it does not work (dmesg, hl-smi), or "
    "the driver is of another release than the container",
    r"PT_DEVMEM|out of memory": "another process fills its memory, or did: see hl-smi",
    r"synStatus": "docker run --cap-add=sys_nice --ipc=host; see also habana's logs",
    r"AssertionError: -?[\d.]": "it computes wrong: do not use it; test it with Intel's hl_qual",
}
"""Patterns in the output of a probe, and what to do about each. The first that matches counts."""
SEE_LOGS = "see dmesg, hl-smi and habana's logs, and take TcMalloc out of LD_PRELOAD if it is there"
BUSY = (
    "another process has it, or it is being reset, which takes up to a minute: sudo hl-smi on the host names the "
    "process; end that, or wait"
)


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    subject: str
    result: str
    fix: str = ""
    """What to do about it; empty if nothing is wrong."""
    warns: bool = False
    """Whether a sweep may run nevertheless."""


def matmuls(modules: list[int]) -> list[Finding]:
    """Multiply matrices on all HPUs at the same time, on each HPU for itself."""
    started = {module: _start(MATMUL, [module], rank=0) for module in modules}
    return [_outcome(f"matmul on module {module}", [process], "correct") for module, process in started.items()]


def all_reduce(modules: list[int]) -> Finding:
    """Sum over all HPUs, as training does with gradients."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [_start(ALL_REDUCE, modules, rank, port) for rank in range(len(modules))]
    return _outcome("all_reduce", processes, f"correct over {len(modules)} HPUs")


def _start(code: str, modules: list[int], rank: int, port: int = 0) -> subprocess.Popen[str]:
    module = str(modules[rank])
    environment = {**os.environ, **HPU.worker_environment()}
    environment |= {OWN_MODULE: module, MODULES: module, "PT_HPU_LAZY_MODE": "0"}
    if port:
        environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(len(modules))}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment.pop(RECIPE_CACHE)  # that is for compiled graphs, and nothing is compiled here
    command, output = [sys.executable, "-c", code], subprocess.PIPE
    return subprocess.Popen(
        command, env=environment, stdout=output, stderr=subprocess.STDOUT, text=True, errors="replace"
    )


def _outcome(subject: str, processes: list[subprocess.Popen[str]], good: str) -> Finding:
    try:
        for process in processes:
            printed, _ = process.communicate(timeout=WITHIN_S)
            if process.returncode:
                return _failure(subject, printed.strip(), process.returncode)
    except subprocess.TimeoutExpired:
        return Finding(subject, f"no answer in {WITHIN_S} s", "see dmesg and hl-smi; reset the device if it is idle")
    finally:
        for process in processes:
            process.kill()  # the others may still wait for one that has failed
            process.wait()
    return Finding(subject, good)


def _failure(subject: str, printed: str, status: int) -> Finding:
    """Return why a probe has failed. Its text decides: habana has no other way to say it."""
    if HPU.is_being_released(printed) and "synStatus=26" not in printed:
        fix = BUSY if any((device_root() / "dev/accel").glob("accel[0-9]*")) else START_THE_CONTAINER
    else:
        fix = next((fix for sign, fix in FIXES.items() if re.search(sign, printed)), SEE_LOGS)
    ending = f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    return Finding(subject, printed.splitlines()[-1] if printed else f"{ending}, without a word", fix)
