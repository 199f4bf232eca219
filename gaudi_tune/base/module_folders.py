"""The folders in which this process finds modules, and those of them that the workers of a Ray do not know."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Sequence
from pathlib import Path

_folders_of_own_rays: dict[str, Sequence[str]] = {}
"""For each Ray that this process has started, by its address, the folders that its workers were given."""


def note_own_ray(folders: Sequence[str]) -> None:
    """Note that this process has started the Ray that it uses, and has given its workers these folders."""
    import ray

    _folders_of_own_rays[ray.get_runtime_context().gcs_address] = folders


def folders_of_own_ray() -> Sequence[str] | None:
    """Return the folders that the workers of this process's Ray were given; None if this process has not started it."""
    import ray

    return _folders_of_own_rays.get(ray.get_runtime_context().gcs_address) if ray.is_initialized() else None


def folders_unknown_to_workers() -> list[str]:
    """Return the folders in which this process finds modules, but a worker of its Ray would not. Where it has no Ray
    yet, these are the folders that the workers of a new one must be given.

    A worker knows Python's own folders, those that their .pth files and PYTHONPATH add, and from Ray the script's
    folder and the current one.
    """
    prefixes = {sys.prefix, sys.base_prefix}  # a prefix may be /usr, where other programs have modules, too
    python_folders = [Path(prefix, lib) for prefix in prefixes for lib in ("lib", "lib64", "local/lib")]
    python_folders.append(Path(site.getusersitepackages()))
    folders = dict.fromkeys(os.path.abspath(path) for path in sys.path if os.path.exists(path))
    installed = [path for path in folders if any(Path(path).is_relative_to(folder) for folder in python_folders)]
    worker_folders = {os.getcwd(), str(Path(sys.argv[0]).resolve().parent), *installed}
    worker_folders.update(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    for folder in installed:
        worker_folders.update(added_by_pth_files(folder))
    worker_folders.update(folders_of_own_ray() or ())
    return [path for path in folders if path not in worker_folders]


def added_by_pth_files(folder: str) -> list[str]:
    """Return the folders that Python adds to its path at each start, such as that of ``pip install --editable``."""
    lines = [
        line
        for file in Path(folder).glob("*.pth")
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    return [os.path.abspath(os.path.join(folder, line.strip())) for line in lines]
