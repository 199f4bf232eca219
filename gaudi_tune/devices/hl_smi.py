"""Queries Intel's hl-smi, which lists the modules of a node."""

from __future__ import annotations

import subprocess


def hl_smi(*queries: str) -> list[list[str]]:
    """Return hl-smi's answers, one list for each device and without units; empty if hl-smi gives none.

    Memory is in MiB. It acquires no device. Intel's guide to hl-smi lists the queries, for example "index", "module_id"
    and "memory.used".
    """
    command = ["hl-smi", "-Q", ",".join(queries), "-f", "csv,noheader"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    answers = []
    for line in printed.splitlines():
        fields = [field.split() for field in line.split(",")]
        if len(fields) == len(queries) and all(fields):
            answers.append([value for value, *_ in fields])  # the rest is the unit
    return answers
