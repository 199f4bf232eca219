"""Tests of what it means for a trial that its worker group ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from ray.exceptions import ActorDiedError, OutOfMemoryError
from ray.train import WorkerGroupError
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError

from gaudi_tune.group.errors import is_loss, text_of, text_of_loop

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


def test_the_last_line_says_what_may_have_ended_a_process_unless_its_node_is_gone() -> None:
    died = WorkerGroupError("2 workers failed", {0: ActorDiedError(), 1: ValueError("connection closed")})
    assert text_of(died).splitlines()[-1].endswith("it crashed, or your train loop called os._exit()")
    with_its_node = WorkerGroupError("The actor died because its node has died.", {0: ActorDiedError()})
    assert text_of(with_its_node) == str(with_its_node)


def test_an_error_of_the_loop_that_has_no_text_says_where_it_was_raised() -> None:
    with pytest.raises(AssertionError) as raised:
        _fail()
    assert text_of_loop(raised.value).splitlines()[-1] == (
        f"AssertionError without a message, raised at {Path(__file__).name}:{_fail.__code__.co_firstlineno + 1} "
        f"(raise AssertionError)"
    )
    assert text_of_loop(ValueError("no such column")).splitlines()[-1] == "ValueError: no such column"


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (SystemExit(3), "SystemExit 3"),
        (SystemExit(), "SystemExit"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
    ],
)
def test_what_would_end_the_process_is_named_with_what_to_do(error: BaseException, named: str) -> None:
    last = text_of_loop(error).splitlines()[-1]
    assert last.startswith(f"your train loop ended its process ({named})")
    assert last.endswith("return to end a trial, or raise an error to fail it")


def _fail() -> None:
    raise AssertionError
