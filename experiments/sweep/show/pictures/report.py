"""The files of a drawn sweep: a PNG of each picture, and report.html, one page that needs no server and no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from plotly.offline import get_plotlyjs

from experiments.sweep.show.pictures.catalogue import Picture, draw_pictures
from experiments.sweep.show.pictures.contents import as_json, contents, render, row
from experiments.sweep.show.pictures.png import write_png
from experiments.sweep.show.pictures.sweep_view import SweepView
from trainables.runtime.writing import written_whole


def draw_sweep(view: SweepView) -> list[Path]:
    """Draw the pictures and the report into the sweep's folder, and return the files."""
    pictures, files = draw_pictures(view), []
    for picture in pictures:
        if picture.figure is not None:
            files.append(view.plan.folder / f"{picture.name}.png")
            write_png(picture.figure, f"{view.plan.name}: {picture.title}", picture.caption, files[-1])
    write_report(view, pictures, view.plan.report_file)
    return [*files, view.plan.report_file]


def write_report(view: SweepView, pictures: Sequence[Picture], path: Path) -> None:
    """Write the page, whole or not at all: about 5 MB, most of it plotly.js, which is in it once."""
    data = {
        "head": contents(view),
        "version": 1,
        "trials": [row(trial) for trial in view.trials],
        "pictures": [picture.as_data() for picture in pictures],
    }
    page = render(view.plan, live=False, data=as_json(data), plotly_js=get_plotlyjs())
    with written_whole(path) as unfinished:
        unfinished.write_text(page)
