"""A sweep in the cell of a notebook, in a real kernel, whose main thread is Tune's event loop."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from gaudi_tune.show.pictures.cell import PLOTLY
from tests.helpers.kernel import Kernel, started_kernel
from tests.show.pictures.test_pictures import MIXED

pytest.importorskip("anywidget")
pytest.importorskip("ipykernel")
pytestmark = pytest.mark.processes

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
IMPORTS = """
import sys, tempfile, time
from itertools import chain, repeat
from pathlib import Path
from gaudi_tune import Experiment, main
from gaudi_tune.show.pictures import cell as cell_module
from gaudi_tune.show.pictures.cell import ShowInCell
from gaudi_tune.show.progress import ShowProgress
from gaudi_tune.sweep.record.events import SweepBegan, SweepEnded
from tests.show.pictures.test_page import MIXED, Sweep
"""
SWEEP = """
sweep = Sweep(Path(tempfile.mkdtemp()), MIXED)
views = [sweep.page, ShowInCell(sweep.page), ShowProgress(sweep.plan)]
for view in views[1:]:
    view.show(SweepBegan(), sweep.state)
while {"do": "end"} not in sweep.wishes and len(sweep.state.trials) and next(ticks):
    for view in views:
        view.tick(sweep.state)
    time.sleep(0.05)
sweep.state.apply(SweepEnded(summary={}))
for view in views:
    view.show(SweepEnded(summary={}), sweep.state)
sweep.close()
print(sweep.wishes)
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


def test_the_cell_has_the_page_which_steers_and_at_the_end_the_table(kernel: Kernel) -> None:
    cell = kernel.start(f"ticks = repeat(True)\n{SWEEP}")
    after = kernel.client.execute("print('the next cell')")
    opened = kernel.until(lambda m: "page" in m["content"].get("data", {}).get("state", {}))
    comm = opened["content"]["comm_id"]
    kernel.until(lambda m: WIDGET_VIEW in m["content"].get("data", {}))  # from then on it takes requests
    news = json.loads(kernel.ask(comm, "sweep?since=0"))
    assert [trial["number"] for trial in news["trials"]] == list(range(1, len(MIXED) + 1))
    kernel.until(lambda m: m["msg_type"] == "update_display_data" and not m["content"]["data"]["text/html"])
    table, view = kernel.shown()
    assert table["text/html"] == ""  # the page is in its place
    assert view[WIDGET_VIEW]["model_id"] == comm
    assert json.loads(kernel.ask(comm, "picture/learning_curves?since=0"))["figure"]
    assert kernel.ask(comm, "plotly.js")[:2] == b"\x1f\x8b"  # gzip
    for request in ({"do": "stop", "trial": 5}, {"do": "add", "trials": 10}, {"do": "end"}):
        assert json.loads(kernel.ask(comm, "ask", json.dumps(request))) == {"done": "as you wish"}
    told = kernel.wait_for_end(cell)
    assert told.endswith("[{'do': 'stop', 'trial': 5}, {'do': 'add', 'trials': 10}, {'do': 'end'}]\n")
    assert "starting 2 worker groups" in told
    assert "\x1b[?25" not in told  # the cursor of a terminal
    table, view, picture = kernel.shown()
    assert picture[PLOTLY]["data"]
    assert "running, as of" not in table["text/html"]
    assert "<b>0.75</b>" in table["text/html"]
    assert "&lt;b&gt;adamw" in table["text/html"]
    assert view == {"text/html": "", "text/plain": ""}
    assert kernel.wait_for_end(after) == "the next cell\n"


def test_without_widgets_the_table_follows_the_sweep(kernel: Kernel) -> None:
    hide = "sys.modules['anywidget'] = None  # as where it is not installed\n"
    cell = kernel.start(f"{hide}cell_module.REPLACE_EVERY_S = 0.1\nticks = chain(repeat(True, 10), [False])\n{SWEEP}")
    kernel.until(lambda m: m["msg_type"] == "update_display_data" and "running" in m["content"]["data"]["text/html"])
    assert "pip install anywidget" in kernel.wait_for_end(cell)
    table, _ = kernel.shown()
    assert "<td>5</td>" in table["text/html"]
    assert not [message for message in kernel.seen if message["msg_type"] == "comm_open"]
