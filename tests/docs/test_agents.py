"""AGENTS.md: what it promises to programs, in a real sweep that is started, watched, steered and read as it says."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gaudi_tune.cli.commands import main
from tests.helpers.page_client import PageClient

pytestmark = [pytest.mark.workers, pytest.mark.own_ray]

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "AGENTS.md").read_text()
REQUESTS = [json.loads(request) for request in re.findall(r"ask\" -d '(.*)'", TEXT)]
SCRIPT = """
import tempfile
import time
from pathlib import Path

import ray.train
from ray import tune

from gaudi_tune import Experiment, main


def train_loop(config):
    kept = ray.train.get_checkpoint()
    begun = int(Path(kept.path, "epoch").read_text()) if kept else 0
    for epoch in range(begun + 1, config["epochs"] + 1):
        time.sleep(0.2)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "epoch").write_text(str(epoch))
            checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"loss": abs(config["lr"] - 0.01) + 1 / epoch}, checkpoint=checkpoint)


main(Experiment(train_loop=train_loop, space={"lr": tune.loguniform(1e-4, 1e-1)}, metric="loss"))
"""
STARTS_WITHIN_S = 300.0


def keys_of(row: str) -> set[str]:
    """Return the keys that a row of the table lists."""
    (keys,) = re.findall(rf"^\| {re.escape(row)} \| (.*) \|$", TEXT, flags=re.MULTILINE)
    return set(re.findall(r"`([\w.]+)`", keys))


class Driven(NamedTuple):
    """What a program saw of the sweep that it drove."""

    folder: Path
    plan: dict[str, Any]
    interrupted: tuple[int, dict[str, Any], dict[str, Any]]
    """Its status after Ctrl-C, before it was continued, what it printed, and summary.json."""
    while_it_ran: dict[str, Any]
    """What ls and show printed."""
    news: dict[str, Any]
    picture: dict[str, Any]
    unchanged: dict[str, Any]
    """The page's answer where nothing has changed."""
    answers: list[dict[str, str]]
    refused: list[tuple[int, Any]]
    printed: dict[str, Any]


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "my.py", "--json", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "errors").open("w") as errors:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)


def page_of(sweep: subprocess.Popen[str], folder: Path) -> str:
    """Return the address of the page of a sweep, once it is printed."""
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until and sweep.poll() is None:
        if found := re.search(r"^page    (http://127\.0\.0\.1:\d+/[\w-]+/)$", (folder / "errors").read_text(), re.M):
            return found[1]
        time.sleep(0.1)
    raise AssertionError((folder / "errors").read_text())


def got(address: str, data: bytes | None = None) -> tuple[int, Any]:
    """Return the status and the JSON of an answer; None for another answer."""
    try:
        answer = urllib.request.urlopen(address, data)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        text = answer.read()
    is_json = answer.headers.get_content_type() == "application/json"
    return answer.status, json.loads(text) if is_json else None


def printed_by(*arguments: str, status: int = 0) -> Any:
    """Return the JSON that a command which looks at sweeps prints."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert main([*arguments, "--json"]) == status
    return json.loads(printed.getvalue())


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Driven:
    folder = tmp_path_factory.mktemp("driven")
    (folder / "my.py").write_text(SCRIPT)
    place = ("--storage", str(folder / "results"))
    plan = printed_by("run", str(folder / "my.py"), "--dry-run", "--device", "cpu", *place)
    sweep = start(folder, "--device", "cpu", "--name", "first", "--num-samples", "4", "--epochs", "30")
    try:
        PageClient(page_of(sweep, folder)).until(lambda page: page.with_status("running"))
        sweep.send_signal(signal.SIGINT)
        told = json.loads(sweep.communicate()[0])
        interrupted = sweep.returncode, told, json.loads((folder / "results" / "first" / "summary.json").read_text())
        sweep = start(folder, "--resume", "first")
        address = page_of(sweep, folder)
        page = PageClient(address)
        page.until(lambda page: page.trials.get(2, {}).get("status") in ("running", "paused"))
        news = got(f"{address}sweep?since=0")[1]
        refused = [
            got(f"{address}ask", body)
            for body in (b'{"do": "fly"}', b'{"do": "try", "config": {"lr": 7}}', b"nonsense")
        ]
        refused.append(got(f"{address.removesuffix('/')}x/sweep"))
        answers = [page.ask(**request) for request in REQUESTS[:-1]]
        page.until(lambda page: any(trial["params"]["lr"] == 0.01 for trial in page.trials.values()))
        assert "learning_curves" in page.head["pictures"]
        picture = got(f"{address}picture/learning_curves")[1]
        while_it_ran = {"ls": printed_by("ls", place[1]), "show": printed_by("show", "first", *place)}
        unchanged = unchanged_at(address)
        answers.append(page.ask(**REQUESTS[-1]))
        printed = sweep.communicate()[0]
    finally:
        sweep.kill()
    assert sweep.returncode == 0, (folder / "errors").read_text()
    return Driven(
        folder, plan, interrupted, while_it_ran, news, picture, unchanged, answers, refused,
        json.loads(printed),
    )  # fmt: skip


def unchanged_at(address: str) -> dict[str, Any]:
    """Return an answer of the page in which nothing has changed."""
    version = 0
    for _ in range(1000):
        news: dict[str, Any] = got(f"{address}sweep?since={version}")[1]
        if news["version"] == version:
            return news
        version = news["version"]
    raise AssertionError("each answer has a change")


def test_every_object_has_the_keys_that_the_page_lists(driven: Driven) -> None:
    storage = str(driven.folder / "results")
    (listed,) = printed_by("ls", storage)
    shown = printed_by("show", "first", "--storage", storage)
    objects = {
        "dry run": driven.plan,
        "`ls`, a sweep": listed,
        "`show`": shown,
        "`show` and `summary.json`, a trial": shown["trials"][0],
        "`summary.json`": driven.printed,
        "`best` in it": driven.printed["best"],
        "`sweep?since=N`": driven.news,
        "`head`": driven.news["head"],
        "`sweep?since=N`, a trial": driven.news["trials"][0],
    }
    missing = {name: keys_of(name) - printed.keys() for name, printed in objects.items()}
    assert not any(missing.values()), missing
    assert keys_of("`ls`, a sweep") <= shown.keys()


def test_every_request_does_what_the_page_says(driven: Driven) -> None:
    assert [request["do"] for request in REQUESTS] == ["stop", "add", "try", "end"]
    assert [[*answer] for answer in driven.answers] == [["done"]] * 4
    steered = [entry["what"] for entry in driven.printed["steered"]]
    assert steered == ["stop trial-002", "add 2 trials", "try lr=0.01", "end after the running trials"]
    assert driven.printed["trials"][1]["status"] == "stopped early"
    assert 0.01 in [trial["config"]["lr"] for trial in driven.printed["trials"]]
    assert driven.picture["figure"]["data"]
    assert driven.unchanged.keys() == {"version"}
    assert [(status, answer and [*answer]) for status, answer in driven.refused] == [
        *[(400, ["error"])] * 3,
        (403, None),
    ]


def test_the_sweep_can_be_read_while_it_runs_and_after(driven: Driven) -> None:
    assert (driven.while_it_ran["ls"][0]["state"], driven.while_it_ran["show"]["state"]) == ("running", "running")
    assert driven.while_it_ran["show"]["summary"] == {}  # that of its first end no longer holds
    assert driven.printed == json.loads((driven.folder / "results" / "first" / "summary.json").read_text())
    assert driven.printed["complete"] and Path(driven.printed["best"]["checkpoint"]).is_dir()
    assert printed_by("ls", str(driven.folder / "results"))[0]["state"] == "finished"
    assert "error" in printed_by("show", "second", "--storage", str(driven.folder / "results"), status=2)


def test_a_signal_ends_the_sweep_with_its_own_status(driven: Driven) -> None:
    status, printed, summary = driven.interrupted
    assert status == summary["ended_early"]["status"] == 130
    assert printed == summary
