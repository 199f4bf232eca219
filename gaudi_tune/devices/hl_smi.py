"""What Intel's hl-smi says of the modules of a node."""

from __future__ import annotations

import subprocess


def hl_smi(*queries: str) -> list[list[str]]:
    """Return hl-smi's answers, a list for each device, without units (memory is in MiB); empty if it is not installed.

    Acquires no device. Intel's guide to hl-smi names the queries, for example "index", "module_id", "memory.used".
    """
    command = ["hl-smi", "-Q", ",".join(queries), "-f", "csv,noheader"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [[answer.split() for answer in line.split(",")] for line in printed.splitlines()]
    return [[answer[0] for answer in line] for line in lines if len(line) == len(queries) and all(line)]
