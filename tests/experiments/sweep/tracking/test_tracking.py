"""Delivery to a real MLflow server that is killed, comes back, or is only there for the next sweep."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
import requests
from mlflow.tracking import MlflowClient

from experiments.sweep.tracking.delivery import Sender
from experiments.sweep.tracking.mlflow_callback import numbers_in
from experiments.sweep.tracking.outbox import RECORDS_FILE, Outbox
from experiments.sweep.tracking.refusals import meaning_of
from tests.deliveries import EPOCHS, check_delivered, deliver, records_of
from tests.mlflow_server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.kill()


def test_a_server_that_is_killed_and_comes_back_has_everything_once(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    folder.mkdir()
    outbox = Outbox(folder)
    sender = Sender(server.uri, outbox, [])
    sender.start()
    records = records_of("killed", server.uri)
    for number, record in enumerate(records):
        outbox.put(record)
        if number == 6:
            time.sleep(2)  # some of it is delivered
            server.kill()
    assert outbox.waiting
    server.start()
    sender.close()
    assert not outbox.waiting
    check_delivered(server.uri, "killed")


def test_what_a_sweep_left_goes_out_with_the_next(server: Server, tmp_path: Path) -> None:
    """Its process was killed: in the middle of a line, and after MLflow had what was not yet noted as delivered."""
    folder = tmp_path / "left"
    folder.mkdir()
    records = records_of("left", server.uri)
    first = Outbox(folder)
    for record in records[:7]:
        first.put(record)
    deliver(server.uri, first, [])
    (folder / "mlflow-delivered.json").unlink()
    for record in records[7:]:
        first.put(record)
    with (folder / RECORDS_FILE).open("ab") as file:
        file.write(b'{"what": "metrics", "tri')
    del first
    assert Outbox.left_in(tmp_path) == [folder]
    (tmp_path / "next").mkdir()
    deliver(server.uri, Outbox(tmp_path / "next"), Outbox.left_in(tmp_path))
    check_delivered(server.uri, "left")
    assert Outbox.left_in(tmp_path) == []


def test_what_was_left_for_another_store_is_left_alone(server: Server, tmp_path: Path) -> None:
    for name, uri in (("other", "http://elsewhere:5000"), ("next", server.uri)):
        (tmp_path / name).mkdir()
        for record in records_of(name, uri):
            Outbox(tmp_path / name).put(record)
    deliver(server.uri, Outbox(tmp_path / "next"), Outbox.left_in(tmp_path))
    assert Outbox.left_in(tmp_path) == [tmp_path / "other"]


def test_an_experiment_that_is_deleted_in_the_middle_loses_nothing(server: Server, tmp_path: Path) -> None:
    client, outbox = MlflowClient(server.uri), Outbox(tmp_path)
    records = records_of("deleted", server.uri)
    for record in records[:6]:
        outbox.put(record)
    sender = Sender(server.uri, outbox, [])
    sender.start()
    wait_for_delivery(outbox)
    experiment = outbox.ids["experiment"]
    client.delete_experiment(experiment)
    for record in records[6:]:
        outbox.put(record)
    time.sleep(2.5)
    assert outbox.waiting
    client.restore_experiment(experiment)
    sender.close()
    assert not outbox.waiting
    check_delivered(server.uri, "deleted")


def test_a_run_that_someone_deleted_does_not_hold_up_the_others(server: Server, tmp_path: Path) -> None:
    client, outbox = MlflowClient(server.uri), Outbox(tmp_path)
    records = records_of("less", server.uri)
    for record in records[:4]:
        outbox.put(record)
    deliver(server.uri, outbox, [])
    client.delete_run(outbox.ids["000"])
    for record in records[4:]:
        outbox.put(record)
    deliver(server.uri, outbox, [])
    assert not outbox.waiting
    assert len(client.get_metric_history(outbox.ids["001"], "score")) == EPOCHS


def test_pictures_take_the_place_of_earlier_ones_and_hold_nothing_up(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a while the server has no place for files: metrics arrive, and later the last pictures do."""
    monkeypatch.setattr("experiments.sweep.tracking.delivery.PICTURES_SHARE", 1.0)
    outbox, picture = Outbox(tmp_path), tmp_path / "report.html"
    records, files = records_of("shown", server.uri), [str(picture), str(tmp_path / "not-drawn.png")]
    shown = {"what": "pictures", "files": files, "last": False, "time_ms": 0}
    picture.write_text("first")
    for record in [*records[:4], shown]:
        outbox.put(record)
    sender = Sender(server.uri, outbox, [])
    sender.start()
    wait_for_delivery(outbox)
    assert artifact(server, outbox.ids[""]) == "first"
    place = server.folder / "artifacts"
    place.rename(server.folder / "kept")
    place.write_text("in the way")
    picture.write_text("second")
    for record in [shown, *records[4:]]:
        outbox.put(record)
    wait_for_delivery(outbox)
    assert "MLflow does not take the pictures" in caplog.text
    check_delivered(server.uri, "shown")
    place.unlink()
    (server.folder / "kept").rename(place)
    outbox.put({**shown, "last": True})
    sender.close()
    assert artifact(server, outbox.ids[""]) == "second"


def test_a_trial_that_failed_and_is_trained_again_is_not_called_failed(server: Server, tmp_path: Path) -> None:
    """Its driver was killed between the end of the trial and Tune's next snapshot."""
    outbox, records = Outbox(tmp_path), records_of("again", server.uri)
    sender = Sender(server.uri, outbox, [])
    sender.start()
    failed = {**records[-1], "trial": "000", "outcome": "failed", "reason": "diverged: loss is nan after epoch 1"}
    for record in [*records[:4], failed, *records]:
        outbox.put(record)
    sender.close()
    run = MlflowClient(server.uri).get_run(outbox.ids["000"])
    assert (run.info.status, run.data.tags["status"]) == ("FINISHED", "finished")
    assert "failure" not in run.data.tags


def wait_for_delivery(outbox: Outbox) -> None:
    until = time.monotonic() + 30
    while outbox.waiting:
        assert time.monotonic() < until
        time.sleep(0.1)


def artifact(server: Server, run_id: str) -> str:
    """The words of a run's report.html."""
    path = mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path="report.html", tracking_uri=server.uri)
    return Path(path).read_text()


@pytest.mark.parametrize(
    ("status", "meaning"), [(401, "denied"), (403, "denied"), (404, "refused"), (429, "away"), (507, "away")]
)
def test_what_a_server_answers_to_a_file(status: int, meaning: str) -> None:
    response = requests.Response()
    response.status_code = status
    with pytest.raises(requests.HTTPError) as raised:
        response.raise_for_status()
    assert meaning_of(raised.value) == meaning
    assert (meaning_of(ConnectionResetError()), meaning_of(FileNotFoundError())) == ("away", "refused")
    assert meaning_of(KeyError("a trial whose run was refused")) == "refused"


def test_names_that_mlflow_refuses_are_changed() -> None:
    told = numbers_in({"acc@1": 0.5, "val_loss": 1, "is_best": True, "phase": "train"})
    assert told == {"acc_1": 0.5, "val_loss": 1.0}


def test_an_outbox_is_delivered_by_one_process_at_a_time(tmp_path: Path) -> None:
    mine, other = Outbox(tmp_path), Outbox(tmp_path)
    assert mine.take()
    assert not other.take()
