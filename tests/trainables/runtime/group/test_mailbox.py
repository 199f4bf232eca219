from typing import Any

import pytest
import ray

from trainables.runtime.group.mailbox import Mailbox


@pytest.fixture
def mailbox(ray_here: None) -> Any:
    actor = ray.remote(Mailbox).options(num_cpus=0).remote(2)
    yield actor
    ray.kill(actor)


def test_every_rank_gets_the_command_and_the_reports_come_by_rank(mailbox: Any) -> None:
    second = mailbox.report.remote(1, {"kind": "idle", "from": 1})
    first = mailbox.report.remote(0, {"kind": "idle", "from": 0})
    assert [report["from"] for report in ray.get(mailbox.reports.remote())] == [0, 1]
    answers = mailbox.command.remote({"do": "continue"})
    assert ray.get([first, second]) == [{"do": "continue"}] * 2
    for rank in (0, 1):
        mailbox.report.remote(rank, {"kind": "metrics", "from": rank})
    assert [report["kind"] for report in ray.get(answers)] == ["metrics"] * 2


def test_a_command_waits_for_the_last_rank(mailbox: Any) -> None:
    first = mailbox.report.remote(0, {"kind": "idle"})
    mailbox.command.remote({"do": "exit"})
    assert ray.wait([first], timeout=0.5)[0] == []
    second = mailbox.report.remote(1, {"kind": "idle"})
    assert ray.get([first, second]) == [{"do": "exit"}] * 2


def test_one_failed_rank_ends_the_wait(mailbox: Any) -> None:
    mailbox.report.remote(0, {"kind": "idle"})
    ray.get(mailbox.fail.remote(1, "out of memory"))
    ray.get(mailbox.fail.remote(0, "connection closed by peer"))
    assert ray.get(mailbox.reports.remote()) == [{"kind": "error", "rank": 1, "error": "out of memory"}]
