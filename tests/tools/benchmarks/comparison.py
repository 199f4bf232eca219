"""How long MLflow's pages take to compare many trials: 200 of 10 epochs, in a browser, on the team's server.

Fills a sweep, and then does what a person does: opens the experiment, sorts by the metric and has all trials fetched;
turns to the charts and has all runs drawn, until each has its curve; selects all and presses Compare, until the lines
of the parallel coordinates are on the screen. Prints each time and, last, one JSON object with medians in seconds:

    {"runs": 200, "deliver_s": ..., "table_s": ..., "curves_s": ..., "compare_s": ...}

``deliver_s`` is how long the sweep's records took to MLflow. Takes 3 minutes on 2 cores.

    python tests/tools/benchmarks/comparison.py [--runs 200] [--times 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.show.trackers.delivery import Sender

sys.path[0] = str(PROJECT_ROOT)  # the tests are no package that is installed
from tests.helpers.deliveries import outbox_in, records_of
from tests.helpers.mlflow_pages import MlflowPages, chromium
from tests.helpers.team_server import PASSWORDS, Bucket, sign_in, team_server, wait_until

EXPERIMENT, EPOCHS = "comparison", 10
AT_ONCE = 100
"""Runs that MLflow's table fetches at a time."""
DRAWN_WITHIN_S = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    bucket = Bucket()
    try:
        with pytest.MonkeyPatch.context() as patch, team_server(bucket) as server:
            sign_in(patch, "ada", PASSWORDS["ada"])
            deliver_s = fill(server.uri, asked.runs)
            times: defaultdict[str, list[float]] = defaultdict(list)
            for _ in range(asked.times):
                for what, seconds in looked_at(server.uri, asked.runs).items():
                    times[what].append(seconds)
                    print(f"{what}: {seconds:.1f}", flush=True)
    finally:
        bucket.close()
    medians = {what: round(statistics.median(seconds), 1) for what, seconds in times.items()}
    print(json.dumps({"runs": asked.runs, "deliver_s": round(deliver_s, 1), **medians}))


def fill(uri: str, runs: int) -> float:
    """Deliver a sweep of so many trials, and return after how many seconds it was at MLflow."""
    with tempfile.TemporaryDirectory() as folder:
        outbox = outbox_in(Path(folder) / "sweep", records_of("sweep", uri, EXPERIMENT, runs, EPOCHS))
        began = time.monotonic()
        sender = Sender(uri, outbox)
        sender.start()
        wait_until(lambda: not outbox.waiting, 1800, "not everything was delivered")
        seconds = time.monotonic() - began
        sender.close()
    return seconds


def looked_at(uri: str, runs: int) -> dict[str, float]:
    """Compare the trials in a browser that was never there, and return how many seconds each step took."""
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as browser:
        pages = MlflowPages(browser, uri)
        pages.sign_in("ada", PASSWORDS["ada"])
        return {
            "table_s": seconds_of(lambda: open_table(pages, runs)),
            "curves_s": seconds_of(lambda: draw_curves(pages, runs)),
            "compare_s": seconds_of(lambda: compare(pages, runs)),
        }


def seconds_of(step: Callable[[], None]) -> float:
    began = time.monotonic()
    step()
    return time.monotonic() - began


def open_table(pages: MlflowPages, runs: int) -> None:
    pages.open_experiment(EXPERIMENT)
    pages.sort_by("score")
    pages.search("tags.kind = 'trial'")
    for shown in range(AT_ONCE, runs, AT_ONCE):
        pages.wait(lambda _, shown=shown: f"{shown} matching runs" in pages.text, f"{shown} runs")  # type: ignore[misc]
        pages.click("//button[normalize-space()='Load more']")
    pages.wait(lambda _: f"{runs} matching runs" in pages.text, "all runs")


def draw_curves(pages: MlflowPages, runs: int) -> None:
    pages.turn_to("CHART")
    pages.show_all()
    pages.wait(lambda _: len(pages.drawn("score")) == runs, "all curves", DRAWN_WITHIN_S)


def compare(pages: MlflowPages, runs: int) -> None:
    pages.turn_to("TABLE")
    pages.select_all()
    pages.compare(DRAWN_WITHIN_S)
    assert len(pages.coordinates()["lr"]) == runs


if __name__ == "__main__":
    main()
