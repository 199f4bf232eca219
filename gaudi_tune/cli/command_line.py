"""The command line that all scripts share: the fields of SweepOptions, in groups.

``--help`` answers at once, because the modules that run a sweep take seconds to import and are imported inside the
functions that use them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, fields, is_dataclass, make_dataclass, replace
from typing import Any

import tyro

from gaudi_tune.base.errors import SweepError, written
from gaudi_tune.base.process import in_notebook, prepare_terminal
from gaudi_tune.base.words import did_you_mean, harmless
from gaudi_tune.cli import experiment_script
from gaudi_tune.cli.calling_script import calling_script, command_of
from gaudi_tune.cli.run import run
from gaudi_tune.define.config_file import merged, read_config
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.options import GROUPS, TRAITS, SweepOptions, checked
from gaudi_tune.define.options import flag as flag_of

SEVERAL = ("--set", "--learn-from", "--objectives")
"""Options that may be given several times."""
FLAGS = ("--help", *map(flag_of, TRAITS))
"""Every flag of the command line of a script."""
BROKEN_PIPE = 141
"""Exit status of a process whose output nobody reads any more; shells use the same."""


def main(experiment: Experiment, description: str | None = None, arguments: Sequence[str] | None = None) -> None:
    """Run the sweep that the command line describes, and exit.

    A script ``my.py`` with these lines takes all options, such as ``python my.py --dry-run``::

        from gaudi_tune import Experiment, main, report, tune


        def train_loop(config):
            for epoch in range(1, config["epochs"] + 1):
                report({"loss": abs(config["lr"] - 0.01) + 1 / epoch})  # train your epoch here


        if __name__ == "__main__":
            main(Experiment(train_loop=train_loop, space={"lr": tune.loguniform(1e-4, 1e-1)}, metric="loss"))

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
        sys.exit(run(experiment, options, command_of(calling_script())))


def print_error(error: SweepError, arguments: Sequence[str]) -> int:
    """Print an error, with ``--json`` also as JSON, and return the exit status."""
    print(harmless(f"error: {error}").replace("\n", "\n       "), file=sys.stderr)
    if "--json" in arguments:
        print(json.dumps({"error": str(error)}))
    return error.status


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
    """Check that a command line has no option twice, of which parsers take the last one."""
    flags = [argument.partition("=")[0].replace("_", "-") for argument in arguments if argument.startswith("--")]
    for flag in flags:
        if flags.count(flag) > 1 and flag not in SEVERAL:
            raise SweepError(f"{flag}: it is given {flags.count(flag)} times; give it once")


def _parse(arguments: Sequence[str], description: str | None, defaults: Mapping[str, Any]) -> SweepOptions:
    groups: list[Any] = []
    for name, kind in GROUPS.items():
        group_defaults = {option.name: defaults[option.name] for option in fields(kind) if option.name in defaults}
        groups.append((name, kind, field(default=kind(**group_defaults))))
    grouped = make_dataclass("Options", groups)
    unparsed = tyro.constructors.ConstructorRegistry()
    unparsed.primitive_rule(_keep_text)
    for flag in SEVERAL:
        arguments = join_values(arguments, flag)
    try:
        with unparsed:
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


def _keep_text(option: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """Leave the text of an option to :func:`checked`, whose errors are one line; tyro reads switches and tuples."""
    if option.type is bool or option.type_origin is tuple or is_dataclass(option.type):
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="",
        instance_from_str=lambda arguments: arguments[0],
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(value)],
    )


def join_values(arguments: Sequence[str], flag: str) -> list[str]:
    """Return the command line with all values of a repeated flag after one flag: tyro takes only the last one's."""
    values: list[str] = []
    remaining: list[str] = []
    is_value = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if is_flag := argument.startswith("--"):
            is_value = name.replace("_", "-") == flag  # tyro accepts underscores, too
        if not is_value:
            remaining.append(argument)
        elif equals or not is_flag:
            values.append(value if is_flag else argument)
    return [*remaining, flag, *values] if values else list(arguments)
