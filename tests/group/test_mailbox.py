import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.group.mailbox import Mailbox


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """The one in which trials run."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_a_command_answers_a_report_and_the_next_report_answers_the_command(thread: ThreadPoolExecutor) -> None:
    mailbox = Mailbox()
    command = thread.submit(mailbox.hand_in, {"kind": "idle"})
    assert asyncio.run(mailbox.report()) == {"kind": "idle"}
    assert not command.done()
    mailbox.put({"do": "continue"})
    assert command.result() == {"do": "continue"}
    thread.submit(mailbox.hand_in, {"kind": "metrics"})
    assert asyncio.run(mailbox.report()) == {"kind": "metrics"}
    mailbox.put({"do": "exit"})


def test_a_command_waits_for_a_worker_that_trains(thread: ThreadPoolExecutor) -> None:
    mailbox = Mailbox()
    mailbox.put({"do": "exit"})
    assert thread.submit(mailbox.hand_in, {"kind": "metrics"}).result() == {"do": "exit"}


def test_a_request_to_save_is_answered_or_released() -> None:
    async def ask(*answers: Callable[[], None]) -> list[dict[str, Any]]:
        asked = []
        for answer in answers:
            asked.append(asyncio.ensure_future(mailbox.saved_now()))
            await asyncio.sleep(0)
            assert mailbox.wants_save()
            answer()
        return [await one for one in asked]

    mailbox = Mailbox()
    mailbox.hand_over({"reports": 1})  # nobody has asked
    assert not mailbox.wants_save()
    assert asyncio.run(ask(lambda: mailbox.hand_over({"reports": 2}))) == [{"reports": 2}]
    assert asyncio.run(ask(mailbox.release_waiter)) == [{}]
    # Asked twice, it answers the second time.
    assert asyncio.run(ask(lambda: None, lambda: mailbox.hand_over({"reports": 3}))) == [{}, {"reports": 3}]
    assert not mailbox.wants_save()


def test_a_waiter_for_a_report_is_released(thread: ThreadPoolExecutor) -> None:
    async def wait() -> dict[str, Any]:
        waiting = asyncio.ensure_future(mailbox.report())
        await asyncio.sleep(0)
        mailbox.release_waiter()
        return await waiting

    mailbox = Mailbox()
    assert asyncio.run(wait()) == {"kind": "ending"}
    command = thread.submit(mailbox.hand_in, {"kind": "metrics"})  # a report that comes later disturbs nobody
    mailbox.put({"do": "exit"})
    assert command.result() == {"do": "exit"}
    mailbox.fail(Failure(FailureKind.LOOP_ERROR, "the last one"))
    mailbox.release_waiter()
