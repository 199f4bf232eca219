"""``gaudi-tune published`` prints the published figures of an experiment (``define/published_run.py``) and the baseline
that repeats them on 1 and 8 workers. It starts nothing.

The JSON is ``{name: {"baseline": {"1": {}, "8": {}}, "published": {}, "source": ""}}``. The entry ``"baselines"`` of an
experiment has its other baselines, each in the same form.
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
    """Return the :func:`published` figures of the ``EXPERIMENT`` in each script, by the experiment's name.

    Args:
        scripts: The scripts. Empty: ``experiments/tune_*.py`` in the checkout or the current folder.

    Raises:
        SweepError: There is no such script, or it has no ``EXPERIMENT``.
    """
    scripts = scripts or sorted((HOME / "experiments").glob("tune_*.py"))
    if not scripts:
        raise SweepError(
            f"published: {HOME} has no experiments/tune_*.py (they are in a checkout, and not in a wheel); name scripts"
        )
    experiments = [load_experiment(f"{script}:EXPERIMENT")[0] for script in scripts]
    return {experiment.name: published(experiment) for experiment in experiments}


def in_words(runs: Mapping[str, Any]) -> list[str]:
    """Return the result of :func:`published_runs` as lines for people."""
    return [line for name, run in runs.items() for line in lines(name, run)]


def published(experiment: Experiment) -> dict[str, Any]:
    """Return the baselines of the full recipe by width, the published figures, and their source; and the same for each
    other baseline of the experiment."""
    description = _describe(
        {width: experiment.for_recipe("full", width).baseline for width in WIDTHS}, experiment.published
    )
    if experiment.baselines:
        description["baselines"] = {
            name: _describe({width: {**run.values(width), **run.settings} for width in WIDTHS}, run.published)
            for name, run in experiment.baselines.items()
        }
    return description


def _describe(baselines: Mapping[int, Mapping[str, Any]], published_run: Published | None) -> dict[str, Any]:
    figures = {} if published_run is None else asdict(published_run)
    source = figures.pop("source", None)
    return {
        "baseline": {str(width): dict(values) for width, values in baselines.items()},
        "published": {name: value for name, value in figures.items() if value is not None},
        "source": source,
    }


def lines(name: str, run: Mapping[str, Any]) -> list[str]:
    """Return the result of :func:`published` as lines for people."""
    figures = dict(run["published"])
    notes = figures.pop("notes", ())
    text = [f"{name}: {run['source'] or 'not published'}", f"  {format_params(figures)}"]
    for width, values in run["baseline"].items():
        text.append(f"  baseline, {counted(int(width), 'worker')}: {format_params(values)}")
    text += [f"  {note}" for note in notes]
    for baseline, baseline_run in run.get("baselines", {}).items():
        text += lines(f"{name} --baseline {baseline}", baseline_run)
    return text
