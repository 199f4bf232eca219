"""The command line that all scripts share: the fields of SweepOptions, in groups.

``--help`` answers at once: what runs a sweep, and takes seconds to import, is imported where it is used.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, make_dataclass
from typing import TYPE_CHECKING, Any

import tyro

from experiments.sweep.define.errors import SweepError
from experiments.sweep.define.options import GROUPS, SweepOptions
from experiments.sweep.define.words import format_params, format_value

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.sweep.define.experiment import Experiment
    from experiments.sweep.define.plan import Plan
    from experiments.sweep.on_ray.sweep_run import SweepRun

PROPOSALS_SHOWN = 3
"""Proposals printed by --dry-run, the baseline included."""
CTRL_C = 130
"""Exit status of a process that Ctrl-C ended, as shells have it."""


def main(experiment: Experiment, description: str | None = None, arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for, and exit.

    Args:
        experiment: What to tune.
        description: Said at the top of ``--help``, for example the script's docstring.
        arguments: The command line; None for that of this process.
    """
    given = joined(sys.argv[1:] if arguments is None else arguments)
    grouped = make_dataclass("Options", [(name, group, field(default_factory=group)) for name, group in GROUPS.items()])
    parsed: Any = tyro.cli(
        tyro.conf.configure(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)(grouped),
        description=description,
        args=given,
    )
    options = SweepOptions(**{k: v for name in GROUPS for k, v in vars(getattr(parsed, name)).items()})
    sys.exit(run(experiment, options))


def joined(arguments: Sequence[str], flag: str = "--set") -> list[str]:
    """Return the command line with all values of a repeated flag after one flag; else only the last would count."""
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
    """Plan the sweep, run it unless it is a dry run, print the result, and return the exit status."""
    from rich.console import Console

    from experiments.sweep.plan.plan import make_plan

    console = Console(soft_wrap=True, highlight=False, markup=False)
    try:
        plan = make_plan(experiment, options)
        if options.evaluate is not None:  # there is no sweep whose plan could be printed
            from experiments.sweep.evaluate import evaluated

            console.print("\n".join([*plan.facts, *evaluated(plan, options.evaluate)]))
            return 0
        console.print("\n".join(plan.lines()))
        if options.dry_run:
            console.print("\n".join(dry_run_lines(plan)))
            return 0
        from experiments.sweep.on_ray.tuner import tuner_of

        tuner = tuner_of(plan)
        tuner.run.how_to_resume = plan.resume_command()
        tuner.fit()
        return _print_result(console, plan, tuner.run)
    except SweepError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return CTRL_C
    finally:
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()


def dry_run_lines(plan: Plan) -> list[str]:
    """Return the settings, the first proposals and the largest possible effort, a line each.

    Of a sweep that goes on, they say what is left of it.

    Raises:
        SweepError: The sweep cannot go on: its study is gone or broken.
    """
    # Not from the summary, which a sweep that was killed has not written.
    ended = 0
    if plan.resumed:
        from experiments.sweep.decide.search.study_record import trials_to_resume

        ended = sum(trial.state.is_finished() for trial in trials_to_resume(plan.folder))
    if ended >= plan.num_samples:
        left = "but what it has yet to confirm" if plan.confirm else "to do"
        return [f"all {ended} trials have ended: nothing is left {left} (--add-trials N makes it longer)"]
    from optuna.storages import InMemoryStorage

    from experiments.sweep.plan.plan import make_searcher

    searcher = make_searcher(plan, InMemoryStorage())
    proposed = [searcher.suggest(str(n)) for n in range(min(PROPOSALS_SHOWN, plan.num_samples))]
    shown = [{k: v for k, v in config.items() if k != "seed"} for config in proposed if isinstance(config, dict)]
    trials = plan.num_samples - ended + plan.confirmations
    units, unit = trials * plan.budget.total, plan.budget.unit
    return [
        f"settings  {' '.join(f'{k}={v}' for k, v in plan.settings.items())}",
        *([f"{ended} of {plan.num_samples} trials have ended; the first were"] if plan.resumed else []),
        *(f"trial {n:03d}  {format_params(config)}" for n, config in enumerate(shown, 1)),
        f"at most {units} {unit}s in all, {-(-units // plan.groups)} on each group, less what is stopped early",
        "dry run: all checks passed, nothing was started",
    ]


def _print_result(console: Console, plan: Plan, run: SweepRun) -> int:
    from experiments.sweep.show.confirmation import in_lines
    from experiments.sweep.show.trackers.tracker import in_words
    from experiments.sweep.state.device_time import shares_of

    summary = run.summary
    assert summary is not None, "the sweep is over"
    best, status = summary["best"], _print_why_it_ended_early(plan, summary, run.state.expected)
    if best is None:
        if summary["complete"]:
            where = ", ".join(tracker.address for tracker in run.trackers)
            print(f"error: no trial reported a finite {summary['metric']}; see {where}", file=sys.stderr)
        return status or 1
    unit, checkpoint, load = plan.budget.unit, best["checkpoint"], plan.experiment.load_line
    confirmation = summary["confirmation"]
    models = [line for tracker in run.trackers if (line := tracker.load_line()) is not None]
    reached = format_value(best["value"])
    beside = f"baseline {format_value(summary['baseline']) or 'none'}" if plan.experiment.baseline else "no baseline"
    lines = [
        f"best        trial {best['trial']:03d}: {summary['metric']} {reached} at {unit} {best[unit]} ({beside})",
        f"config      {format_params(best['config'])}",
        *(in_rows("confirmed", in_lines(confirmation)) if confirmation is not None else []),
        f"checkpoint  {checkpoint or 'none: no report had one, or it was removed'}",
        *([f"load it     {load.format(checkpoint=checkpoint)}"] if checkpoint and load else []),
        *(f"model       {line}" for line in models),
        f"devices     {shares_of(summary['device_seconds'])}; {plan.timeline_file}",
        f"summary     {plan.summary_file}",
        f"report      {plan.report_file}",
        *(f"{tracker.name:<10}  {in_words(tracker)}" for tracker in run.trackers),
    ]
    if plan.options.baseline_only and plan.options.baseline is None and plan.experiment.published is not None:
        from experiments.sweep.on_ray.tune_files import reports_of
        from experiments.sweep.show.reproduction import compared

        lines = [*compared(reports_of(plan.folder, best["trial"]), plan, plan.experiment.published), "", *lines]
    console.print("\n" + "\n".join(lines))
    return status


def in_rows(word: str, lines: Sequence[str]) -> list[str]:
    """Return lines of the result, the first beside its word and the others below."""
    return [f"{word if not row else '':<10}  {line}" for row, line in enumerate(lines)]


def _print_why_it_ended_early(plan: Plan, summary: Mapping[str, Any], expected: int) -> int:
    """Print why a sweep ended early and the command that goes on with it, and return the exit status."""
    if summary["complete"]:
        return 0
    ended = summary["ended_early"] or {"why": "interrupted", "status": CTRL_C}
    counts = Counter(summary["trials"])
    counts["not begun"] = expected - counts.total()
    how_many = ", ".join(f"{count} {how}" for how, count in counts.items() if count)
    print(f"the sweep ended early: {ended['why']}", file=sys.stderr)
    print(
        f"of {expected} trials: {how_many}",
        file=sys.stderr,
    )
    print(f"go on with it: {plan.resume_command()}", file=sys.stderr)
    return int(ended["status"])
