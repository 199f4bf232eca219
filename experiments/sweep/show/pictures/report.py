"""The files of a drawn sweep: a PNG of each picture, and report.html, one page that needs no server and no network."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from experiments.sweep.define.words import duration, format_value
from experiments.sweep.show.confirmation import in_lines
from experiments.sweep.show.pictures.catalogue import Picture, draw_pictures
from experiments.sweep.show.pictures.png import write_png
from experiments.sweep.show.pictures.sweep_view import COLOURS, SweepView
from experiments.sweep.state.device_time import shares_of
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
    templates = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True)
    templates.filters |= {"short": format_value, "duration": duration}
    to_html = partial(
        go.Figure.to_html, full_html=False, include_plotlyjs=False, config={"responsive": True, "displayModeBar": False}
    )
    page = templates.get_template("report.html").render(
        **_values(view),
        pictures=[(one, to_html(one.figure, div_id=one.name) if one.figure is not None else "") for one in pictures],
        plotly_js=get_plotlyjs(),
        colours=COLOURS,
    )
    with written_whole(path) as unfinished:
        unfinished.write_text(page)


def _values(view: SweepView) -> dict[str, Any]:
    summary, trials, plan = view.summary, view.trials, view.plan
    best = summary["best"]
    counts = Counter(trial.status for trial in view.searched)
    address, _, note = view.address.partition("  ")
    how = f"ended early ({summary['ended_early']['why']})" if summary["ended_early"] else "interrupted"
    return {
        "summary": summary,
        "state": "running" if view.running else "complete" if summary["complete"] else how,
        "at": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.at)),
        "unit": plan.budget.unit,
        "num_samples": plan.num_samples,
        "confirmed": in_lines(summary["confirmation"]) if summary["confirmation"] else [],
        "counts": {status: counts[status] for status in COLOURS if counts[status]},
        "devices": shares_of(summary["device_seconds"]),
        "load_line": plan.experiment.load_line.format(checkpoint=best["checkpoint"])
        if best and best["checkpoint"]
        else None,
        "has_baseline": bool(plan.experiment.baseline),
        "address": address,
        "note": note,
        "trials": trials,
        "names": list(dict.fromkeys(name for trial in trials for name in trial.params)),
    }
