"""``tune_script()`` tunes a script without a train function: every trial runs the whole script."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gaudi_tune.base.errors import SweepError
from gaudi_tune.cli import experiment_script
from gaudi_tune.cli.calling_script import calling_script, source_of
from gaudi_tune.cli.command_line import main, print_error
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.experiment import Experiment, name_of_script
from gaudi_tune.define.objective import Mode
from gaudi_tune.define.search_space import SearchSpace, SpaceFunction
from gaudi_tune.training.script_loop import config_of_trial, run_script


def tune_script(
    space: Mapping[str, Any] | SpaceFunction | SearchSpace,
    metric: str,
    mode: Mode | None = None,
    parser: ArgumentParser | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Tune the script that calls this function, and return the configuration of a trial.

    A script without a train function, such as ``train.py``, is tuned with ``python train.py --num-samples 8``::

        from gaudi_tune import report, tune, tune_script

        config = tune_script({"lr": tune.loguniform(1e-4, 1e-1)}, metric="loss")
        for epoch in range(1, config["epochs"] + 1):
            report({"loss": abs(config["lr"] - 0.01) + 1 / epoch})  # train your epoch here

    In the process that you start, it runs the sweep, as :func:`main` does, and exits: nothing below the call runs
    there. Every trial runs the whole script, and there the call returns the trial's configuration.

    A script that reads its own command line gives its parser, and then trains as it did before::

        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float, default=0.1)
        parser.add_argument("--epochs", type=int, default=5)
        config = tune_script({"lr": tune.loguniform(1e-4, 1e-1)}, metric="loss", parser=parser)

    ``python train.py --lr 0.3`` trains once, and the call returns what the parser has read. ``gaudi-tune run train.py``
    tunes, and so does an option that only a sweep has: ``python train.py --num-samples 8``. In a trial the call returns
    the parser's defaults with the trial's configuration in their place, whose texts the parser reads as on a command
    line. A trial is as long as the parser's default of ``--epochs``, if there is one.

    Args:
        space: The search space; what it and the next two mean is said at :class:`Experiment`.
        metric: The metric.
        mode: Its direction.
        parser: The parser of the script's own command line.
        **fields: Other fields of the :class:`Experiment`.
    """
    if (config := config_of_trial()) is not None:
        return config if parser is None else _read(parser, config)
    if parser is not None and not (experiment_script.is_loading or _asks_for_sweep(parser, sys.argv[1:])):
        return vars(parser.parse_args())
    script = calling_script()
    if (source := source_of(script)) is None:
        raise SweepError(
            "tune_script() needs a script to tune, and there is none here; in a notebook, give build_tuner a train loop"
        )
    path, package = str(script["__file__"]), script.get("__package__")
    loop = partial(run_script, path=str(Path(path).resolve()), source=source, package=package)
    fields.setdefault("name", name_of_script(path))
    try:
        defaults = {} if parser is None else _read(parser, {})
        if isinstance(epochs := defaults.get("epochs"), int) and epochs > 0:
            fields.setdefault("budget", Budget(epochs=epochs))
        experiment = Experiment(train_loop=loop, space=space, metric=metric, mode=mode, **fields)
        if parser is not None:
            for draw in experiment.search_space.draws:
                if unknown := sorted(draw.config.keys() - defaults.keys()):
                    raise SweepError(f"the script's parser has no --{unknown[0]}, as the space has; give both one name")
                _read(parser, draw.config)
    except SweepError as error:
        sys.exit(print_error(error, sys.argv))
    main(experiment, script.get("__doc__"))
    raise AssertionError("main() exits")


def _read(parser: ArgumentParser, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parser's defaults with the values of a configuration in their place, whose texts it reads as it reads
    those of a command line: what is an Enum, a list or a path for the script is one in each trial."""
    usual = {name: parser.get_default(name) for name in config}
    parser.set_defaults(**config)
    try:
        return vars(parser.parse_args([]))
    except SystemExit as end:  # argparse has said which one
        raise SweepError(
            "each trial has the parser's defaults, or values of the space: give each argument one that it takes"
        ) from end
    finally:
        parser.set_defaults(**usual)


def _asks_for_sweep(parser: ArgumentParser, arguments: list[str]) -> bool:
    """Whether there is an option that the script's own parser does not know."""
    return any(argument.startswith("--") for argument in parser.parse_known_args(arguments)[1])
