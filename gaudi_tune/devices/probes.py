"""The doctor's computations on HPUs, with a process for each HPU, and what to do if they fail."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys

from gaudi_tune.devices.checks import Finding
from gaudi_tune.devices.gaudi_node import MODULES, OWN_MODULE, RECIPE_CACHE
from gaudi_tune.devices.hpu import HPU
from gaudi_tune.devices.module_owners import module_files

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
    r"Session init failed|spdlog|Failed opening file": "habana cannot write its logs: set HABANA_LOGS to a writable "
    "folder",
    r"synStatus=26.*Device acquire failed": "it is being reset (wait a minute), it does not work (dmesg, hl-smi), or "
    "the driver is of another release than the container",
    r"not enough devices": "unset WORLD_SIZE and LOCAL_RANK: this shell counts as one of a group",
    r"PT_DEVMEM|out of memory": "another process fills its memory, or did: see hl-smi",
    r"synStatus": "docker run --cap-add=sys_nice --ipc=host; see also habana's logs",
    r"No module named": "run it with the environment's Python, from the checkout",
    r"AssertionError: -?[\d.]": "it computes wrong: do not use it; test it with Intel's hl_qual",
}
"""Patterns in the output of a probe, and what to do about each. The first that matches counts."""
BUSY = (
    "another process has it, or it is being reset, which takes up to a minute: if this table names no owner, "
    "sudo hl-smi on the host does; end that process, or wait"
)
ENDED = {
    signal.SIGKILL: "the host's memory was full (dmesg), or somebody killed it",
    signal.SIGTERM: "somebody ended it: run the doctor again",
}


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
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
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
    if HPU.is_being_released(printed) and "synStatus=26" not in printed:
        fix = BUSY if module_files() else START_THE_CONTAINER
    else:
        fix = next((fix for sign, fix in FIXES.items() if re.search(sign, printed)), "see habana's logs")
    if status < 0:
        signal_ = signal.Signals(-status)
        crash = "take TcMalloc out of LD_PRELOAD if it is there; see dmesg and habana's logs"
        fix = ENDED.get(signal_, crash) if fix == "see habana's logs" else fix
        printed = printed or f"ended by {signal_.name}, without a word"
    last_line = printed.splitlines()[-1] if printed else f"ended with status {status}, without a word"
    return Finding(subject, last_line, fix)
