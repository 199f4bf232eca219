"""Which trials are tried again on new workers, and what is learnt from that."""

from __future__ import annotations

import pytest

from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.group.new_workers import NewWorkers

ONCE = Failure(FailureKind.LOOP_ERROR, "Traceback\nRuntimeError: set already", "RuntimeError 1")
PLAIN = Failure(FailureKind.LOOP_ERROR, "Traceback\nValueError: no such layer", "ValueError 2")


def test_a_trial_that_new_workers_helped_says_why() -> None:
    new_workers = NewWorkers()
    new_workers.begin()
    assert new_workers.may_help(ONCE, used=True)
    new_workers.note_report()
    assert "RuntimeError: set already" in new_workers.reason
    new_workers.begin()
    assert not new_workers.reason


def test_an_error_that_new_workers_raise_too_is_not_tried_again() -> None:
    new_workers = NewWorkers()
    assert not new_workers.may_help(PLAIN, used=False)
    assert not new_workers.may_help(PLAIN, used=True)
    assert new_workers.may_help(ONCE, used=True)
    assert not new_workers.may_help(ONCE, used=False), "new workers did not help"
    new_workers.begin()
    assert not new_workers.may_help(ONCE, used=True), "nor would they now"


@pytest.mark.parametrize("kind", [FailureKind.OUT_OF_MEMORY, FailureKind.UNUSABLE_REPORT, FailureKind.CONFIG_ERROR])
def test_failures_of_other_kinds_are_not_tried_again(kind: FailureKind) -> None:
    assert not NewWorkers().may_help(Failure(kind, "it failed"), used=True)


def test_a_trial_whose_workers_are_not_clean_begins_on_new_ones_and_says_why() -> None:
    new_workers = NewWorkers()
    assert new_workers.may_help(Failure(FailureKind.NOT_CLEAN, "a thread does not end"), used=True)
    new_workers.note_report()
    assert new_workers.reason == "it gets new workers: a thread does not end"
