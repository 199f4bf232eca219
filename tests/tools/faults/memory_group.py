"""A control group with a limit of memory, as a container has one; it takes root's rights and cgroups of version 1."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIMIT_GB = 6
GROUPS_FOLDER = "/sys/fs/cgroup/memory"
OWN = re.search(r"^\d+:memory:(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
GROUP = Path(f"{GROUPS_FOLDER}{OWN[1] if OWN else ''}", f"sweep-{os.getpid()}")
"""A group inside that of this process."""
JOIN_GROUP = f"""
echo $$ > {GROUP}/cgroup.procs
exec unshare -Cm sh -c '
umount {GROUPS_FOLDER} && mount -t cgroup -o memory none {GROUPS_FOLDER} && exec "$@"' sh "$@"
"""
"""Lets a command run inside the group, and see no other, as in a container."""


@contextmanager
def group_with_little_memory(folder: Path) -> Iterator[None]:
    """Make the group; no file system of the folder changes."""
    GROUP.mkdir()
    (GROUP / "memory.limit_in_bytes").write_text(f"{LIMIT_GB}G")
    try:
        yield
    finally:
        GROUP.rmdir()
