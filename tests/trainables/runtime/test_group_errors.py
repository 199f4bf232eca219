"""Tests of what it means for a trial that its worker group ended."""

from __future__ import annotations

import pytest
from ray.exceptions import ActorDiedError, OutOfMemoryError
from ray.train import WorkerGroupError
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError

from trainables.runtime.group_errors import is_loss, text_of

KILLED = OutOfMemoryError("7 worker(s) were killed due to the node running low on memory.\nRefer to the documentation")


@pytest.mark.parametrize(
    ("failure", "lost"),
    [
        (ActorDiedError(), True),
        (KILLED, True),  # the controller was among them
        (WorkerGroupError("", {0: WorkerHealthCheckFailedError("", KILLED)}), True),
        (WorkerGroupError("", {0: ValueError("no such column")}), False),
        (None, False),
    ],
)
def test_a_killed_process_is_a_loss_and_an_error_of_the_loop_is_not(failure: Exception | None, lost: bool) -> None:
    assert is_loss(failure) is lost


def test_the_last_line_says_that_the_hosts_memory_was_full() -> None:
    assert text_of(KILLED).splitlines()[-1].startswith("out of memory on the host")
    assert text_of(ValueError("no such column")) == "no such column"
