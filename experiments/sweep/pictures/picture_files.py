"""The files of a drawn sweep, in its folder: a PNG for each picture, and the report with all of them."""

from __future__ import annotations

from pathlib import Path

from experiments.sweep.pictures.catalogue import draw_pictures
from experiments.sweep.pictures.png import write_png
from experiments.sweep.pictures.report import write_report
from experiments.sweep.pictures.sweep_view import SweepView
from experiments.sweep.pictures.timeline import draw_timeline


def draw_sweep(view: SweepView) -> list[Path]:
    """Draw the pictures and the report into the sweep's folder, and return the files."""
    pictures = draw_pictures(view)
    files = []
    for picture in pictures:
        file = view.plan.folder / f"{picture.name}.png"
        if picture.figure is None:
            continue
        if file == view.plan.timeline_file:
            draw_timeline(view.ledger, view.plan.name, file)
        else:
            write_png(picture, file)
        files.append(file)
    write_report(view, pictures, view.plan.report_file)
    return [*files, view.plan.report_file]
