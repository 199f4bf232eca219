"""``gaudi-tune published``: what is published of an experiment, and the baseline that repeats it on 1 and 8 workers.

Starts nothing. As JSON it is ``{name: {"baseline": {"1": {}, "8": {}}, "published": {}, "source": ""}}``; the other
baselines of an experiment are ``"baselines"`` in it, each of the same form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import counted, format_params
from gaudi_tune.cli.experiment_script import load_experiment
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.options import HOME
from gaudi_tune.define.published_run import Published

WIDTHS = (1, 8)
"""Workers of a trial for which the baselines are printed."""


def published_runs(scripts: Sequence[Path]) -> dict[str, Any]:
    """Return, by name of the experiment, what :func:`published` says of the ``EXPERIMENT`` in each script.

    Args:
        scripts: The scripts; none means ``experiments/tune_*.py`` of the checkout or the current folder.

    Raises:
        SweepError: There is no such script, or it has no ``EXPERIMENT``.
    """
    scripts = scripts or sorted((HOME / "experiments").glob("tune_*.py"))
    if not scripts:
        raise SweepError(f"published: there is no {HOME}/experiments/tune_*.py; name the scripts of experiments")
    experiments = [load_experiment(f"{script}:EXPERIMENT")[0] for script in scripts]
    return {experiment.name: published(experiment) for experiment in experiments}


def in_words(runs: Mapping[str, Any]) -> list[str]:
    """Return what :func:`published_runs` found in words, a line each."""
    return [line for name, run in runs.items() for line in lines(name, run)]


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
