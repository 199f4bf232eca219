"""Print what is published of every experiment, and the baseline that repeats it on 1 and on 8 workers.

    gaudi-tune published [--json]

Starts nothing. With --json one object: ``{name: {"baseline": {"1": {}, "8": {}}, "published": {}, "source": ""}}``; an
experiment's other baselines are ``"baselines"`` in it, each of the same form.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gaudi_tune.base.words import counted, format_params
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.published_run import Published

WIDTHS = (1, 8)
"""Workers of a trial for which the baselines are printed."""


def experiments() -> list[Experiment]:
    """Return the experiment of each ``experiments/tune_*.py``, by file name."""
    scripts = sorted(file.stem for file in Path(__file__).parent.glob("tune_*.py"))
    return [importlib.import_module(f"experiments.{script}").EXPERIMENT for script in scripts]


def published(experiment: Experiment) -> dict[str, Any]:
    """Return the baselines of the full recipe by width, the published figures that there are, and their source; and
    likewise of each other baseline."""
    own = _described({width: experiment.at("full", width).baseline for width in WIDTHS}, experiment.published)
    others = {
        name: _described({width: {**other.values(width), **other.settings} for width in WIDTHS}, other.published)
        for name, other in experiment.baselines.items()
    }
    return {**own, **({"baselines": others} if others else {})}


def _described(baselines: Mapping[int, Mapping[str, Any]], said: Published | None) -> dict[str, Any]:
    figures = {} if said is None else asdict(said)
    source = figures.pop("source", None)
    return {
        "baseline": {str(width): dict(values) for width, values in baselines.items()},
        "published": {name: value for name, value in figures.items() if value is not None},
        "source": source,
    }


def lines(name: str, found: dict[str, Any]) -> list[str]:
    """Return what :func:`published` found in words, a line each."""
    figures = dict(found["published"])
    notes = figures.pop("notes", ())
    return [
        f"{name}: {found['source'] or 'not published'}",
        f"  {format_params(figures)}",
        *(
            f"  baseline, {counted(int(width), 'worker')}: {format_params(values)}"
            for width, values in found["baseline"].items()
        ),
        *(f"  {note}" for note in notes),
        *(
            line
            for other, described in found.get("baselines", {}).items()
            for line in lines(f"{name} --baseline {other}", described)
        ),
    ]


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    found = {experiment.name: published(experiment) for experiment in experiments()}
    if parser.parse_args().json:
        print(json.dumps(found))
        return
    print("\n".join(line for name, one in found.items() for line in lines(name, one)))


if __name__ == "__main__":
    main()
