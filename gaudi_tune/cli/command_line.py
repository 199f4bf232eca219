"""The command line that all scripts share: the fields of SweepOptions, in groups.

``--help`` answers at once, because the modules that run a sweep take seconds to import and are imported inside the
functions that use them.
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
from gaudi_tune.base.errors import SweepError, written
from gaudi_tune.base.terminal import in_notebook, prepare_terminal
from gaudi_tune.base.words import as_text, did_you_mean, format_params, format_value, harmless, in_columns
from gaudi_tune.cli import experiment_script
from gaudi_tune.define.config_file import merged, read_config
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.options import GROUPS, TRAITS, SweepOptions, checked
from gaudi_tune.define.options import flag as flag_of
from gaudi_tune.define.reading import UNREADABLE
from gaudi_tune.sweep.record.events import CTRL_C
from gaudi_tune.sweep.record.state_log import STATE_LOG
from gaudi_tune.sweep.record.sweep_file import read_summary

if TYPE_CHECKING:
    from gaudi_tune.define.sweep_plan import Plan

PROPOSALS_SHOWN = 3
"""Proposals printed by --dry-run, the baseline included."""
SEVERAL = ("--set", "--learn-from", "--objectives")
"""Options that may be given several times."""
FLAGS = ("--help", *(flag_of(option) for option in TRAITS if option != "space"))
"""Every flag of the command line of a script."""
USAGE_ERROR = 2
"""Exit status after a SweepError."""
BROKEN_PIPE = 141
"""Exit status of a process whose output nobody reads any more; shells use the same."""


def main(experiment: Experiment, description: str | None = None, arguments: Sequence[str] | None = None) -> None:
    """Run the sweep that the command line describes, and exit.

    Args:
        experiment: What to tune.
        description: The text at the top of ``--help``, for example the script's docstring.
        arguments: The command line. None: that of this process.
    """
    if experiment_script.is_loading:
        raise experiment_script.MainCalled(experiment, description)
    if in_notebook() and not hasattr(sys.modules["__main__"], "__file__"):  # a script under %run has a file
        raise SweepError(
            "main() reads the command line of a script and ends the process; in a notebook, write "
            "results = build_tuner(EXPERIMENT, num_samples=20).fit() instead (from gaudi_tune import build_tuner), "
            "with your Experiment(...) for EXPERIMENT"
        )
    prepare_terminal()
    arguments = sys.argv[1:] if arguments is None else arguments
    with quiet_broken_pipe():
        try:
            options = parse_options(arguments, description)
            if not isinstance(experiment, Experiment):
                raise SweepError(f"main() needs an Experiment(...), but got {written(experiment)}; give it first")
        except SweepError as error:
            sys.exit(print_error(error, arguments))
        sys.exit(run(experiment, options, ["python", sys.argv[0]]))


def print_error(error: SweepError, arguments: Sequence[str]) -> int:
    """Print an error, with ``--json`` also as JSON, and return the exit status."""
    print(harmless(f"error: {error}").replace("\n", "\n       "), file=sys.stderr)
    if "--json" in arguments:
        print(json.dumps({"error": str(error)}))
    return USAGE_ERROR


@contextmanager
def quiet_broken_pipe() -> Iterator[None]:
    """End the process without a message if nobody reads its output any more, as after ``| head -1``."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        sys.exit(BROKEN_PIPE)


def parse_options(
    arguments: Sequence[str], description: str | None = None, defaults: Mapping[str, Any] | None = None
) -> SweepOptions:
    """Return the options of a command line. Options that it does not give come from its ``--config`` file, if there is
    one, and else from ``defaults``.

    ``--help`` and a surplus word end the process; an unknown option and a wrong value are SweepErrors.
    """
    check_flags(arguments)
    for argument in arguments:
        name = argument.partition("=")[0].replace("_", "-")
        if argument.startswith("--") and name not in FLAGS:
            hint = did_you_mean(name, FLAGS)
            setting = f"a hyperparameter or a setting is given as --set {name[2:].replace('-', '_')}=VALUE, and "
            raise SweepError(f"there is no option {name}{hint}; {'' if hint else setting}--help lists all")
    defaults = dict(defaults or {})
    options = _parse(arguments, description, defaults)
    if options.config is None:
        return options
    if options.resume is not None:
        raise SweepError(f"--config {options.config}: a resumed sweep keeps the options it began with; leave it out")
    file_options = read_config(options.config)
    options = _parse(arguments, description, {**defaults, **file_options})
    return replace(options, settings=merged(file_options.get("settings", ()), options.settings))


def check_flags(arguments: Sequence[str]) -> None:
    """Check that a command line can be read, and has no option twice (parsers take the last one) or after a ``--``."""
    for argument in filter(UNREADABLE.search, arguments):
        raise SweepError(f"{argument}: an argument must be UTF-8 and have no control characters; leave them out")
    flags = [argument.partition("=")[0].replace("_", "-") for argument in arguments if argument.startswith("--")]
    if "--" in flags:
        raise SweepError("--: options cannot follow this; leave it out")
    for flag in flags:
        if flags.count(flag) > 1 and flag not in SEVERAL:
            raise SweepError(f"{flag}: it is given {flags.count(flag)} times; give it once")


def _parse(arguments: Sequence[str], description: str | None, defaults: Mapping[str, Any]) -> SweepOptions:
    groups: list[Any] = []
    for name, kind in GROUPS.items():
        group_defaults = {option.name: defaults[option.name] for option in fields(kind) if option.name in defaults}
        groups.append((name, kind, field(default=kind(**group_defaults))))
    grouped = make_dataclass("Options", groups)
    for flag in SEVERAL:
        arguments = join_values(arguments, flag)
    try:
        parsed: Any = tyro.cli(
            tyro.conf.configure(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)(grouped),
            description=description,
            args=arguments,
        )
    except SystemExit as end:  # tyro has printed the help, or an error
        if end.code and "--json" in arguments:
            print(json.dumps({"error": "the command line cannot be read; the error output says why"}))
        raise
    return checked({option: value for name in GROUPS for option, value in vars(getattr(parsed, name)).items()})


def join_values(arguments: Sequence[str], flag: str) -> list[str]:
    """Return the command line with all values of a repeated flag after one flag: tyro takes only the last one's."""
    values: list[str] = []
    remaining: list[str] = []
    is_value = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if argument.startswith("--"):
            is_value = name.replace("_", "-") == flag  # tyro accepts underscores, too
            if not is_value:
                remaining.append(argument)
            elif equals:
                values.append(value)
        elif is_value:
            values.append(argument)
        else:
            remaining.append(argument)
    return [*remaining, flag, *values] if values else list(arguments)


def run(experiment: Experiment, options: SweepOptions, command: Sequence[str]) -> int:
    """Plan the sweep, run it unless it is a dry run, print the result, and return the exit status.

    ``command`` is the command that resumes the sweep, without its options.
    """
    result: Mapping[str, Any] = {}
    ray_was_running = "ray" in sys.modules and sys.modules["ray"].is_initialized()
    with redirect_stdout(sys.stderr) if options.json else nullcontext():
        try:
            status, result = _run(experiment, options, command)
        except SweepError as error:
            print(harmless(f"error: {error}").replace("\n", "\n       "), file=sys.stderr)
            status, result = USAGE_ERROR, {"error": str(error)}
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            status = CTRL_C
        finally:
            if not ray_was_running and "ray" in sys.modules:
                from gaudi_tune.on_ray.local_ray import end_ray

                end_ray()
    if options.json:
        print(json.dumps(result, indent=2, default=str))
    return status


def _run(experiment: Experiment, options: SweepOptions, command: Sequence[str]) -> tuple[int, Mapping[str, Any]]:
    with no_collection():
        from gaudi_tune.on_ray.local_ray import begin_ray, start_ray
        from gaudi_tune.plan.planner import make_plan
        from gaudi_tune.show.plan_text import plan_lines
        from gaudi_tune.show.result import exit_status

        # A resumed sweep may have nothing left to do, so Ray does not start before that is known.
        needs_ray = not (options.dry_run or options.evaluate) and (not options.resume or bool(options.add_trials))
        plan = make_plan(experiment, options, when_decided=begin_ray if needs_ray else lambda plan: None)
        plan = replace(plan, command=tuple(command))
    if options.evaluate is not None:  # there is no sweep whose plan could be printed
        from gaudi_tune.cli.evaluate import score_checkpoint

        assert plan.options.evaluate is not None, "the plan keeps it"
        scores = score_checkpoint(plan, plan.options.evaluate)
        print("\n".join([*plan.facts, *(f"{name:<24}{format_value(value)}" for name, value in scores.items())]))
        return 0, scores
    print(as_text(plan_lines(plan)), flush=True)
    if options.dry_run:
        print(as_text(dry_run_lines(plan)))
        return 0, plan.in_brief()
    if plan.resumed and not options.add_trials and options.name is None:
        from gaudi_tune.cli.sweeps import StoredSweep
        from gaudi_tune.show.trackers.outbox import is_delivered

        stored = StoredSweep.find(plan.folder, plan.folder.parent)
        if stored.summary.get("complete") and not stored.missing and is_delivered(plan.folder):
            nothing_left = "nothing is left to do (--add-trials N makes the sweep longer)"
            print(as_text(["", *stored.result(), "", nothing_left]))
            return exit_status(stored.summary), stored.summary
    with no_collection():
        begin_ray(plan)
        from gaudi_tune.on_ray.tuner import SweepTuner  # takes a second, while Ray starts

        start_ray(plan)

    tuner = SweepTuner(plan)
    try:
        tuner.fit()
    except KeyboardInterrupt:  # a second Ctrl-C, while Tune ended
        if not tuner.run.conclusion.is_complete:
            raise
    assert tuner.run.summary is not None, "the sweep is over"
    if lines := tuner.ending_lines():  # the result does not have them
        print(as_text(lines), file=sys.stderr)
    return exit_status(tuner.run.summary), tuner.run.summary


def dry_run_lines(plan: Plan) -> list[str]:
    """Return lines with the settings, the first proposals, and the largest possible effort that is left."""
    ended = trained = 0
    notes = []
    if plan.resumed:
        from gaudi_tune.cli.sweeps import damage_is_an_error
        from gaudi_tune.on_ray.tuner import SweepTuner

        with damage_is_an_error(f"--resume {plan.name}"):
            searched = SweepTuner(plan, trackers=()).check_resume().searched
            ended = sum(trial.has_ended for trial in searched)
            trained = sum(trial.step for trial in searched if not trial.has_ended)
        notes = [f"not read: what Tune itself keeps in {STATE_LOG}, since reading that runs code, as the resume will"]
    if ended >= plan.num_samples:
        confirms = ", and what it has yet to confirm" if plan.confirm else ""
        is_complete = read_summary(plan.stored_folder).get("complete")
        rest = "to do" if is_complete else f"but what a kill may have lost{confirms}"
        return [f"all {ended} trials have ended: nothing is left {rest} (--add-trials N makes it longer)", *notes]
    from optuna.storages import InMemoryStorage

    from gaudi_tune.plan.planner import make_searcher
    from gaudi_tune.show.result import in_rows

    searcher = make_searcher(plan, InMemoryStorage())
    proposals = [searcher.suggest(str(n)) for n in range(min(PROPOSALS_SHOWN, plan.num_samples))]
    configs = [config for config in proposals if isinstance(config, dict)]
    for config in configs:
        config.pop("seed", None)
    trials = plan.num_samples - ended + plan.confirmations
    units, unit = trials * plan.budget.total - trained, plan.budget.unit
    words = plan.experiment.search_space.in_words()
    return [
        f"settings  {format_params(plan.changed_settings)}",
        *in_rows("space", in_columns(list(words.items()))),
        *([f"{ended} of {plan.num_samples} trials have ended; the first were"] if plan.resumed else []),
        *(f"trial {n:03d}  {format_params(config)}" for n, config in enumerate(configs, 1)),
        f"at most {units} {unit}s in all, {-(-units // plan.groups)} on each group; early stopping makes it fewer",
        *notes,
        "dry run: all checks passed, nothing was started",
    ]
