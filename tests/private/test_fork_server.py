"""A real server, real copies, and Ray's command as :mod:`setup_worker` runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from gaudi_tune.private import fork_server, setup_worker
from gaudi_tune.private.fork_server import ForkServer
from gaudi_tune.private.setup_worker import FORK_SERVER

pytestmark = pytest.mark.processes

WORKER = """
import json, os, sys
has = sorted({"torch", "wave", "ray"} & {*sys.modules})
draws = sys.modules["numpy"].random.rand() if "numpy" in sys.modules else None
file, main = __file__, sys.modules["__main__"].__file__
said = {
    "argv": sys.argv, "folder": os.getcwd(), "has": has, "draws": draws, "pid": os.getpid(), "file": file, "main": main,
    "parent": os.getppid(), "group": os.getpgrp(), "path": sys.path[0], "variables": dict(os.environ),
}
os.write(1, json.dumps(said).encode())
sys.exit(3)
"""


def here(**variables: str) -> dict[str, str]:
    """Return the variables of this process, but for pytest's own, which changes, and these."""
    return {**{name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}, **variables}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    script = tmp_path_factory.mktemp("ray") / "default_worker.py"
    script.write_text(WORKER)
    return script


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """One with all that it imports by itself."""
    server = ForkServer(["no_such_module", "wave"], here())
    yield server
    server.end()


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers have little to import: how they begin and end does not depend on it."""
    monkeypatch.setattr(fork_server, "COMMON", ("wave",))


def started(worker: Path, server: ForkServer, **variables: str) -> dict[str, Any]:
    """Return what a process of Ray says that is started where there is a server."""
    env = here(**{FORK_SERVER: server.address, **variables})
    command = [sys.executable, setup_worker.__file__, str(worker), "--node-id=a b", "--language=PYTHON"]
    ran = subprocess.run(command, env=env, cwd=worker.parent, stdout=subprocess.PIPE, text=True, check=False)
    said: dict[str, Any] = json.loads(ran.stdout)
    return said


def is_copy(said: Mapping[str, Any]) -> bool:
    return "wave" in said["has"]


def test_a_process_is_a_copy_and_yet_all_that_was_asked_for(worker: Path, server: ForkServer) -> None:
    said = started(worker, server, RAY_JOB_ID="01000000", PT_HPU_LAZY_MODE="1")
    assert said["has"] == ["torch", "wave"]
    assert said["parent"] == server.pid
    assert said["argv"] == [str(worker), "--node-id=a b"]
    assert said["main"] == said["file"] == str(worker)
    assert said["folder"] == said["path"] == str(worker.parent)
    assert said["group"] == said["pid"]
    expected = here(RAY_JOB_ID="01000000", PT_HPU_LAZY_MODE="1")
    assert expected.items() <= said["variables"].items()


def test_copies_draw_other_numbers(worker: Path, server: ForkServer) -> None:
    assert started(worker, server)["draws"] != started(worker, server)["draws"]


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("variables", [{}, {"PYTHONSAFEPATH": "1"}])
def test_a_server_that_is_reached_through_a_link_is_copied(
    worker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """A home or an environment may be a link, and Python may be told to leave a script's folder out of its path."""
    (tmp_path / "link").symlink_to(Path(fork_server.__file__).parent)
    monkeypatch.setattr(fork_server, "__file__", str(tmp_path / "link" / "fork_server.py"))
    server = ForkServer([], here(**variables))
    assert is_copy(started(worker, server, **variables))
    server.end()


def test_a_process_whose_imports_a_variable_may_change_is_no_copy(worker: Path, server: ForkServer) -> None:
    said = started(worker, server, TORCH_LOGS="0")
    assert not is_copy(said)
    assert said["variables"]["TORCH_LOGS"] == "0"
    assert is_copy(started(worker, server))


def test_without_a_server_processes_start_as_always(worker: Path, server: ForkServer) -> None:
    said = started(worker, server, **{FORK_SERVER: "off"})
    assert (is_copy(said), said["argv"], said["path"]) == (False, [str(worker), "--node-id=a b"], str(worker.parent))


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("with_ray", "import ray"),
        ("with_habana", "import sys; sys.modules['habana_frameworks'] = sys"),
        ("with_thread", "import threading, time; threading.Thread(target=time.sleep, args=[60], daemon=True).start()"),
    ],
)
def test_a_server_that_holds_what_must_not_be_copied_ends(worker: Path, tmp_path: Path, name: str, source: str) -> None:
    (tmp_path / f"{name}.py").write_text(source)
    server = ForkServer([name], here(PYTHONPATH=str(tmp_path)))
    said = started(worker, server, PYTHONPATH=str(tmp_path))
    assert not is_copy(said)
    assert not Path(server.address).parent.exists()
    server.end()


@pytest.mark.usefixtures("light")
def test_a_server_that_is_killed_is_done_without(worker: Path) -> None:
    server = ForkServer([], here())
    assert is_copy(started(worker, server))
    os.kill(server.pid, signal.SIGKILL)
    assert not is_copy(started(worker, server))
    server.end()
    assert not Path(server.address).parent.exists()


@pytest.mark.usefixtures("light")
def test_copies_outlive_a_server_that_ends_also_while_it_imports(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(
        f"import pathlib, time; time.sleep(2); pathlib.Path({str(tmp_path / 'done')!r}).touch()"
    )
    server = ForkServer([], here())
    command = [sys.executable, setup_worker.__file__, str(tmp_path / "waiting.py"), "--language=PYTHON"]
    subprocess.run(command, env=here(**{FORK_SERVER: server.address}), check=True)
    server.end()
    imports = ForkServer(["torch"], here())
    imports.end()
    assert not Path(imports.address).parent.exists()
    ends_at = time.monotonic() + 120
    while not (tmp_path / "done").exists() and time.monotonic() < ends_at:
        time.sleep(0.1)
    assert (tmp_path / "done").exists()


OWNER = """
import os, sys, time
from gaudi_tune.private import fork_server
fork_server.COMMON = ("wave",)
server = fork_server.ForkServer([], os.environ)
print(server.address, flush=True)
time.sleep(600)
"""


def test_a_server_ends_with_a_process_that_is_killed() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    address = owner.stdout.readline().strip()
    (served,) = psutil.Process(owner.pid).children()
    owner.kill()
    owner.wait()
    owner.stdout.close()
    served.wait(120)
    assert not Path(address).parent.exists()


def test_the_names_of_what_varies_are_those_of_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "ORIGINAL_ENVIRONMENT", {"HOME": "/root", "OMP_NUM_THREADS": "1"})
    assert fork_server.fits({"HOME": "/root", "RAY_JOB_ID": "1", "HABANA_VISIBLE_MODULES": "3"})
    for name in ("LD_LIBRARY_PATH", "TORCH_LOGS", "PYTHONHASHSEED", "MKL_CBWR", "HOME"):
        assert not fork_server.fits({"HOME": "/root", "OMP_NUM_THREADS": "1", "RAY_JOB_ID": "1", name: "0"}), name
    assert not fork_server.fits({"OMP_NUM_THREADS": "1"}), "it lacks a variable"
