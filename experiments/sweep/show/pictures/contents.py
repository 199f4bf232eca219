"""What the page of a sweep shows, as plain data: in report.html, and on the live page as it changes."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import jinja2

from experiments.sweep.define.plan import Plan
from experiments.sweep.define.words import duration, format_value
from experiments.sweep.show.confirmation import in_lines
from experiments.sweep.show.pictures.sweep_view import COLOURS, ShownTrial, SweepView
from experiments.sweep.state.device_time import shares_of


def contents(view: SweepView) -> dict[str, Any]:
    """Return all that the page says of a sweep but its trials and pictures."""
    summary, plan, device_time = view.summary, view.plan, view.device_time
    until = time.monotonic() if view.running else device_time.ended
    best, unit = summary["best"], plan.budget.unit
    counts = Counter(trial.status for trial in view.searched)
    address, _, note = view.address.partition("  ")
    early = summary["ended_early"]
    how = f"{'ends' if view.running else 'ended'} early ({early['why']})" if early else "interrupted"
    reached = f"trial {best['trial']}, {unit} {best[unit]}" if best else ""
    baseline = [("Baseline", format_value(summary["baseline"]) or "none yet", "trial 1")]
    load = plan.experiment.load_line
    recipe = f"{summary['recipe']} recipe, " if plan.experiment.has_recipes else ""
    return {
        "intro": f"A sweep of {summary['experiment']}, {recipe}on {summary['device']}",
        "state": "running" if view.running and not early else "complete" if summary["complete"] else how,
        "running": view.running,
        "at": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.at)),
        "metric": summary["metric"],
        "others": [other.name for other in plan.others],
        "front": list(view.front),
        "unit": unit,
        "facts": [
            (f"Best {summary['metric']}", format_value(best["value"]) if best else "none yet", reached),
            *([("On the front", str(len(view.front)), "trials")] if plan.others else []),
            *(baseline if plan.experiment.baseline else []),
            ("Trials", f"{len(view.searched)} of {view.num_trials}", ""),
            ("Time", duration(until - device_time.began), shares_of(device_time.in_all())),
        ],
        "counts": {status: counts[status] for status in COLOURS if counts[status]},
        "best": {
            "trial": best["trial"],
            "config": {name: _shown(value) for name, value in best["config"].items()},
            "checkpoint": best["checkpoint"],
            "load_line": load.format(checkpoint=best["checkpoint"]) if best["checkpoint"] and load else None,
        }
        if best
        else None,
        "confirmed": in_lines(summary["confirmation"]) if summary["confirmation"] else [],
        "steered": [
            f"{time.strftime('%H:%M:%S', time.localtime(asked['time']))}  {asked['what']}"
            for asked in summary["steered"]
        ],
        "address": address,
        "note": note,
        "report": str(plan.report_file),
        "names": list(dict.fromkeys(name for trial in view.trials for name in trial.params)),
        "space": plan.experiment.search_space.in_words(),
    }


def row(trial: ShownTrial) -> dict[str, Any]:
    """Return what the page says of a trial."""
    step, last = next(reversed(trial.curve.items()), (0, None))
    return {
        "number": trial.number,
        "status": trial.status,
        "confirms": trial.confirms,
        "to_stop": trial.to_stop,
        "best": trial.best,
        "others": trial.point[1:],
        "last": last,
        "step": step,
        "seconds": round(trial.seconds, 1),
        "reason": trial.reason,
        "params": {name: _shown(value) for name, value in trial.params.items()},
    }


def render(plan: Plan, **values: Any) -> str:
    """Return the page; the template needs ``live``, and then ``nonce``, else ``data`` and ``plotly_js``."""
    templates = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True)
    return templates.get_template("report.html").render(name=plan.name, colours=as_json(COLOURS), **values)


def as_json(data: Any) -> str:
    """Return data as JSON that may stand inside a page's script element."""
    return json.dumps(data, default=str).replace("<", "\\u003c")


def _shown(value: Any) -> Any:
    """Return a value that JSON has, too."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
