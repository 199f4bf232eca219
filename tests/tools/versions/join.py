"""Joins a cluster of another Ray: starts a head with one Python, and a dry run with this one.

    python -m tests.tools.versions.join /path/to/another/environment/bin/python

It ends with status 0 if the dry run is refused with both versions of Ray, or goes on where they are the same.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ray

HEAD = """
import sys, time, ray
from ray._private.node import Node
from ray._private.parameter import RayParams
parameters = RayParams(gcs_server_port=int(sys.argv[1]), temp_dir=sys.argv[2], num_cpus=2, include_dashboard=False)
node = Node(parameters, head=True)
print(ray.__version__, flush=True)
time.sleep(600)
"""
"""Starts the head of a cluster that ends with this process, which ``ray start`` leaves to ``ray stop``."""
SCRIPT = """
import ray.train
from ray import tune
from gaudi_tune import Experiment, main

def train_loop(config):
    ray.train.report({"loss": config["lr"]})

main(Experiment(train_loop=train_loop, space={"lr": tune.uniform(0, 1)}, metric="loss"))
"""


def run(python: str) -> None:
    """Start the head, try to join it, and end it."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="j-") as folder:
        head = subprocess.Popen([python, "-c", HEAD, str(port), folder], stdout=subprocess.PIPE, text=True)
        try:
            assert head.stdout is not None
            there = head.stdout.readline().strip()
            Path(folder, "my.py").write_text(SCRIPT)
            address = f"{ray.util.get_node_ip_address()}:{port}"
            began = time.monotonic()
            command = [sys.executable, "my.py", "--dry-run", "--address", address, "--device", "cpu"]
            path = f"{Path(__file__).parents[3]}:{os.environ.get('PYTHONPATH', '')}"
            joined = subprocess.run(
                command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
            )
            print(f"Ray {there} there, {ray.__version__} here, after {time.monotonic() - began:.0f} s:")
            print(joined.stdout[-2000:], joined.stderr[-2000:])
            if there == ray.__version__:
                assert joined.returncode == 0
            else:
                assert joined.returncode == 2
                assert f"that cluster runs Ray {there} with Python" in joined.stderr
        finally:
            head.terminate()
            head.wait(30)


if __name__ == "__main__":
    run(sys.argv[1])
