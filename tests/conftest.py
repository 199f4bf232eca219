"""What tests share: one Ray, one MLflow store, a team's server, sample data, a small trial of BERT; and what is quick.

A test that starts Ray has the mark ``workers``, one that starts another process ``processes``. Fixtures of ``STARTERS``
give it; a test or file that starts one itself says so, and ``own_ray`` if that Ray is its own. The others are the quick
tests, of ``make check``: one that starts a process all the same fails. A part of the tests imports the files alone that
may have some of it: what they import takes longer than to read them.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

gc.disable()  # until all is imported and collected, of which it takes two fifths and finds next to nothing
# Two test runs share the cores, and torch's threads spin while they wait: with two each, all takes twice the CPU.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import ray
import setuptools  # noqa: F401  (before anything imports Python's own distutils: torch's compiler fails after that)
import torch  # noqa: F401  (its first import starts ldconfig, which no quick test may)
from _pytest.mark.expression import Expression

from experiments.tune_bert import sample_settings
from search_spaces.bert import BASELINE
from tests.helpers.forking_ray import forking_ray
from tests.helpers.host import Host
from tests.helpers.mlflow_store import empty_store
from tests.helpers.team_server import PASSWORDS, TeamServer, sign_in, team_server
from tests.helpers.webhook import Webhook

STARTERS = {"ray_here": "workers", "team": "processes", "server": "processes"}
"""The marks that fixtures give: that of Ray, of an S3 store, of PostgreSQL, and of MLflow's server."""
MARKS = {"workers", "own_ray", "processes", "cuda"}
WORDS = {**{f"mark.{mark}": mark for mark in MARKS}, **STARTERS, "host": "workers"}
"""What a file of tests says where one of them has a mark: the mark, or a fixture that asks for one of ``STARTERS``."""
STARTS_A_PROCESS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
"""Python's audit events."""
MAY_START = ("git", "hl-smi", "fc-list", "lscpu", "ldconfig")
"""Programs that quick tests may start: they end at once. fc-list lists matplotlib's fonts, lscpu torch 2.7's
cores, ldconfig the libraries of an early scikit-learn or SciPy."""
quick_test: str | None = None
"""The quick test that runs in this process."""


@cache
def marks_in(file: Path) -> set[str]:
    """Return the marks that tests in a file may have."""
    text = file.read_text(encoding="utf-8")
    return {mark for word, mark in WORDS.items() if re.search(rf"\b{re.escape(word)}\b", text)}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file in which no test can have the marks that are asked for."""
    if not config.option.markexpr or not collection_path.match("test_*.py"):
        return None
    asked, marks = Expression.compile(config.option.markexpr), marks_in(collection_path)
    some = (chosen for count in range(len(marks) + 1) for chosen in combinations(marks, count))
    return None if any(asked.evaluate(chosen.__contains__) for chosen in some) else True  # type: ignore[arg-type]


@pytest.hookimpl(tryfirst=True)  # before pytest picks tests by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests whose fixtures start processes."""
    for item in items:
        for fixture in STARTERS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(STARTERS[fixture])
        # The quick parts import every file, and so find any that another part would leave out.
        unsaid = {mark.name for mark in item.iter_markers() if mark.name in MARKS} - marks_in(item.path)
        if unsaid:
            raise pytest.UsageError(
                f"{item.nodeid} is {unsaid}, and no word of WORDS in its file says so: add its fixture"
            )


def pytest_collection_finish() -> None:
    """Collect garbage from now on, without looking at what is there already."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Hold a quick test, and the fixtures that it is the first to use, to what it may start."""
    global quick_test  # audit hooks stay for good
    quick_test = None if any(map(item.get_closest_marker, STARTERS.values())) else item.nodeid
    try:
        return (yield)
    finally:
        quick_test = None


def forbid_processes(event: str, arguments: tuple[Any, ...]) -> None:
    """Fail a quick test that starts a process; nothing that catches Exception hides it."""
    if quick_test is None or event not in STARTS_A_PROCESS:
        return
    program = str(arguments[0]) if arguments else event
    if Path(program).name not in MAY_START:
        pytest.fail(
            f"{quick_test} starts a process ({program}): mark it with pytest.mark.processes, or workers for Ray"
        )


sys.addaudithook(forbid_processes)


@pytest.fixture(scope="session", autouse=True)
def forbid_loader_processes() -> Iterator[None]:
    """The same for processes of ``multiprocessing`` that are spawned, of which Python's audit hooks hear nothing."""
    start = BaseProcess.start

    def checked(process: BaseProcess) -> None:
        forbid_processes("os.fork", (process.name,))
        start(process)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseProcess, "start", checked)
        yield


@pytest.fixture(scope="session", autouse=True)
def tracking_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An MLflow store of the tests' own, so that they leave the user's alone."""
    folder = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patch:
        uri = empty_store(folder / "mlflow.db")
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        patch.chdir(folder)  # MLflow puts the artifacts of a database store into the current folder
        yield uri


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    """One Ray with 2 CPUs for all tests."""
    with forking_ray(2, ["torchvision", "transformers.modeling_utils", "evaluate"]):
        yield


@pytest.fixture(scope="session")
def host(ray_here: None) -> Any:
    """One actor for what tests make in an actor."""
    return ray.remote(Host).options(num_cpus=0).remote()


@pytest.fixture(autouse=True)
def alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that starts no Ray plans as if there were none, also where tests before it have started theirs."""
    if request.node.get_closest_marker("workers") is None:
        monkeypatch.setattr(ray, "is_initialized", lambda: False)


@pytest.fixture(scope="session")
def sample() -> dict[str, Any]:
    """Settings of the sample recipe."""
    return dict(sample_settings())


@pytest.fixture(scope="session")
def small_trial(sample: dict[str, Any]) -> dict[str, Any]:
    """A configuration of BERT that learns something in a second."""
    small = {"train_samples": 256, "val_samples": 101, "epochs": 2, "seed": 7}
    return {**sample, **BASELINE, **small, "optimizer": "adamw", "dropout": 0.2, "warmup": 0.1}


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """A server that takes messages."""
    webhook = Webhook()
    yield webhook
    webhook.close()


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """A folder for sweeps."""
    return tmp_path / "results"


@pytest.fixture(scope="session")
def team() -> Iterator[TeamServer]:
    """The server with two users: ada logs to every experiment, the guest reads."""
    with team_server() as server:
        server.ask("/api/2.0/mlflow/experiments/create", {"name": "delivery"})
        yield server


@pytest.fixture
def ada(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test is ada, who has a password of MLflow, and none of S3."""
    sign_in(monkeypatch, "ada", PASSWORDS["ada"])
