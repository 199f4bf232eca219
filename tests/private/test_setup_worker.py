"""What Ray asks of the script that starts its processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray

from gaudi_tune.private import setup_worker

WORKERS = Path(ray.__file__).parent / "_private" / "workers"


@pytest.mark.processes
@pytest.mark.parametrize(
    "context",
    [
        {},
        {"env_vars": {"ADDED": "a b", "PATH": "/first:${PATH}:${NONE_SUCH}"}, "py_executable": sys.executable},
        {"env_vars": {"ADDED": "c"}, "command_prefix": ["PREFIXED=1"]},  # more than variables
    ],
)
def test_the_script_starts_a_process_as_the_script_of_ray_does(context: dict[str, Any], tmp_path: Path) -> None:
    worker, rays_own = (
        tmp_path / "default_worker.py",
        Path(ray.__file__).parent / "_private" / "workers" / "setup_worker.py",
    )
    worker.write_text("import json, os, sys; print(json.dumps([sys.argv, sys.executable, dict(os.environ)]))")
    (tmp_path / rays_own.name).symlink_to(rays_own)
    given = [str(worker), "--node-id=a b", "--language=PYTHON"]
    given.append(f"--serialized-runtime-env-context={json.dumps(context)}")
    started = []
    for script in (rays_own, setup_worker.__file__):
        ran = subprocess.run([sys.executable, script, *given], capture_output=True, text=True, check=True)
        arguments, python, variables = json.loads(ran.stdout)
        for of_bash in ("_", "SHLVL", "PWD", "OLDPWD"):
            variables.pop(of_bash, None)
        started.append((arguments, python, variables))
    assert started[0] == started[1]
    assert started[0][0] == [str(worker), "--node-id=a b"]
    assert started[0][2].get("ADDED") == context.get("env_vars", {}).get("ADDED")
