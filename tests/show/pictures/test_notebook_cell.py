"""A sweep in the cell of a notebook, in a real kernel, whose main thread is Tune's event loop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gaudi_tune.show.pictures.notebook_cell import PLOTLY
from tests.helpers.kernel import Kernel, started_kernel

pytest.importorskip("ipykernel")
pytestmark = pytest.mark.processes

IMPORTS = """
import sys, tempfile, time
from itertools import chain, repeat
from pathlib import Path
from gaudi_tune import Experiment, main
from gaudi_tune.show.pictures import notebook_cell as cell_module
from gaudi_tune.show.pictures.notebook_cell import ShowInCell
from gaudi_tune.show.progress import ShowProgress
from gaudi_tune.sweep.record.events import SweepBegan, SweepEnded
from tests.show.pictures.test_page import MIXED, Sweep
"""
SWEEP = """
sweep = Sweep(Path(tempfile.mkdtemp()), MIXED)
views = [sweep.page, ShowInCell(sweep.page), ShowProgress(sweep.plan)]
for view in views[1:]:
    view.show(SweepBegan(), sweep.state)
while next(ticks):
    for view in views:
        view.tick(sweep.state)
    time.sleep(0.05)
sweep.state.apply(SweepEnded(summary={}))
for view in views:
    view.show(SweepEnded(summary={}), sweep.state)
sweep.close()
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "script.py").write_text("from gaudi_tune import main\nmain(None, 'Help', ['--help'])\n")
    with started_kernel(folder) as kernel:
        assert kernel.run(IMPORTS) == ""
        yield kernel


def test_main_says_what_to_write_instead_and_a_script_is_a_script(kernel: Kernel) -> None:
    told = kernel.run("main(Experiment(train_loop=print, space={}, metric='loss'))")
    assert "results = build_tuner(EXPERIMENT, num_samples=20).fit()" in told
    assert "usage:" in kernel.run("%run script.py")


def test_the_table_follows_the_sweep_and_stays_with_a_picture(kernel: Kernel) -> None:
    cell = kernel.start(f"cell_module.REPLACE_EVERY_S = 0.1\nticks = chain(repeat(True, 10), [False])\n{SWEEP}")
    kernel.until(lambda m: m["msg_type"] == "update_display_data" and "running" in m["content"]["data"]["text/html"])
    told = kernel.wait_for_end(cell)
    assert "starting 2 worker groups" in told
    assert "\x1b[?25" not in told  # the cursor of a terminal
    table, picture = kernel.shown()
    assert picture[PLOTLY]["data"]
    assert "running, as of" not in table["text/html"]
    assert "<td>5</td>" in table["text/html"]
    assert "<b>0.75</b>" in table["text/html"]
    assert "&lt;b&gt;adamw" in table["text/html"]
