"""Delivery to a real MLflow server that is killed, comes back, or is only there later."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from mlflow.tracking import MlflowClient

from gaudi_tune.base.files import DELIVERED_FILE, OUTBOX_FILE
from gaudi_tune.show.trackers.delivery import Sender
from gaudi_tune.show.trackers.mlflow_runs import MAX_TRIES, MlflowRuns
from gaudi_tune.show.trackers.outbox import Outbox
from gaudi_tune.show.trackers.records import Update
from tests.helpers.deliveries import EPOCHS, check_delivered, deliver, outbox_in, records_of
from tests.helpers.mlflow_server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.kill()


def test_the_next_process_delivers_the_rest_of_a_sweep(server: Server, tmp_path: Path) -> None:
    """The first was killed: in the middle of a line, and after MLflow had what was not yet noted as delivered."""
    folder = tmp_path / "left"
    records = records_of("left", server.uri)
    first = outbox_in(folder, records[:7])
    deliver(server.uri, first)
    (folder / DELIVERED_FILE).unlink()
    first.put(*records[7:])
    with (folder / OUTBOX_FILE).open("ab") as file:
        file.write(b'{"version": 1, "kind": "Upd')
    first.close()
    for _ in range(2):
        deliver(server.uri, Outbox(folder))
        check_delivered(server.uri, "left")


def test_an_experiment_that_is_deleted_in_the_middle_loses_nothing(server: Server, tmp_path: Path) -> None:
    client, records = MlflowClient(server.uri), records_of("deleted", server.uri)
    outbox = outbox_in(tmp_path, records[:6])
    sender = Sender(server.uri, outbox)
    sender.start()
    wait_for_delivery(outbox)
    experiment = outbox.ids["experiment"]
    client.delete_experiment(experiment)
    outbox.put(*records[6:])
    time.sleep(2.5)
    assert outbox.waiting
    client.restore_experiment(experiment)
    sender.close()
    assert not outbox.waiting
    check_delivered(server.uri, "deleted")


def test_a_run_that_someone_deleted_does_not_hold_up_the_others(server: Server, tmp_path: Path) -> None:
    client, records = MlflowClient(server.uri), records_of("less", server.uri)
    outbox = outbox_in(tmp_path, records[:4])
    deliver(server.uri, outbox)
    client.delete_run(outbox.ids["000"])
    outbox.put(*records[4:])
    deliver(server.uri, outbox)
    assert not outbox.waiting
    assert len(client.get_metric_history(outbox.ids["001"], "score")) == EPOCHS


def test_a_trial_that_failed_and_is_trained_again_is_not_called_failed(server: Server, tmp_path: Path) -> None:
    """Its driver was killed between the end of the trial and Tune's next snapshot."""
    outbox, records = Outbox(tmp_path), records_of("again", server.uri)
    sender = Sender(server.uri, outbox)
    sender.start()
    tags = {"status": "failed", "failure": "a loss is nan", "failure_kind": "diverged"}
    failed = Update(run="000", time_ms=0, tags=tags, status="FAILED")
    again = Update(run="000", time_ms=0, status="RUNNING")
    for record in [*records[:4], failed, again, *records[4:]]:
        outbox.put(record)
    sender.close()
    run = MlflowClient(server.uri).get_run(outbox.ids["000"])
    assert (run.info.status, run.data.tags["status"]) == ("FINISHED", "finished")
    assert not {"failure", "failure_kind"} & run.data.tags.keys()


def wait_for_delivery(outbox: Outbox) -> None:
    until = time.monotonic() + 120
    while outbox.waiting:
        assert time.monotonic() < until
        time.sleep(0.1)


PASSWORD = ", until this user's password and rights are right again"


@pytest.mark.parametrize(("status", "until"), [(401, PASSWORD), (403, PASSWORD), (404, None), (429, ""), (507, "")])
def test_the_answer_of_a_server_to_a_file_says_until_when_to_retry(
    status: int, until: str | None, tmp_path: Path
) -> None:
    runs = MlflowRuns(MlflowClient("http://127.0.0.1:1"), Outbox(tmp_path))
    response = requests.Response()
    response.status_code = status
    with pytest.raises(requests.HTTPError) as raised:
        response.raise_for_status()
    assert runs.retry_until(raised.value, attempt=100) == until
    assert runs.retry_until(ConnectionResetError(), attempt=100) == ""
    assert runs.retry_until(FileNotFoundError(), attempt=1) is None
    assert runs.retry_until(KeyError("a trial whose run was refused"), attempt=1) is None
    unknown = [runs.retry_until(RuntimeError("of any kind"), attempt) for attempt in (1, MAX_TRIES)]
    assert unknown == ["", None]


def test_an_outbox_is_delivered_by_one_at_a_time(server: Server, tmp_path: Path) -> None:
    """The second waits for the first, and goes on where that stopped."""
    records = records_of("once", server.uri)
    first = outbox_in(tmp_path / "once", records[:7])
    second = Outbox(tmp_path / "once")
    sender = Sender(server.uri, second)
    with first.exclusive():
        sender.start()
        for record in records[7:]:
            second.put(record)
        assert first.read_batch() == records
        first.ids["000"] = "made by the first"
        first.mark_delivered()
        assert second.ids == {}
    sender.close()
    assert (second.waiting, second.ids) == (0, {"000": "made by the first"})
