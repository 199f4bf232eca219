"""The command line that all scripts share: the fields of SweepOptions, in groups.

``--help`` answers at once: what runs a sweep, and takes seconds to import, is imported where it is used.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import field, fields, make_dataclass, replace
from typing import TYPE_CHECKING, Any

import tyro

from gaudi_tune.base.collection import no_collection
from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import format_params, format_value, in_columns
from gaudi_tune.cli import experiment_script as script
from gaudi_tune.define.config_file import merged, read_config
from gaudi_tune.define.options import GROUPS, SweepOptions, checked
from gaudi_tune.sweep.record.events import CTRL_C
from gaudi_tune.sweep.record.sweep_file import read_summary

if TYPE_CHECKING:
    from gaudi_tune.define.experiment import Experiment
    from gaudi_tune.define.sweep_plan import Plan

PROPOSALS_SHOWN = 3
"""Proposals printed by --dry-run, the baseline included."""
WRONG = 2
"""Exit status where what was asked for cannot be."""
BROKEN_PIPE = 141
"""Exit status of a process whose output nobody reads any more, as shells have it."""


def main(experiment: Experiment, description: str | None = None, arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for, and exit.

    Args:
        experiment: What to tune.
        description: Said at the top of ``--help``, for example the script's docstring.
        arguments: The command line; None for that of this process.
    """
    if script.wanted:
        raise script.MainCalled(experiment, description)
    arguments = sys.argv[1:] if arguments is None else arguments
    with readers_may_leave():
        try:
            options = parsed(arguments, description)
        except SweepError as error:
            sys.exit(refused(error, arguments))
        sys.exit(run(experiment, options, ["python", sys.argv[0]]))


def refused(error: SweepError, arguments: Sequence[str]) -> int:
    """Print an error, with ``--json`` for programs, too, and return the exit status."""
    print(f"error: {error}", file=sys.stderr)
    if "--json" in arguments:
        print(json.dumps({"error": str(error)}))
    return WRONG


@contextmanager
def readers_may_leave() -> Iterator[None]:
    """End the process without a word where nobody reads its output any more, as after ``| head -1``."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        sys.exit(BROKEN_PIPE)


def parsed(
    arguments: Sequence[str], description: str | None = None, usual: Mapping[str, Any] | None = None
) -> SweepOptions:
    """Return what a command line asks for: its options, else those of the file that it names, else the usual ones.

    ``--help`` and an unknown option end the process; a wrong value is a SweepError.
    """
    usual = dict(usual or {})
    options = _parsed(arguments, description, usual)
    if options.config is None:
        return options
    if options.resume is not None:
        raise SweepError(f"--config {options.config}: a resumed sweep keeps the options it began with; leave it out")
    in_file = read_config(options.config)
    options = _parsed(arguments, description, {**usual, **in_file})
    return replace(options, settings=merged(in_file.get("settings", ()), options.settings))


def _parsed(arguments: Sequence[str], description: str | None, usual: Mapping[str, Any]) -> SweepOptions:
    groups: list[Any] = []
    for name, kind in GROUPS.items():
        own = {option.name: usual[option.name] for option in fields(kind) if option.name in usual}
        groups.append((name, kind, field(default=kind(**own))))
    grouped = make_dataclass("Options", groups)
    try:
        found: Any = tyro.cli(
            tyro.conf.configure(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)(grouped),
            description=description,
            args=joined(joined(joined(arguments), "--learn-from"), "--objectives"),
        )
    except SystemExit as end:  # after --help, or after an error for people
        if end.code and "--json" in arguments:
            print(json.dumps({"error": "the command line cannot be read; the error output says why"}))
        raise
    return checked({k: v for name in GROUPS for k, v in vars(getattr(found, name)).items()})


def joined(arguments: Sequence[str], flag: str = "--set") -> list[str]:
    """Return the command line with all values of a repeated flag after one flag; else only the last would count."""
    values: list[str] = []
    others: list[str] = []
    into = others
    for argument in arguments:
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
            into = values if name.replace("_", "-") == flag else others  # tyro takes either
            if into is values:
                values += [value] if equals else []
                continue
        into.append(argument)
    return [*others, flag, *values] if values else list(arguments)


def run(experiment: Experiment, options: SweepOptions, called: Sequence[str]) -> int:
    """Plan the sweep, run it unless it is a dry run, print the result, and return the exit status.

    ``called`` is the command, without options, to go on with the sweep.
    """
    result: Mapping[str, Any] = {}
    own_ray = "ray" not in sys.modules or not sys.modules["ray"].is_initialized()
    with redirect_stdout(sys.stderr) if options.json else nullcontext():
        try:
            status, result = _run(experiment, options, called)
        except SweepError as error:
            print(f"error: {error}", file=sys.stderr)
            status, result = WRONG, {"error": str(error)}
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            status = CTRL_C
        finally:
            if own_ray and "ray" in sys.modules:
                from gaudi_tune.on_ray.local_ray import end_ray

                end_ray()
    if options.json:
        print(json.dumps(result, indent=2, default=str))
    return status


def _run(experiment: Experiment, options: SweepOptions, called: Sequence[str]) -> tuple[int, Mapping[str, Any]]:
    with no_collection():
        from gaudi_tune.on_ray.local_ray import begin_ray, start_ray
        from gaudi_tune.plan.planner import make_plan
        from gaudi_tune.show.plan_text import plan_lines
        from gaudi_tune.show.result import exit_status

        # A sweep that is resumed may have nothing left to do.
        needs_ray = not (options.dry_run or options.evaluate) and (not options.resume or bool(options.add_trials))
        plan = make_plan(experiment, options, when_decided=begin_ray if needs_ray else lambda plan: None)
        plan = replace(plan, called=tuple(called))
    if options.evaluate is not None:  # there is no sweep whose plan could be printed
        from gaudi_tune.cli.evaluate import evaluated

        scores = evaluated(plan, options.evaluate)
        print("\n".join([*plan.facts, *(f"{name:<24}{format_value(value)}" for name, value in scores.items())]))
        return 0, scores
    print("\n".join(plan_lines(plan)), flush=True)
    if options.dry_run:
        print("\n".join(dry_run_lines(plan)))
        return 0, plan.in_brief()
    if plan.resumed and not options.add_trials:
        from gaudi_tune.cli.sweeps import KeptSweep
        from gaudi_tune.show.trackers.outbox import is_delivered

        kept = KeptSweep.at(plan.folder, plan.folder.parent)
        if kept.summary.get("complete") and not kept.summary.get("missing") and is_delivered(plan.folder):
            print("\n".join(["", *kept.result(), "", "nothing is left to do (--add-trials N makes the sweep longer)"]))
            return exit_status(kept.summary), kept.summary
    with no_collection():
        begin_ray(plan)
        from gaudi_tune.on_ray.tuner import SweepTuner  # takes a second, while Ray starts

        start_ray(plan)

    tuner = SweepTuner(plan)
    tuner.fit()
    assert tuner.run.summary is not None, "the sweep is over"
    for line in tuner.ending_lines():  # which the result does not say
        print(line, file=sys.stderr)
    return exit_status(tuner.run.summary), tuner.run.summary


def dry_run_lines(plan: Plan) -> list[str]:
    """Return the settings, the first proposals and the largest possible effort, or what is left of it, a line each."""
    # Not from the summary, which a sweep that was killed has not written.
    ended = trained = 0
    if plan.resumed:
        from gaudi_tune.sweep.search.study_record import trials_to_resume

        trials_so_far = trials_to_resume(plan.folder)
        ended = sum(trial.state.is_finished() for trial in trials_so_far)
        unended = [trial.intermediate_values for trial in trials_so_far if not trial.state.is_finished()]
        trained = sum(max(curve, default=0) for curve in unended)
    if ended >= plan.num_samples:
        confirms = ", and what it has yet to confirm" if plan.confirm else ""
        left = "to do" if read_summary(plan.folder).get("complete") else f"but what a kill may have lost{confirms}"
        return [f"all {ended} trials have ended: nothing is left {left} (--add-trials N makes it longer)"]
    from optuna.storages import InMemoryStorage

    from gaudi_tune.plan.planner import make_searcher
    from gaudi_tune.show.result import in_rows

    searcher = make_searcher(plan, InMemoryStorage())
    proposed = [searcher.suggest(str(n)) for n in range(min(PROPOSALS_SHOWN, plan.num_samples))]
    shown = [{k: v for k, v in config.items() if k != "seed"} for config in proposed if isinstance(config, dict)]
    trials = plan.num_samples - ended + plan.confirmations
    units, unit = trials * plan.budget.total - trained, plan.budget.unit
    words = plan.experiment.search_space.in_words()
    return [
        f"settings  {format_params(plan.changed_settings)}",
        *in_rows("space", in_columns(list(words.items()))),
        *([f"{ended} of {plan.num_samples} trials have ended; the first were"] if plan.resumed else []),
        *(f"trial {n:03d}  {format_params(config)}" for n, config in enumerate(shown, 1)),
        f"at most {units} {unit}s in all, {-(-units // plan.groups)} on each group; early stopping makes it fewer",
        "dry run: all checks passed, nothing was started",
    ]
