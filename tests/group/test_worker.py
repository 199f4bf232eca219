"""The worker's side alone, in a thread: this process is its trial actor."""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from ray import cloudpickle
from ray.train.v2._internal.execution.train_fn_utils import DistributedTrainFnUtils, set_train_fn_utils

from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.devices.device_metrics import DeviceMetrics
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.group import worker
from gaudi_tune.group.checkpoint_archive import unpack
from gaudi_tune.group.clean import cleaner
from gaudi_tune.group.clean.cleaner import Cleaner
from gaudi_tune.group.mailbox import Mailbox
from gaudi_tune.training.session import TrainLoop, report, save_if_asked

NEXT = {"do": "start", "config": {"name": "the next trial"}, "checkpoint": None, "folder": "", "node": "", "reports": 0}


def three_epochs(config: dict[str, Any]) -> None:
    for epoch in (1, 2, 3):
        report({"epoch": epoch})


def swallows_the_stop(config: dict[str, Any]) -> None:
    for epoch in (1, 2, 3):
        with suppress(BaseException):
            report({"epoch": epoch})


def reports_as_it_cleans_up(config: dict[str, Any]) -> None:
    try:
        three_epochs(config)
    finally:
        report({"epoch": 4})


def fails_as_it_cleans_up(config: dict[str, Any]) -> None:
    try:
        three_epochs(config)
    finally:
        raise OSError("no such file")


def exits_as_it_cleans_up(config: dict[str, Any]) -> None:
    try:
        three_epochs(config)
    finally:
        raise SystemExit(3)


def leaves(config: dict[str, Any]) -> None:
    raise SystemExit(3)


class TwoPartError(Exception):
    """Can be pickled, and not unpickled: pickle would make it again from its text alone."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(f"{what} {number}")


def raises_two_parts(config: dict[str, Any]) -> None:
    raise TwoPartError("no such layer", 2)


def trains_in_a_thread(config: dict[str, Any]) -> None:
    thread = threading.Thread(target=three_epochs, args=(config,))
    thread.start()
    thread.join()


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Mailbox:
    own = Mailbox()
    monkeypatch.setattr(worker, "MAILBOX", own)
    return own


@pytest.fixture
def thread(mailbox: Mailbox) -> Iterator[ThreadPoolExecutor]:
    """The one in which trials run. A loop that still waits is let go."""
    with ThreadPoolExecutor(1) as executor:
        yield executor
        for _ in range(5):
            mailbox.put({"do": "exit"})


@pytest.fixture
def run_trial(thread: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[TrainLoop], Any]]:
    """Starts a trial in the thread; what it returns will be the command that comes next."""
    cpu = DEVICE_TYPES["cpu"]
    monkeypatch.setattr(cleaner, "release_memory", gc.collect)  # it freezes what there is, and this is no worker
    measured = worker._Measured(DeviceMetrics(cpu, None))
    start: dict[str, Any] = {"do": "start", "config": {}, "checkpoint": None, "folder": "", "node": "", "reports": 0}
    set_train_fn_utils(DistributedTrainFnUtils())
    for owner, name in ((sys, "meta_path"), (atexit, "register"), (threading.Thread, "start")):
        monkeypatch.setattr(owner, name, copy(getattr(owner, name)))  # put back after the test

    def run(train_loop: TrainLoop) -> Any:
        return thread.submit(worker._run_trial, Cleaner(cloudpickle.dumps(train_loop)), start, measured, cpu)

    yield run
    set_train_fn_utils(None)
    measured.metrics.close()


def saves_after_each_step(config: dict[str, Any]) -> None:
    def save(directory: Path) -> None:
        (directory / "step").write_text(str(step))

    for step in range(1, 10_000):
        save_if_asked(save)
        if step % 100 == 0:
            report({"step": step})
        time.sleep(0.001)


def test_a_trial_hands_over_what_it_saves_between_two_reports(
    mailbox: Mailbox, run_trial: Callable[[TrainLoop], Any], tmp_path: Path
) -> None:
    async def ask() -> dict[str, Any]:
        mailbox.put({"do": "continue"})
        return await asyncio.wait_for(mailbox.saved_now(), 20)

    following = run_trial(saves_after_each_step)
    asyncio.run(mailbox.report())
    saved = asyncio.run(ask())
    unpack(saved["archive"], tmp_path)
    assert 100 < int((tmp_path / "step").read_text()) < 300
    assert saved["reports"] == 1
    assert asyncio.run(mailbox.report())["metrics"]["step"] == 200
    with ThreadPoolExecutor(1) as actor:
        asked = actor.submit(asyncio.run, mailbox.saved_now())
        while not mailbox.wants_save():
            time.sleep(0.01)
        mailbox.put(NEXT)  # it ends the trial, which saves no more
        assert following.result(timeout=20) == NEXT
        assert asked.result(timeout=20) == {}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the stop ends its thread
@pytest.mark.parametrize(
    "train_loop",
    [
        three_epochs,
        swallows_the_stop,
        reports_as_it_cleans_up,
        fails_as_it_cleans_up,
        exits_as_it_cleans_up,
        trains_in_a_thread,
    ],
)
def test_reports_after_the_stop_are_not_those_of_the_next_trial(
    train_loop: TrainLoop, mailbox: Mailbox, run_trial: Callable[[TrainLoop], Any]
) -> None:
    following = run_trial(train_loop)
    for epoch in (1, 2):
        assert asyncio.run(mailbox.report())["metrics"]["epoch"] == epoch
        mailbox.put({"do": "continue"} if epoch == 1 else NEXT)
    assert following.result(timeout=20) == NEXT
    assert not mailbox._report.done()  # nothing has answered the next trial's start


def test_an_error_after_the_stop_is_in_the_log(
    mailbox: Mailbox, run_trial: Callable[[TrainLoop], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger=worker.__name__):
        following = run_trial(fails_as_it_cleans_up)
        asyncio.run(mailbox.report())
        mailbox.put({"do": "stop"})
        assert following.result(timeout=20) == {"do": "stop"}
    assert "OSError: no such file" in caplog.text


@pytest.mark.parametrize(
    ("train_loop", "says"),
    [
        (leaves, r"your train loop ended its process \(SystemExit 3\) at test_worker\.py:\d+ "),
        (raises_two_parts, r"test_worker\.TwoPartError: no such layer 2$"),
    ],
)
def test_any_error_of_a_loop_is_handed_in_as_plain_data(
    train_loop: TrainLoop, says: str, mailbox: Mailbox, run_trial: Callable[[TrainLoop], Any]
) -> None:
    ended = run_trial(train_loop)
    report = asyncio.run(mailbox.report())
    failure = Failure.from_plain(json.loads(json.dumps(report["failure"])))
    assert (report["kind"], failure.kind) == ("error", FailureKind.LOOP_ERROR)
    assert re.search(says, failure.text.splitlines()[-1])
    with pytest.raises(RuntimeError, match="Traceback"):  # which Ray Train can send, and which ends the group
        ended.result(timeout=20)
