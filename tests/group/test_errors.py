"""Tests of what it means for a trial that its worker group ended."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from ray import cloudpickle
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayTaskError
from ray.train import WorkerGroupError
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError

from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.base.words import last_line
from gaudi_tune.devices.hpu import HPU
from gaudi_tune.group.errors import (
    StartHungError,
    WorkerRaisedError,
    WorkersLostError,
    failure_of,
    failure_of_loop,
    is_loss,
    lost_actor,
    text_of_loop,
    unusable_report,
)

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
    failure = failure_of(KILLED)
    assert failure.kind == FailureKind.HOST_OUT_OF_MEMORY
    assert failure.text.splitlines()[-1].startswith("out of memory on the host")
    untyped = WorkerHealthCheckFailedError("killed, as the node was running low on memory", ActorDiedError())
    assert failure_of(WorkerGroupError("1 worker failed", {0: untyped})).kind == FailureKind.HOST_OUT_OF_MEMORY
    of_loop = {0: ActorDiedError(), 1: RuntimeError("the shelf is low on memory cards")}
    assert failure_of(WorkerGroupError("low on memory", of_loop)).kind == FailureKind.LOST


def test_the_last_line_says_what_may_have_ended_a_process() -> None:
    died = WorkerGroupError("2 workers failed", {0: ActorDiedError(), 1: ValueError("connection closed")})
    failure = failure_of(died)
    assert failure.kind == FailureKind.LOST
    assert failure.text.splitlines()[-1].endswith("it crashed, or your train loop called os._exit()")
    assert failure_of(ActorDiedError()) == Failure(FailureKind.LOST, str(ActorDiedError()))


def test_an_error_outside_the_train_loop_is_identified_by_its_types() -> None:
    failures = [failure_of(WorkerGroupError(text, {0: OSError(text)})) for text in ("no device 3", "no device 4")]
    assert failures[0].kind == FailureKind.GROUP_ERROR
    assert failures[0].cause == failures[1].cause
    assert failures[0].cause != failure_of(WorkerGroupError("no device 3", {0: KeyError("no device 3")})).cause
    in_the_actor = failure_of(RayTaskError("save", "traceback", OSError("no space")))
    assert in_the_actor.cause == (FailureKind.GROUP_ERROR, "OSError")


@pytest.mark.parametrize(
    "error",
    [
        WorkerRaisedError(Failure(FailureKind.OUT_OF_MEMORY, "Traceback ...\ntoo large", "here")),
        WorkersLostError("gone"),
        StartHungError("no report"),
        unusable_report("no score"),
        lost_actor(KILLED),
    ],
)
def test_a_failure_survives_pickling_and_wrapping(error: Any) -> None:
    """Ray pickles an error, and wraps one that an actor raises."""
    sent = cloudpickle.loads(cloudpickle.dumps(error))
    assert type(sent) is type(error)
    assert failure_of(sent) == error.failure
    assert str(sent) == error.failure.text
    raised = RayTaskError("train", "traceback", error)
    assert failure_of(raised) == failure_of(raised.as_instanceof_cause()) == error.failure


@pytest.mark.parametrize("text", ["", "diverged", "out of memory on the device", "low on memory", "node has died"])
def test_the_text_of_a_loop_error_does_not_change_its_kind(text: str) -> None:
    failure, other = _failure_of(ValueError(text)), _failure_of(ValueError("another text"))
    assert failure.cause == other.cause
    assert failure.kind == FailureKind.LOOP_ERROR
    assert failure.cause != _failure_of(KeyError(text)).cause
    too_large = _failure_of(ValueError(text), out_of_memory=True)
    assert too_large.kind == FailureKind.OUT_OF_MEMORY
    assert too_large.text.splitlines()[-1].startswith("out of memory on the device")


def test_a_loop_error_is_identified_by_where_it_was_raised() -> None:
    with pytest.raises(ValueError, match="deep") as deep:
        _raise_after(3)
    with pytest.raises(ValueError, match="deep") as deeper:
        _raise_after(30)
    deep_failure, deeper_failure = (failure_of_loop(error.value, out_of_memory=False) for error in (deep, deeper))
    assert deep_failure.fingerprint != deeper_failure.fingerprint, "this test calls it from two lines"
    assert _failure_of_depth(3).fingerprint == _failure_of_depth(30).fingerprint
    assert deep_failure.fingerprint.startswith("ValueError ")


def test_code_that_torch_generates_does_not_count_where_an_error_was_raised() -> None:
    fingerprints = set()
    for file in ("<eval_with_key>.1", "<eval_with_key>.2", "/tmp/torchinductor_me/a.py", "/tmp/torchinductor_me/b.py"):
        code = compile("def call():\n    raise ValueError('no')", file, "exec")
        scope: dict[str, Any] = {}
        exec(code, scope)
        with pytest.raises(ValueError, match="no") as raised:
            scope["call"]()
        fingerprints.add(failure_of_loop(raised.value, out_of_memory=False).fingerprint)
    assert len(fingerprints) == 1


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
def test_errors_that_would_end_the_process_are_named_with_the_fix(error: BaseException, named: str) -> None:
    last = text_of_loop(error).splitlines()[-1]
    assert last.startswith(f"your train loop ended its process ({named})")
    assert last.endswith("return to end a trial, or raise an error to fail it")


def test_an_exit_in_a_library_names_the_line_of_the_user() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args([], argparse.Namespace(data="reviews"))  # which argparse does not accept
    last = text_of_loop(ended.value).splitlines()[-1]
    assert "(SystemExit 2) at test_errors.py:" in last
    assert 'parser.parse_args([], argparse.Namespace(data="reviews"))' in last


def test_the_message_of_an_exit_is_one_line() -> None:
    assert "(SystemExit bye fake)" in text_of_loop(SystemExit("bye\nfake")).splitlines()[-1]


@pytest.mark.parametrize("error", [ValueError("PT_DEVMEM_X is no switch"), RuntimeError("set PT_DEVMEM in my config")])
def test_a_word_of_habanas_allocator_is_no_full_memory(error: Exception) -> None:
    assert not HPU.is_out_of_memory(error)
    assert HPU.is_out_of_memory(RuntimeError("[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size"))


def _failure_of(error: Exception, out_of_memory: bool = False) -> Failure:
    with pytest.raises(type(error)) as raised:
        raise error
    return failure_of_loop(raised.value, out_of_memory=out_of_memory)


def _failure_of_depth(depth: int) -> Failure:
    with pytest.raises(ValueError, match="deep") as raised:
        _raise_after(depth)
    return failure_of_loop(raised.value, out_of_memory=False)


def _raise_after(depth: int) -> None:
    if depth == 0:
        raise ValueError("deep")
    _raise_after(depth - 1)


def _fail() -> None:
    raise AssertionError


class UnreadableError(Exception):
    """An error that nothing can be done with."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __reduce__ = __str__


@pytest.mark.parametrize("error", [UnreadableError(), ValueError(10**7 * "y"), ValueError("half \ud800, \x1b[2J")])
def test_any_error_of_the_loop_becomes_a_text_that_can_be_kept_and_shown(error: Exception) -> None:
    try:
        raise error
    except Exception as raised:
        failure = failure_of_loop(raised, out_of_memory=HPU.is_out_of_memory(raised))
    assert type(error).__name__ in last_line(failure.text)
    assert len(failure.text) < 110_000
    assert failure.text.encode().isascii()
    assert "\x1b" not in failure.text


def test_a_file_that_is_not_found_by_a_relative_path_is_looked_for_where_the_worker_began(tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").touch()

    def last_line_of(path: str, started_in: Path | None = tmp_path) -> str:
        with pytest.raises(FileNotFoundError) as raised:
            Path(path).read_text()
        return text_of_loop(raised.value, started_in).splitlines()[-1]

    found = last_line_of("numbers.txt")
    assert "there is no 'numbers.txt': the current folder of a train loop is empty at first" in found
    assert found.endswith(f"give the full path, such as {tmp_path / 'numbers.txt'}")
    for started_in in (tmp_path, None):
        assert last_line_of("lost.txt", started_in).endswith('such as Path(__file__).parent / "lost.txt"')
    assert last_line_of("/lost.txt") == "FileNotFoundError: [Errno 2] No such file or directory: '/lost.txt'"
    said = text_of_loop(FileNotFoundError("no such data: 'x.csv'")).splitlines()[-1]
    assert said.startswith("no such data: 'x.csv' (the current folder of a train loop is empty at first")
