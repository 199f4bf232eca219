from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
import ray
import ray.tune
import torch

from gaudi_tune import SweepError, SweepOptions
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray import local_ray
from gaudi_tune.on_ray.local_ray import begin_ray, end_ray, start_ray
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.private.setup_worker import FORK_SERVER
from tests.helpers.cluster_sweep import SOON_GONE
from tests.helpers.quadratic import QUADRATIC


@pytest.fixture
def plan(storage: Path) -> Plan:
    return make_plan(QUADRATIC, SweepOptions(storage=storage, device="cpu"))


class SlowRay:
    """What Ray's calls do on a machine that is too busy to start one, and in which order they end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, busy_starts: int = 100) -> None:
        self.ended: list[str] = []
        self._busy_starts = busy_starts
        self.gives_up = threading.Event()
        monkeypatch.setenv(FORK_SERVER, "off")
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        monkeypatch.setattr(ray, "init", self._init)
        monkeypatch.setattr(ray, "shutdown", lambda: self.ended.append("shutdown"))

    def _init(self, *address: str, **more: Any) -> None:
        self.gives_up.wait(60)
        self.ended.append("init")
        if self.ended.count("init") <= self._busy_starts:
            raise TimeoutError("the machine is busy")


def test_a_machine_that_is_busy_once_is_tried_again(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slow = SlowRay(monkeypatch, busy_starts=1)
    monkeypatch.setattr(local_ray, "note_own_ray", lambda folders: slow.ended.append("used"))
    slow.gives_up.set()
    begin_ray(plan)
    start_ray(plan)
    assert slow.ended == ["init", "shutdown", "init", "used"]
    assert caplog.messages == ["Ray did not start (the machine is busy); trying again"]


def test_an_error_in_the_background_is_raised_at_the_wait(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowRay(monkeypatch)
    begin_ray(plan)
    threading.Timer(0.2, slow.gives_up.set).start()
    with pytest.raises(SweepError, match=r"Ray did not start on this machine \(the machine is busy\)"):
        start_ray(plan)


def test_a_ray_that_still_starts_is_ended_after_that_and_forgotten(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowRay(monkeypatch)
    begin_ray(plan)
    threading.Timer(0.2, slow.gives_up.set).start()
    end_ray()
    assert slow.ended == ["init", "shutdown"]
    with pytest.raises(SweepError, match="Ray did not start"):
        start_ray(plan)
    assert slow.ended == ["init", "shutdown"] * (1 + local_ray.ATTEMPTS)


def test_ctrl_c_while_ray_is_waited_for_leaves_it_to_be_ended(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, before = SlowRay(monkeypatch), signal.signal(signal.SIGINT, signal.default_int_handler)
    begin_ray(plan)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        start_ray(plan)
    signal.signal(signal.SIGINT, before)
    assert not slow.ended
    slow.gives_up.set()
    end_ray()
    assert slow.ended == ["init", "shutdown"]


def test_beside_a_ray_that_runs_none_is_begun(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowRay(monkeypatch)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    begin_ray(plan)
    start_ray(plan)
    assert not slow.ended


def test_a_scripts_own_imports_but_ray_and_habana_are_left_to_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = ModuleType("__main__")
    debian, target = "/usr/lib/python3/dist-packages", str(tmp_path)
    (tmp_path / "of_target-1.dist-info").mkdir()
    (tmp_path / "of_target-1.dist-info" / "RECORD").write_text("of_target.py,,\n")
    monkeypatch.syspath_prepend(target)
    names = {"habana_frameworks.torch": debian, "of_debian": debian, "of_target": target, "beside_it": target}
    for name, folder in names.items():
        module = ModuleType(name)
        module.__file__ = f"{folder}/{name}.py"
        monkeypatch.setitem(sys.modules, name, module)
        setattr(script, name, module)
    own = {
        "torch": torch,
        "Linear": torch.nn.Linear,
        "tune": ray.tune,
        "main": make_plan,
        "loop": lambda: None,
        "lr": 0.1,
    }
    vars(script).update(own, json=json)
    monkeypatch.setitem(sys.modules, "__main__", script)
    assert local_ray._modules_of_script() == ["of_debian", "of_target", "torch", "torch.nn.modules.linear"]


@pytest.mark.processes
@pytest.mark.own_ray
def test_data_that_cannot_be_used_ends_the_command_and_the_ray_that_was_begun(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as rays:  # a short path, as Ray's sockets need it
        options = ["--data", str(tmp_path), "--storage", str(tmp_path / "new")]
        command = [sys.executable, "experiments/tune_bert.py", *options]
        done = subprocess.run(
            command,
            cwd=PROJECT_ROOT, capture_output=True, text=True, check=False, env={**os.environ, "RAY_TMPDIR": rays},
        )  # fmt: skip
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"error: --data {tmp_path}: there are no files in the folder that end in .csv")
        assert [*Path(rays).glob("**/raylet.out")], "it was begun"
        left = [process for process in psutil.process_iter(["cmdline"]) if rays in str(process.info["cmdline"])]
        assert not psutil.wait_procs(left, timeout=60)[1]


LATER_SWEEPS = """
import importlib, os, pathlib, sys
import ray
from torchvision import io
from gaudi_tune import Experiment, SweepError, build_tuner, tune
from gaudi_tune.on_ray.local_ray import start_ray

sys.path.append(sys.argv[1])
import mine

def planned():
    own = Experiment(train_loop=mine.loop, space={"x": tune.uniform(0.0, 1.0)}, metric="score", imports=["wave"])
    return build_tuner(own, storage=sys.argv[1], device="cpu", num_samples=1).plan

start_ray(first := planned())
found, later = ray.remote(lambda: importlib.import_module("mine").__file__), planned()
print(ray.get(found.remote()) == mine.__file__, later.cluster is not None, later.devices.nodes == first.devices.nodes)
with_variables = {"env_vars": {"RAY_ANY": "1"}}  # Ray starts others without its script, and so without a server
imported = ray.remote(runtime_env=with_variables)(lambda: {"torch", "torchvision", "wave"} & {*sys.modules})
print("copies have", *sorted(ray.get(imported.remote())))
print(f"token {(pathlib.Path.home() / '.ray/auth_token').stat().st_mode & 0o777:o}")
ray.shutdown()
ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
try:
    planned()
except SweepError as error:
    print(error)
"""


@pytest.mark.processes
@pytest.mark.own_ray
def test_a_later_sweep_knows_the_devices_of_the_first_one_s_ray_and_where_its_workers_look(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def loop(config): pass\n")
    done = subprocess.run(
        [sys.executable, "-c", LATER_SWEEPS, str(tmp_path)],
        cwd=PROJECT_ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert "True True True\n" in done.stdout, done.stderr
    assert "copies have torch torchvision wave\n" in done.stdout
    assert "token 600\n" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("train_loop uses the module mine, and no worker can find it")


def test_variables_with_which_ray_would_not_start_are_set_aside(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "ignore::DeprecationWarning")
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv("TMPDIR", "/tmp/short")
    assert local_ray._ray_needs([]) == {"RAY_OVERRIDE_RESOURCES": None}
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert local_ray._ray_needs(["/more"])["PYTHONPATH"] == "/mine:/more"
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    monkeypatch.setenv("TMPDIR", "/scratch/" + 100 * "x")
    needs = local_ray._ray_needs([])
    assert needs == {"RAY_OVERRIDE_RESOURCES": None, "PYTHONWARNINGS": None, "RAY_TMPDIR": "/tmp"}
    assert "is too long for the paths of Ray's sockets" in caplog.text


@pytest.mark.processes
@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_a_folder_that_another_user_has_made_is_left_to_him(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        Path(folder, "ray").mkdir(0o755)
        monkeypatch.setenv("RAY_TMPDIR", folder)
        assert "RAY_TMPDIR" not in local_ray._ray_needs([])
        if (process := os.fork()) == 0:
            os.setuid(4321)
            os._exit(local_ray._ray_needs([])["RAY_TMPDIR"] != "/tmp/ray-4321")
        assert os.waitpid(process, 0)[1] == 0


DYING_RAYLET = """
import functools, logging, pathlib, signal, sys, time
import ray
from ray._private import services
from gaudi_tune import SweepOptions
from gaudi_tune.on_ray.local_ray import begin_ray, start_ray
from gaudi_tune.plan.planner import make_plan
from tests.helpers.quadratic import QUADRATIC

start, deaths = services.start_raylet, []

@functools.wraps(start)
def start_and_kill(*arguments, **options):
    started = start(*arguments, **options)
    if not deaths:
        started.process.kill()
        deaths.append(time.monotonic())
    else:
        print("waited", time.monotonic() - deaths[-1] < 20)
    return started

services.start_raylet = start_and_kill
logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stdout)
plan = make_plan(QUADRATIC, SweepOptions(storage=pathlib.Path(sys.argv[1]), device="cpu"))
begin_ray(plan)
start_ray(plan)
print("started", ray.is_initialized(), flush=True)
signal.raise_signal(signal.SIGTERM)
"""


@pytest.mark.processes
@pytest.mark.own_ray
def test_a_raylet_that_dies_at_its_start_is_seen_and_another_ray_started_which_sigterm_ends_without_a_stack(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DYING_RAYLET, str(tmp_path)],
        cwd=PROJECT_ROOT, env={**os.environ, **SOON_GONE}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    words = ("Ray did not", "waited", "started")
    warning, *lines = [line for line in done.stdout.splitlines() if line.startswith(words)]
    assert warning.startswith("Ray did not start (its raylet has ended: "), done.stderr
    assert warning.endswith("raylet.out)); trying again")
    assert lines == ["waited True", "started True"]
    assert done.returncode == -signal.SIGTERM
    assert "stack" not in done.stderr.lower()
