"""What a command line with an experiment and options does: show a plan, or run a sweep."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from gaudi_tune.base.errors import SweepError, damage_is_an_error
from gaudi_tune.base.files import STATE_LOG
from gaudi_tune.base.process import no_collection
from gaudi_tune.base.words import as_text, format_params, harmless, in_columns
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.sweep.record.events import CTRL_C
from gaudi_tune.sweep.record.sweep_file import read_summary

if TYPE_CHECKING:
    from gaudi_tune.define.sweep_plan import Plan

Result: TypeAlias = tuple[int, Mapping[str, Any]]
"""The exit status, and what ``--json`` prints."""
PROPOSALS_SHOWN = 3
"""Proposals printed by --dry-run, the baseline included."""


def run(experiment: Experiment, options: SweepOptions, command: Sequence[str]) -> int:
    """Do what the options say, print the result, and return the exit status.

    ``command`` is the command that resumes the sweep, without its options.
    """
    result: Mapping[str, Any] = {}
    ray_was_running = "ray" in sys.modules and sys.modules["ray"].is_initialized()
    with redirect_stdout(sys.stderr) if options.json else nullcontext():
        try:
            status, result = _run(experiment, options, command)
        except SweepError as error:
            print(harmless(f"error: {error}").replace("\n", "\n       "), file=sys.stderr)
            status, result = error.status, {"error": str(error)}
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


def _run(experiment: Experiment, options: SweepOptions, command: Sequence[str]) -> Result:
    if options.tried and not options.dry_run:
        raise SweepError("--try goes with --dry-run; without them, the sweep trains its trials")
    if sys.stderr.isatty():  # the imports and checks below take seconds
        print("checking data, model and devices ...", file=sys.stderr)
    with no_collection():
        from gaudi_tune.on_ray.local_ray import begin_ray
        from gaudi_tune.plan.planner import make_plan
        from gaudi_tune.show.plan_text import plan_lines

        # A resumed sweep may have nothing left to do, so Ray does not start before that is known.
        needs_ray = not options.dry_run and (not options.resume or bool(options.add_trials))
        plan = make_plan(experiment, options, when_decided=begin_ray if needs_ray else lambda plan: None)
        plan = replace(plan, command=tuple(command))
    print(as_text(plan_lines(plan)), flush=True)
    if options.dry_run:
        print(as_text(dry_run_lines(plan)), flush=True)
        if not options.tried:
            return 0, plan.in_brief()
        from gaudi_tune.cli.first_trial import lines_of_try, try_first_trial

        outcome = try_first_trial(plan)
        print(as_text(lines_of_try(plan, outcome)))
        return 0, {**plan.in_brief(), "tried": outcome}
    if plan.resumed and not options.add_trials and options.name is None and (ended := _result_if_ended(plan)):
        return ended
    return _train(plan)


def _result_if_ended(plan: Plan) -> Result | None:
    """Print and return the result of a sweep that has ended with nothing missing; None if something is left to do."""
    from gaudi_tune.cli.sweeps import StoredSweep
    from gaudi_tune.show.result import exit_status
    from gaudi_tune.show.trackers.outbox import is_delivered

    stored = StoredSweep.find(plan.folder, plan.folder.parent)
    if not stored.summary.get("complete") or stored.missing or not is_delivered(plan.folder):
        return None
    print(as_text(["", *stored.result(), "", "nothing is left to do (--add-trials N makes the sweep longer)"]))
    return exit_status(stored.summary), stored.summary


def _train(plan: Plan) -> Result:
    with no_collection():
        from gaudi_tune.on_ray.local_ray import begin_ray, start_ray

        begin_ray(plan)
        from gaudi_tune.on_ray.tuner import SweepTuner  # takes a second, while Ray starts
        from gaudi_tune.show.result import exit_status

        start_ray(plan)
    tuner = SweepTuner(plan)
    try:
        tuner.fit()
    except KeyboardInterrupt:  # a second Ctrl-C, while Tune ended
        if not tuner.run.conclusion.is_complete:
            raise
    assert tuner.run.summary is not None, "the sweep is over"
    if lines := tuner.run.conclusion.ending_lines():  # the result does not have them
        print(as_text(lines), file=sys.stderr)
    if "triton" not in sys.modules:  # which would call frozen objects leaks
        gc.freeze()  # all of this lives as long as the process: Python would look through it as it exits
    return exit_status(tuner.run.summary), tuner.run.summary


def dry_run_lines(plan: Plan) -> list[str]:
    """Return lines with the settings, the first proposals, and the largest possible effort that is left."""
    from gaudi_tune.plan.planner import make_proposer
    from gaudi_tune.show.result import in_rows

    ended, trained, notes = _progress(plan) if plan.resumed else (0, 0, [])
    if ended >= plan.num_samples:
        confirms = ", and what it has yet to confirm" if plan.confirm else ""
        is_complete = read_summary(plan.stored_folder).get("complete")
        rest = "to do" if is_complete else f"but what a kill may have lost{confirms}"
        return [f"all {ended} trials have ended: nothing is left {rest} (--add-trials N makes it longer)", *notes]
    proposer = make_proposer(plan)
    proposals = (proposer.propose(str(n)) for n in range(min(PROPOSALS_SHOWN, plan.num_samples)))
    configs = [{name: value for name, value in config.items() if name != "seed"} for config in proposals]
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
        *([] if plan.options.tried else ["dry run: all checks passed, nothing was started"]),  # --try has its own
    ]


def _progress(plan: Plan) -> tuple[int, int, list[str]]:
    """Return how many trials of a resumed sweep have ended, what the others have trained, and what was not read."""
    from gaudi_tune.on_ray.tuner import SweepTuner

    with damage_is_an_error(f"--resume {plan.name}"):
        searched = SweepTuner(plan, trackers=()).check_resume().searched
    ended = sum(trial.has_ended for trial in searched)
    trained = sum(trial.step for trial in searched if not trial.has_ended)
    return ended, trained, [f"not read: what Tune keeps in {STATE_LOG}, since reading it runs code, as the resume will"]
