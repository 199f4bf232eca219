"""An MLflow server that can be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.helpers.deliveries import free_port

STARTS_WITHIN_S = 120


class Server:
    """MLflow's own server, its records in SQLite."""

    def __init__(self, folder: Path) -> None:
        self.folder, port = folder, free_port()
        self.uri = f"http://127.0.0.1:{port}"
        self._command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
        self._command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
        self._command += ["--artifacts-destination", str(folder / "artifacts")]

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(
            self._command,
            cwd=self.folder,
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},  # five processes more
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + STARTS_WITHIN_S
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < until, "MLflow's server does not start"
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.uri}/health", timeout=1)
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """Kill it with all its processes, at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
