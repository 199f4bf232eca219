"""The delivery by a copy of the fork server: to the end, without the copy, and without the sweep's process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.private.fork_server import ForkServer
from gaudi_tune.show.trackers.delivery_process import DeliveryProcess
from gaudi_tune.show.trackers.outbox import Outbox
from gaudi_tune.show.trackers.records import SWEEP, Record
from tests.helpers.deliveries import check_delivered, outbox_in, records_of

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer([], {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForkServer, "running", server)
        yield server
    server.end()


def copy_of(server: ForkServer) -> psutil.Process:
    """Return the copy that delivers, once that of the test before has ended."""
    deadline = time.monotonic() + 60
    while len(copies := psutil.Process(server.pid).children()) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return copies[0]


def begin(records: list[Record], uri: str, folder: Path) -> tuple[Outbox, DeliveryProcess]:
    """Return an outbox with these records, and the process that delivers it, which has begun to."""
    outbox = outbox_in(folder, records)
    delivery = DeliveryProcess(uri, outbox)
    delivery.start()
    deadline = time.monotonic() + 60
    while SWEEP not in delivery.ids:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return outbox, delivery


@pytest.mark.parametrize("is_killed", [False, True])
def test_all_is_delivered_once_also_if_the_process_is_killed(
    is_killed: bool, server: ForkServer, tmp_path: Path, tracking_store: str
) -> None:
    name = f"killed-{is_killed}"
    records = records_of(name, tracking_store)
    outbox, delivery = begin(records[:1], tracking_store, tmp_path / name)
    for record in records[1:]:
        outbox.put(record)
    if is_killed:
        copy_of(server).kill()
    delivery.close()
    assert not outbox.waiting
    assert not delivery.is_alive()
    check_delivered(tracking_store, name)


def test_the_process_ends_with_that_of_the_sweep(server: ForkServer, tmp_path: Path, tracking_store: str) -> None:
    records = records_of("left", tracking_store)
    outbox, delivery = begin(records[:1], tracking_store, tmp_path / "left")
    copy = copy_of(server)
    assert delivery._control is not None
    delivery._control.close()  # as the kernel does for a process that is killed
    copy.wait(60)
    outbox.put(records[1])
    assert outbox.waiting
