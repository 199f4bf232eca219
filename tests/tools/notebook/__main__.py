"""Run a sweep in a cell of Jupyter Notebook, and see in a browser what the cell shows.

    python -m tests.tools.notebook [--environment DIR]

It needs Debian's Chromium, and installs notebook and jupyterlab into DIR, a virtual environment that it makes if there
is none: so Jupyter's server is another process in another environment, as with JupyterHub. The kernel has the packages
of this environment besides. Takes two minutes on 2 cores, once DIR is made. The exit status is 1 if something is
missing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import ActionChains, Keys

from gaudi_tune.define.options import PROJECT_ROOT
from tests.helpers.deliveries import free_port
from tests.helpers.mlflow_pages import MlflowPages, chromium

PACKAGES = ("notebook", "jupyterlab")
CELLS = (
    "from gaudi_tune import Experiment, main\n\nmain(Experiment(train_loop=print, space={}, metric='loss'))",
    """import time
from gaudi_tune import Experiment, build_tuner, report, tune

def train_loop(config):
    for epoch in range(1, config["epochs"] + 1):
        time.sleep(1.0)
        report({"epoch": epoch, "loss": abs(config["lr"] - 0.01) ** 0.3 + 1 / (epoch + config["width"])})

space = {"lr": tune.loguniform(1e-4, 1e-1), "width": tune.randint(1, 9), "optimizer": tune.choice(["adamw", "sgd"])}
experiment = Experiment(name="notebook", train_loop=train_loop, space=space, metric="loss")
results = build_tuner(experiment, num_samples=8, epochs=9, device="cpu").fit()""",
)
BEGUN = 4
"""Trials that are waited for while the sweep runs."""
TABLE = "//div[contains(@class, 'jp-RenderedHTMLCommon')]//table"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m tests.tools.notebook", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--environment", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = (arguments.environment or Path(folder, "environment")).resolve()
        make_environment(environment)
        work, profile = Path(folder, "work"), Path(folder, "profile")
        work.mkdir()
        write_notebook(work / "sweep.ipynb")
        with served(environment, work) as address, chromium(profile) as browser:
            pages = MlflowPages(browser, address)
            try:
                check_cells(pages)
            except Exception as error:
                browser.switch_to.default_content()
                (Path(tempfile.gettempdir()) / "notebook-failed.png").write_bytes(browser.get_screenshot_as_png())
                print(f"FAILED: {str(error).strip()}\n{pages.text[-3000:]}")
                return 1
    return 0


def make_environment(folder: Path) -> None:
    """Make a virtual environment with Jupyter, whose Python finds the packages of this one, too."""
    if (folder / "bin" / "jupyter-notebook").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", *PACKAGES], check=True)
    own = next(folder.glob("lib/python*/site-packages"))
    ours = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    (own / "zz_project.pth").write_text(f"{ours}\n")  # only now: pip would change what it finds there


def write_notebook(file: Path) -> None:
    new: dict[str, Any] = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    cells = [{**new, "id": f"cell-{number}", "source": code} for number, code in enumerate(CELLS)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    file.write_text(json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))


@contextmanager
def served(environment: Path, work: Path) -> Iterator[str]:
    """Jupyter's server in a folder; the kernel works there, too."""
    port = free_port()
    variables = {
        "PYTHONPATH": str(PROJECT_ROOT),
        "JUPYTER_PATH": str(Path(sys.prefix) / "share" / "jupyter"),  # where plotly has its script
        "HOME": str(work),
        "OMP_NUM_THREADS": "1",
    }
    command = [str(environment / "bin" / "jupyter"), "notebook", "--no-browser", "--allow-root", f"--port={port}"]
    options = ["--IdentityProvider.token=", "--ServerApp.password=", f"--ServerApp.root_dir={work}"]
    with (work / "server.log").open("w") as log:
        server = subprocess.Popen(
            [*command, *options], cwd=work, env={**os.environ, **variables}, stdout=log, stderr=log
        )
    address = f"http://127.0.0.1:{port}"
    try:
        yield address
    finally:
        server.terminate()  # it ends the kernel
        server.wait()


def check_cells(pages: MlflowPages) -> None:
    """Run the cells, and check what they show.

    Raises:
        Exception: It is not what it should be.
    """
    browser = pages.browser
    pages.wait(lambda _: answers(f"{pages.uri}/api"), "anything")
    browser.get(f"{pages.uri}/notebooks/sweep.ipynb")
    pages.wait(lambda _: has_kernel(pages), "an idle kernel", 120)
    run(pages, 1)
    pages.wait(
        lambda _: has_kernel(pages) and "build_tuner(EXPERIMENT" in pages.text, "what to write instead of main()"
    )
    print("main() in a cell says to use build_tuner()", flush=True)

    run(pages, 2)
    trials = f"{TABLE}//tr[td]"
    rows = pages.wait(lambda _: at_least(BEGUN, pages.all(trials)), "trials", 120)
    assert "running, as of" in pages.text
    print(f"a table with {len(rows)} trials is in the cell while it runs", flush=True)
    pages.wait(lambda _: "complete, as of" in pages.text, "the table of a sweep that is complete", 240)
    print("at the end the table says so", flush=True)
    pages.wait(lambda _: pages.all("//*[contains(@class, 'js-plotly-plot')]"), "the learning curves")
    print("and the learning curves are below it", flush=True)


def has_kernel(pages: MlflowPages) -> bool:
    """Whether the kernel is idle. A slow server has the browser ask which kernel to take: the one that it names."""
    for button in pages.all("//*[contains(@class, 'jp-Dialog')]//button[contains(@class, 'jp-mod-accept')]"):
        button.click()
        return False
    return bool(pages.all("//*[@data-status='idle']"))


def answers(address: str) -> bool:
    try:
        return bool(urllib.request.urlopen(address).status == 200)
    except OSError:
        return False


def run(pages: MlflowPages, cell: int) -> None:
    """Run a cell, counted from 1."""
    pages.click(f"(//div[@role='textbox' and contains(@class, 'cm-content')])[{cell}]")
    ActionChains(pages.browser).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()


def at_least(number: int, found: list[Any]) -> list[Any]:
    return found if len(found) >= number else []


if __name__ == "__main__":
    sys.exit(main())
