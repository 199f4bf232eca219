"""The team's tracking server, started for tests by the project's own script: PostgreSQL, passwords, artifacts on S3."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import mlflow
import psutil
import pytest
from mlflow.utils.rest_utils import MlflowHostCreds, http_request

from gaudi_tune.define.options import PROJECT_ROOT
from tests.helpers.deliveries import free_port
from tests.helpers.object_store import Bucket

SCRIPT = PROJECT_ROOT / "mlflow" / "server.sh"
PASSWORDS = {"ada": "password-of-ada", "guest": "password-of-guest"}
"""Those of the users beside the administrator: ada logs to every experiment, the guest reads."""


def sign_in(patch: pytest.MonkeyPatch, user: str, password: str) -> None:
    """Have MLflow's client use this name and password, and none of S3."""
    patch.setenv("MLFLOW_TRACKING_USERNAME", user)
    patch.setenv("MLFLOW_TRACKING_PASSWORD", password)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "MLFLOW_S3_ENDPOINT_URL"):
        patch.delenv(name, raising=False)


def wait_until(done: Callable[[], bool], seconds: float, what: str) -> None:
    """Return once ``done()`` holds; fail after so many seconds."""
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def kill(process: psutil.Process) -> None:
    """Kill a process and all that it started, at once and without a word."""
    family = [process, *process.children(recursive=True)]
    for member in family:
        member.kill()
    psutil.wait_procs(family, timeout=10)


def python_for_other_users() -> dict[str, str]:
    """Variables with a Python that MLflow's user can run: root's may be in a folder that only root can enter."""
    system = f"/usr/bin/python3.{sys.version_info.minor}"
    packages = str(Path(mlflow.__file__).parents[1])
    for python, variables in ((sys.executable, {}), (system, {"PYTHONPATH": packages})):
        if Path(python).exists() and all(folder.stat().st_mode & 0o001 for folder in Path(python).resolve().parents):
            return {"SERVER_PYTHON": python, **variables}
    return {"SERVER_PYTHON": sys.executable, "SERVER_USER": "root"}


class TeamServer:
    """A server of mlflow/server.sh, in a folder and on a port of its own."""

    def __init__(self) -> None:
        self.bucket = Bucket("team", "team", "secret-of-the-bucket")
        # Not pytest's folder, which PostgreSQL's user may not enter; and a short path, for PostgreSQL's socket.
        self.folder = Path(tempfile.mkdtemp(prefix="team-"))
        self.folder.chmod(0o711)
        self.settings, self.store = self.folder / "server.env", self.folder / "store"
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.log = self.folder / "log"
        self.environment = {
            **os.environ,
            **self.bucket.credentials,
            **python_for_other_users(),
            "MLFLOW_PORT": str(self.port),
            "MLFLOW_WORKERS": "1",
            "MLFLOW_ARTIFACTS_DESTINATION": f"s3://{self.bucket.name}/artifacts",
            "MLFLOW_S3_ENDPOINT_URL": self.bucket.address,
        }
        self.process: psutil.Popen | None = None

    @property
    def command(self) -> list[str]:
        return [str(SCRIPT), "--folder", str(self.store), "--env", str(self.settings)]

    def start(self) -> float:
        """Start it and return after how many seconds it answered."""
        began = time.monotonic()
        with self.log.open("wb") as log:
            self.process = psutil.Popen(self.command, env=self.environment, stdout=log, stderr=subprocess.STDOUT)
        wait_until(self._answers, 300, f"the server did not start: {self.log}")
        return time.monotonic() - began

    def _answers(self) -> bool:
        assert self.process is not None
        said = self.log.read_text()
        # PostgreSQL missing, or anything else: the script says what, and the tests fail with it.
        assert self.process.poll() is None, f"the server did not start:\n{said[-3000:]}"
        return "\nserver      http" in said

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the script with more arguments, and wait for its end."""
        return subprocess.run(
            [*self.command, *arguments],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def setting(self, name: str) -> str:
        """The value of a setting that the script wrote."""
        lines = self.settings.read_text().splitlines()
        return next(line.split("=", 1)[1] for line in lines if line.startswith(f"{name}="))

    def invite(self) -> None:
        """Give the users their passwords, and ada the right to log to every experiment."""
        for user, password in PASSWORDS.items():
            self.ask("/api/2.0/mlflow/users/create", {"username": user, "password": password})
        self.grant("ada", "EDIT", "*")

    def grant(self, user: str, permission: str, name: str, kind: str = "experiment") -> None:
        """Let a user do more with an experiment or another kind of thing, as the administrator."""
        what = {"resource_type": kind, "resource_id": name, "permission": permission}
        self.ask("/api/3.0/mlflow/users/permissions/grant", {"username": user, **what})

    def ask(self, path: str, body: dict[str, str]) -> None:
        """POST to MLflow as the administrator."""
        who = MlflowHostCreds(self.uri, "admin", self.setting("MLFLOW_AUTH_ADMIN_PASSWORD"))
        answer = http_request(who, path, "POST", json=body)
        assert answer.status_code == 200, answer.text

    @property
    def postmaster(self) -> Path:
        """The file that is there while PostgreSQL runs; its first line is the process."""
        return self.store / "database" / "data" / "postmaster.pid"

    @property
    def database(self) -> psutil.Process:
        """PostgreSQL."""
        return psutil.Process(int(self.postmaster.read_text().split("\n", 1)[0]))

    def freeze_database(self) -> None:
        """Stop PostgreSQL where it is: what is asked of MLflow from now on is begun and not answered."""
        for process in (self.database, *self.database.children()):
            process.suspend()

    def kill(self) -> None:
        """Kill MLflow, the script and PostgreSQL: what a machine that loses its power leaves."""
        assert self.process is not None
        database = self.database
        kill(self.process)
        kill(database)

    def close(self) -> None:
        """End it as a person would, and remove everything."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
            assert not self.postmaster.exists(), "PostgreSQL was left behind"
        shutil.rmtree(self.folder)
        self.bucket.close()


@contextmanager
def team_server() -> Iterator[TeamServer]:
    """A server that runs, and that its users can log to."""
    server = TeamServer()
    try:
        print(f"the server answered after {server.start():.1f} s", flush=True)
        server.invite()
        yield server
    finally:
        server.close()
