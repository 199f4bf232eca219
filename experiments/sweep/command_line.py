"""The command line that all scripts share: the fields of SweepOptions."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import ray
import tyro
from optuna.storages import InMemoryStorage
from rich.console import Console

from experiments.sweep.errors import SweepError
from experiments.sweep.experiment import Experiment
from experiments.sweep.ledger import shares_of
from experiments.sweep.options import DEFAULT_STORAGE, SweepOptions
from experiments.sweep.outcome import short
from experiments.sweep.plan import Plan, make_plan
from experiments.sweep.search.study_record import stored_trials
from experiments.sweep.stopping import CTRL_C, Ending
from experiments.sweep.tracking.best_model import load_line
from experiments.sweep.tuner import make_searcher, tuner_of

INTERRUPTED = Ending("interrupted", status=CTRL_C)
"""By whatever did not say why."""
PROPOSALS_SHOWN = 3
"""Proposals printed by --dry-run, the baseline included."""


def main(experiment: Experiment, description: str | None = None, arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for, and exit.

    Args:
        experiment: What to tune.
        description: Said at the top of ``--help``, for example the script's docstring.
        arguments: The command line; None for that of this process.
    """
    given = joined(sys.argv[1:] if arguments is None else arguments)
    options = tyro.cli(SweepOptions, description=description, args=given, config=(tyro.conf.FlagCreatePairsOff,))
    sys.exit(run(experiment, options))


def joined(arguments: Sequence[str], flag: str = "--set") -> list[str]:
    """Return the command line with all values of a repeated flag behind one; the last would count alone."""
    values: list[str] = []
    others: list[str] = []
    into = others
    for argument in arguments:
        if argument.startswith("--"):
            into = values if argument == flag or argument.startswith(f"{flag}=") else others
            if into is values:
                values += [argument.removeprefix(f"{flag}=")] if argument != flag else []
                continue
        into.append(argument)
    return [*others, flag, *values] if values else list(arguments)


def run(experiment: Experiment, options: SweepOptions) -> int:
    """Plan the sweep, run it unless it is a dry run, say what it came to, and return the exit status."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    try:
        plan = make_plan(experiment, options)
        console.print("\n".join(plan.lines()))
        if options.dry_run:
            console.print("\n".join(dry_run_lines(plan)))
            return 0
        tuner_of(plan).fit()
        return _say_result(console, plan)
    except SweepError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return CTRL_C
    finally:
        ray.shutdown()


def dry_run_lines(plan: Plan) -> list[str]:
    """Return the settings, the first proposals and the largest possible effort, a line each.

    Of a sweep that goes on, what is left of it.
    """
    # Not from the summary, which a sweep that was killed has not written.
    ended = sum(trial.state.is_finished() for trial in stored_trials(plan.folder)) if plan.resumed else 0
    if ended >= plan.num_samples:
        return [f"all {ended} trials have ended: nothing is left to do (--add-trials N makes it longer)"]
    searcher = make_searcher(plan, InMemoryStorage())
    made = (searcher.suggest(str(n)) for n in range(min(PROPOSALS_SHOWN, plan.num_samples)))
    proposals = [{k: v for k, v in config.items() if k != "seed"} for config in made if isinstance(config, dict)]
    units, unit = (plan.num_samples - ended) * plan.budget.total, plan.budget.unit
    return [
        f"settings  {' '.join(f'{k}={v}' for k, v in plan.settings.items())}",
        *([f"{ended} of {plan.num_samples} trials have ended; the first were"] if plan.resumed else []),
        *(f"trial {n:03d}  {' '.join(f'{k}={short(v)}' for k, v in p.items())}" for n, p in enumerate(proposals, 1)),
        f"at most {units} {unit}s in all, {-(-units // plan.groups)} on each group, less what is stopped early",
        "dry run: all checks passed, nothing was started",
    ]


def _say_result(console: Console, plan: Plan) -> int:
    summary = json.loads(plan.summary_file.read_text())
    best, status = summary["best"], _say_whether_whole(plan, summary)
    if best is None:
        if summary["complete"]:
            print(f"error: no trial reported a finite {summary['metric']}; see {summary['mlflow']}", file=sys.stderr)
        return status or 1
    unit, checkpoint, model = plan.budget.unit, best["checkpoint"], load_line(plan, summary)
    lines = [
        f"best        trial {best['trial']:03d}: {summary['metric']} {best['value']:.4f} at {unit} {best[unit]}"
        f" (baseline {short(summary['baseline']) or 'none'})",
        f"config      {' '.join(f'{k}={short(v)}' for k, v in best['config'].items())}",
        f"checkpoint  {checkpoint or 'none: the sweep ended before there was one, or it was removed'}",
        *([f"load it     {plan.experiment.load_line.format(checkpoint=checkpoint)}"] if checkpoint else []),
        *([f"model       {model}"] if model else []),
        f"devices     {shares_of(summary['device_seconds'])}; {plan.timeline_file}",
        f"summary     {plan.summary_file}",
        f"report      {plan.report_file}",
        f"mlflow      {summary['mlflow']}",
    ]
    console.print("\n" + "\n".join(lines))
    return status


def _say_whether_whole(plan: Plan, summary: dict[str, Any]) -> int:
    """Say why a sweep ended early and how it goes on, and return the exit status."""
    if summary["complete"]:
        return 0
    ended = summary["ended_early"] or INTERRUPTED._asdict()
    counts = ", ".join(f"{count} {outcome}" for outcome, count in summary["trials"].items())
    print(f"the sweep ended early: {ended['why']}", file=sys.stderr)
    print(f"of {plan.num_samples} trials: {counts or 'none had begun'}", file=sys.stderr)
    print(f"go on with it: python {sys.argv[0]} --resume {plan.name}{_storage_option(plan)}", file=sys.stderr)
    return int(ended["status"])


def _storage_option(plan: Plan) -> str:
    return "" if plan.options.storage == DEFAULT_STORAGE else f" --storage {plan.options.storage}"
