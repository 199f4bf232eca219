"""report.html: a sweep on one page that needs no server and no network."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from experiments.sweep.ledger import shares_of
from experiments.sweep.outcome import short
from experiments.sweep.pictures.catalogue import Picture
from experiments.sweep.pictures.sweep_view import COLOURS, SweepView
from experiments.sweep.progress import duration
from trainables.runtime.writing import written_whole

TEMPLATE = "report.html"
"""Beside this file."""
HEIGHT = 420
"""Of a picture, pixels, unless it has a height of its own."""


def write_report(view: SweepView, pictures: Sequence[Picture], path: Path) -> None:
    """Write the page, whole or not at all: about 5 MB, most of it plotly.js, which is in it once."""
    templates = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True)
    templates.filters |= {"short": short, "duration": duration}
    page = templates.get_template(TEMPLATE).render(
        **_told(view),
        pictures=[(picture, _as_html(picture)) for picture in pictures],
        plotly_js=get_plotlyjs(),
        colours=COLOURS,
    )
    with written_whole(path) as partial:
        partial.write_text(page)


def _told(view: SweepView) -> dict[str, Any]:
    summary, trials, plan = view.summary, view.trials, view.plan
    best = summary["best"]
    counts = Counter(trial.status for trial in trials)
    address, _, note = summary["mlflow"].partition("  ")
    return {
        "summary": summary,
        "state": _state(view),
        "at": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.at)),
        "unit": plan.budget.unit,
        "num_samples": plan.num_samples,
        "counts": {status: counts[status] for status in COLOURS if counts[status]},
        "devices": shares_of(summary["device_seconds"]),
        "load_line": plan.experiment.load_line.format(checkpoint=best["checkpoint"])
        if best and best["checkpoint"]
        else None,
        "address": address,
        "note": note,
        "trials": trials,
        "names": list(dict.fromkeys(name for trial in trials for name in trial.recorded.params)),
    }


def _state(view: SweepView) -> str:
    if view.running or view.summary["complete"]:
        return "running" if view.running else "complete"
    ended = view.summary["ended_early"]
    return f"ended early ({ended['why']})" if ended else "interrupted"


def _as_html(picture: Picture) -> str:
    if picture.figure is None:
        return ""
    height = picture.figure.layout.height or HEIGHT
    html: str = picture.figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=picture.name,
        default_height=f"{height}px",
        config={"responsive": True, "displayModeBar": False},
    )
    return html
