"""A bad line between the switch and a host: ``python -m tests.tools.hosts.line PID NAME DELAY_MS LOSS``.

It does what ``tc netem`` does, which not every kernel has: each frame, in either direction, comes late or never. Its
two ends are network cards whose other side is this process: ``NAME`` here, and ``eth0`` in the network of process
``PID``. Runs until it is killed.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import select
import struct
import sys
import time
from collections import deque
from contextlib import suppress

NETWORK = 0x40000000
"""The flag CLONE_NEWNET of setns(2) and unshare(2)."""
SET_NAME = 0x400454CA
"""The request TUNSETIFF of ioctl(2)."""
FRAMES = 0x0002 | 0x1000
"""The flags IFF_TAP and IFF_NO_PI: whole frames, and nothing before them."""
LONGEST = 2**16


def make_card(name: str) -> int:
    """Make a network card in the network of this process, and return the file that has its other side."""
    card = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(card, SET_NAME, struct.pack("16sH22x", name.encode(), FRAMES))
    return card


def enter_network_of(pid: int) -> None:
    """Have this process see the network of another one."""
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(network, NETWORK):
        raise OSError(ctypes.get_errno(), f"the network of process {pid} cannot be entered")


def carry(ends: tuple[int, int], delay_s: float, loss: float) -> None:
    """Carry frames from each end to the other."""
    others = dict(zip(ends, reversed(ends), strict=True))
    under_way: deque[tuple[float, int, bytes]] = deque()
    while True:
        wait_s = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        for end in select.select(ends, [], [], wait_s)[0]:
            frame = os.read(end, LONGEST)
            if random.random() >= loss:
                under_way.append((time.monotonic() + delay_s, others[end], frame))
        while under_way and under_way[0][0] <= time.monotonic():
            _, end, frame = under_way.popleft()
            with suppress(OSError):  # the card is down
                os.write(end, frame)


def main(pid: str, name: str, delay_ms: str, loss: str) -> None:
    """Make the line, and carry."""
    here = make_card(name)
    enter_network_of(int(pid))
    there = make_card("eth0")
    print("up", flush=True)
    carry((here, there), float(delay_ms) / 1000, float(loss))


if __name__ == "__main__":
    main(*sys.argv[1:])
