"""The script of the README and of docs/own-model.md: it runs anywhere, and listens where SECURITY.md says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from gaudi_tune.base.trial_output import PLACES_FILE, prints_of
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.show.notify import VARIABLE
from gaudi_tune.sweep.record.trial_state import trial_name
from tests.helpers.webhook import SECRET, Webhook

pytestmark = [pytest.mark.workers, pytest.mark.own_ray]
HELPER = """
def loss_of(config, epoch):
    assert set(config) == {'lr', 'epochs', 'seed', 'confirms'}, config
    print('epoch', epoch, 'with', config['lr'])
    return config['lr'] + 1 / epoch
"""


class Ran(NamedTuple):
    """What came of it."""

    there: Path
    """The folder of the script."""
    here: Path
    """The folder in which it was started."""
    printed: str
    errors: str
    messages: list[dict[str, Any]]
    listeners: set[tuple[str, str]]
    """What Ray calls each process that listened, and its address."""


def listeners_of(process: psutil.Process) -> set[tuple[str, str]]:
    """Return where the processes of a sweep listen now."""
    found = set()
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            title = " ".join(each.cmdline())
            kind = next((name for name in ("raylet/raylet", "gcs_server", "ray::", "agent") if name in title), "driver")
            found |= {
                (kind, socket.laddr.ip.removeprefix("::ffff:"))
                for socket in each.net_connections()
                if socket.status == psutil.CONN_LISTEN
            }
    return found


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """Run it in an empty folder, with a module beside it, by a program that wants messages, too."""
    pages = [(PROJECT_ROOT / page).read_text() for page in ("README.md", "docs/own-model.md")]
    script, same = (re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)[0] for page in pages)
    assert script == same
    (trained,) = re.findall(r"loss = .*", script)
    script = script.replace(trained, "loss = helper.loss_of(config, epoch)").replace(
        "import ray.train", "import helper, ray.train"
    )
    there, here = tmp_path_factory.mktemp("there"), tmp_path_factory.mktemp("here")
    (there / "my loop.py").write_text(script)
    (there / "helper.py").write_text(HELPER)
    webhook, listeners = Webhook(), set[tuple[str, str]]()
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT), VARIABLE: webhook.address}
    del environment["MLFLOW_TRACKING_URI"]
    options = "--json --name own --num-samples 2 --epochs 3 --workers-per-trial 2 --device cpu"
    command = [sys.executable, os.path.relpath(there / "my loop.py", here), *options.split()]
    printed, errors = there / "printed", there / "errors"
    with (
        printed.open("w") as out,
        errors.open("w") as err,
        subprocess.Popen(command, cwd=here, env=environment, stdout=out, stderr=err) as process,
    ):
        while process.poll() is None:
            listeners |= listeners_of(psutil.Process(process.pid))
            time.sleep(0.5)
    assert process.returncode == 0, printed.read_text() + errors.read_text()
    yield Ran(there, here, printed.read_text(), errors.read_text(), webhook.got, listeners)
    webhook.close()


def test_the_ten_lines_run_anywhere(ran: Ran) -> None:
    folder = ran.here / "results" / "own"
    summary = json.loads((folder / "summary.json").read_text())
    assert sum(summary["counts"].values()) == 2
    assert "failed" not in summary["counts"]
    said = "the train loop has saved no checkpoint yet: no model is kept, weak trials end and do not wait, and a trial"
    assert (ran.printed + ran.errors).count(said) == 1
    assert (summary["experiment"], summary["baseline"], summary["settings"]) == ("my-loop", None, {"epochs": 3})
    best = summary["best"]
    assert best["value"] == pytest.approx(best["config"]["lr"] + 1 / best["epoch"])
    assert best["checkpoint"] is None
    own_prints = [line for line in prints_of(folder, trial_name(best["trial"])) if "epoch" in line]
    assert own_prints[0] == f"epoch 1 with {best['config']['lr']}"
    assert {line.rpartition(" ")[2] for line in own_prints} == {str(best["config"]["lr"])}
    assert own_prints.count(own_prints[0]) == 2  # of both workers
    session = Path((folder / PLACES_FILE).read_text().strip()).parent
    assert [*session.rglob("result.json")] == [], "Ray's copies are gone with the sweep"
    assert json.loads(ran.printed) == summary
    assert "(no baseline)" in ran.errors
    assert ran.messages[-1]["event"] == "ended"
    written = [file.read_bytes() for file in ran.here.rglob("*") if file.is_file()]
    assert not any(SECRET.encode() in text for text in [*written, ran.errors.encode()])
    assert json.loads((folder / "sweep.json").read_text())["script"] == str(ran.there / "my loop.py")
    assert (ran.here / "mlflow" / "store" / "mlflow.db").is_file()
    assert {path.name for path in ran.here.iterdir()} == {"mlflow", "results"}
    own = {"my loop.py", "helper.py", "printed", "errors"}
    assert {path.name for path in ran.there.iterdir()} - {"__pycache__"} == own


def test_a_sweep_listens_on_loopback_alone(ran: Ran) -> None:
    assert {address for _, address in ran.listeners} == {"127.0.0.1"}, ran.listeners
    assert {"driver", "raylet/raylet", "gcs_server", "ray::"} <= {kind for kind, _ in ran.listeners}
    table = (PROJECT_ROOT / "SECURITY.md").read_text()
    for listener in ("the live page of a sweep", "Ray, started by a sweep", "torch, in the workers of a sweep"):
        assert re.search(rf"\| {listener}.* \| 127\.0\.0\.1, ", table)
