"""The team's server as a team has it: its script, a real PostgreSQL, passwords, artifacts on S3; all of it killed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import psutil
import pytest
import yaml
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from experiments.tune_bert import EXPERIMENT as BERT
from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.show.trackers.delivery import Sender
from gaudi_tune.show.trackers.mlflow_runs import LONG_PARAMS, MAX_PARAM
from gaudi_tune.show.trackers.records import SWEEP, BeginRun, LogFiles, Update
from gaudi_tune.show.trackers.store import check_registry, check_tracking
from tests.helpers.deliveries import check_delivered, deliver, free_port, outbox_in, records_of
from tests.helpers.model_sweeps import Sweep, make_checkpoint
from tests.helpers.team_server import PASSWORDS, TeamServer, sign_in, wait_until

pytestmark = pytest.mark.usefixtures("ada")


def run_named(uri: str, name: str, experiment: str = "delivery") -> Run:
    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return client.search_runs([found.experiment_id], f"attributes.run_name = '{name}'")[0]


def test_a_sweep_arrives_and_its_checkpoint_is_on_s3(
    team: TeamServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = tmp_path / "whole" / "trial-001" / "checkpoint_000000"
    checkpoint.mkdir(parents=True)
    (checkpoint / "weights.pt").write_bytes(b"w" * 300_000)
    now = int(time.time() * 1000)
    end = Update(run=SWEEP, time_ms=now, metrics={"seconds/training": 4.5}, status="FINISHED")
    files = LogFiles(run="000", time_ms=now, files=[str(checkpoint)], folder="checkpoint")
    outbox = outbox_in(tmp_path / "whole", [*records_of("whole", team.uri), end, files])
    deliver(team.uri, outbox)
    assert not outbox.waiting
    check_delivered(team.uri, "whole")
    trial = run_named(team.uri, "whole-0").info
    assert trial.artifact_uri.startswith("mlflow-artifacts:")
    name = f"artifacts/{trial.experiment_id}/{trial.run_id}/artifacts/checkpoint/weights.pt"
    assert team.bucket.objects()[name] == 300_000
    fetched = MlflowClient(team.uri).download_artifacts(trial.run_id, "checkpoint/weights.pt", str(tmp_path))
    assert Path(fetched).read_bytes() == b"w" * 300_000
    assert run_named(team.uri, "whole").info.status == "FINISHED"
    assert not capsys.readouterr().out, "MLflow prints into the sweep's own lines"


def test_the_best_model_is_registered_and_a_user_who_may_read_loads_it(
    team: TeamServer, tmp_path: Path, small_trial: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = make_checkpoint(BERT, small_trial, tmp_path)
    sweep = Sweep(team.uri, tmp_path / "results", "texts", BERT, checkpoint)
    sweep.end(1)
    sweep.end(2)
    assert [model.tags["best"] for model in sweep.models()] == ["false", "true"]
    check_registry(team.uri, "model of texts")
    sign_in(monkeypatch, "guest", PASSWORDS["guest"])
    check_registry(team.uri, "one that is not there yet")
    with pytest.raises(SweepError, match=r"--register model of texts: .*'guest' change .* \(HTTP 403\).*EDIT"):
        check_registry(team.uri, "model of texts")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", team.uri)
    model = mlflow.pyfunc.load_model("models:/model of texts@best")
    assert model.predict(["any text", "another"])["prediction"].notna().all()
    assert 'load_model("models:/model of texts/2")' in str(sweep.load_line(2))
    sign_in(monkeypatch, "admin", team.setting("MLFLOW_AUTH_ADMIN_PASSWORD"))
    team.grant("guest", "EDIT", "model of texts", kind="registered_model")
    sign_in(monkeypatch, "guest", PASSWORDS["guest"])
    check_registry(team.uri, "model of texts")


def test_a_wrong_password_is_said_before_a_sweep(team: TeamServer, monkeypatch: pytest.MonkeyPatch) -> None:
    sign_in(monkeypatch, "ada", "not-her-password")
    with pytest.raises(
        SweepError, match=r"does not let the user 'ada' log .*\(HTTP 401\).*MLFLOW_TRACKING_PASSWORD"
    ) as said:
        check_tracking(team.uri, "delivery")
    assert "not-her-password" not in str(said.value)
    monkeypatch.delenv("MLFLOW_TRACKING_USERNAME")
    with pytest.raises(SweepError, match="requests without a user"):
        check_tracking(team.uri, "delivery")


def test_an_address_without_a_server_is_said_before_a_sweep() -> None:
    with pytest.raises(SweepError, match="no MLflow tracking store answers there"):
        check_tracking(f"http://127.0.0.1:{free_port()}", "delivery")


def test_a_name_that_the_server_does_not_go_by_is_said(team: TeamServer) -> None:
    with pytest.raises(SweepError, match="MLFLOW_SERVER_ALLOWED_HOSTS"):
        check_tracking(team.uri.replace("127.0.0.1", "0.0.0.0"), "delivery")


def test_a_user_who_may_only_read_is_refused_before_a_sweep(team: TeamServer, monkeypatch: pytest.MonkeyPatch) -> None:
    check_tracking(team.uri, "delivery")
    sign_in(monkeypatch, "guest", PASSWORDS["guest"])
    with pytest.raises(SweepError, match=r"'guest' log to the experiment 'delivery' \(HTTP 403\).*EDIT"):
        check_tracking(team.uri, "delivery")
    check_tracking(team.uri, "one that is not there yet")


def test_a_password_that_is_changed_in_the_middle_loses_nothing(
    team: TeamServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = records_of("changed", team.uri)
    outbox = outbox_in(tmp_path / "changed", records[:6])
    sender = Sender(team.uri, outbox)
    sender.start()
    wait_until(lambda: not outbox.waiting, 120, "nothing was delivered")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "the-old-password")
    for record in records[6:]:
        outbox.put(record)
    time.sleep(2.5)
    assert outbox.waiting
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORDS["ada"])
    sender.close()
    assert not outbox.waiting
    check_delivered(team.uri, "changed")


def test_values_that_mlflow_has_no_room_for(team: TeamServer, tmp_path: Path) -> None:
    """Long ones are cut with a mark and kept whole beside; characters that PostgreSQL refuses are replaced."""
    begin, trial, *_ = records_of("odd", team.uri)
    assert isinstance(trial, BeginRun)
    params = {"long": "x" * 7000, "fits": "y" * MAX_PARAM, "odd": "zero \0 half \ud800", "lr": "0.1"}
    outbox = outbox_in(tmp_path / "odd", [begin, replace(trial, params=params)])
    deliver(team.uri, outbox)
    assert not outbox.waiting
    run = run_named(team.uri, "odd-0")
    kept = run.data.params
    assert len(kept["long"]) == MAX_PARAM
    checksum = hashlib.sha256(b"x" * 7000).hexdigest()[:8]  # so that long values that begin alike differ
    assert kept["long"].endswith(f"x ... (7000 characters, sha256 {checksum}; whole in {LONG_PARAMS})")
    assert (kept["fits"], kept["odd"], kept["lr"]) == ("y" * MAX_PARAM, "zero \ufffd half ?", "0.1")
    whole = MlflowClient(team.uri).download_artifacts(run.info.run_id, LONG_PARAMS, str(tmp_path))
    assert json.loads(Path(whole).read_text()) == {"long": "x" * 7000}


def test_all_of_it_killed_in_the_middle_loses_and_doubles_nothing(team: TeamServer, tmp_path: Path) -> None:
    records = records_of("killed", team.uri)
    outbox = outbox_in(tmp_path / "killed", records[:5])
    sender = Sender(team.uri, outbox)
    sender.start()
    wait_until(lambda: not outbox.waiting, 120, "nothing was delivered")
    team.freeze_database()
    for record in records[5:9]:
        outbox.put(record)
    time.sleep(2)  # a delivery has begun
    team.kill()
    assert outbox.waiting
    for record in records[9:]:
        outbox.put(record)
    print(f"the server answered after a kill in {team.start():.1f} s")
    sender.close()
    assert not outbox.waiting
    check_delivered(team.uri, "killed")
    check_delivered(team.uri, "whole")  # what was there before still is


def test_postgresql_alone_comes_back_by_itself(team: TeamServer, tmp_path: Path) -> None:
    before = team.database
    before.kill()
    deliver(team.uri, outbox_in(tmp_path / "alone", records_of("alone", team.uri)))
    check_delivered(team.uri, "alone")
    assert team.database.pid != before.pid


def test_a_folder_has_one_server_and_commands_go_to_its_database(team: TeamServer) -> None:
    second = team.run(MLFLOW_PORT=str(free_port()))
    assert second.returncode == 1
    assert "a server already runs on" in second.stderr
    counted = team.run("psql", "--no-psqlrc", "--tuples-only", "--command", "SELECT count(*) > 0 FROM runs")
    assert (counted.returncode, counted.stdout.strip()) == (0, "t")


def test_no_one_else_reads_what_it_keeps(team: TeamServer) -> None:
    assert (team.store / "artifacts").stat().st_mode & 0o077 == 0
    for folder in ("database", "database/socket"):
        assert (team.store / folder).stat().st_mode & 0o007 == 0


def test_nothing_of_it_runs_as_root_where_root_starts_it(team: TeamServer) -> None:
    if team.environment.get("SERVER_USER") == "root":
        pytest.skip("no Python of this machine can be run by another user")
    assert team.process is not None
    servers = [
        process
        for process in [team.database, *team.process.children(recursive=True)]
        if process.name().startswith(("python", "postgres"))
    ]
    assert len(servers) >= 3
    own = {psutil.Process().username()}
    assert {process.username() for process in servers} == ({"mlflow", "postgres"} if os.geteuid() == 0 else own)


def test_the_script_makes_its_secrets_and_takes_no_others(team: TeamServer, tmp_path: Path) -> None:
    assert team.settings.stat().st_mode & 0o777 == 0o600
    secrets = re.findall(r"(?m)^\w+=([0-9a-f]{48})$", team.settings.read_text())
    assert len(set(secrets)) == 4
    example = tmp_path / "server.env"
    example.write_text((PROJECT_ROOT / "mlflow" / "server.env.example").read_text())
    example.chmod(0o600)
    filled = example.read_text().replace("_KEY=\n", "_KEY=0123456789abcdef\n")
    for change, said in (
        (example.read_text(), "MLFLOW_AUTH_ADMIN_PASSWORD is empty"),
        (filled.replace("ADMIN_PASSWORD=", "ADMIN_PASSWORD=short"), "shorter than 12 characters"),
        (filled.replace("ADMIN_PASSWORD=", "ADMIN_PASSWORD=$(touch x) long enough"), "is not NAME=value"),
    ):
        example.write_text(change)
        refused = team.run("--env", str(example))
        assert refused.returncode == 1
        assert said in refused.stderr
    example.write_text(filled)
    example.chmod(0o644)
    assert "others may read it" in team.run("--env", str(example)).stderr


def test_the_compose_file_pins_its_images_and_stays_on_this_machine() -> None:
    """Nothing here can start it: what can be known without Docker is checked."""
    folder = PROJECT_ROOT / "mlflow"
    text = (folder / "compose.yaml").read_text()
    services = yaml.safe_load(text)["services"]
    base = re.search(r"(?m)^FROM (\S+)$", (folder / "Dockerfile").read_text())
    assert base is not None
    pulled = [service["image"] for service in services.values() if "build" not in service] + [base[1]]
    for image in pulled:
        assert re.fullmatch(r"([a-z]+/)?[a-z]+:v?\d+\.\d+(\.\d+)?(-[a-z]+)*", image), f"{image} is not pinned"
    assert [service.get("ports") for service in services.values() if "ports" in service] == [
        ["${MLFLOW_HOST:-127.0.0.1}:${MLFLOW_PORT:-5000}:5000"]
    ]
    example = (folder / "server.env.example").read_text()
    empty = set(re.findall(r"(?m)^(\w+)=$", example))
    assert empty == set(re.findall(r"\$\{(\w+):\?", text)) - {"AWS_ACCESS_KEY_ID"}
    assert set(re.findall(r"\$\{(\w+)", text)) <= set(re.findall(r"(?m)^(\w+)=", example))
