"""``gaudi-tune``, or ``python -m gaudi_tune``: Run a script's experiment, look at earlier sweeps, and check a machine.

    gaudi-tune run my.py[:EXPERIMENT] [options of a sweep]
    gaudi-tune ls [FOLDER] [--json]
    gaudi-tune show SWEEP [--json]
    gaudi-tune logs SWEEP TRIAL
    gaudi-tune export SWEEP [--to FOLDER]
    gaudi-tune rerun SWEEP --script SCRIPT [--trial N] [--seeds 5] [options of a sweep]
    gaudi-tune doctor

SWEEP is a name in the results, or a folder.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from typing_extensions import override

from gaudi_tune.base.errors import SweepError, damage_is_an_error
from gaudi_tune.base.process import prepare_terminal
from gaudi_tune.base.trial_output import prints_of
from gaudi_tune.base.words import as_text, harmless
from gaudi_tune.cli import command_line
from gaudi_tune.cli.experiment_script import load_experiment
from gaudi_tune.cli.run import run
from gaudi_tune.define.config_file import merged
from gaudi_tune.define.options import DEFAULT_STORAGE, SEEDS, TRAITS, checked
from gaudi_tune.private.surfaces import version_of
from gaudi_tune.storage.remote import address_of

COMMAND = "gaudi-tune"
"""The command of an installation."""
RERUN_SEEDS = 5
"""How many seeds ``rerun`` trains, unless ``--seeds`` gives another number."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit status."""
    prepare_terminal()
    parser, arguments = _parser(), sys.argv[1:] if arguments is None else arguments
    if not arguments:
        parser.print_help()
        return 0
    with command_line.quiet_broken_pipe():
        try:
            command_line.check_flags(arguments)
            parsed, sweep_options = parser.parse_known_args(arguments)
            if sweep_options and parsed.command not in ("run", "rerun"):
                raise SweepError(
                    f"{parsed.command} has no option {' '.join(sweep_options)}; {parsed.command} --help lists all"
                )
            status: int = parsed.handler(parsed, sweep_options)
        except SweepError as error:
            return command_line.print_error(error, arguments)
    return status


def _program() -> tuple[str, ...]:
    """Return the words with which the user started this program."""
    return (COMMAND,) if Path(sys.argv[0]).name == COMMAND else ("python", "-m", "gaudi_tune")


class _Parser(argparse.ArgumentParser):
    @override
    def error(self, message: str) -> NoReturn:
        """Raise a SweepError, in place of printing the usage."""
        raise SweepError(f"{message}; {self.prog} --help says what it takes")


def _parser() -> argparse.ArgumentParser:
    title, _, usage = (__doc__ or "").partition("\n\n")
    parser = _Parser(
        prog=" ".join(_program()),
        description=title.partition(": ")[2] + "\n\n" + usage,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{COMMAND} {version_of(COMMAND)}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, handler: Any, text: str, **options: Any) -> argparse.ArgumentParser:
        subparser = commands.add_parser(name, help=text, description=text, allow_abbrev=False, **options)
        subparser.set_defaults(handler=handler, program=_program())  # loading a script replaces sys.argv
        return subparser

    def command_of_sweep(*name_handler_text: Any, sweeps: str = "SWEEP", **options: Any) -> argparse.ArgumentParser:
        subparser, text = command(*name_handler_text, **options), f"the folder of {sweeps}"
        subparser.add_argument("sweep", metavar="SWEEP")
        subparser.add_argument("--storage", type=Path, default=DEFAULT_STORAGE, metavar="FOLDER", help=text)
        return subparser

    text = "run the experiment of a script; SCRIPT --help lists its options"
    run = command("run", _run, text, usage=f"{parser.prog} run SCRIPT [options of a sweep]", add_help=False)
    run.add_argument("script", nargs="?", metavar="SCRIPT", help="my.py, or my.py:EXPERIMENT for one of several")
    run.set_defaults(usage=run.format_help())
    ls = command("ls", _ls, "list the sweeps of a folder")
    text = "where the sweeps are (default: %(default)s)"
    ls.add_argument("folder", nargs="?", type=Path, default=DEFAULT_STORAGE, metavar="FOLDER", help=text)
    show = command_of_sweep("show", _show, "show a sweep and its trials")
    export = command_of_sweep("export", _export, "write a sweep's trials (trials.csv) and winner (best.toml) to files")
    export.add_argument("--to", type=Path, metavar="FOLDER", help="where to write them (default: SWEEP-export)")
    text = "train a configuration of a sweep again, with other seeds"
    note = f"Takes the options of run, too, such as --seeds (usual: {RERUN_SEEDS})."
    rerun = command_of_sweep("rerun", _rerun, text, sweeps="SWEEP, and of the new sweep", epilog=note)
    rerun.add_argument("--script", metavar="SCRIPT", help="the script with the experiment, as run takes it")
    rerun.add_argument("--trial", type=int, metavar="N", help="the trial (default: the sweep's winner)")
    logs = command_of_sweep("logs", _logs, "print what a trial printed on this machine, from Ray's files")
    logs.add_argument("trial", type=int, metavar="TRIAL", help="its number, such as 7")
    text = "check that this machine has everything that a sweep on Gaudi needs (about a minute)"
    note = "Run it while no sweep is running. Exits with 1 if anything is wrong (!!); a warning (!) leaves it at 0."
    command("doctor", _doctor, text, epilog=note)
    for subparser in (ls, show):
        subparser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _run(arguments: argparse.Namespace, sweep_options: Sequence[str]) -> int:
    if arguments.script is None:
        if {"-h", "--help"} & {*sweep_options}:
            print(arguments.usage, end="")
            return 0
        raise SweepError(f"run: give the script, such as: {shlex.join(arguments.program)} run my.py")
    experiment, description = load_experiment(arguments.script, sweep_options)
    options = command_line.parse_options(sweep_options, description)
    return run(experiment, options, [*arguments.program, "run", arguments.script])


def _ls(arguments: argparse.Namespace, sweep_options: Sequence[str]) -> int:
    from gaudi_tune.cli.sweeps import list_sweeps, table_lines

    folder = arguments.folder
    if address_of(folder) is None and not folder.is_dir():
        raise SweepError(f"ls {folder}: there is no such folder; give one with sweeps in it")
    sweeps = list_sweeps(folder)
    lines = table_lines(sweeps) if sweeps else [f"no sweeps in {address_of(folder) or folder}"]
    print(_text(sweeps, lines, arguments.json))
    return 0


def _show(arguments: argparse.Namespace, sweep_options: Sequence[str]) -> int:
    from gaudi_tune.cli.sweeps import StoredSweep

    sweep = StoredSweep.find(arguments.sweep, arguments.storage)
    with damage_is_an_error(f"show {arguments.sweep}"):
        details = {"options": sweep.file.options, "trials": sweep.trials, "summary": sweep.summary}
        data, lines = {**sweep.brief(), **details}, sweep.lines([*arguments.program, "run"])
        text = _text(data, lines, arguments.json)
    print(text)
    return 0


def _logs(arguments: argparse.Namespace, sweep_options: Sequence[str]) -> int:
    from gaudi_tune.sweep.record.sweep_file import find_sweep
    from gaudi_tune.sweep.record.trial_state import trial_name

    folder, has_printed = find_sweep(arguments.sweep, arguments.storage), False
    with suppress(OSError):
        for line in prints_of(folder, trial_name(arguments.trial)):
            print(harmless(line))
            has_printed = True
    if not has_printed:
        raise SweepError(
            f"logs {arguments.sweep} {arguments.trial}: it has printed nothing on this machine, or Ray's files, in "
            f"/tmp/ray, are gone; give the number of another trial"
        )
    return 0


def _export(arguments: argparse.Namespace, sweep_options: Sequence[str]) -> int:
    from gaudi_tune.cli.export import export
    from gaudi_tune.cli.sweeps import StoredSweep

    sweep = StoredSweep.find(arguments.sweep, arguments.storage)
    # What is wrong with the folder is no damage of the sweep.
    (folder := arguments.to or Path(f"{sweep.folder.name}-export")).mkdir(parents=True, exist_ok=True)
    with damage_is_an_error(f"export {arguments.sweep}"):
        files = export(sweep, folder)
    print(as_text(map(str, files)))
    return 0


def _rerun(arguments: argparse.Namespace, sweep_options: Sequence[str]) -> int:
    from gaudi_tune.cli.sweeps import StoredSweep

    sweep = StoredSweep.find(arguments.sweep, arguments.storage)
    script, earlier_options = arguments.script, sweep.file.options
    trial = str(sweep.folder) if arguments.trial is None else f"{sweep.folder}:{arguments.trial}"
    if script is None:
        hint = f"; it began with --script {shlex.quote(sweep.file.script)}" if sweep.file.script else ""
        raise SweepError(
            f"rerun {arguments.sweep}: name the script with the experiment (--script my.py), since the file of a sweep "
            f"does not say which code runs{hint}"
        )
    experiment, description = load_experiment(script, sweep_options, experiment_name=sweep.file.experiment)
    defaults = {
        name: earlier_options[name]
        for name, traits in TRAITS.items()
        if traits.rerun_repeats and earlier_options.get(name) is not None
    }
    if not sweep.file.recipes:
        defaults.pop("recipe", None)
    valid = vars(checked({**defaults, "seed": earlier_options.get("seed", 0)}))  # JSON has lists in place of tuples
    defaults = {
        **{name: valid[name] for name in defaults},
        "baseline": trial,
        "baseline_only": True,
        "seeds": RERUN_SEEDS,
        "storage": arguments.storage,
        "seed": (valid["seed"] + 1) % SEEDS,  # the sweep's seed would give the same trial seeds
    }
    options = command_line.parse_options(sweep_options, description, defaults)
    options = replace(options, settings=merged(defaults.get("settings", ()), options.settings))
    return run(experiment, options, [*arguments.program, "run", script])


def _doctor(arguments: argparse.Namespace, sweep_options: Sequence[str]) -> int:
    from gaudi_tune.devices.doctor import diagnose

    return diagnose()


def _text(data: Any, lines: Sequence[str], as_json: bool) -> str:
    return json.dumps(data, indent=2, default=str) if as_json else as_text(lines)
