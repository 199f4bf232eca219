"""``gaudi-tune``, or ``python -m gaudi_tune``: Run a script's experiment, look at earlier sweeps, and check a machine.

    gaudi-tune run my.py[:EXPERIMENT] [options of a sweep]
    gaudi-tune ls [FOLDER] [--json]
    gaudi-tune show SWEEP [--json]
    gaudi-tune compare SWEEP SWEEP... [--json]
    gaudi-tune rerun SWEEP [--trial N] [--seeds 5] [options of a sweep]
    gaudi-tune doctor
    gaudi-tune published [SCRIPT...] [--json]
    gaudi-tune deliver SWEEP... [--tracking-uri URI]

SWEEP is a name in the results, or a folder.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gaudi_tune.base.errors import SweepError
from gaudi_tune.cli import command_line
from gaudi_tune.cli.experiment_script import load_experiment
from gaudi_tune.define.config_file import merged
from gaudi_tune.define.options import DEFAULT_STORAGE, TRAITS

COMMAND = "gaudi-tune"
"""The command of an installation."""
SEEDS = 5
"""Seeds of ``rerun``, unless it is given others."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked, and return the exit status."""
    parser, arguments = _parser(), sys.argv[1:] if arguments is None else arguments
    with command_line.readers_may_leave():
        asked, others = parser.parse_known_args(arguments)
        if others and asked.command not in ("run", "rerun"):
            parser.error(f"{asked.command} has no option {' '.join(others)}")
        try:
            status: int = asked.do(asked, others)
        except SweepError as error:
            return command_line.refused(error, arguments)
    return status


def _program() -> tuple[str, ...]:
    """Return what a person types to come here."""
    return (COMMAND,) if Path(sys.argv[0]).name == COMMAND else ("python", "-m", "gaudi_tune")


def _parser() -> argparse.ArgumentParser:
    words, _, usage = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog=" ".join(_program()),
        description=words.partition(": ")[2] + "\n\n" + usage,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, do: Any, words: str, **options: Any) -> argparse.ArgumentParser:
        own = commands.add_parser(name, help=words, description=words, allow_abbrev=False, **options)
        own.set_defaults(do=do, program=_program())  # to load a script replaces sys.argv
        return own

    words = "run the experiment of a script; SCRIPT --help says what it can be given"
    run = command("run", _run, words, usage=f"{parser.prog} run SCRIPT [options of a sweep]", add_help=False)
    run.add_argument("script", nargs="?", metavar="SCRIPT", help="my.py, or my.py:EXPERIMENT for one of several")
    run.set_defaults(usage=run.format_help())
    ls = command("ls", _ls, "list the sweeps of a folder")
    where = "where the sweeps are (default: %(default)s)"
    ls.add_argument("folder", nargs="?", type=Path, default=DEFAULT_STORAGE, metavar="FOLDER", help=where)
    show = command("show", _show, "show a sweep and its trials")
    show.add_argument("sweeps", nargs=1, metavar="SWEEP")
    compare = command("compare", _compare, "show sweeps side by side, and how they differ")
    compare.add_argument("sweeps", nargs="+", metavar="SWEEP")
    again = "train a configuration of a sweep again, with other seeds"
    rerun = command("rerun", _rerun, again, epilog=f"Takes the options of run, too, such as --seeds (usual: {SEEDS}).")
    rerun.add_argument("sweep", metavar="SWEEP")
    rerun.add_argument("--trial", type=int, metavar="N", help="the trial (default: the sweep's winner)")
    for own, what in ((show, "of SWEEP"), (compare, "of the SWEEPs"), (rerun, "of SWEEP, and of the new sweep")):
        own.add_argument("--storage", type=Path, default=DEFAULT_STORAGE, metavar="FOLDER", help=f"the folder {what}")
    words = "check that this machine has everything that a sweep on Gaudi needs (about a minute)"
    note = "Run it while no sweep is running. Exits with 1 if anything is wrong (!!); a warning (!) leaves it at 0."
    command("doctor", _doctor, words, epilog=note)
    published = command("published", _published, "print what is published of each experiment, and its baselines")
    published.add_argument("scripts", nargs="*", type=Path, metavar="SCRIPT", help="default: experiments/tune_*.py")
    deliver = command("deliver", _deliver, "bring to MLflow what sweeps could not deliver before they ended")
    deliver.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of a sweep, such as results/NAME")
    deliver.add_argument("--tracking-uri", metavar="URI", help="where the sweeps are tracked (default: as for a sweep)")
    for own in (ls, show, compare, published):
        own.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _run(asked: argparse.Namespace, others: Sequence[str]) -> int:
    if asked.script is None:
        if {"-h", "--help"} & {*others}:
            print(asked.usage, end="")
            return 0
        raise SweepError(f"run: give the script, such as: {shlex.join(asked.program)} run my.py")
    experiment, description = load_experiment(asked.script, others)
    options = command_line.parsed(others, description)
    return command_line.run(experiment, options, [*asked.program, "run", asked.script])


def _ls(asked: argparse.Namespace, others: Sequence[str]) -> int:
    from gaudi_tune.cli.sweeps import in_table, listed

    if not asked.folder.is_dir():
        raise SweepError(f"ls {asked.folder}: there is no such folder; give one with sweeps in it")
    found = listed(asked.folder)
    _print(found, in_table(found) if found else [f"no sweeps in {asked.folder}"], asked.json)
    return 0


def _show(asked: argparse.Namespace, others: Sequence[str]) -> int:
    from gaudi_tune.cli.sweeps import KeptSweep

    sweep = KeptSweep.at(asked.sweeps[0], asked.storage)
    whole = {**sweep.brief(), "options": sweep.began_with.options, "search": sweep.trials, "summary": sweep.summary}
    _print(whole, sweep.lines([*asked.program, "run"]), asked.json)
    return 0


def _compare(asked: argparse.Namespace, others: Sequence[str]) -> int:
    from gaudi_tune.cli.sweeps import KeptSweep, compared, compared_lines

    if len(asked.sweeps) < 2:
        raise SweepError(f"compare {asked.sweeps[0]}: give two sweeps or more; show {asked.sweeps[0]} shows one")
    found = compared([KeptSweep.at(sweep, asked.storage) for sweep in asked.sweeps])
    _print(found, compared_lines(found), asked.json)
    return 0


def _rerun(asked: argparse.Namespace, others: Sequence[str]) -> int:
    from gaudi_tune.cli.sweeps import KeptSweep

    sweep = KeptSweep.at(asked.sweep, asked.storage)
    began, number = sweep.began_with, f":{asked.trial}" if asked.trial is not None else ""
    if began.script is None:
        raise SweepError(
            f"rerun {asked.sweep}: no script began this sweep; from Python, build_tuner(experiment, "
            f"baseline={f'{sweep.folder}{number}'!r}, baseline_only=True, seeds={SEEDS}) does the same"
        )
    experiment, description = load_experiment(began.script, others, named=began.experiment)
    repeated = {
        name: began.options[name]
        for name, traits in TRAITS.items()
        if traits.rerun_repeats and began.options.get(name) is not None
    }
    repeated |= {name: tuple(value) for name, value in repeated.items() if isinstance(value, list)}  # JSON has lists
    if not began.recipes:
        repeated.pop("recipe", None)
    baseline = {"baseline": f"{sweep.folder}{number}", "baseline_only": True, "seeds": SEEDS}
    # With its own seed the sweep has made the seeds of its trials.
    another_seed = (int(began.options.get("seed", 0)) + 1) % 2**32
    storage = {"storage": asked.storage, "seed": another_seed}
    options = command_line.parsed(others, description, {**repeated, **baseline, **storage})
    options = replace(options, settings=merged(repeated.get("settings", ()), options.settings))
    return command_line.run(experiment, options, [*asked.program, "run", began.script])


def _doctor(asked: argparse.Namespace, others: Sequence[str]) -> int:
    from gaudi_tune.devices.doctor import diagnose

    return diagnose()


def _published(asked: argparse.Namespace, others: Sequence[str]) -> int:
    from gaudi_tune.cli.published import in_words, published_runs

    runs = published_runs(asked.scripts)
    _print(runs, in_words(runs), asked.json)
    return 0


def _deliver(asked: argparse.Namespace, others: Sequence[str]) -> int:
    from gaudi_tune.cli.deliver import deliver

    return deliver(asked.folders, asked.tracking_uri)


def _print(found: Any, lines: Sequence[str], as_json: bool) -> None:
    print(json.dumps(found, indent=2, default=str) if as_json else "\n".join(lines))
