"""Pictures of the documentation, taken in a browser.

python tests/helpers/screenshots.py mlflow     # of mlflow/README.md: 6 minutes on 2 idle cores
python tests/helpers/screenshots.py seeds      # of the means over seeds there: a minute
python tests/helpers/screenshots.py tutorial   # of docs/tutorial.md, and of a report: a minute
python -m tests.tools.notebook --pictures docs       # of a notebook's cell
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

sys.path[0] = str(Path(__file__).resolve().parents[2])
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.show.trackers.records import CONFIGURATION
from tests.helpers import tutorial
from tests.helpers.mlflow_pages import MlflowPages, chromium, resize
from tests.helpers.mlflow_server import Server
from tests.helpers.team_server import PASSWORDS, sign_in, team_server

EXPERIMENT, METRIC = "resnet50", "val_accuracy"
SWEEPS = {"by-chance": ("--search", "random", "--num-samples", "4"), "by-tpe": ("--num-samples", "12")}
SWEEP, TRIALS = "by-tpe", 12
"""The one that is looked at."""
WIDTH = 1400
SEEDS_DIFFER = """
import random
import ray.train
from ray import tune
from gaudi_tune import Experiment, main

def train_loop(config):
    chance = random.Random(config["seed"])
    for epoch in range(1, config["epochs"] + 1):
        ray.train.report({"loss": abs(config["lr"] - 0.01) + 1 / epoch + chance.gauss(0, 0.02)})

main(Experiment(train_loop=train_loop, space={"lr": tune.loguniform(1e-3, 1e-1)}, metric="loss", baseline={"lr": 0.04}))
"""
SHOWN = 8
"""Trials of the tutorial that have begun when its picture is taken."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["mlflow", "seeds", "tutorial"])
    parser.add_argument("--folder", type=Path, default=PROJECT_ROOT / "docs", help="where to leave the pictures")
    asked = parser.parse_args()
    {"mlflow": of_mlflow, "seeds": of_seeds, "tutorial": of_tutorial}[asked.what](asked.folder.resolve())


def of_mlflow(folder: Path) -> None:
    """Start the server, run two sweeps, and take the pictures."""
    with pytest.MonkeyPatch.context() as patch, team_server() as server:
        sign_in(patch, "ada", PASSWORDS["ada"])
        for name, options in SWEEPS.items():
            sweep(server.uri, "--name", name, *options)
        take_pictures(server.uri, folder)


def sweep(uri: str, *options: str) -> None:
    """Run a sweep of the sample recipe."""
    script = PROJECT_ROOT / "experiments" / f"tune_{EXPERIMENT}.py"
    with tempfile.TemporaryDirectory() as storage:
        where = ["--recipe", "sample", "--device", "cpu", "--tracking-uri", uri, "--storage", storage]
        subprocess.run([sys.executable, str(script), *where, *options], check=True)


def take_pictures(uri: str, folder: Path) -> None:
    """Use the pages as mlflow/README.md says, and take a picture of each."""
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as browser:
        pages = MlflowPages(browser, uri)
        pages.sign_in("ada", PASSWORDS["ada"])
        pages.click("//*[@aria-label='Toggle sidebar']")

        pages.open_experiment(EXPERIMENT)
        pages.columns("Dataset", "Source", "Models", f"best_{METRIC}", METRIC, "lr", "momentum", "batch_size", "status")
        pages.expand(SWEEP)
        pages.widen("Run Name", 110)
        pages.widen(f"best_{METRIC}", 40)
        pages.wait(lambda _: len(pages.runs()) == len(SWEEPS) + TRIALS, "the trials of the sweep")
        picture(pages, folder / "mlflow-runs.png", height=780)

        pages.select(*(run for run in pages.runs() if run not in SWEEPS))
        pages.compare()
        pages.draw(["lr", "momentum", "weight_decay", "batch_size"], [METRIC])
        picture(pages, folder / "mlflow-compare.png", height=860)

        pages.open_experiment(EXPERIMENT)
        pages.open_artifact(SWEEP, "report.html")
        pages.wait(lambda _: pages.all("//iframe"), "the report")
        picture(pages, folder / "mlflow-sweep.png", height=480)

        pages.open_experiment(EXPERIMENT)
        pages.sort_by(METRIC)
        pages.search("tags.kind = 'trial'")
        pages.turn_to("CHART")
        pages.charts("^(train_loss|val_loss|val_accuracy)$")
        pages.wait(lambda _: pages.curves(METRIC), "the curves")
        picture(pages, folder / "mlflow-curves.png", height=660)


def of_seeds(folder: Path) -> None:
    """Run a sweep whose seeds differ, and group the trials that confirm its winner and its baseline."""
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as profile:
        (Path(work) / "small.py").write_text(SEEDS_DIFFER)
        options = ["--num-samples", "6", "--epochs", "4", "--confirm", "1"]
        options += ["--tracking-uri", f"sqlite:///{work}/mlflow.db"]
        environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
        subprocess.run([sys.executable, "small.py", *options], cwd=work, env=environment, check=True)
        server = Server(Path(work))
        server.start()
        try:
            with chromium(Path(profile)) as browser:
                pages = MlflowPages(browser, server.uri)
                browser.get(server.uri)
                pages.turn_to_training()
                pages.click("//*[@aria-label='Toggle sidebar']")
                pages.open_experiment("small")
                pages.search("tags.kind = 'confirmation'")
                pages.columns("Dataset", "Source", "Models", "loss", "lr")
                pages.group_by(CONFIGURATION)
                pages.widen("Run Name", 160)
                pages.wait(lambda _: len(pages.groups("loss")) > 1, "the baseline and the winner")
                picture(pages, folder / "mlflow-seeds.png", height=560, width=1000)
        finally:
            server.kill()


def of_tutorial(folder: Path) -> None:
    """Run the tutorial's first sweep, and take pictures of its live page while it runs, and of what it drew."""
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as profile:
        tutorial.write_files(Path(work))
        environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
        script = [sys.executable, "-u", "tune_digits.py", "--name", "first"]
        with (
            subprocess.Popen(script, cwd=work, env=environment, stdout=subprocess.PIPE, text=True) as running,
            chromium(Path(profile)) as browser,
        ):
            assert running.stdout is not None
            address = next(line.split()[1] for line in running.stdout if line.startswith("page "))
            browser.get(address)
            pages = MlflowPages(browser, address)
            pages.wait(lambda _: len(pages.all("//tbody/tr")) >= SHOWN, "some trials", seconds=300)
            picture(pages, folder / "live-page.png", height=1000)
            picture(pages, folder / "live-page-phone.png", height=844, width=390)
            running.communicate()
            resize(browser, WIDTH, 1000)
            browser.get((Path(work) / "results" / "first" / "report.html").as_uri())
            picture(pages, folder / "report.png", height=722)
            drawn = pages.wait(lambda _: pages.all("//*[@id='slices']"), "the hyperparameters")[0]
            shot = Image.open(BytesIO(drawn.screenshot_as_png)).convert("RGB")
            save(shot, folder / "tutorial-hyperparameters.png")


def picture(pages: MlflowPages, file: Path, height: int, width: int = WIDTH) -> None:
    """Take a picture of the page."""
    resize(pages.browser, width, height)
    save(pages.picture(), file)


def save(picture: Image.Image, file: Path) -> None:
    """Write a picture in 256 colours, which are a third of the bytes."""
    picture.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{file}: {file.stat().st_size / 1000:.0f} KB", flush=True)


if __name__ == "__main__":
    main()
