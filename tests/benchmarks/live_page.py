"""How soon the live page compares 500 trials, in a browser, and what following it costs the event loop of a sweep.

Times from the request of the page: until all rows are painted, and until each picture is drawn; and until the rows are
painted again after a click on a heading. The state is fed as a sweep feeds it. A minute.

    python tests/benchmarks/live_page.py [--trials 500]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path[0] = str(Path(__file__).resolve().parents[2])
import optuna

from experiments.sweep.show.pictures.catalogue import draw_pictures
from tests.experiments.sweep.show.pictures.test_page import sweep_of
from tests.mlflow_pages import chromium

RUNS = 5
PICTURES = ("optimization_history", "learning_curves", "parallel_coordinates")
"""Those that compare trials."""
WATCH = """
window.seen = {};
function note(name, there) {  // when it is painted
  if (name in seen || !there) return;
  seen[name] = null;
  requestAnimationFrame(() => setTimeout(() => { seen[name] = Math.round(performance.now()); }));
}
new MutationObserver(() => {
  note("rows", document.querySelectorAll("tbody tr").length === TRIALS);
  for (const name of PICTURES) note(name, document.querySelector(`#${name} .main-svg`));
}).observe(document, { childList: true, subtree: true });
"""
SORT = """
const then = arguments[0], began = performance.now();
document.querySelectorAll("th button")[2].click();
requestAnimationFrame(() => setTimeout(() => then(Math.round(performance.now() - began))));
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500)
    trials = parser.parse_args().trials
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    chance = random.Random(1)
    curves: list[list[float] | None] = [
        [chance.uniform(0.01, 1) for _ in range(chance.choice([1, 1, 2, 4]))] for _ in range(trials - 1)
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as profile,
        sweep_of(Path(folder) / "large", [*curves, [0.5, 0]]) as sweep,
        chromium(Path(profile)) as browser,
    ):
        assert sweep.page._view is not None
        draw_pictures(sweep.page._view)  # imports what a running sweep has imported by now
        watch = WATCH.replace("TRIALS", str(trials)).replace("of PICTURES", f"of {list(PICTURES)}")
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": watch})
        for run in range(RUNS):
            browser.get(sweep.address)
            while not all((seen := browser.execute_script("return seen")).get(name) for name in ("rows", *PICTURES)):
                time.sleep(0.05)
            print(f"run {run + 1}, ms: {seen}, sorted in {browser.execute_async_script(SORT)}", flush=True)
        took = []
        for _ in range(20):
            began = time.perf_counter()
            sweep.page._look(sweep.state)
            took.append(1000 * (time.perf_counter() - began))
        print(f"a view for the page takes {median(took):.1f} ms of the event loop")


if __name__ == "__main__":
    main()
